"""Specs for tests that plant a change: an op that the planted torch makes raise, one it makes differ, two it leaves."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from detmatrix.opspecs.model import Case, OpSpec, call


def noise(x: Any, _: int) -> Any:
    """Differ each time, whatever races."""
    return x + time.perf_counter_ns() % 1_000_003


def _spec(name: str, op: str | Callable[..., Any]) -> OpSpec:
    cases = {"small": Case(inputs=lambda t: call(t.normal(100), 0), provokes="planted")}
    return OpSpec(name=f"grown.{name}", op=op, why="Planted.", cases=cases)


SPECS = (
    _spec("sums", "torch.cumsum"),
    _spec("products", "torch.cumprod"),
    _spec("maxima", "torch.cummax"),
    _spec("noise", noise),
)
