"""The decision tables: from observations to cells, from a header to the matrix."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from detmatrix.scanner.observations.records import FORMAT, Header, Mode, Observation, Outcome, Settings
from detmatrix.scanner.run.requests import place_of
from detmatrix.scanner.verdicts.cells import Cell, cell_of
from detmatrix.scanner.verdicts.findings import matrix
from detmatrix.scanner.verdicts.vocabulary import Verdict
from tests.runs import ALERT, ENVIRONMENT, raised, ran, row

VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
ROW = row("torch.cumsum")


def _seen(mode: Mode, process: int, outcome: Outcome, **fields: Any) -> Observation:
    """Return what one process observed of the row."""
    return Observation(**place_of(ROW), mode=mode, process=process, outcome=outcome, **fields)


def _ran(*processes: dict[str, int], mode: Mode = "off") -> list[Observation]:
    return ran(ROW, mode, *processes)


def test_unequal_inputs_prove_nothing() -> None:
    """Outputs of other inputs differ for that reason: within a mode an error, between the modes inconclusive."""
    off = [_seen("off", i, "ran", executions=5, digests={"a": 5}, inputs_digest="one") for i in (0, 1)]
    on = [
        _seen("on", i, "ran", executions=5, digests={"b": 5}, inputs_digest=d)
        for i, d in enumerate(("two", "two"))
    ]
    mixed = [*off[:1], *on[1:]]

    (found,) = _matrix([*off, *on])

    assert cell_of(mixed).verdict == "error"
    assert cell_of(mixed).reason == "the inputs differed between processes"
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
    assert _described(cell_of(_ran(*processes))) == expected


@pytest.mark.parametrize("mode", ["off", "on"])
@pytest.mark.parametrize(
    ("outcome", "fields", "verdict", "reason"),
    [
        ("raised", {"exception": "ValueError", "message": "bad"}, "error", "ValueError: bad"),
        ("raised", {"exception": "ValueError", "message": ""}, "error", "ValueError"),
        ("raised", {"exception": "ValueError"}, "error", "ValueError"),
        ("raised", {}, "error", None),
        ("raised", {"exception": "ValueError", "message": ALERT.format("x")}, "error",
         "ValueError: " + ALERT.format("x")),
        ("invalid", {"message": "no output has elements"}, "error", "no output has elements"),
        ("timeout", {"message": "took longer"}, "timeout", "took longer"),
        ("crash", {"message": "killed by SIGSEGV"}, "crash", "killed by SIGSEGV"),
        ("not_run", {"message": "has no op"}, "not_run", "has no op"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("processes", [1, 3])
def test_processes_that_failed_alike_give_the_verdict_and_the_reason(
    mode: Mode, outcome: Outcome, fields: dict[str, str], verdict: Verdict, reason: str | None, processes: int
) -> None:
    """Every outcome but an alert reads the same in both modes, and no executions are claimed."""
    cell = cell_of([_seen(mode, process, outcome, **fields) for process in range(processes)])

    assert (_described(cell), cell.reason, cell.alert) == ((verdict, 0, 0, 0), reason, None)


def test_alert_raises_with_the_flag_on_only() -> None:
    """With the flag off the alert's words come from somewhere else, and prove nothing."""
    cells = {mode: cell_of(raised(ROW, mode, "put_")) for mode in ("on", "off")}

    assert (cells["on"].verdict, cells["on"].alert, cells["on"].reason) == (
        "raises", "put_", ALERT.format("put_"),
    )  # fmt: skip
    assert (cells["off"].verdict, cells["off"].alert) == ("error", None)
    assert cells["off"].reason == "RuntimeError: " + ALERT.format("put_")


_ENDINGS: dict[str, dict[str, Any]] = {
    "ran": {"outcome": "ran", "executions": 9, "digests": {"a": 8, "b": 1}},
    "alert": {"outcome": "raised", "exception": "RuntimeError", "message": ALERT.format("put_")},
    "other alert": {"outcome": "raised", "exception": "RuntimeError", "message": ALERT.format("take_")},
    "error": {"outcome": "raised", "exception": "ValueError", "message": "bad"},
    "invalid": {"outcome": "invalid", "message": "empty"},
    "timeout": {"outcome": "timeout", "message": "slow"},
    "crash": {"outcome": "crash", "message": "dead"},
    "not_run": {"outcome": "not_run", "message": "absent"},
}
_SAID = {
    "ran": "ran, 2 distinct in 9",
    "alert": f"raises, {ALERT.format('put_')}",
    "other alert": f"raises, {ALERT.format('take_')}",
    "error": "error, ValueError: bad",
    "invalid": "error, empty",
    "timeout": "timeout, slow",
    "crash": "crash, dead",
    "not_run": "not_run, absent",
}
# The cell of two processes is that of the first which failed, save that a lone alert is an error, and a lone not_run.
_OF_FIRST: dict[str, Verdict] = {
    "alert": "error",
    "other alert": "error",
    "error": "error",
    "invalid": "error",
    "timeout": "timeout",
    "crash": "crash",
    "not_run": "error",
}


