"""Rows that a run in the middle has no finding of: what became of them since the run before is not lost."""

from __future__ import annotations

import pytest

from reports.compare.checks import failing
from reports.compare.page import timelines
from reports.compare.runs import compare
from reports.matrix.model import Matrix
from tests.compared import run_of, shows
from tests.runs import Planned, drifting, ended, raised, ran, row, stable

PLANNED = row("torch.Tensor.scatter_add_")
OTHER = shows("deterministic", row("torch.cumsum"))
GAPS: dict[str, Matrix] = {
    "crash": run_of((PLANNED, ended(PLANNED, "off", "crash", "killed by SIGSEGV")), OTHER, name="b"),
    "lacking": run_of((PLANNED, ended(PLANNED, "off", "not_run", "no such op")), OTHER, name="b"),
    "not planned": run_of(OTHER, name="b"),
}


@pytest.mark.parametrize("gap", GAPS)
def test_a_gap_hides_no_regression(gap: str) -> None:
    """Deterministic, then no finding, then silent: the timeline counts it, and a check for regressions fails."""
    runs = [
        run_of(shows("deterministic"), OTHER, name="a"),
        GAPS[gap],
        run_of(shows("silent"), OTHER, name="c"),
    ]
    comparison = compare(runs)
    change = comparison.pairs[1].changes[0]

    assert change.judged.apparent == "regressed"
    assert "since a: deterministic → silent; on: 0 of 98 → 19 of 98" in change.judged.detail
    assert timelines(comparison)[0].rows[0].row.row.spec == "torch.Tensor.scatter_add_"
    assert len(list(failing(comparison, ("regressed",)))) == 1


def test_a_gap_alone_is_no_change() -> None:
    """A row with the same finding before and after a gap seems nothing."""
    runs = [run_of(shows("silent"), OTHER, name=name) for name in "ac"]
    comparison = compare([runs[0], GAPS["crash"], runs[1]])

    assert [pair.changes[0].judged.apparent for pair in comparison.pairs] == [None, None]
    assert not list(failing(comparison, ("regressed",)))


def _slow(on: str) -> Planned:
    """Return a row that takes too long with the flag off; *on* is what it does under the flag."""
    processes = {
        "deterministic": ran(PLANNED, "on", *stable()),
        "differs": ran(PLANNED, "on", *drifting(20)),
        "warn_only": [*raised(PLANNED, "on", "put_"), *ran(PLANNED, "warn_only", *stable())],
        "run under warn_only, differs": [
            *raised(PLANNED, "on", "put_"),
            *ran(PLANNED, "warn_only", *drifting(20)),
        ],
    }
    return PLANNED, [
        *ended(PLANNED, "off", "timeout", "stopped after 60 s"),
        *(processes.get(on) or raised(PLANNED, "on", on)),
    ]


@pytest.mark.parametrize(
    ("before", "after", "apparent"),
    [
        ("deterministic", "put_", "regressed"),
        ("put_", "deterministic", "improved"),
        ("put_", "differs", "regressed"),
        ("put_", "another", "changed"),
        ("warn_only", "run under warn_only, differs", "changed"),
        ("put_", "put_", None),
        ("differs", "differs", None),
    ],
)
def test_the_flag_on_says_what_it_can_without_the_flag_off(
    before: str, after: str, apparent: str | None
) -> None:
    """A row that times out with the flag off in both runs has no finding, and its alert may have changed all the same."""
    (change,) = compare([run_of(_slow(before), name="a"), run_of(_slow(after), name="b")]).pairs[0].changes

    assert ("not_comparable" if apparent else "same", apparent) == (change.kind, change.judged.apparent)
    assert ("alert callers put_ → another" in change.judged.detail) == (after == "another")
