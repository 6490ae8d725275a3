"""Specs for tests to scan: ops that misbehave in the ways that only a real worker shows, whose bits depend on circumstances, that compute nothing."""

from __future__ import annotations

import ctypes
import itertools
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from detmatrix.opspecs.model import Case, Direction, OpSpec, call
from detmatrix.scanner.alerts import ALERT, REFUSAL

_FORKED: list[int] = []
_CALLS = itertools.count(1)


def _torch() -> Any:
    import torch  # noqa: PLC0415 - the main process loads this file too, and has no need of torch

    return torch


def _raise(text: str) -> None:
    raise RuntimeError(text)


def _returns_twice(x: Any) -> Any:
    if not _FORKED:
        _FORKED.append(os.fork())
    return x * 2


def _prints(x: Any) -> Any:
    """Print through Python and past it."""
    print("{}", flush=True)
    os.write(1, b'{"answer": {"outcome": "ran"}}\n')
    return x + 1


def _sets_flag(x: Any) -> Any:
    # What use_deterministic_algorithms calls, which loads PyTorch's compiler besides.
    _torch()._C._set_deterministic_algorithms(True, warn_only=True)
    return x + 1


def _seeds(x: Any) -> Any:
    """Reseed the global generator, which is no business of an op but harms nobody."""
    _torch().manual_seed(time.time_ns() % 2**31)
    return x + 1


def _alerts_in_either_mode(x: Any) -> Any:
    index = _torch().zeros(2, dtype=_torch().int64)
    return x.clone().put_(index, x[:2], accumulate=False)


def _compiled_backward(x: Any) -> Any:
    """Raise what a backward says that was compiled while the flag was off: a guard, no alert."""
    if _torch().are_deterministic_algorithms_enabled():
        _raise(f"{REFUSAL}, but it was previously generated during the forward function")
    return x * 2


_OPS: dict[str, Callable[[Any], Any]] = {
    "segfault": lambda _: ctypes.string_at(0),
    "leave": lambda _: sys.exit(3),
    "returns_twice": _returns_twice,
    "prints": _prints,
    "sets_flag": _sets_flag,
    "seeds": _seeds,
    "changes_input": lambda x: x.add_(1) + 1,
    "unlike_alert": lambda _: _raise("x does not have a deterministic implementation"),
    "alerts_in_either_mode": _alerts_in_either_mode,
    "compiled_backward": _compiled_backward,
    # The alert's exact words, although the flag may be off.
    "random_alert": lambda _: _raise(
        f"planted {ALERT})'. You can turn off determinism just for this operation"
    ),
    "nothing": lambda _: None,
    "empty": lambda x: x[:0],
    # Whatever the seed.
    "noise": lambda x: x + time.perf_counter_ns() % 1_000_003,
    "draws": lambda x: x + _torch().rand(()),
    # In shape, every other time.
    "drops_half": lambda x: x[: 8 + next(_CALLS) % 2],
    # There is no gradient.
    "independent": lambda _: _torch().ones(3),
    "doubles": lambda x: x * 2,
}


# Ops whose bits depend on the circumstances of an execution, or that compute nothing.


def under_stress(x: Any) -> Any:
    """Differ each time, but only while other threads of the process compute; two threads work, or stress is left out."""
    number = next(_CALLS)
    work_in_another_thread()
    return x * 2 + (number if threading.active_count() > 1 else 0)


def after_a_pause(x: Any) -> Any:
    """Differ each time, but only where the threads of an op would sleep; two threads work, or pauses are left out."""
    number = next(_CALLS)
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


def two_alerts(x: Any) -> Any:
    """Call two ops that alert, one of them twice; neither differs."""
    torch = _torch()
    x = (x * 2).put_(torch.arange(3), x[:3])
    x = x.put_(torch.arange(3), x[3:6].clone())
    return torch.nn.functional.max_unpool1d(x.view(1, 1, -1), torch.arange(x.numel()).view(1, 1, -1), 1)


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


# What each op depends on; the last ones compute nothing.
_CIRCUMSTANCES: dict[str, Callable[[Any], Any]] = {
    **{op.__name__: op for op in (under_stress, after_a_pause, two_alerts, reads_unwritten, busy_cores)},
    "by_process": lambda x: x + os.getpid(),  # as what an autotuner chose does
    "by_mode": lambda x: x * 2 + _torch().are_deterministic_algorithms_enabled(),
    "doubles": lambda x: x * 2,
    "zeros": lambda x: x - x,
    "nans": lambda x: x / 0 * 0,
    "untouched": lambda x: x,
}


def _circumstance(
    name: str, op: Callable[..., Any], *, constant: str = "", direction: Direction = "forward"
) -> OpSpec:
    cases = {"only": Case(lambda t: call(t.leaf(t.normal(4096))), "planted", constant=constant)}
    return OpSpec(name=f"circumstance.{name}", op=op, why="Planted.", cases=cases, directions=(direction,))


def _spec(name: str, op: Any, inputs: Any, *names: str, **fields: Any) -> OpSpec:
    more = {"reference": fields.pop("reference")} if "reference" in fields else {}
    cases = {one: Case(inputs=inputs, **more) for one in names or ("only",)}
    return OpSpec(name=f"planted.{name}", op=op, why="Planted.", cases=cases, **fields)


SPECS = (
    *(
        _spec(name, op, lambda t: call(t.leaf(t.normal(1000))))
        for name, op in _OPS.items()
        if name != "independent"
    ),
    _spec(
        "independent", _OPS["independent"], lambda t: call(t.leaf(t.normal(1000))), directions=("backward",)
    ),
    # Their overloads are recorded.
    _spec("cumsum", "torch.cumsum", lambda t: call(t.leaf(t.normal(100)), 0), directions=("backward",)),
    _spec(
        "unpool",
        "torch.nn.functional.max_unpool1d",
        lambda t: call(t.leaf(t.normal(1, 1, 4)), 2 * t.index(4, high=1).view(1, 1, 4), 2),
        directions=("backward",),
    ),
    *(
        _spec(name, _OPS["doubles"], lambda t: call(t.normal(1000)), reference=reference)
        for name, reference in (
            ("as_referred", lambda call: call.args[0] + call.args[0]),
            ("not_as_referred", lambda call: call.args[0] * 3),
            ("unknown_reference", lambda _: None),
            ("failing_reference", lambda call: call.args[1]),
        )
    ),
    _spec("missing", "torch.no_such_op", lambda t: call(t.normal(2))),
    _spec("no_inputs", "torch.add", lambda t: call(t.no_such_generator())),
    # Behind every hostile op: its verdict must not change.
    _spec("healthy", "torch.cumsum", lambda t: call(t.normal(100_000), 0), "one", "two"),
    *(_circumstance(name, op) for name, op in _CIRCUMSTANCES.items()),
    _circumstance("zero_gradient", lambda x: x * 0 + 1, direction="backward"),
    _circumstance("zeros_declared", _CIRCUMSTANCES["zeros"], constant="it subtracts a tensor from itself"),
)
