"""One line an op: what stands for it, in which order, what it costs, what the lists say and what to do."""

# ruff: noqa: RUF001 - ranges and ratios are written with their own signs

from __future__ import annotations

import pytest

from detmatrix.reports.matrix.model import Matrix
from detmatrix.reports.render import View
from detmatrix.reports.report.view import report_view
from detmatrix.scanner.observations.records import MODES, Cost, Mode
from detmatrix.scanner.verdicts.vocabulary import FINDING, FINDINGS, WORST_FIRST, Finding
from tests.compared import OFTEN, run_of, shows
from tests.evidence_runs import cost
from tests.runs import Planned, drifting, raised, ran, row, stable


def view(*matrices: Matrix) -> View:
    """Return the ops of these runs."""
    ops: View = report_view(matrices).ops
    return ops


def op_of(*planned: Planned, costs: tuple[Cost, ...] = ()) -> View:
    """Return the only op of a run with these rows."""
    op: View
    (op,) = view(run_of(*planned, costs=costs)).ops
    return op


def test_worst_first() -> None:
    """Ops stand in the order in which a user must act on them; one that was not settled before those that did not differ."""
    further: dict[Finding, Mode] = {"over_alert": "warn_only", "fixed_by_mode": "unfilled"}
    rows = [shows(finding, row(f"torch.{finding}")) for finding in reversed(FINDINGS)]
    rows = [
        (one, [*seen, *(ran(one, mode, *stable()) if (mode := further.get(finding)) else [])])
        for finding, (one, seen) in zip(reversed(FINDINGS), rows, strict=True)
    ]
    ops = view(run_of(*rows))

    assert [op.finding for op in ops.ops] == list(WORST_FIRST)
    assert set(WORST_FIRST) == set(FINDINGS)
    assert [op.finding for op in ops.clean] == ["deterministic"]
    assert ops.counts == dict.fromkeys(FINDINGS, 1)


@pytest.mark.parametrize("finding", FINDINGS)
def test_the_worst_row_stands_for_its_op(finding: Finding) -> None:
    """One bad case among good ones decides finding, marks and action; of a direction without it nothing is said."""
    bad = shows(finding, row("torch.some", "bad", "backward"))
    good = [shows("deterministic", row("torch.some", name, "forward")) for name in ("a", "b")]
    op = op_of(*good, bad)
    marks = {"silent": "=/≠", "raises": "≠/!", "over_alert": "=/!", "fixed_by_mode": "≠/=", "uninitialized": "≠/=",
             "mode_dependent": "=/~", "deterministic": "=/=", "order_dependent": "=/=", "inconclusive": "?/="}  # fmt: skip
    (cell,) = op.cells

    assert (op.finding, cell.forward.glyphs, cell.backward.glyphs) == (finding, "=/=", marks[finding])
    assert op.action.startswith(FINDING[finding].action)
    assert sum(op.counts.values()) == 3
    assert len(op.rows) == 3
    assert op_of(bad).cells[0].forward.glyphs == "·"


def test_of_rows_that_did_not_differ_the_one_that_shows_least_stands_for_them() -> None:
    """0 of n is told with the smallest n, and a direction whose rows are all serial is no reason to be at ease."""
    few, many = row("torch.cumsum", "few"), row("torch.cumsum", "many")
    short = [one for mode in MODES for one in ran(few, mode, {"a": 30}, {"a": 30})]
    op = op_of((many, [one for mode in MODES for one in ran(many, mode, *stable())]), (few, short))
    serial = op_of((few, [one for mode in MODES for one in ran(few, mode, *stable(), threads=1)]))

    assert op.cells[0].forward.on.text == "0 of 60 differed"
    assert (op.action, op.docs_words) == ("none seen on CPU", "CUDA: raises")
    assert serial.action == "none seen: serial"
    assert serial.cells[0].forward.text == "off: 0 of 100 differed; on: 0 of 100 differed (serial)"


