"""The decision tables: from observations to cells, from two cells to a finding, from a header to the matrix."""

from __future__ import annotations

import itertools
import math
import random
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from detmatrix.scanner.alerts import CUBLAS_ALERT
from detmatrix.scanner.modes import FURTHER_MODES, LEAST_RUNS
from detmatrix.scanner.observations.records import MODES, Mode, Observation, Output
from detmatrix.scanner.observations.runfile import read_run
from detmatrix.scanner.run.passes import place_of
from detmatrix.scanner.verdicts.bound import CORRELATION, chance_unseen, effective, upper_bound
from detmatrix.scanner.verdicts.cells import Cell, row_cell
from detmatrix.scanner.verdicts.findings import MatrixRow, finding_of, matrix, runs_missing
from detmatrix.scanner.verdicts.power import LEAST_SERIAL_RUNS, POWER_SHARE, RaceRate, has_power
from detmatrix.scanner.verdicts.vocabulary import Finding, Verdict
from tests.benchmarks import dependence
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


def _described(cell: Cell) -> tuple[object, ...]:
    return cell.verdict, cell.runs, cell.differing, cell.distinct


@pytest.mark.parametrize(
    ("processes", "expected"),
    [
        ([{"a": 50}], ("deterministic", 50, 0, 1)),
        ([{"a": 50}, {"a": 50}], ("deterministic", 100, 0, 1)),
        ([{"a": 49, "b": 1}], ("nondeterministic", 50, 1, 2)),
        ([{"a": 1, "b": 49}], ("nondeterministic", 50, 49, 2)),
        ([{"a": 1, "b": 1, "c": 1}], ("nondeterministic", 3, 2, 3)),
        # Each process repeats itself, but they disagree.
        ([{"a": 50}, {"b": 50}], ("nondeterministic", 100, 50, 2)),
        ([{"a": 50}, {"a": 49, "b": 1}], ("nondeterministic", 100, 1, 2)),
        ([{"a": 49, "b": 1}, {"b": 50}], ("nondeterministic", 100, 51, 2)),
        ([{"a": 1}, {"a": 1}], ("deterministic", 2, 0, 1)),
        ([{"a": 1}, {"b": 1}], ("nondeterministic", 2, 1, 2)),
        # A single execution was compared with nothing.
        ([{"a": 1}], ("not_run", 1, 0, 0)),
    ],
)
def test_processes_that_ran_are_compared_as_one_set(
    processes: list[dict[str, int]], expected: tuple[object, ...]
) -> None:
    """Differences and distinct outputs count within processes and between them, against the very first output."""
    assert _described(row_cell(ran(ROW, "off", *processes), "", ROW)) == expected


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
    assert (cell.verdict, cell.alert, cell.runs) == (expected, None, 0)
    assert cell.reason == f"processes disagree (process 0: {said[0]}; process 1: {said[1]})"


def test_matrix_has_every_planned_row_in_planned_order() -> None:
    """Rows stand in planned order, whatever came first and whatever never came."""
    rows = [row("b"), row("a"), row("c"), row("a", "other"), row("a", dtype="float64")]
    observations = [*ran(rows[4], "on", {"x": 9}), *ran(rows[0], "off", {"y": 9})]

    found = [*matrix(replace(HEADER, planned=tuple(rows)), observations, closed=True)]

    assert [one.row for one in found] == rows
    not_run = ("not_run", "not_run")
    assert [(one.off.verdict, one.on.verdict) for one in found] == [
        ("deterministic", "not_run"), *[not_run] * 3, ("not_run", "deterministic"),
    ]  # fmt: skip


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


@given(observed=_observed())
def test_counts_of_a_cell_agree_with_its_verdict(observed: list[Observation]) -> None:
    """The k, the n and the distinct outputs are possible numbers, and say the same as the verdict."""
    found = _found(*observed)
    for mode, cell in (("off", found.off), ("on", found.on)):
        own = [observation for observation in observed if observation.mode == mode]
        assert 0 <= cell.differing < max(cell.runs, 1)
        assert (cell.verdict in ("deterministic", "nondeterministic")) == (cell.distinct > 0)
        if cell.distinct:
            assert cell.runs == sum(observation.executions for observation in own) >= 2
            assert cell.distinct == len(set().union(*(observation.digests for observation in own)))
            assert cell.distinct - 1 <= cell.differing
            assert (cell.verdict == "nondeterministic") == (cell.distinct > 1) == (cell.differing > 0)
            assert cell.first is not None
        else:
            assert cell.first is None
            assert cell.reason
        assert (cell.alert is not None) == (cell.verdict == "raises")
        assert math.isfinite(cell.seconds)


# What 0 of n is worth: the bound where executions of one process depend on each other, and the mark of an n too small.

RECORDED = Path(__file__).parents[1] / "reports" / "runs"


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
    assert RaceRate("off", 2, 2, "processes").needed == 1


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


