"""A file of specs whose worker has a stand-in for a CUDA device and takes the time of what it does beside executing ops."""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable
from typing import Any

from opspecs.model import Case, OpSpec, call
from tests.fake_device import install

_seconds: dict[str, float] = {}
_within: list[
    list[Any]
] = []  # what is being timed, the outermost first: its name, and what it has called took


def _timed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the seconds of a function, less those of others that are timed, to a part."""

    @functools.wraps(function)
    def timing(*args: Any, **kwargs: Any) -> Any:
        started = time.perf_counter()
        _within.append([name, 0.0])
        try:
            return function(*args, **kwargs)
        finally:
            took = time.perf_counter() - started
            _, others = _within.pop()
            _seconds[name] = _seconds.get(name, 0.0) + took - others
            if _within:
                _within[-1][1] += took

    return timing


def _time_parts() -> None:
    # Known by now to the worker, which has loaded torch.
    from scanner.worker import bits, comparison, observe  # noqa: PLC0415
    from scanner.worker.difference import SeverityAccumulator  # noqa: PLC0415
    from scanner.worker.execution import Execution  # noqa: PLC0415

    for name, where, attributes in (
        ("draw", Execution, ["__init__", "_upstream_gradient"]),
        ("execute", Execution, ["__call__"]),
        ("digest", bits, ["digest", "digests"]),
        ("compare", comparison.OutputComparison, ["__init__", "add", "settle", "result"]),
        ("severity", SeverityAccumulator, ["__init__", "add", "result"]),
        ("rest", observe, ["observe"]),
    ):
        for attribute in attributes:
            setattr(where, attribute, _timed(name, getattr(where, attribute)))


def tells(_: Any) -> Any:
    """Say the seconds of each part so far."""
    raise ArithmeticError(json.dumps(_seconds))


if install("cuda") is not None:
    _time_parts()

SPECS = (
    OpSpec(
        name="timed.tells",
        op=tells,
        why="Says what took how long.",
        cases={"one": Case(inputs=lambda t: call(t.normal(1)))},
    ),
)