@pytest.mark.parametrize(
    ("findings", "action"),
    [
        (("raises", "over_alert", "over_alert"), "no fix: raises"),
        (("raises",), "no fix: raises"),
        # Where the flag fixes others, both are counted; to set it is no advice where an unsettled row then raises.
        (("raises", "over_alert", "over_alert", "fixed_by_mode"), "raises in 3 rows; flag fixes 1"),
        (("unsettled", "fixed_by_mode"), "set the flag; raises in 1 row"),
    ],
)
def test_an_op_that_raises_says_how_often(findings: tuple[str, ...], action: str) -> None:
    """Some rows raise, with or without a difference."""
    rows = [row("torch.some", f"c{place}") for place in range(len(findings))]
    # Of a row that is not settled the mode off was not run.
    shown = [
        (one, raised(one, "on", "some")) if finding == "unsettled" else shows(finding, one)  # type: ignore[arg-type]
        for finding, one in zip(findings, rows, strict=True)
    ]

    assert op_of(*shown).action == action


@pytest.mark.parametrize(
    ("finding", "compiled", "action"),
    [
        ("silent", drifting(OFTEN), "no fix: differs silently"),
        ("raises", drifting(OFTEN), "no fix: raises; see compile_on"),
        ("fixed_by_mode", drifting(OFTEN), "set the flag; see compile_on"),
        ("fixed_by_mode", stable(), "set the flag"),
        ("uninitialized", drifting(OFTEN), "set the flag: it fills memory; see compile_on"),
        ("deterministic", drifting(OFTEN), "see compile_on"),
    ],
)
def test_an_op_is_sent_to_a_column_that_shows_worse(
    finding: Finding, compiled: list[dict[str, int]], action: str
) -> None:
    """To set the flag is no advice where compiled code differs all the same; what is no worse stands in its column alone."""
    planned, seen = shows(finding, row("torch.some"))
    unfilled = ran(planned, "unfilled", *stable()) if finding == "fixed_by_mode" else []
    further = [*unfilled, *ran(planned, "compile_on", *compiled)]
    op = op_of((planned, [*seen, *further]), costs=(cost(planned, 1.0, 3.0, 1.0),))

    assert (op.finding, op.action) == (finding, action)
    assert op.cost_words.startswith("fill") == (finding == "uninitialized")


@pytest.mark.parametrize(
    ("finding", "times", "shown"),
    [
        ("fixed_by_mode", [(1.0, 3.0, None)], "3.00×"),
        ("fixed_by_mode", [(1.0, 1.5, None), (1.0, 0.5, None)], "0.50–1.50×"),
        ("fixed_by_mode", [(1.0, 1.05, None)], "≈1.00×"),
        ("fixed_by_mode", [(1.0, 1.05, None), (1.0, 1.5, None)], "≈1.00–1.50×"),
        ("fixed_by_mode", [(1.0, 3.0, 1.5)], "1.50×+fill"),
        ("fixed_by_mode", [(1.0, 1.8, 1.5)], "1.50×"),
        ("uninitialized", [(1.0, 3.0, 1.0)], "fill 3.00×"),
        ("uninitialized", [(1.0, 1.0, 1.0)], "fill ≈1.00×"),
        ("uninitialized", [], "–"),
        ("fixed_by_mode", [], "–"),
    ],
)
def test_cost_of_an_op(finding: Finding, times: list[tuple[float, float, float | None]], shown: str) -> None:
    """A ratio whose quartiles overlap counts as 1, and what the fill takes is not the cost of the flag."""
    planned = [row("torch.some", f"c{place}") for place in range(max(len(times), 1))]
    costs = tuple(cost(one, *seconds) for one, seconds in zip(planned, times, strict=False))
    op = op_of(*(shows(finding, one) for one in planned), costs=costs)

    assert op.cost_words == shown


def test_an_op_that_is_gone_keeps_what_it_last_showed() -> None:
    """What a release no longer has, or a scan left out, is told by the latest that has it."""
    new = run_of(shows("deterministic", row("torch.other")), torch="2.10.0")
    old = run_of(shows("silent", row("torch.take")), torch="2.9.0")
    op = view(old, new).ops[0]

    assert (op.name, op.finding) == ("torch.take", "silent")
    assert [cell.forward.glyphs for cell in op.cells] == ["=/≠", "·"]
