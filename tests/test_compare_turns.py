"""Rows measured again in turns: what counts of the rounds, and when a measurement decides."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from reports.compare.confirm import Again
from reports.compare.judge import JudgedRow, Kind, few_processes
from reports.compare.page import markdown as render
from reports.compare.runs import compare
from reports.matrix.model import Matrix
from scanner.observations.records import MODES, Header, Observation, Sentinel
from scanner.run.remeasure import powerful, rounds_for
from tests.compared import in_turns, pair_of, run_of, shows
from tests.runs import ENVIRONMENT, RUNS, SETTINGS, Planned, drifting, ended, ran, row, stable

PLANNED = row("torch.Tensor.scatter_add_")


def _sentinels(differing: int) -> list[Sentinel]:
    return [
        Sentinel(
            mode=mode, process=process, before=before, op="s", executions=20, differing=differing, load=9.0
        )
        for mode in MODES
        for process in range(2)
        for before in (0, 1)
    ]


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


WEAK, STRONG = (run_of(STILL, sentinels=_sentinels(seen)) for seen in (1, 19))
FEW, VAIN = _few(), "measured again without result, "
OTHER_INPUTS = PLANNED, [replace(one, inputs_digest="other") for one in MOVED[1]]


@pytest.mark.parametrize(
    ("old", "new", "kind", "confirmed", "detail"),
    [
        # Neither run differed again: where something could race and as often as in the scans, it is the same.
        (STRONG, STRONG, "same", None, ""),
        (WEAK, WEAK, "regressed", False, f"{VAIN}low_power: the sentinel (s) differed in 1 of 20"),
        (FEW, FEW, "regressed", False, f"{VAIN}too_few_executions: on: 0 of 14, and the scans made 100 executions"),
        # In turns, one differed where the other did not: a sentinel that did not either is no excuse.
        (*(run_of(one, sentinels=_sentinels(1)) for one in IN_TURNS), "regressed", True, ""),
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


def test_markdown_says_what_was_measured_again() -> None:
    """How many rows, how often, and what came out."""
    first = [run_of(STILL, name="a"), run_of(MOVED, name="b")]
    again = Again(old=run_of(in_turns("deterministic")), new=run_of(in_turns("silent")), left={})
    text = "".join(render(compare(first, {("a", "b"): again})))

    assert (
        "1 row that seemed to differ was measured again, both runs in turns: 2 rounds of fresh processes, up to "
        "100 executions of each run in each mode. Of these rows, 1 changed (confirmed), 0 did not, 0 are undecided."
    ) in text
    assert "| regressed | deterministic → silent" in " ".join(text.split())


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


def _kept(observations: list[Observation], *differing: int) -> list[int]:
    header = Header(
        format=2,
        tool="",
        started="",
        settings=replace(SETTINGS, processes=len(differing)),
        environment=ENVIRONMENT,
        planned=(PLANNED,),
    )
    sentinels = [
        Sentinel(mode="off", process=process, before=0, op="s", executions=20, differing=seen, load=1.0)
        for process, seen in enumerate(differing)
    ]
    return [one.process for one in powerful(header, observations, sentinels)]


def test_rounds_of_low_power_do_not_count_where_nothing_differed() -> None:
    """They are left out while half of the rounds remain; what differed in one of them stays."""
    same = ran(PLANNED, "off", *[{"a": RUNS}] * 4)

    assert _kept(same, 19, 0, 19, 19) == [0, 2, 3]
    assert _kept(same, 19, 0, 0, 0) == [0, 1, 2, 3]
    assert _kept(ran(PLANNED, "off", *drifting(), *drifting()), 19, 19, 0, 19) == [0, 1, 2, 3]
    assert _kept(ran(PLANNED, "off", {"a": RUNS}, {"b": RUNS}), 19, 0) == [0, 1]