@pytest.mark.parametrize(("one", "other"), list(itertools.permutations(_ENDINGS, 2)))
def test_processes_that_disagree_prove_nothing(one: str, other: str) -> None:
    """Whatever two processes saw, if it is not the same the cell has no usable verdict and tells of both."""
    cell = cell_of([_seen("on", 0, **_ENDINGS[one]), _seen("on", 1, **_ENDINGS[other])])

    expected = _OF_FIRST[other if one == "ran" else one]
    if {one, other} == {"error", "invalid"}:
        # Both are errors; the first reason stands for them.
        assert (cell.verdict, cell.reason) == ("error", _SAID[one].removeprefix("error, "))
        return
    assert (cell.verdict, cell.alert, cell.runs) == (expected, None, 0)
    assert cell.reason == f"processes disagree (process 0: {_SAID[one]}; process 1: {_SAID[other]})"


def test_upper_bound_is_told_of_deterministic_cells_alone() -> None:
    """Where something differed, or nothing ran, there is no such bound."""
    bounds = {
        verdict: Cell(verdict=verdict, runs=100, by_process=(50, 50)).upper_bound is None
        for verdict in VERDICTS
    }

    assert bounds == {verdict: verdict != "deterministic" for verdict in VERDICTS}
    still = Cell(verdict="deterministic", runs=100, by_process=(50, 50))
    assert (still.bound, replace(still, constant=True).bound) == (still.upper_bound, None)


def _header(*planned: Any) -> Header:
    return Header(
        format=FORMAT,
        tool="0",
        started="",
        settings=Settings(patterns=(), device="cpu", runs=50, processes=2, timeout=1.0, seed=0),
        environment=ENVIRONMENT,
        planned=planned,
    )


def _matrix(observations: Sequence[Observation], *, closed: bool = True) -> list[Any]:
    return list(matrix(_header(ROW), observations, closed=closed))


def test_matrix_has_every_planned_row_in_planned_order() -> None:
    """Rows stand in planned order, whatever came first and whatever never came."""
    rows = [row("b"), row("a"), row("c"), row("a", "other"), row("a", dtype="float64")]
    observations = [*ran(rows[4], "on", {"x": 9}), *ran(rows[0], "off", {"y": 9})]

    found = list(matrix(_header(*rows), observations, closed=True))

    assert [one.row for one in found] == rows
    assert [(one.off.verdict, one.on.verdict) for one in found] == [
        ("deterministic", "not_run"),
        ("not_run", "not_run"),
        ("not_run", "not_run"),
        ("not_run", "not_run"),
        ("not_run", "deterministic"),
    ]


@pytest.mark.parametrize(
    ("closed", "reason"), [(True, "not recorded"), (False, "the scan was interrupted before this case")]
)
def test_missing_observations_have_a_reason(closed: bool, reason: str) -> None:
    """What an absent observation means depends on whether the scan finished."""
    (found,) = _matrix([], closed=closed)

    assert (found.off.reason, found.on.reason) == (reason, reason)
    assert (found.finding, found.reason) == (
        "inconclusive",
        f"off: not_run ({reason}); on: not_run ({reason})",
    )


_DIGESTS = st.dictionaries(st.sampled_from("abcd"), st.integers(1, 9), min_size=1)


@st.composite
def _observed(draw: st.DrawFn) -> list[Observation]:
    """Draw what one to four processes saw of the row in each mode, the outcomes mixed at will."""
    found = []
    for mode in ("off", "on"):
        for process in range(draw(st.integers(0, 4))):
            if draw(st.booleans()):
                digests = draw(_DIGESTS)
                found.append(_seen(mode, process, "ran", executions=sum(digests.values()), digests=digests))
            else:
                found.append(_seen(mode, process, **_ENDINGS[draw(st.sampled_from(sorted(_ENDINGS)))]))
    return found


@given(observed=_observed(), data=st.data())
def test_verdicts_do_not_depend_on_the_order_of_observations(
    observed: list[Observation], data: st.DataObject
) -> None:
    """A resumed scan writes its lines in another order, and gives the same matrix."""
    shuffled = data.draw(st.permutations(observed))

    assert _matrix(shuffled) == _matrix(observed)


@given(observed=_observed())
def test_counts_of_a_cell_agree_with_its_verdict(observed: list[Observation]) -> None:
    """The k, the n and the distinct outputs are possible numbers, and say the same as the verdict."""
    (found,) = _matrix(observed)
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
