"""The decision tables: from observations to cells, from two cells to a finding, from a header to the matrix."""

from __future__ import annotations

import itertools
import json
import math
import random
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from detmatrix.scanner.alerts import CUBLAS_ALERT
from detmatrix.scanner.modes import FURTHER_MODES, LEAST_RUNS
from detmatrix.scanner.observations.records import MODES, Mode, Observation, Output
from detmatrix.scanner.run.passes import place_of
from detmatrix.scanner.verdicts.bound import CORRELATION, chance_unseen, effective, upper_bound
from detmatrix.scanner.verdicts.cells import Cell, row_cell
from detmatrix.scanner.verdicts.findings import MatrixRow, finding_of, matrix, runs_missing
from detmatrix.scanner.verdicts.power import POWER_SHARE, RaceRate, has_power
from detmatrix.scanner.verdicts.vocabulary import Finding, Verdict
from tests.benchmarks import dependence
from tests.conftest import table
from tests.evidence_runs import sentinel
from tests.runs import ALERT, HEADER, SETTINGS, ran, row

VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
ROW = row("torch.cumsum")


def _seen(mode: Mode, process: int, **fields: Any) -> Observation:
    """Return what one process observed of the row."""
    return Observation(**place_of(ROW), mode=mode, process=process, **fields)


def _found(*observed: Observation, **settings: Any) -> MatrixRow:
    """Return the row of a run, with what was observed of it."""
    header = replace(HEADER, planned=(ROW,), settings=replace(SETTINGS, **settings))
    (found,) = matrix(header, observed, closed=True)
    return found


def test_unequal_inputs_prove_nothing() -> None:
    """Outputs of other inputs differ for that reason: within a mode an error, between the modes inconclusive."""
    off, on = (
        [replace(one, inputs_digest=inputs) for one in ran(ROW, mode, {digest: 5}, {digest: 5})]
        for mode, digest, inputs in ((MODES[0], "a", "one"), (MODES[1], "b", "two"))
    )
    mixed = [*off[:1], *on[1:]]

    found = _found(*off, *on)

    assert row_cell(mixed, "", ROW).verdict == "error"
    assert row_cell(mixed, "", ROW).reason == "the inputs differed between processes"
    assert (found.off.verdict, found.on.verdict) == ("deterministic", "deterministic")
    assert (found.finding, found.reason) == ("inconclusive", "the inputs differed between processes or modes")


@pytest.mark.parametrize(("processes", "expected"), table("verdicts.txt", "processes"))
def test_processes_that_ran_are_compared_as_one_set(processes: str, expected: str) -> None:
    """Differences and distinct outputs count within processes and between them, against the very first output."""
    cell = row_cell(ran(ROW, "off", *json.loads(processes)), "", ROW)

    assert f"{cell.verdict} {cell.runs} {cell.differing} {cell.distinct}" == expected


CUBLAS = (
    f"{CUBLAS_ALERT} `at::Context::setDeterministicAlgorithms(true)`, but this operation is not deterministic because it uses "
    "CuBLAS and you have CUDA >= 10.2."
)
# What a process may end in with the flag on, and how that is told.
_ENDINGS: dict[str, tuple[dict[str, Any], str]] = {
    "ran": ({"outcome": "ran", "executions": 9, "digests": {"a": 8, "b": 1}}, "ran, 2 distinct in 9"),
    **{f"alert of {op}": ({"outcome": "raised", "exception": "RuntimeError", "message": text}, f"raises, {text}")
       for op, text in {"put_": ALERT.format("put_"), "take_": ALERT.format("take_"), "cuBLAS": CUBLAS}.items()},
    "error": ({"outcome": "raised", "exception": "ValueError", "message": "bad"}, "error, ValueError: bad"),
    "error without words": ({"outcome": "raised", "exception": "ValueError"}, "error, ValueError"),
    "words of an alert": ({"outcome": "raised", "exception": "ValueError", "message": ALERT.format("x")},
                          f"error, ValueError: {ALERT.format('x')}"),
    "invalid": ({"outcome": "invalid", "message": "empty"}, "error, empty"),
    "timeout": ({"outcome": "timeout", "message": "slow"}, "timeout, slow"),
    "crash": ({"outcome": "crash", "message": "dead"}, "crash, dead"),
    "not_run": ({"outcome": "not_run", "message": "absent"}, "not_run, absent"),
}  # fmt: skip


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("processes", [1, 3])
@pytest.mark.parametrize("ending", [name for name in _ENDINGS if name != "ran"])
def test_processes_that_failed_alike_give_the_verdict_and_the_reason(
    ending: str, processes: int, mode: Mode
) -> None:
    """No executions are claimed; with the flag off the words of an alert come from somewhere else, and prove nothing."""
    fields, told = _ENDINGS[ending]
    cell = row_cell([_seen(mode, process, **fields) for process in range(processes)], "", ROW)

    alert = ending.removeprefix("alert of ") if told.startswith("raises") and mode == "on" else None
    told = told if alert else told.replace("raises, ", "error, RuntimeError: ")
    assert (f"{cell.verdict}, {cell.reason}", cell.alert) == (told, alert)
    assert (cell.runs, cell.differing, cell.distinct) == (0, 0, 0)


