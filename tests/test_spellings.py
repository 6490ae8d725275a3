"""What may be written instead of an op gives its values, is timed beside it, and its code is shown as it is executed."""

from __future__ import annotations

from typing import Any

import pytest

from detmatrix.opspecs.model import Case, OpSpec, call
from detmatrix.opspecs.spellings import SPELLINGS, code_of
from detmatrix.reports.instead import recorded_runs

torch = pytest.importorskip("torch")

from detmatrix.scanner.worker.cost import measure  # noqa: E402 - it needs torch
from detmatrix.scanner.worker.execution import resolve  # noqa: E402
from detmatrix.scanner.worker.observe import observe  # noqa: E402

WHERE: dict[str, Any] = {"direction": "forward", "dtype": "float32", "device": "cpu", "seed": 0}
FIRST = {spec.name: planned for spec in SPELLINGS for planned in reversed([*spec.rows("cpu")])}


@pytest.mark.parametrize("spec", [one for one in SPELLINGS if one.name in FIRST], ids=lambda one: one.name)
def test_it_gives_the_values_of_the_op(spec: OpSpec) -> None:
    """Its first row, executed by what a scan executes it with."""
    row = FIRST[spec.name]
    seen = observe(spec, row.case, **WHERE | {"direction": row.direction}, runs=2, sample=True)

    assert (seen["outcome"], seen["instead"]["agrees"]) == ("ran", True)


def test_other_values_are_told() -> None:
    """What differs from the op is no other spelling of it; it is timed beside the op all the same."""
    op = OpSpec(name="torch.neg", why="", cases={"only": Case(lambda t: call(t.normal(64)))})
    wrong = OpSpec(name="planted.wrong", op=lambda x: -x + (x > 0), why="", cases=op.cases, instead_of=op)
    seen = observe(wrong, "only", **WHERE, runs=2, sample=True)
    timed = measure(wrong, "only", **WHERE, max_seconds=0.02)

    assert seen["instead"]["agrees"] is False
    assert seen["instead"]["elements"] > 1
    assert timed["op"]["median"] > 0
    assert "op" not in measure(op, "only", **WHERE, max_seconds=0.02)


def test_the_code_shown_runs_by_itself() -> None:
    """What is shown of a function is its text with all that it calls: it gives the same where only torch is there."""
    spec = next(one for one in SPELLINGS if one.name.endswith("last_of_each_plane"))
    function, defined = resolve(spec.op), dict[str, Any](torch=torch)
    exec(code_of("last_of_each_plane").lines, defined)
    values, places = torch.rand(2, 1, 8), torch.tensor([[[1, 2, 2, 2, 0, 5, 5, 1]]] * 2)

    assert torch.equal(defined["last_of_each_plane"](values, places, 2), function(values, places, 2))


def test_those_shown_are_deterministic_on_a_simulated_gpu() -> None:
    """A recorded run on a simulated GPU has each, with the values of the op and the same bits in every schedule."""
    rows = [row for _, one in recorded_runs() if one.simulated for row in one.rows]
    agree = {row.row.spec for row in rows if all(it.instead.agrees for it in row.observations if it.instead)}

    assert agree == {spec.name for spec in SPELLINGS}
    assert {row.finding for row in rows} <= {"deterministic", "mode_dependent"}
