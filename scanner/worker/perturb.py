"""Perturbations: circumstances under which a share of a case's executions runs, declared as data.

A race may need a quiet machine, or a busy one; memory that was never written shows only if it holds something. None
of these changes an input or a flag, so bits that differ under one are bits that differ.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

# The cores of this process when it began: once torch is imported, OpenMP may have bound the main thread to one of
# them, and every thread it starts with it. So a worker imports this module first.
CORES: frozenset[int] = frozenset(
    os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
)

# Blocks are made in the sizes of a case's outputs, up to so many bytes at once, and in a few common sizes.
_MOST_BYTES = {"cpu": 64 << 20, "cuda": 1 << 30}
_COMMON_SIZES = (256, 4 << 10, 64 << 10)


@dataclass(frozen=True)
class CaseContext:
    """Where a case runs: what a perturbation needs to know of it."""

    device: str
    sizes: tuple[int, ...]  # bytes of its outputs

    @property
    def blocks(self) -> list[int]:
        """Bytes of the blocks to allocate: those of the outputs, and common sizes for what an op keeps inside."""
        blocks, total = [], 0
        for size in (*self.sizes, *_COMMON_SIZES):
            if size and total + size <= _MOST_BYTES[self.device.partition(":")[0]]:
                blocks.append(size)
                total += size
        return blocks


# Called before each execution with its number.
Before = Callable[[int], None]


def _nothing(_: int) -> None:
    """Leave the execution as it is."""


@contextlib.contextmanager
def _quiet(_: CaseContext) -> Iterator[Before]:
    yield _nothing


@contextlib.contextmanager
def _stress(site: CaseContext) -> Iterator[Before]:
    """Keep every core busy with threads of this process, or another stream of the GPU."""
    if site.device != "cpu":
        with _busy_stream(site.device) as before:
            yield before
        return
    stop = threading.Event()
    threads = [threading.Thread(target=_burn, args=(stop,), daemon=True) for _ in CORES]
    try:
        for thread in threads:
            thread.start()
        yield _nothing
    finally:
        stop.set()
        for thread in threads:
            if thread.ident is not None:
                thread.join()


def unbind() -> None:
    """Let the calling thread run on any core: it would share the one that OpenMP, or its creator, is bound to."""
    if hasattr(os, "sched_setaffinity"):
        # Cores may have been taken away.
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, CORES)


def _burn(stop: threading.Event) -> None:
    """Compute until told to stop; hashing lets go of the interpreter lock for most of a millisecond."""
    unbind()
    data = bytes(1 << 20)
    while not stop.is_set():
        hashlib.sha256(data).digest()


@contextlib.contextmanager
def _busy_stream(device: str) -> Iterator[Before]:
    """Keep a backlog of work on a stream beside the one the case uses."""
    import torch  # noqa: PLC0415 - the command line names perturbations without it

    stream = torch.cuda.Stream(device)
    left = torch.ones(1 << 24, device=device)
    out = torch.empty_like(left)
    torch.cuda.synchronize()
    queued: deque[Any] = deque()

    def before(_: int) -> None:
        while queued and queued[0].query():
            queued.popleft()
        # Two batches: when the first is through, the other still runs beside the case.
        while len(queued) < 2:  # noqa: PLR2004
            with torch.cuda.stream(stream):
                for _again in range(32):
                    torch.mul(left, 1.0001, out=out)
                event = torch.cuda.Event()
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


@contextlib.contextmanager
def _poison(site: CaseContext) -> Iterator[Before]:
    """Fill memory and free it before each execution, with another byte each time."""
    import torch  # noqa: PLC0415

    def before(index: int) -> None:
        blocks = [
            torch.empty(size, dtype=torch.uint8, device=site.device).fill_(index % 251 + 1)
            for size in site.blocks
        ]
        blocks.clear()

    yield before


def _threads(count: int) -> Callable[[CaseContext], AbstractContextManager[Before]]:
    @contextlib.contextmanager
    def start(_: CaseContext) -> Iterator[Before]:
        import torch  # noqa: PLC0415

        before = torch.get_num_threads()
        torch.set_num_threads(count)
        try:
            yield _nothing
        finally:
            torch.set_num_threads(before)

    return start


@dataclass(frozen=True)
class Perturbation:
    """What it does to the circumstances, in words and in deed."""

    meaning: str
    start: Callable[[CaseContext], AbstractContextManager[Before]] = field(repr=False)
    # Other circumstances may rightly give other bits, so executions are compared among themselves.
    apart: bool = False
    devices: tuple[str, ...] = ("cpu", "cuda")


# By the names of `--perturb`; `threads`, the last, stands for one group per thread count, each made by `expand`.
PERTURBATIONS: dict[str, Perturbation] = {
    "quiet": Perturbation("nothing is done", _quiet),
    "stress": Perturbation(
        "one busy thread per core runs alongside; on CUDA, another stream is busy", _stress
    ),
    "shift": Perturbation("blocks of the outputs' sizes are held, so that the op's allocations move", _shift),
    "poison": Perturbation(
        "free memory is filled with a different byte each time, to expose reads of uninitialized memory",
        _poison,
    ),
    "threads": Perturbation(
        "1 thread, 2, and one per core, each compared by itself (CPU)", _quiet, apart=True, devices=("cpu",)
    ),
}
DEFAULT = ("quiet", "stress", "shift", "poison")


def expand(names: list[str], default_threads: int) -> list[tuple[str, Perturbation]]:
    """Return the groups that *names* stand for: ``threads`` is one per count that is not the worker's own."""
    groups: list[tuple[str, Perturbation]] = []
    for name in names:
        if name != "threads":
            groups.append((name, PERTURBATIONS[name]))
            continue
        counts = sorted(count for count in {1, 2, len(CORES)} - {default_threads} if count <= len(CORES))
        groups += [(f"threads={count}", Perturbation("", _threads(count), apart=True)) for count in counts]
    return groups


def shares(runs: int, groups: int) -> list[int]:
    """Divide *runs* executions among *groups*: half for the first, and the rest equally among the others."""
    each = runs // 2 // max(1, groups - 1)
    return [runs - each * (groups - 1), *[each] * (groups - 1)]
