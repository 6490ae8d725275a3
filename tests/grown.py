"""Specs for tests that plant a change: an op that the planted torch makes raise, one it makes differ, one it leaves."""

from __future__ import annotations

from opspecs.model import Case, OpSpec, call


def _spec(name: str, op: str) -> OpSpec:
    cases = {"small": Case(inputs=lambda t: call(t.normal(100), 0), provokes="planted")}
    return OpSpec(name=f"grown.{name}", op=op, why="Serial at this size.", cases=cases)


SPECS = (_spec("sums", "torch.cumsum"), _spec("products", "torch.cumprod"), _spec("maxima", "torch.cummax"))
