"""Specs whose cells are the same in every scan and finish in a moment, for tests of the run file."""

from __future__ import annotations

from typing import Any

from detmatrix.opspecs.model import Case, OpSpec, call


def fails(_: Any) -> None:
    """Raise something that is no alert."""
    raise ValueError("quick")


SPECS = (
    OpSpec(
        name="quick.cumsum",
        op="torch.cumsum",
        why="Serial at this size.",
        cases={"small": Case(inputs=lambda t: call(t.leaf(t.normal(100)), 0))},
        directions=("forward", "backward"),
        dtypes=("float32", "float64"),
    ),
    OpSpec(
        name="quick.put_",
        op="torch.Tensor.put_",
        why="Raises with the flag on.",
        cases={"one": Case(inputs=lambda t: call(t.normal(4), t.permutation(4), t.normal(4)))},
        in_place=True,
    ),
    OpSpec(
        name="quick.fails", op=fails, why="Fails.", cases={"always": Case(inputs=lambda t: call(t.normal(2)))}
    ),
    OpSpec(
        name="quick.missing",
        op="torch.no_such_op",
        why="Is not there.",
        cases={"never": Case(inputs=lambda t: call(t.normal(2)))},
    ),
)
