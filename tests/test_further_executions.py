"""Rows that were executed too seldom to say what the flag does to them are executed further."""

from __future__ import annotations

import io
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from detmatrix.scanner.observations.runfile import Run
from detmatrix.scanner.run.progress import Progress
from detmatrix.scanner.verdicts.findings import MatrixRow, matrix
from tests.conftest import lines
from tests.stand_in import QUICK, StandIn

OPTIONS = (*QUICK, "--perturb", "quiet", "--no-cost", "--no-overloads")
ROW = "quick.cumsum:small:forward:float32"
RUNS = 6
# To as many executions as any row of the catalog has.
MISSING = 100 - 2 * RUNS
OTHER_BITS = {"mode": "on", "spec": "quick.cumsum", "dtype": "float32", "direction": "forward"}
RACED: dict[str, Any] = {
    **OTHER_BITS, "mode": "off", "then": {"digests": {"first": RUNS - 1, "b": 1}, "first_differing": 1},
}  # fmt: skip


def _scan(folder: Path, *rules: dict[str, Any], more: tuple[object, ...] = ()) -> tuple[Run, StandIn]:
    others = [
        {**OTHER_BITS, "runs": asked, "then": {"digests": {"other": asked}}}
        for asked in (RUNS, MISSING, 1000 - 2 * RUNS)
    ]
    standing = StandIn(folder, *rules, *others)
    return standing.scanned("quick.cumsum", *OPTIONS, "--runs", RUNS, *more), standing


def _row(run: Run) -> MatrixRow:
    rows = matrix(run.header, run.observations, closed=True, sentinels=run.sentinels)
    return next(row for row in rows if row.row.id == ROW)


def _further(standing: StandIn) -> list[dict[str, Any]]:
    """Return what was asked of rows beyond what the settings say."""
    return [
        one for one in standing.noted
        if one["do"] == "observe" and not one["spec"].startswith("control.") and one["runs"] != RUNS
    ]  # fmt: skip


def test_what_settles_a_finding_has_five_seconds(tmp_path: Path) -> None:
    """However few a row has, as where whole databases are scanned; invariance, too, is asked of few."""
    _, standing = _scan(tmp_path, more=("--max-time", 0.5, "--invariance", "layout"))

    first = [one for one in standing.noted if one["do"] == "observe" and one["runs"] == RUNS]
    invariance = [one for one in standing.noted if one["do"] == "invariance"]
    asked = [{one["max_time"] for one in some} for some in (first, _further(standing), invariance)]
    assert asked == [{0.5}, {5}, {5}]


def test_rows_with_other_bits_are_executed_further(tmp_path: Path) -> None:
    """The one row whose modes give other bits, in both, until it has as many executions as any of the catalog."""
    run, standing = _scan(tmp_path)

    further = _further(standing)
    assert [(asked["mode"], asked["runs"]) for asked in further] == [("off", MISSING), ("on", MISSING)]
    for asked in further:
        assert ":".join(asked[name] for name in ("spec", "case", "direction", "dtype")) == ROW
    row = _row(run)
    assert (row.finding, row.off.runs, row.on.runs) == ("mode_dependent", 100, 100)
    assert [(one.mode, one.process) for one in row.observations] == [
        (mode, process) for mode in ("off", "on") for process in range(3)
    ]
    # A worker of its own for each, with the controls, and a sentinel before and behind.
    assert len([one for one in run.controls if one.process == 2]) == 2 * 6
    assert len([one for one in run.sentinels if one.process == 2]) == 2 * 2


# Every rule is of one small row: what its further executions give, and what they make of it.
UNFILLED = {**OTHER_BITS, "mode": "unfilled"}


