"""Specs that misbehave in the ways that only a real worker shows, and some that do not, for tests to scan."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from detmatrix.opspecs.model import Case, OpSpec, call


def _torch() -> Any:
    import torch  # noqa: PLC0415 - the main process loads this file too, and has no need of torch

    return torch


def segfault(_: Any) -> None:
    """Read address zero."""
    import ctypes  # noqa: PLC0415

    ctypes.string_at(0)


def leave(_: Any) -> None:
    """Exit the polite way."""
    sys.exit(3)


_FORKED: list[int] = []


def returns_twice(x: Any) -> Any:
    """Fork, and return in the child too."""
    if not _FORKED:
        _FORKED.append(os.fork())
    return x * 2


def prints(x: Any) -> Any:
    """Print through Python and past it."""
    print("{}", flush=True)
    os.write(1, b'{"answer": {"outcome": "ran"}}\n')
    return x + 1


def sets_flag(x: Any) -> Any:
    """Put the process under another mode."""
    # What use_deterministic_algorithms calls, which loads PyTorch's compiler besides.
    _torch()._C._set_deterministic_algorithms(True, warn_only=True)
    return x + 1


def seeds(x: Any) -> Any:
    """Reseed the global generator, which is no business of an op but harms nobody."""
    _torch().manual_seed(time.time_ns() % 2**31)
    return x + 1


def changes_input(x: Any) -> Any:
    """Write into an argument without saying so."""
    x += 1
    return x + 1


def unlike_alert(_: Any) -> Any:
    """Raise something that only resembles the alert."""
    raise RuntimeError("x does not have a deterministic implementation")


def alerts_in_either_mode(x: Any) -> Any:
    """Call an op of PyTorch that alerts when the flag is on."""
    index = _torch().zeros(2, dtype=_torch().int64)
    return x.clone().put_(index, x[:2], accumulate=False)


def compiled_backward(x: Any) -> Any:
    """Raise what a backward says that was compiled while the flag was off: a guard, no alert."""
    if _torch().are_deterministic_algorithms_enabled():
        raise RuntimeError(
            "This compiled backward function is being run with torch.use_deterministic_algorithms(True), but it was "
            "previously generated during the forward function while torch.use_deterministic_algorithms(False) was set."
        )
    return x * 2


def random_alert(_: Any) -> Any:
    """Raise the alert's exact words although the flag may be off."""
    raise RuntimeError(
        "planted does not have a deterministic implementation, but you set "
        "'torch.use_deterministic_algorithms(True)'. You can turn off determinism just for this operation"
    )


def nothing(_: Any) -> None:
    """Return nothing."""


def empty(x: Any) -> Any:
    """Return a tensor without elements."""
    return x[:0]


def independent(_: Any) -> Any:
    """Return what does not depend on the input, so that there is no gradient."""
    return _torch().ones(3)


def noise(x: Any) -> Any:
    """Differ each time, whatever the seed."""
    return x + time.perf_counter_ns() % 1_000_003


def draws(x: Any) -> Any:
    """Consume the random generator."""
    return x + _torch().rand(())


def drops_half(x: Any) -> Any:
    """Differ in shape every other time."""
    drops_half.calls = getattr(drops_half, "calls", 0) + 1  # type: ignore[attr-defined]
    return x[: 8 + drops_half.calls % 2]  # type: ignore[attr-defined]


def doubles(x: Any) -> Any:
    """Behave."""
    return x * 2


def _planted(function: Any, direction: str = "forward") -> OpSpec:
    cases = {"only": Case(inputs=lambda t: call(t.leaf(t.normal(1000))), provokes="planted")}
    return OpSpec(
        name=f"planted.{function.__name__}",
        op=function,
        why="Planted.",
        cases=cases,
        directions=(direction,),  # type: ignore[arg-type]
    )


# A healthy case behind every hostile one: its verdict must not change.
_HOSTILE = (
    segfault, leave, returns_twice, prints, sets_flag, seeds, changes_input, unlike_alert, alerts_in_either_mode,
    compiled_backward, random_alert, nothing, empty, noise, draws, drops_half,
)  # fmt: skip

SPECS = (
    *(_planted(function) for function in _HOSTILE),
    _planted(independent, "backward"),
    _planted(doubles),
    # Their overloads are recorded.
    OpSpec(
        name="planted.cumsum",
        op="torch.cumsum",
        why="Planted.",
        cases={"one": Case(inputs=lambda t: call(t.leaf(t.normal(100)), 0))},
        directions=("backward",),
    ),
    OpSpec(
        name="planted.unpool",
        op="torch.nn.functional.max_unpool1d",
        why="Planted.",
        cases={
            "one": Case(lambda t: call(t.leaf(t.normal(1, 1, 4)), 2 * t.index(4, high=1).view(1, 1, 4), 2))
        },
        directions=("backward",),
    ),
    *(
        OpSpec(
            name=f"planted.{name}",
            op=doubles,
            why="Planted.",
            cases={"only": Case(inputs=lambda t: call(t.normal(1000)), reference=reference)},
        )
        for name, reference in (
            ("as_referred", lambda call: call.args[0] + call.args[0]),
            ("not_as_referred", lambda call: call.args[0] * 3),
            ("unknown_reference", lambda _: None),
            ("failing_reference", lambda call: call.args[1]),
        )
    ),
    OpSpec(name="planted.missing", op="torch.no_such_op", why="Planted.", cases=_planted(doubles).cases),
    OpSpec(
        name="planted.no_inputs",
        op="torch.add",
        why="Planted.",
        cases={"only": Case(inputs=lambda t: call(t.no_such_generator()))},  # type: ignore[attr-defined]
    ),
    OpSpec(
        name="planted.healthy",
        op="torch.cumsum",
        why="Planted.",
        cases={name: Case(inputs=lambda t: call(t.normal(100_000), 0)) for name in ("one", "two")},
    ),
)
