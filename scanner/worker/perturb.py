"""Perturbations in deed: what ``detmatrix.scanner.perturbations`` declares is brought about around executions.

A race may need a quiet machine, or a busy one; memory that was never written shows only if it holds something. None
of these changes an input or a flag, so bits that differ under one are bits that differ.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import itertools
import os
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

from detmatrix.scanner.perturbations import CaseContext
from detmatrix.scanner.schedules import CANONICAL, SCHEDULES
from detmatrix.scanner.worker import simulated

# The cores of this process when it began: once torch is imported, OpenMP may have bound the main thread to one of
# them, and every thread it starts with it. So a worker imports this module first.
CORES: frozenset[int] = frozenset(
    os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
)

# By so much threads that do nothing but burn are nicer than the others.
_LOWER = 5

# Seconds. Threads of a pool spin for about ten milliseconds behind their last work before they sleep (GOMP_SPINCOUNT).
_PAUSE = 0.015

# Called before each execution with its number.
Before = Callable[[int], None]
Start = Callable[[CaseContext], AbstractContextManager[Before]]


def _nothing(_: int) -> None:
    """Leave the execution as it is."""


@contextlib.contextmanager
def _stress(site: CaseContext) -> Iterator[Before]:
    """Keep every other core busy with threads of this process, by turns, or another stream of the GPU.

    A race shows where one of an op's threads is held up against another. Load that is the same on all cores holds up all of
    them, and longer.
    """
    if site.device != "cpu":
        with _busy_stream(site.device) as before:
            yield before
        return
    cores, turns, begin, stop = sorted(CORES), itertools.count(1), threading.Event(), threading.Event()
    threads = [threading.Thread(target=_burn, args=(begin, stop), daemon=True) for _ in cores[::2]]

    def move(_: int) -> None:
        turn = next(turns)
        for place, thread in enumerate(threads):
            _bind(thread.native_id, {cores[(2 * place + turn) % len(cores)]})
        begin.set()

    try:
        for thread in threads:
            thread.start()
        yield move
    finally:
        stop.set()
        begin.set()
        for thread in threads:
            if thread.ident is not None:
                thread.join()


def unbind() -> None:
    """Let the calling thread run on any core: it would share the one that OpenMP, or its creator, is bound to."""
    _bind(0, CORES)


def _bind(thread: int | None, cores: Collection[int]) -> None:
    """Let a thread run on some cores alone, where the system knows of that; 0 is the calling thread."""
    if thread is not None and hasattr(os, "sched_setaffinity"):
        # Cores may have been taken away.
        with contextlib.suppress(OSError):
            os.sched_setaffinity(thread, cores)


def _burn(begin: threading.Event, stop: threading.Event) -> None:
    """Compute until told to stop, once told to begin; hashing lets go of the interpreter lock."""
    if hasattr(os, "sched_setaffinity"):
        # The op's threads get the larger part of the core. Linux alone knows the priority of a thread.
        os.setpriority(os.PRIO_PROCESS, 0, min(19, os.getpriority(os.PRIO_PROCESS, 0) + _LOWER))
    data = bytes(1 << 17)
    # Until it is bound to a core it would hold up the thread that is to bind it.
    begin.wait()
    while not stop.is_set():
        hashlib.sha256(data).digest()


@contextlib.contextmanager
def _busy_stream(device: str) -> Iterator[Before]:
    """Keep a backlog of work on a stream beside the one the case uses."""
    import torch  # noqa: PLC0415 - this module is imported before it

    from detmatrix.scanner.worker import accelerator  # noqa: PLC0415

    module = accelerator.module_of(device)
    stream = module.Stream(device)
    left = torch.ones(1 << 24, device=device)
    out = torch.empty_like(left)
    accelerator.synchronize(device)
    queued: deque[Any] = deque()

    def before(_: int) -> None:
        while queued and queued[0].query():
            queued.popleft()
        # Two batches: when the first is through, the other still runs beside the case.
        while len(queued) < 2:  # noqa: PLR2004
            with module.stream(stream):
                for _again in range(32):
                    torch.mul(left, 1.0001, out=out)
                event = module.Event()
                event.record(stream)
            queued.append(event)

    try:
        yield before
    finally:
        # The memory goes back to the default stream, where the next case gets it at once.
        stream.synchronize()


@contextlib.contextmanager
def _shift(site: CaseContext) -> Iterator[Before]:
    """Hold other blocks during each execution, so that what the op allocates lies elsewhere.

    Inputs stay where they are: their alignment is an input's property that users can see.
    """
    import torch  # noqa: PLC0415

    draws = random.Random(0)  # noqa: S311 - placement, not a secret
    held: list[Any] = []

    def before(_: int) -> None:
        held.clear()
        held.extend(
            torch.empty(size, dtype=torch.uint8, device=site.device)
            for size in site.blocks
            for _ in range(draws.randrange(3))
        )

    try:
        yield before
    finally:
        held.clear()


def _poison(site: CaseContext) -> AbstractContextManager[Before]:
    """Fill memory and free it before each execution, with another byte each time."""
    import torch  # noqa: PLC0415

    def before(index: int) -> None:
        value = index % 251 + 1
        blocks = [torch.empty(size, dtype=torch.uint8, device=site.device) for size in site.blocks]
        for block in blocks:
            if site.device == "cpu":
                # By this thread: a parallel region waits for all cores, and the fill would take longer than most ops.
                ctypes.memset(block.data_ptr(), value, block.numel())
            else:
                block.fill_(value)

    return nullcontext(before)


def _schedule(name: str, site: CaseContext) -> AbstractContextManager[Before]:
    # The first canonical execution is behind us.
    numbers = itertools.count(int(name == CANONICAL))
    # Looking for conflicts takes time, and they are the same in every execution of that order.
    log = name == CANONICAL
    return nullcontext(lambda _: simulated.begin(name, next(numbers), site.seed, site.deadline, log=log))


STARTS: dict[str, Start] = {
    "quiet": lambda _: nullcontext(_nothing),
    "stress": _stress,
    # The op's threads fall asleep, so that those which are woken begin later than the one that calls the op.
    "pause": lambda _: nullcontext(lambda _: time.sleep(_PAUSE)),
    "shift": _shift,
    "poison": _poison,
    **{name: partial(_schedule, name) for name in SCHEDULES},
}