@pytest.mark.parametrize(("differing", "needed"), [(1, 299), (2, 149), (3, 99), (40, 6)])
def test_a_cure_shows_in_more_executions_the_rarer_the_race(differing: int, needed: int) -> None:
    """What says it was cured is of low power if, at the rate of mode off, as many executions show nothing in one scan of twenty."""
    raced = ran(ROW, "off", {"a": 50 - differing, "b": differing}, {"a": 50})
    for further in (0, needed - 101, needed - 100):
        still = [{"a": count} for count in (50, 50, further) if count > 0]
        found = _found(*raced, *ran(ROW, "on", *still))
        runs = found.on.runs
        assert found.finding == "fixed_by_mode"
        assert (found.weak is None) == ((1 - differing / 100) ** runs <= 0.05) == (runs >= needed)
        assert found.weak is None or found.weak.startswith(
            f"{differing} of 100 executions differed in mode off, so that 0 of {runs} in mode on may be chance"
        )


SAME, ANOTHER = {"a": 50}, {"b": 50}


@pytest.mark.parametrize(
    ("off", "differing", "weak", "further"),
    [
        (ran(ROW, "off", *off), *expected) for off, *expected in (
            # What all others are held against may itself be the odd one.
            ([*[SAME] * 5, ANOTHER], 50, "1 of 6 processes differed in mode off, so that 0 of", False),
            ([ANOTHER, *[SAME] * 5], 250, "1 of 6 processes differed in mode off, so that 0 of", False),
            ([{"a": 49, "b": 1}, SAME], 1, "1 of 100 executions differed in mode off, so that 0 of", True),
            ([{"b": 1, "a": 49}, SAME], 99, "1 of 100 executions differed in mode off, so that 0 of", True),
            # Fifty executions of a process that differ from those of another are one event, and so are fifty that do not.
            ([SAME, ANOTHER], 50, "1 of 2 processes differed in mode off, so that 0 of 2 in mode on may be chance; 0 of 5 would", False),
            ([SAME, ANOTHER] * 2, 100, "2 of 4 processes differed in mode off, so that 0 of 4", False),
            ([SAME, ANOTHER] * 3, 150, "None", False),
        )
    ],
)  # fmt: skip
def test_what_a_cure_rests_on(off: list[Observation], differing: int, weak: str, further: bool) -> None:
    """It is told how rare the race was that the flag is thanked for, and whether further executions would tell more."""
    found = _found(*off, *ran(ROW, "on", *[SAME] * len(off)), processes=len(off))

    assert (found.finding, found.off.differing) == ("fixed_by_mode", differing)
    assert str(found.weak).startswith(weak)
    assert any(runs_missing(found, mode) for mode in FURTHER_MODES) == further


def test_recorded_races_that_five_executions_hide_are_marked() -> None:
    """Of rows that race, what a scan of one process and five executions calls deterministic it also calls of low power."""
    runs = [read_run(RECORDED / f"torch-{version}-cpu.jsonl.gz") for version in ("2.11.0", "2.13.0")]
    processes, still, unmarked, beyond = dependence.false_comfort(runs, 5)

    assert processes > 100
    assert still > 0
    assert (unmarked, beyond) == (0, 0)


@pytest.mark.nightly
def test_the_correlation_is_that_of_the_recorded_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """The correlation that the bound takes is not below what any kind of recorded race allows, nor above all of that."""
    assert dependence.main([]) == 0, capsys.readouterr().out


# From two cells to a finding: every pair of verdicts, and why a row is inconclusive.


# Rows: mode off; columns: mode on, in the order of VERDICTS (deterministic, nondeterministic, raises, error,
# timeout, crash, not_run).
_FINDINGS: dict[Verdict, str] = {
    "deterministic":    "deterministic silent over_alert   inconclusive inconclusive inconclusive inconclusive",
    "nondeterministic": "fixed_by_mode silent raises       inconclusive inconclusive inconclusive inconclusive",
    "raises":           "inconclusive  silent inconclusive inconclusive inconclusive inconclusive inconclusive",
    "error":            "inconclusive  silent inconclusive inconclusive inconclusive inconclusive inconclusive",
    "timeout":          "inconclusive  silent inconclusive inconclusive inconclusive inconclusive inconclusive",
    "crash":            "inconclusive  silent inconclusive inconclusive inconclusive inconclusive inconclusive",
    "not_run":          "inconclusive  silent inconclusive inconclusive inconclusive inconclusive inconclusive",
}  # fmt: skip


@pytest.mark.parametrize(
    ("off", "on", "expected"),
    [
        (off, on, finding)
        for off, findings in _FINDINGS.items()
        for on, finding in zip(VERDICTS, findings.split(), strict=True)
    ],
)
def test_finding_of_every_pair(off: Verdict, on: Verdict, expected: Finding) -> None:
    """The table of the design, total over 49 pairs; the reason stands where it is inconclusive, and only there."""
    finding, reason = finding_of(_cell(off), _cell(on))

    assert finding == expected
    assert (reason is not None) == (expected == "inconclusive")


