"""What measuring again makes of a change, what a check makes of one that only seems so, and rows that a run has no finding of."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from detmatrix.reports.compare.judge import CHANGES, JudgedRow, Kind, few_processes, judge
from detmatrix.reports.compare.page import block as excerpt
from detmatrix.reports.compare.page import failures
from detmatrix.reports.compare.runs import Again, compare, confirm
from detmatrix.reports.matrix.model import Matrix
from detmatrix.scanner.run.remeasure import rounds_for
from tests.compared import in_turns, pair_of, run_of, shows
from tests.evidence_runs import sentinels
from tests.runs import RUNS, SETTINGS, Planned, drifting, ended, raised, ran, row, stable


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
        ((DETERMINISTIC, shows("over_alert")), ("regressed", True, None)),
    ],
)
def test_measuring_again_decides(again: tuple[Planned, Planned], expected: tuple[object, ...]) -> None:
    """Only a change that shows again when both are measured in turns is confirmed."""
    first = _judged(DIFFERS, DETERMINISTIC)
    joined = confirm(first, _judged(*again))

    assert (first.kind, first.confirmed) == ("improved", False)
    assert expected == (joined.kind, joined.confirmed, joined.reason)


def test_a_check_counts_what_a_row_seems() -> None:
    """7 of 98 against 0 of 98 is not comparable, and a check that asks for regressions does not pass over it."""
    comparison = compare([run_of(DETERMINISTIC, name="a"), run_of(shows("silent", often=8), name="b")])
    lines = [*map(str, failures(comparison, ("regressed",)))]

    assert len(lines) == 2  # nothing else was compared either
    assert lines[0].startswith("not_comparable (seems regressed): torch.Tensor.scatter_add_:")
    assert not any("seems" in str(line) for line in failures(comparison, ("improved",)))


def test_a_check_passes_over_chance() -> None:
    """1 of 98 against 0 of 98, p = 1: the row is told, and no check fails because of it."""
    still = (DETERMINISTIC, shows("deterministic", row("torch.add")))
    rare = (shows("silent", often=2), still[1])
    comparison = compare([run_of(*still, name="a"), run_of(*rare, name="b")])
    (seeming,) = comparison.pairs[0].of("not_comparable")

    assert "0 of 98 → 1 of 98 further executions differed, p = 1" in seeming.judged.detail
    assert (seeming.judged.apparent, list(failures(comparison, CHANGES))) == ("regressed", [])
    assert "torch.Tensor.scatter_add_" in "".join(excerpt(comparison))


PLANNED = row("torch.Tensor.scatter_add_")


STILL, MOVED = shows("deterministic"), shows("silent")
IN_TURNS = in_turns("deterministic"), in_turns("silent")


def _settled(old: Matrix, new: Matrix, left: dict[Any, str] | None = None) -> JudgedRow:
    """Return what is made of a row that seems to have regressed after measuring it again."""
    first = [run_of(STILL, name="a"), run_of(MOVED, name="b")]
    (pair,) = compare(first, {("a", "b"): Again(old=old, new=new, left=left or {})}).pairs
    return pair.changes[0].judged


def _few() -> Matrix:
    """Return a run of seven processes of two executions each."""
    seen = [
        replace(one, executions=2, digests=dict.fromkeys(one.digests, 2))
        for one in in_turns("deterministic")[1]
    ]
    return run_of((PLANNED, seen), settings=replace(SETTINGS, processes=7, runs=2))


WEAK, STRONG = (run_of(STILL, sentinels=sentinels(seen, 0, 1)) for seen in (1, 10))
FEW, VAIN = _few(), "measured again without result, "
OTHER_INPUTS = PLANNED, [replace(one, inputs_digest="other") for one in MOVED[1]]


@pytest.mark.parametrize(
    ("old", "new", "kind", "confirmed", "detail"),
    [
        # Neither run differed again: where something could race and as often as in the scans, it is the same.
        (STRONG, STRONG, "same", None, ""),
        (WEAK, WEAK, "regressed", False, f"{VAIN}low_power: the sentinel (torch.index_put) differed in 1 of 11"),
        (FEW, FEW, "regressed", False, f"{VAIN}too_few_executions: on: 0 of 14, and the scans made 100 executions"),
        # In turns, one differed where the other did not: a sentinel that did not either is no excuse.
        (*(run_of(one, sentinels=sentinels(1, 0, 1)) for one in IN_TURNS), "regressed", True, ""),
        # A measurement that cannot be believed neither confirms nor drops anything.
        (run_of(STILL), run_of(MOVED, distrust=("a control",)), "regressed", False, f"{VAIN}untrusted_run: run.jsonl: a control"),
        (run_of(STILL), run_of(OTHER_INPUTS), "regressed", False, f"{VAIN}other_inputs: the input bits are not the same"),
        (run_of(STILL), run_of((PLANNED, ended(PLANNED, "off", "crash", "killed"))), "regressed", False, f"{VAIN}no_verdict: "),
        # One odd process is one event: a change shows in the processes as well, or stays unconfirmed.
        *(
            (run_of(IN_TURNS[0]), run_of(in_turns("silent", odd=odd)), "regressed", odd > 5,
             "" if odd > 5 else f"on: 0 of 7 → {odd} of 7 further processes differed")
            for odd in (1, 5, 6, 7)
        ),
    ],
)  # fmt: skip
def test_what_measuring_again_makes_of_a_regression(
    old: Matrix, new: Matrix, kind: Kind, confirmed: bool | None, detail: str
) -> None:
    """It is confirmed, dropped, or left as it was with the reason."""
    judged = _settled(old, new)

    assert (judged.kind, judged.confirmed) == (kind, confirmed)
    assert detail in judged.detail
    assert (VAIN in judged.detail) == detail.startswith(VAIN) or "processes" in detail


def test_what_cannot_be_measured_stays_unconfirmed() -> None:
    """A row that the catalog here has no more is told."""
    judged = _settled(run_of(), run_of(), left={PLANNED.key: "the catalog has no such row"})

    assert (judged.kind, judged.confirmed) == ("regressed", False)
    assert judged.detail.endswith("; not measured again: the catalog has no such row")


def test_rounds_suffice_for_the_test_of_processes() -> None:
    """An output that every process of one run has to itself is told from none, and there are twice the processes."""
    assert rounds_for(SETTINGS, SETTINGS) == 7
    assert rounds_for(SETTINGS, replace(SETTINGS, processes=5)) == 10
    assert rounds_for(SETTINGS, SETTINGS, between=True) == 16
    assert rounds_for(SETTINGS, replace(SETTINGS, processes=9), between=True) == 18
    # Another output in every process, and one of two algorithms in seven of sixteen.
    for outputs in ([f"{n}" for n in range(7)], ["b"] * 7 + ["a"] * 9):
        off = [{output: RUNS} for output in outputs]
        apart: Planned = (PLANNED, [*ran(PLANNED, "off", *off), *ran(PLANNED, "on", *stable())])
        same = [{"a": RUNS}] * len(off)
        still: Planned = (PLANNED, [*ran(PLANNED, "off", *same), *ran(PLANNED, "on", *stable())])
        (change,) = pair_of(run_of(still), run_of(apart)).changes

        assert (change.kind, change.judged.confirmed) == ("regressed", False)
        assert change.old is not None
        assert change.new is not None
        assert few_processes(change.old, change.new) is None


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