@pytest.mark.parametrize(("one", "other"), list(itertools.permutations(_ENDINGS, 2)))
def test_processes_that_disagree_prove_nothing(one: str, other: str) -> None:
    """Whatever two processes saw, if it is not the same the cell has no usable verdict and tells of both."""
    endings = _ENDINGS[one], _ENDINGS[other]
    seen = [_seen("on", process, **fields) for process, (fields, _) in enumerate(endings)]
    cell = row_cell(seen, "", ROW)

    said = [text for _, text in endings]
    if all(text.startswith("error, ") for text in said):
        # The first reason stands for both.
        assert (cell.verdict, cell.reason) == ("error", said[0].removeprefix("error, "))
        return
    # That of the first that failed: a lone alert is an error, and so is a lone not_run.
    first = other if one == "ran" else one
    expected = first if first in {"timeout", "crash"} else "error"
    assert (cell.verdict, cell.alert, cell.runs, cell.distinct, cell.first) == (expected, None, 0, 0, None)
    assert cell.reason == f"processes disagree (process 0: {said[0]}; process 1: {said[1]})"


_DIGESTS = st.dictionaries(st.sampled_from("abcd"), st.integers(1, 9), min_size=1)


@st.composite
def _observed(draw: st.DrawFn) -> list[Observation]:
    """Draw what one to four processes saw of the row in each mode, the outcomes mixed at will."""
    found = []
    for mode in ("off", "on"):
        for process in range(draw(st.integers(0, 4))):
            if draw(st.booleans()):
                digests = draw(_DIGESTS)
                found.append(
                    _seen(mode, process, outcome="ran", executions=sum(digests.values()), digests=digests)
                )
            else:
                found.append(_seen(mode, process, **_ENDINGS[draw(st.sampled_from(sorted(_ENDINGS)))][0]))
    return found


@given(observed=_observed(), data=st.data())
def test_verdicts_do_not_depend_on_the_order_of_observations(
    observed: list[Observation], data: st.DataObject
) -> None:
    """A resumed scan writes its lines in another order, and gives the same matrix."""
    shuffled = data.draw(st.permutations(observed))

    assert _found(*shuffled) == _found(*observed)


# What 0 of n is worth: the bound where executions of one process depend on each other, and the mark of an n too small.


@pytest.mark.parametrize("executions", [(5,), (5, 5), (50, 50)])
def test_upper_bound(executions: tuple[int, ...]) -> None:
    """A row of the rate that is the bound hides in one scan of twenty, if processes differ in how freely it races."""
    rate, weight, scans = upper_bound(executions), (1 - CORRELATION) / CORRELATION, 20_000
    drawn = random.Random(0)

    hidden = 0
    for _ in range(scans):
        # The very first execution has nothing to differ from.
        counts = (executions[0] - 1, *executions[1:])
        shown = (drawn.betavariate(rate * weight, (1 - rate) * weight) for _ in executions)
        hidden += all(
            drawn.random() < (1 - share) ** count for share, count in zip(shown, counts, strict=True)
        )

    assert hidden / scans == pytest.approx(0.05, abs=0.006)


def test_processes_count_for_more_than_executions() -> None:
    """The same n bounds less in one process than in many, never more than if all executions were independent."""
    shared = [(100,), (50, 50), (10,) * 10, (1,) * 100]
    bounds = [upper_bound(one) for one in shared]

    assert bounds == sorted(bounds, reverse=True)
    assert upper_bound((1,) * 101) == pytest.approx(1 - 0.05 ** (1 / 100))
    assert effective((50, 50)) < effective((1,) * 100) == pytest.approx(99)
    assert upper_bound((1,)) == 1
    assert upper_bound((1_000_000,) * 1000) > 0


def test_half_of_what_could_differ_is_power_and_all_of_it_needs_one_more() -> None:
    """The first of eleven executions cannot differ; a race in every process shows in any."""
    assert [has_power(sentinel(differing=differing)) for differing in (4, 5)] == [False, True]
    assert RaceRate("off", 100, 100, "executions").needed == 1