def _cell(verdict: Verdict = "deterministic", runs: int = LEAST_RUNS, **fields: Any) -> Cell:
    return Cell(verdict=verdict, **{"first": "a", "runs": runs, **fields})


STILL, OTHER, RAISES = _cell(), _cell(first="b"), _cell("raises")
DIFFERS = _cell("nondeterministic", differing=99)
ALL_NAN = _cell("error", reason="produced all NaN", blank="nan")
GIVES_OTHER = "whether the flag gives other bits, or a race does"


def _raced(runs: int = LEAST_RUNS, **outputs: int) -> Cell:
    """Return a cell whose outputs differed so often."""
    counted = tuple(Output(name=it, shape=(), dtype="float32", differing=k) for it, k in outputs.items())
    return _cell("nondeterministic", runs, differing=99, by_process=(50, 50), outputs=counted)


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        # Each mode repeats itself, but they disagree; a race that shows once in a hundred executions is not told from the flag by
        # ten, and half are enough of one thread.
        *(((_cell(runs=runs, serial=serial), on), (finding, None) if runs == least else ("inconclusive", (f"0 of {runs} executions "
           f"differed with the flag off, of at least {least} that would show {unknown}")))
          for on, finding, unknown in (
            (OTHER, "mode_dependent", GIVES_OTHER), (RAISES, "over_alert", "whether what raises ever differs"))
          for serial, least in ((False, LEAST_RUNS), (True, LEAST_SERIAL_RUNS))
          for runs in (least - 1, least)),
        # What gives other bits with the flag on may race there alone, which no execution with it off shows.
        ((_cell(runs=1000), _cell(first="b", runs=99)), ("inconclusive", (f"0 of 99 executions differed with the flag on, of at "
         f"least 100 that would show {GIVES_OTHER}"))),
        ((_cell(runs=1000), OTHER), ("mode_dependent", None)),
        # That both give the same bits rests on the bound of both, which low power speaks of.
        ((_cell(runs=1000), _cell(runs=99)), ("deterministic", None)),
        # Ten executions do not tell what the flag cures from what the fill does, where memory rarely shows.
        ((DIFFERS, STILL, None, _cell(runs=99)), ("inconclusive", ("0 of 99 executions differed with nothing filled, of at least "
         "100 that would show whether the flag fixes it, or the fill does"))),
        ((DIFFERS, STILL, None, STILL), ("fixed_by_mode", None)),
        # With the flag on nothing but the fill came out, and without the fill it differs as with the flag off.
        ((DIFFERS, ALL_NAN, None, DIFFERS), ("uninitialized", None)),
        ((DIFFERS, ALL_NAN), ("inconclusive", "on: error (produced all NaN)")),
        # A race in one output is not hidden behind memory that nobody wrote in another: the flag fixes those which raced often, the
        # fill those which differ without it, and those which hardly differed at all with the flag off.
        *(((_raced(**off), STILL, None, _raced(runs, **unfilled)), expected)
          for off, unfilled, fixed in (
            ({"one": 90, "two": 99}, {"two": 99}, "two still differed, one did not"),
            ({"output": 90, "grad": 40, "new": 99}, {"new": 1}, "new still differed, output, grad did not"))
          for runs, expected in (
            (100, ("fixed_by_mode", f"with the flag on and nothing filled {fixed}: both are needed")),
            (99, ("inconclusive", "99 executions with nothing filled do not tell what the flag fixes, and what the fill")))),
        ((_raced(one=99, two=99), STILL, None, _raced(one=1, two=99)), ("uninitialized", None)),
        ((_raced(one=1, two=99), STILL, None, _raced(two=99)), ("uninitialized", None)),
        # What differs between processes only is counted of no output.
        ((_raced(one=90), STILL, None, _raced()), ("uninitialized", None)),
        # The reason names the mode, its verdict and its reason.
        ((_cell("error", reason="bad"), STILL), ("inconclusive", "off: error (bad)")),
        ((STILL, _cell("crash", reason="dead")), ("inconclusive", "on: crash (dead)")),
        ((_cell("timeout"), RAISES), ("inconclusive", "off: timeout")),
        ((_cell("not_run", reason="x"), _cell("error", reason="y")), ("inconclusive", "off: not_run (x); on: error (y)")),
        ((RAISES, RAISES), ("inconclusive", "off: raises, on: raises")),
        ((RAISES, STILL), ("inconclusive", "off: raises, on: deterministic")),
    ],
)  # fmt: skip
def test_findings_and_their_reasons(
    cells: tuple[Cell | None, ...], expected: tuple[Finding, str | None]
) -> None:
    """What is said rests on enough executions, and where it is inconclusive the reason tells which mode lacks what."""
    assert finding_of(*cells) == expected  # type: ignore[arg-type]