def _once(executions: int, digest: str = "first", differing: int = 1) -> dict[str, Any]:
    """Return what executions give of which a few differ."""
    return {"digests": {digest: executions - differing, "b": differing}, "first_differing": 1}


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        # The flag gives other bits, and a race among them that a few executions did not show.
        ([{**OTHER_BITS, "runs": MISSING, "then": _once(MISSING, "other")}], {"finding": "silent", "on.differing": 1}),
        # A race that shows in one of 200 executions hardly shows in 100: where several threads work, 1000 are made.
        ([{**OTHER_BITS, "mode": "off", "then": {"threads": 2}}],
         {"finding": "mode_dependent", "off.runs": 1000, "on.runs": 1000}),
        # What differs in the further executions differs; then so many are made with the flag on that it would have there too.
        ([{"do": "observe", "mode": "off", "runs": MISSING, "spec": "quick.cumsum", "then": _once(MISSING, differing=3)},
          {**OTHER_BITS, "runs": 170 - 2 * RUNS, "then": {"digests": {"other": 170 - 2 * RUNS}}}],
         {"finding": "fixed_by_mode", "off.differing": 3, "weak": None, "on.runs": 170, "unfilled.runs": 170}),
        # What differs in one of twelve executions need not differ in twelve: the flag is not credited for that.
        ([{**RACED, "runs": RUNS}, {**OTHER_BITS, "runs": 40 - 2 * RUNS, "then": _once(40 - 2 * RUNS)}, {**OTHER_BITS, "then": {}}],
         {"finding": "silent", "on.runs": 40}),
        # However few executions were asked for: what differs in one of a hundred without the fill is cured by that.
        ([RACED, {**UNFILLED, "runs": 50, "then": _once(50)}, {**OTHER_BITS, "then": {}}],
         {"finding": "uninitialized", "unfilled.runs": 100}),
        ([RACED, {**UNFILLED, "runs": 50, "then": {}}, {**OTHER_BITS, "then": {}}], {"finding": "fixed_by_mode", "unfilled.runs": 100}),
        # Where it differs with nothing filled, load may have hidden its race with the fill: another process is asked.
        *(([RACED, {**UNFILLED, "then": _once(50, differing=25)}, {**OTHER_BITS, "runs": 200 - 2 * RUNS, "then": then},
            {**OTHER_BITS, "then": {}}], {"finding": finding, "unfilled.differing": 50, "weak": None, "on.runs": 200})
          for then, finding in (({}, "uninitialized"), (_once(200 - 2 * RUNS, differing=88), "silent"))),
    ],
)  # fmt: skip
def test_what_further_executions_make_of_a_row(
    tmp_path: Path, rules: list[dict[str, Any]], expected: dict[str, object]
) -> None:
    """They show what a few did not, and end by themselves before the time is over that a row has."""
    run, standing = _scan(tmp_path, *rules, more=("--timeout", 8))

    row = _row(run)
    assert {name: attrgetter(name)(row) for name in expected} == expected
    asked = [one for one in standing.noted if (one.get("mode"), one.get("runs")) == ("unfilled", 50)]
    assert {one["max_time"] for one in asked} <= {4.0}


@pytest.mark.parametrize("kept", [0, 1])
def test_further_executions_are_resumed(tmp_path: Path, kept: int) -> None:
    """A scan that was cut before or behind them ends as if it had not been."""
    whole, _ = _scan(tmp_path)
    records = lines(tmp_path / "run.jsonl")
    place = next(
        n for n, one in enumerate(records) if one.get("process") == 2 and one.get("spec") == "quick.cumsum"
    )
    text = (tmp_path / "run.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "run.jsonl").write_text("".join(text[: place + kept]))

    resumed, standing = _scan(tmp_path, more=("--resume",))

    assert resumed.closing is not None
    assert len(_further(standing)) == 4 - kept
    assert (_row(resumed).finding, _row(resumed).off.runs) == (_row(whole).finding, _row(whole).off.runs)


def test_observations_beyond_those_planned_are_counted_apart() -> None:
    """Two shares of a scan begin theirs while those of the other still come."""
    told = io.StringIO()
    progress = Progress(told)
    progress.begin(2, 0)
    for announced, seen in ((0, 2), (3, 1), (2, 4)):
        progress.further(announced)
        for _ in range(seen):
            progress.saw("deterministic")
    progress.end()

    assert "scan: 2/2 observations; 7 deterministic" in told.getvalue()
