"""Rows that were executed too seldom to say what the flag does to them are executed further."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from detmatrix.scanner.observations.runfile import Run
from detmatrix.scanner.run.progress import Progress
from detmatrix.scanner.verdicts.findings import MatrixRow, matrix
from tests.commands import scanned_in
from tests.conftest import lines
from tests.stand_in import StandIn

QUICK = Path(__file__).with_name("quick.py")
OPTIONS = ("--specs", QUICK, "--device", "cpu", "--perturb", "quiet", "--no-cost", "--no-overloads")
ROW = "quick.cumsum:small:forward:float32"
RUNS = 6
OTHER_BITS = {"mode": "on", "spec": "quick.cumsum", "dtype": "float32", "direction": "forward"}
RACED: dict[str, Any] = {
    **OTHER_BITS, "mode": "off", "then": {"digests": {"first": RUNS - 1, "b": 1}, "first_differing": 1},
}  # fmt: skip


def _scan(
    folder: Path, *rules: dict[str, Any], runs: int = RUNS, more: tuple[object, ...] = ()
) -> tuple[Run, StandIn]:
    others = [
        {**OTHER_BITS, "runs": asked, "then": {"digests": {"other": asked}}}
        for asked in (runs, 100 - 2 * runs, 1000 - 2 * runs)
    ]
    standing = StandIn(folder, *rules, *others)
    words = (*OPTIONS, "--runs", runs, *more, "--python", standing.python)
    return scanned_in(folder, "quick.cumsum", *words), standing


def _row(run: Run) -> MatrixRow:
    rows = matrix(run.header, run.observations, closed=True, sentinels=run.sentinels)
    return next(row for row in rows if row.row.id == ROW)


def _further(standing: StandIn) -> list[dict[str, Any]]:
    """Return what was asked of rows beyond what the settings say."""
    return [
        one for one in standing.noted
        if one["do"] == "observe" and not one["spec"].startswith("control.") and one["runs"] != RUNS
    ]  # fmt: skip


def test_rows_with_other_bits_are_executed_further(tmp_path: Path) -> None:
    """The one row whose modes give other bits, in both, until it has as many executions as any of the catalog."""
    run, standing = _scan(tmp_path)

    further = _further(standing)
    missing = 100 - 2 * RUNS
    assert [(asked["mode"], asked["runs"]) for asked in further] == [("off", missing), ("on", missing)]
    for asked in further:
        assert ":".join(asked[name] for name in ("spec", "case", "direction", "dtype")) == ROW
        assert asked["max_time"] == 5
    row = _row(run)
    assert (row.finding, row.off.runs, row.on.runs) == ("mode_dependent", 100, 100)
    assert [(one.mode, one.process) for one in row.observations] == [
        (mode, process) for mode in ("off", "on") for process in range(3)
    ]
    # A worker of its own for each, with the controls, and a sentinel before and behind.
    assert len([one for one in run.controls if one.process == 2]) == 2 * 6
    assert len([one for one in run.sentinels if one.process == 2]) == 2 * 2


def test_a_race_that_shows_then_with_the_flag_on_is_silent(tmp_path: Path) -> None:
    """The flag gives other bits, and a race among them that a few executions did not show."""
    raced = {"digests": {"other": 99 - 2 * RUNS, "b": 1}, "first_differing": 60}
    run, _ = _scan(tmp_path, {**OTHER_BITS, "runs": 100 - 2 * RUNS, "then": raced})

    assert (_row(run).finding, _row(run).on.differing) == ("silent", 1)


def test_what_may_race_is_executed_far_oftener(tmp_path: Path) -> None:
    """A race that shows in one of 200 executions hardly shows in 100: where several threads work, 1000 are made."""
    several = {**OTHER_BITS, "mode": "off", "then": {"threads": 2}}
    run, standing = _scan(tmp_path, several, runs=50)

    assert [(one["mode"], one["runs"]) for one in _further(standing) if one["runs"] != 50] == [
        ("off", 900),
        ("on", 900),
    ]
    assert _row(run).finding == "mode_dependent"


def test_a_race_that_shows_then_is_none_of_the_flags_doing(tmp_path: Path) -> None:
    """What differs in the further executions differs; then so many are made with the flag on that it would have there too."""
    missing, enough = 100 - 2 * RUNS, 299
    raced = {"digests": {"first": missing - 1, "b": 1}, "first_differing": 60}
    cured = {"digests": {"other": enough - 2 * RUNS}}
    run, _ = _scan(
        tmp_path,
        {"do": "observe", "mode": "off", "runs": missing, "spec": "quick.cumsum", "then": raced},
        {**OTHER_BITS, "runs": enough - 2 * RUNS, "then": cured},
    )

    row = _row(run)
    assert (row.finding, row.off.differing, row.weak) == ("fixed_by_mode", 1, None)
    assert (row.on.runs, row.unfilled.runs) == (enough, enough)


def test_a_race_as_rare_with_the_flag_on_is_silent(tmp_path: Path) -> None:
    """What differs in one of twelve executions need not differ in twelve: the flag is not credited for that."""
    missing = 17 - 2 * RUNS
    on = {"digests": {"first": missing - 1, "b": 1}, "first_differing": 1}
    rules = ({**RACED, "runs": RUNS}, {**OTHER_BITS, "runs": missing, "then": on}, {**OTHER_BITS, "then": {}})
    run, _ = _scan(tmp_path, *rules)

    assert (_row(run).finding, _row(run).on.runs) == ("silent", 17)


def test_what_differs_under_another_thread_count_is_asked_without_the_fill(tmp_path: Path) -> None:
    """The modes disagree there, which mode unfilled has to speak of as of any other row."""
    apart = {"t": 3, "u": 1}

    def seen(runs: int, digests: dict[str, int]) -> dict[str, Any]:
        groups = [{"perturbation": "quiet", "executions": runs, "differing": 0}]
        groups += [
            {"perturbation": "threads=1", "executions": 4, "differing": len(digests) - 1, "digests": digests}
        ]
        return {"executions": runs, "digests": {"first": runs}, "groups": groups}

    rules = (
        {"do": "observe", "mode": mode, "runs": runs, "spec": "quick.cumsum", "then": seen(runs, digests)}
        for mode, runs, digests in (("off", RUNS, apart), ("on", RUNS, {"t": 4}), ("unfilled", 50, {"t": 4}))
    )
    run, _ = _scan(tmp_path, *rules, more=("--perturb", "quiet,threads"))

    found = _row(run)
    assert (found.finding, found.unfilled.runs) == ("fixed_by_mode", 100)


def test_what_the_flag_cures_is_executed_often_without_the_fill(tmp_path: Path) -> None:
    """However few executions were asked for: what differs in one of a hundred there is cured by the fill, not by the flag."""
    seldom = {"digests": {"first": 49, "b": 1}, "first_differing": 40}
    rules = ({**OTHER_BITS, "mode": "unfilled", "runs": 50, "then": then} for then in (seldom, {}))
    found = []
    for number, rule in enumerate(rules):
        folder = tmp_path / str(number)
        folder.mkdir()
        run, standing = _scan(folder, RACED, rule, {**OTHER_BITS, "then": {}}, more=("--timeout", 8))
        found.append((_row(run).finding, _row(run).unfilled.runs))
        asked = [one for one in standing.noted if (one["mode"], one.get("runs")) == ("unfilled", 50)]
        # They end by themselves before the time is over that a row has.
        assert {one["max_time"] for one in asked} == {4.0}

    assert found == [("uninitialized", 100), ("fixed_by_mode", 100)]


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


@pytest.mark.parametrize(("hidden", "finding"), [(False, "uninitialized"), (True, "silent")])
def test_the_fill_is_not_thanked_before_another_process(tmp_path: Path, hidden: bool, finding: str) -> None:
    """Where a row differs with the flag on and nothing filled; load may have hidden its race with the fill."""
    half = {"digests": {"first": 25, "b": 25}, "first_differing": 1}
    raced = {"digests": {"first": 100, "b": 100 - 2 * RUNS}, "first_differing": 1} if hidden else {}
    run, _ = _scan(
        tmp_path,
        RACED,
        {**OTHER_BITS, "mode": "unfilled", "then": half},
        {**OTHER_BITS, "runs": 200 - 2 * RUNS, "then": raced},
        {**OTHER_BITS, "then": {}},
    )

    found = _row(run)
    assert (found.finding, found.unfilled.differing, found.weak) == (finding, 50, None)
    assert found.on.runs == 200


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
