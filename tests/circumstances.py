"""Specs whose bits depend on the circumstances, and specs that compute nothing, for tests of evidence."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from detmatrix.opspecs.model import Case, OpSpec, call


def _torch() -> Any:
    import torch  # noqa: PLC0415 - the main process loads this file too, and has no need of torch

    return torch


def under_stress(x: Any, numbers: Iterator[int]) -> Any:
    """Differ each time, but only while other threads of the process compute; two threads work, or stress is left out."""
    number = next(numbers)
    work_in_another_thread()
    return x * 2 + (number if threading.active_count() > 1 else 0)


def after_a_pause(x: Any, numbers: Iterator[int]) -> Any:
    """Differ each time, but only where the threads of an op would sleep; two threads work, or pauses are left out."""
    number = next(numbers)
    slept = time.monotonic() - _ENDED[-1] > 0.01
    work_in_another_thread()
    _ENDED[:] = [time.monotonic()]
    return x * 2 + number * slept


_ENDED = [float("inf")]


def work_in_another_thread() -> None:
    """Have a thread begin, work and end, whatever the number of threads PyTorch may use."""
    worker = threading.Thread(target=sum, args=(range(10_000),))
    worker.start()
    worker.join()


def when_forced(x: Any, numbers: Iterator[int]) -> Any:
    """Raise the alert of an op of PyTorch, and differ if that does not stop it."""
    torch = _torch()
    x.clone().put_(torch.arange(3), x[:3])
    return x * 2 + next(numbers) * torch.is_deterministic_algorithms_warn_only_enabled()


def two_alerts(x: Any) -> Any:
    """Call two ops that alert, one of them twice; neither differs."""
    torch = _torch()
    x = (x * 2).put_(torch.arange(3), x[:3])
    x = x.put_(torch.arange(3), x[3:6].clone())
    return torch.nn.functional.max_unpool1d(x.view(1, 1, -1), torch.arange(x.numel()).view(1, 1, -1), 1)


def ends_when_forced(x: Any) -> Any:
    """Raise the alert of an op of PyTorch, and end the process if that does not stop it."""
    torch = _torch()
    x.clone().put_(torch.arange(3), x[:3])
    if torch.is_deterministic_algorithms_warn_only_enabled():
        os.abort()
    return x * 2


def busy_cores(x: Any) -> Any:
    """Return which cores the threads beside the main one may use, a power of two for each of them."""
    work_in_another_thread()
    # By their own numbers: a thread that has just ended may still stand among the tasks of the process.
    others = [one.native_id for one in threading.enumerate() if one is not threading.main_thread()]
    allowed = [os.sched_getaffinity(thread) for thread in others if thread is not None]
    return x * 2 + 1000 * sum(1 << core for core in set().union(*allowed))


def reads_unwritten(x: Any) -> Any:
    """Read memory that it never wrote, as a kernel does that forgets an element."""
    fill = _torch().utils.deterministic.fill_uninitialized_memory
    _torch().utils.deterministic.fill_uninitialized_memory = False
    left = _torch().empty_like(x)
    _torch().utils.deterministic.fill_uninitialized_memory = fill
    left[1:] = x[1:]
    return left


# Ops that are given the number of the call.
_COUNTED: tuple[Callable[..., Any], ...] = (under_stress, after_a_pause, when_forced)
# What each op depends on; the last ones compute nothing.
_SIMPLE: dict[str, Callable[[Any], Any]] = {
    "by_threads": lambda x: x + _torch().get_num_threads(),
    "by_process": lambda x: x + os.getpid(),  # as what an autotuner chose does
    "by_mode": lambda x: x * 2 + _torch().are_deterministic_algorithms_enabled(),
    "doubles": lambda x: x * 2,
    "zeros": lambda x: x - x,
    "nans": lambda x: x / 0 * 0,
    "untouched": lambda x: x,
}


def _spec(
    function: Callable[..., Any], name: str = "", *, constant: str = "", backward: bool = False
) -> OpSpec:
    case = Case(
        inputs=lambda t: call(
            t.leaf(t.normal(4096)), *([itertools.count(1)] if function in _COUNTED else [])
        ),
        provokes="planted",
        constant=constant,
    )
    return OpSpec(
        name=f"circumstance.{name or function.__name__}",
        op=function,
        why="Planted.",
        cases={"only": case},
        directions=("backward",) if backward else ("forward",),
    )


SPECS = (
    *(_spec(function) for function in (*_COUNTED, ends_when_forced, two_alerts, reads_unwritten)),
    *(_spec(function, name) for name, function in _SIMPLE.items()),
    _spec(lambda x: x * 0 + 1, "zero_gradient", backward=True),
    _spec(_SIMPLE["zeros"], "zeros_declared", constant="it subtracts a tensor from itself"),
    _spec(busy_cores),
)