@pytest.mark.parametrize("processes", [1, 2, 5])
def test_a_row_without_a_mark_would_have_shown_a_race_as_frequent_as_the_sentinels(processes: int) -> None:
    """Rows and sentinels are held against one limit, so that a race of its rate is missed by 5 % of the unmarked at most."""
    marked = []
    for runs in range(2, 21):
        seen = [one for mode in MODES for one in ran(ROW, mode, *[{"a": runs}] * processes)]
        found = _found(*seen, runs=runs, processes=processes)
        assert (found.weak is None) == (chance_unseen(POWER_SHARE, (runs,) * processes) <= 0.05)
        marked.append(found.weak is not None)

    assert marked == sorted(marked, reverse=True)
    assert not marked[-1]


@pytest.mark.parametrize(("differing", "needed"), [(1, 1900), (2, 346), (3, 170), (40, 7)])
def test_a_cure_shows_in_more_executions_the_rarer_the_race(differing: int, needed: int) -> None:
    """What says it was cured is of low power if all that differed would be in mode off in one scan of twenty (Fisher's exact test)."""
    raced = ran(ROW, "off", {"a": 50 - differing, "b": differing}, {"a": 50})
    for further in (0, needed - 101, needed - 100):
        still = [{"a": count} for count in (50, 50, further) if count > 0]
        found = _found(*raced, *ran(ROW, "on", *still))
        runs = found.on.runs
        assert found.finding == "fixed_by_mode"
        assert (
            (found.weak is None)
            == (math.comb(100, differing) <= 0.05 * math.comb(100 + runs, differing))
            == (runs >= needed)
        )
        assert found.weak is None or found.weak.startswith(
            f"{differing} of 100 executions differed in mode off, so that 0 of {runs} in mode on may be chance"
        )


@pytest.mark.parametrize(("off", "differing", "weak", "further"), table("verdicts.txt", "cures"))
def test_what_a_cure_rests_on(off: str, differing: str, weak: str, further: str) -> None:
    """It is told how rare the race was that the flag is thanked for, and whether further executions would tell more."""
    processes = json.loads(off)
    seen = [*ran(ROW, "off", *processes), *ran(ROW, "on", *[{"a": 50}] * len(processes))]
    found = _found(*seen, processes=len(processes))

    assert (found.finding, found.off.differing) == ("fixed_by_mode", int(differing))
    assert str(found.weak).startswith(weak)
    assert any(runs_missing(found, mode) for mode in FURTHER_MODES) == (further == "yes")


@pytest.mark.nightly
def test_the_correlation_is_that_of_the_recorded_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """The correlation that the bound takes is not below what any kind of recorded race allows, nor above all of that."""
    assert dependence.main([]) == 0, capsys.readouterr().out


# From two cells to a finding: every pair of verdicts, and why a row is inconclusive.


_ON, *_OFF = (line.split() for (line,) in table("verdicts.txt", "findings"))


@pytest.mark.parametrize(
    ("off", "on", "expected"),
    [(off, on, finding) for off, *findings in _OFF for on, finding in zip(_ON, findings, strict=True)],
)
def test_finding_of_every_pair(off: Verdict, on: Verdict, expected: Finding) -> None:
    """The table of the design, total over 49 pairs; the reason stands where it is inconclusive, and only there."""
    finding, reason = finding_of(_cell(off), _cell(on))

    assert [off for off, *_ in _OFF] == _ON == list(VERDICTS)
    assert finding == expected
    assert (reason is not None) == (expected == "inconclusive")


def _cell(text: str) -> Cell:
    """Return the cell of a text: its verdict, first bits and executions, how often each output differed, and the reason."""
    told, _, reason = text.partition(" (")
    verdict, *words = told.split()
    counted = (word.split("=") for word in words if "=" in word)
    fields: dict[str, Any] = {
        "verdict": verdict,
        "first": "b" if "b" in words else "a",
        "runs": next((int(word) for word in words if word.isdigit()), LEAST_RUNS),
        "outputs": tuple(Output(name=it, shape=(), dtype="float32", differing=int(k)) for it, k in counted),
        "serial": {"serial": True, "parallel": False}.get(words[-1]) if words else None,
        "reason": reason.removesuffix(")") or None,
        "blank": "nan" if "NaN" in reason else None,
    }
    return Cell(
        **fields | ({"differing": 99, "by_process": (50, 50)} if verdict == "nondeterministic" else {})
    )


@pytest.mark.parametrize(("off", "on", "further", "expected", "reason"), table("verdicts.txt", "reasons"))
def test_findings_and_their_reasons(off: str, on: str, further: str, expected: str, reason: str) -> None:
    """What is said rests on enough executions, and where it is inconclusive the reason tells which mode lacks what."""
    seen = None if further == "none" else _cell(further)
    warn_only, unfilled = (seen, None) if on == "raises" else (None, seen)

    finding, why = finding_of(_cell(off), _cell(on), warn_only, unfilled)

    assert (finding, why or "none") == (expected, reason)
