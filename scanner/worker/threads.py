"""How many threads worked while a case was executed: what one thread did alone cannot have raced.

Each thread of a Linux process has a clock of the processor time it got. While it sleeps the clock stands still, so a
thread whose clock went on has worked. Elsewhere nothing is measured, and nothing is called serial.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TypeVar

import torch

T = TypeVar("T")

_TASKS = Path("/proc/self/task")
# A thread of a pool spins for some milliseconds behind its last work before it sleeps (GOMP_SPINCOUNT).
_PATIENCE = 0.05
_PAUSE = 0.0002
# Where threads never sleep (OMP_WAIT_POLICY=active, KMP_BLOCKTIME) nothing is gained by waiting before each case.
_TRIES = 10
# How often a thread is woken to see its clock move.
_ASKED = 3

# Seconds waited in vain, since threads last slept.
_in_vain: list[float] = []


def working_threads(execute: Callable[[], T]) -> tuple[T, int | None]:
    """Call *execute*; return what it returns, and how many threads worked meanwhile, the calling one included.

    ``None`` where that cannot be told: the system has no such clocks, other threads of the process were busy before, or processes that it
    started have worked.
    """
    before = _asleep()
    if before is None:
        return execute(), None
    children = _of_children()
    # The thread's clock is read around the process's, so that what is left belongs to other threads: also to those
    # that have begun and ended in between.
    outer = time.thread_time_ns()
    whole = time.process_time_ns()
    result = execute()
    whole = time.process_time_ns() - whole
    outer = time.thread_time_ns() - outer
    after = _clocks(_others())
    if children is None or _of_children() != children:
        return result, None
    worked = sum(spent != before.get(thread) for thread, spent in after.items())
    return result, 1 + max(worked, whole > outer)


@contextlib.contextmanager
def thread_count(count: int) -> Iterator[None]:
    """Let torch split its work among so many threads in the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _asleep() -> dict[int, int] | None:
    """Wait until all other threads sleep, and return their clocks; ``None`` if they do not."""
    if len(_in_vain) >= _TRIES or not _fine():
        return None
    until = time.monotonic() + _PATIENCE
    while True:
        others = _others()
        if not any(map(_runs, others)):
            _in_vain.clear()
            return _clocks(others)
        if time.monotonic() > until:
            _in_vain.append(_PATIENCE)
            return None
        time.sleep(_PAUSE)


@cache
def _fine() -> bool:
    """Tell whether a thread's clock shows so little work as waking up, where there is one; some tick in milliseconds."""
    if not _TASKS.is_dir():
        return False
    asked, answered = threading.Semaphore(0), threading.Semaphore(0)

    def answer() -> None:
        for _ in range(_ASKED + 1):
            asked.acquire()
            answered.release()

    helper = threading.Thread(target=answer)
    helper.start()
    thread = helper.native_id or 0
    moved = []
    for _ in range(_ASKED):
        before = _clocks([thread])
        asked.release()
        answered.acquire()
        moved.append(before != _clocks([thread]))
    asked.release()
    helper.join()
    return all(moved)


def _of_children() -> float | None:
    """Return the processor time of processes that this one has started and that have ended; ``None`` where there are others."""
    import resource  # noqa: PLC0415 - Windows has none, nor the clocks

    for path in _TASKS.glob("*/children"):
        with contextlib.suppress(OSError):  # of a thread that has ended
            if path.read_text(encoding="ascii").strip():
                return None
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _others() -> list[int]:
    own = threading.get_native_id()
    return [thread for thread in (int(task.name) for task in _TASKS.iterdir()) if thread != own]


def _runs(thread: int) -> bool:
    """Tell whether a thread runs or waits for a core."""
    try:
        text = (_TASKS / str(thread) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    # The name of the thread stands in parentheses before its state, and may hold any character.
    return text.rpartition(")")[2].split()[0] == "R"


def _clocks(threads: list[int]) -> dict[int, int]:
    """Return the nanoseconds each thread has worked, those that have ended left out."""
    clocks = {}
    for thread in threads:
        with contextlib.suppress(OSError):
            # As the C library's pthread_getcpuclockid makes it, which asks for a pthread_t that Python does not know.
            clocks[thread] = time.clock_gettime_ns(~thread << 3 | 6)
    return clocks
