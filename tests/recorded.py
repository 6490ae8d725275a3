"""Specs that behave, alert, fail or crash when their overloads are recorded."""

from __future__ import annotations

import os
import signal
from typing import Any

import torch

from detmatrix.opspecs.model import Case, OpSpec, call


def dies_when_recorded(values: torch.Tensor) -> torch.Tensor:
    """Kill the process under a dispatch mode, and only there."""
    if torch._C._len_torch_dispatch_stack():
        os.kill(os.getpid(), signal.SIGKILL)
    return values + 1


def fails_when_recorded(values: torch.Tensor) -> torch.Tensor:
    """Raise under a dispatch mode, and only there."""
    if torch._C._len_torch_dispatch_stack():
        raise ValueError("not while you watch")
    return values + 1


def _spec(name: str, op: Any, case: Case, **more: Any) -> OpSpec:
    return OpSpec(name=f"recorded.{name}", op=op, why="Recorded.", cases={"one": case}, **more)


SPECS = (
    _spec("dies", dies_when_recorded, Case(inputs=lambda t: call(t.normal(4)))),
    _spec("fails", fails_when_recorded, Case(inputs=lambda t: call(t.normal(4)))),
    _spec("missing", "torch.no_such_op", Case(inputs=lambda t: call(t.normal(4)))),
    _spec("put_", "torch.Tensor.put_", Case(inputs=lambda t: call(t.normal(4), t.permutation(4), t.normal(4))),
          in_place=True),
    _spec("unpool", "torch.nn.functional.max_unpool1d",
          Case(inputs=lambda t: call(t.leaf(t.normal(1, 1, 4)), 2 * t.index(4, high=1).view(1, 1, 4), 2)),
          directions=("backward",)),
    _spec("cumsum", "torch.cumsum", Case(inputs=lambda t: call(t.leaf(t.normal(100)), 0)), directions=("backward",)),
)  # fmt: skip
