"""Workers side by side: every row once in each mode, controls and power by share, and whole rows wherever it is cut."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from detmatrix.scanner.observations.runfile import Run, read_run
from detmatrix.scanner.verdicts.findings import matrix
from tests.commands import Command, command_in
from tests.stand_in import StandIn

SPECS = Path(__file__).with_name("quick.py")
OPTIONS = ("quick", "--specs", SPECS, "--device", "cpu", "--runs", 100, "--processes", 2)


def _scan(folder: Path, *rules: dict[str, Any], workers: int = 2) -> Run:
    standing = StandIn(folder, *rules)
    options = (*OPTIONS, "--workers", workers, "--python", standing.python)
    done = command_in(folder)("scan", *options, "-o", f"{workers}.jsonl", "--force")
    assert done.returncode == 0, done.stderr
    return read_run(folder / f"{workers}.jsonl")


def _findings(run: Run) -> dict[tuple[str, ...], tuple[str, str | None]]:
    rows = matrix(run.header, run.observations, closed=True, sentinels=run.sentinels)
    return {row.row.key: (row.finding, row.weak) for row in rows}


def test_two_workers_find_what_one_finds(tmp_path: Path) -> None:
    """Each row is observed in the share of one of them; both answer all controls in all processes."""
    one, two = (_scan(tmp_path, workers=workers) for workers in (1, 2))

    assert _findings(two) == _findings(one)
    assert Counter((o.key, o.mode, o.process) for o in two.observations) == Counter(
        (o.key, o.mode, o.process) for o in one.observations
    )
    workers = {
        row.key: {o.worker for o in two.observations if o.key == row.key} for row in two.header.planned
    }
    assert {len(found) for found in workers.values()} == {1}
    assert set.union(*workers.values()) == {0, 1}
    answered = Counter((o.spec, o.mode, o.process, o.worker) for o in two.controls)
    assert set(answered.values()) == {1}
    assert {worker for *_, worker in answered} == {0, 1}
    assert two.closing is not None
    assert (len(two.costs), len(two.dispatches)) == (len(one.costs), len(one.dispatches))


def test_power_is_that_of_the_share(tmp_path: Path) -> None:
    """A worker whose sentinel did not differ says so of its rows, and of no others."""
    run = _scan(tmp_path, {"do": "sentinel", "worker": 3, "then": {"digests": {"a": 20}}})

    (weak,) = {sentinel.worker for sentinel in run.sentinels if not sentinel.differing}
    shares: dict[tuple[str, ...], int] = {o.key: o.worker for o in run.observations}
    found = {
        key: reason is not None
        for key, (finding, reason) in _findings(run).items()
        if finding == "deterministic"
    }
    assert found == {key: shares[key] == weak for key in found}
    assert set(found.values()) == {True, False}


@pytest.mark.parametrize("worker", [2, 4])
def test_what_is_cut_has_whole_rows_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, detmatrix: Command, worker: int
) -> None:
    """A worker that does not start ends the scan, in one line; the file goes on, and has every row once."""
    monkeypatch.setattr("detmatrix.scanner.run.shares._TURN", 2)
    standing = StandIn(tmp_path, {"do": "start", "worker": worker, "then": "exit"})
    options = (*OPTIONS, "--workers", 2, "--python", standing.python, "-o", "run.jsonl")

    done = detmatrix("scan", *options)
    assert done.returncode == 4
    assert "no worker could be started" in done.stderr.splitlines()[-1]
    StandIn(tmp_path)
    assert detmatrix("scan", *options, "--resume").returncode == 0

    run = read_run(tmp_path / "run.jsonl")
    assert run.closing is not None
    # Nothing is said of rows whose worker was ended since another one did not start.
    assert {one.outcome for one in run.observations} <= {"ran", "raised"}
    counted = Counter((o.key, o.mode, o.process) for o in run.observations if o.mode in {"off", "on"})
    assert set(counted.values()) == {1}
    assert len(counted) == 4 * len(run.header.planned)
