"""What measuring again makes of a change, and what a check makes of a row that only seems to have changed."""

from __future__ import annotations

import pytest

from reports.compare.checks import failing
from reports.compare.confirm import Again, confirm, open_to_doubt
from reports.compare.judge import CHANGES, JudgedRow, judge
from reports.compare.page import block as excerpt
from reports.compare.runs import compare
from scanner.verdicts.vocabulary import Finding
from tests.compared import OFTEN, pair_of, run_of, shows
from tests.runs import Planned, drifting, ran, row, stable


def _judged(old: Planned, new: Planned) -> JudgedRow:
    (before,), (after,) = run_of(old, name="a").rows, run_of(new, name="b").rows
    return judge(before, after)


DETERMINISTIC, DIFFERS = shows("deterministic"), shows("fixed_by_mode")


@pytest.mark.parametrize(
    ("again", "expected"),
    [
        ((DIFFERS, DETERMINISTIC), ("improved", True, None)),
        ((DETERMINISTIC, DETERMINISTIC), ("same", None, None)),
        ((DIFFERS, DIFFERS), ("same", None, None)),
        ((DETERMINISTIC, DIFFERS), ("not_comparable", None, "not_reproduced")),
        ((shows("fixed_by_mode", often=3), DETERMINISTIC), ("improved", False, None)),
    ],
)
def test_measuring_again_decides(again: tuple[Planned, Planned], expected: tuple[object, ...]) -> None:
    """Only a change that shows again when both are measured in turns is confirmed."""
    first = _judged(DIFFERS, DETERMINISTIC)
    joined = confirm(first, _judged(*again))

    assert (first.kind, first.confirmed) == ("improved", False)
    assert expected == (joined.kind, joined.confirmed, joined.reason)


@pytest.mark.parametrize(
    "again",
    [(DETERMINISTIC, shows("silent", often=3)), (DIFFERS, DETERMINISTIC)],
    ids=["too few", "the reverse"],
)
def test_measuring_again_undoes_no_difference_that_was_seen(again: tuple[Planned, Planned]) -> None:
    """19 of 98 against 0 of 98, then 2 of 98 against 0 of 98, or the reverse: no check for regressions passes."""
    old, new = run_of(DETERMINISTIC, name="a"), run_of(shows("silent"), name="b")
    measured = Again(old=run_of(again[0]), new=run_of(again[1]), left={})
    comparison = compare([old, new], {("a", "b"): measured})
    (change,) = comparison.pairs[0].changes

    assert (change.kind, change.judged.confirmed) == ("regressed", False)
    assert "19 of 98" in change.judged.detail
    assert len(list(failing(comparison, ("regressed",)))) == 1


def test_a_check_counts_what_a_row_seems() -> None:
    """7 of 98 against 0 of 98 is not comparable, and a check that asks for regressions does not pass over it."""
    comparison = compare([run_of(DETERMINISTIC, name="a"), run_of(shows("silent", often=8), name="b")])
    lines = list(failing(comparison, ("regressed",)))

    assert len(lines) == 2  # nothing else was compared either
    assert lines[0].startswith("not_comparable (seems regressed): torch.Tensor.scatter_add_:")
    assert not any("seems" in line for line in failing(comparison, ("improved",)))


def test_a_check_passes_over_chance() -> None:
    """1 of 98 against 0 of 98, p = 1: the row is told, and no check fails because of it."""
    still = (DETERMINISTIC, shows("deterministic", row("torch.add")))
    rare = (shows("silent", often=2), still[1])
    comparison = compare([run_of(*still, name="a"), run_of(*rare, name="b")])
    (seeming,) = comparison.pairs[0].of("not_comparable")

    assert "0 of 98 → 1 of 98 further executions differed, p = 1" in seeming.judged.detail
    assert (seeming.judged.apparent, list(failing(comparison, CHANGES))) == ("regressed", [])
    assert "torch.Tensor.scatter_add_" in "".join(excerpt(comparison))


@pytest.mark.parametrize("finding", ["silent", "raises"])
def test_the_flag_off_may_change_under_the_same_finding(finding: Finding) -> None:
    """An op that raises or is silent with the flag on was deterministic without it, and is no longer."""
    planned, observations = shows(finding)
    on = [one for one in observations if one.mode == "on"]
    on += ran(planned, "warn_only", *drifting(OFTEN)) if finding == "raises" else []
    old, new = ((planned, [*ran(planned, "off", *seen), *on]) for seen in (stable(), drifting(OFTEN)))
    (change,) = pair_of(run_of(old, name="a"), run_of(new, name="b")).changes

    assert (change.old and change.old.finding, change.new and change.new.finding) == (finding, finding)
    assert (change.kind, change.judged.confirmed) == ("regressed", False)
    assert change.judged.detail.startswith("off: 0 of 98 → 19 of 98 ")


@pytest.mark.parametrize("after", ["deterministic", "silent"])
def test_an_alert_that_stopped_may_hide_a_rare_difference(after: Finding) -> None:
    """0 of 100 is no proof that an op which no longer raises runs deterministically: it is measured again."""
    (change,) = pair_of(run_of(shows("raises"), name="a"), run_of(shows("deterministic"), name="b")).changes
    joined = confirm(change.judged, _judged(shows("raises"), shows(after)))

    assert (change.kind, change.judged.confirmed, open_to_doubt(change)) == ("improved", False, True)
    assert (
        "no longer raises, which is proof; that it no longer differs rests on 0 of 100"
        in change.judged.detail
    )
    assert (joined.kind, joined.confirmed) == ("improved" if after == "deterministic" else "regressed", True)
