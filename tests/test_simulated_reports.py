"""What reports and scripts say of a simulated run, by one that was recorded: schedules in place of rates, and never measured.

``tests/data/simulated.jsonl.gz`` is a scan with ``--simulate sm_80`` of torch 2.15.0: rows that the flag fixes, that are silent,
raise, are wrong with the flag on, call cuDNN, or rest on products that the CPU computed.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from detmatrix.reports.compare.runs import compare
from detmatrix.reports.matrix.model import load
from detmatrix.scanner.errors import UsageError
from detmatrix.scanner.observations.records import Observation
from detmatrix.scanner.observations.runfile import read_run
from detmatrix.scanner.repro.replay import ReplaySource, _compared, witness_of
from detmatrix.scanner.verdicts.findings import MatrixRow, matrix
from tests.commands import Command
from tests.conftest import write_lines

RECORDED = Path(__file__).parent / "data" / "simulated.jsonl.gz"
Change = Callable[[dict[str, Any]], object]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return the recorded run in the folder of commands."""
    return changed(tmp_path / "run.jsonl", lambda _: None)


def changed(path: Path, change: Change) -> Path:
    """Write the recorded run with its records changed."""
    records = [json.loads(line) for line in gzip.decompress(RECORDED.read_bytes()).splitlines()]
    for record in records:
        change(record)
    return write_lines(path, records)


def observed(spec: str, mode: str, change: Change) -> Change:
    """Return what changes the observations of a spec in a mode."""
    return lambda one: one.get("spec") == spec and one.get("mode") == mode and change(one)


def row_of(path: Path, row_id: str) -> MatrixRow:
    """Return a row of a run."""
    one = read_run(str(path))
    return next(row for row in matrix(one.header, one.observations, closed=True) if row.row.id == row_id)


def test_simulated_and_measured_do_not_stand_together(detmatrix: Command, run: Path) -> None:
    """Runs that were measured on CUDA do not stand beside one that is simulated."""
    changed(
        run.with_name("cuda.jsonl"),
        lambda one: (
            one.get("kind") == "header"
            and (
                one["settings"].update(device="cuda:0", simulate=""),
                one["environment"].update(simulated=None),
            )
        ),
    )
    refused = detmatrix("docs", run.name, "cuda.jsonl")
    assert refused.returncode == 2
    assert "run.jsonl is simulated and cuda.jsonl was measured on CUDA" in refused.stderr
    with pytest.raises(UsageError, match="what is simulated is never compared with what was measured"):
        compare(load([str(run), str(run.with_name("cuda.jsonl"))]))


def test_simulated_runs_are_compared(run: Path, tmp_path: Path) -> None:
    """Schedules show the same again, so that a change needs no second look; other schedules cannot be compared."""

    def still(one: dict[str, Any]) -> None:
        if one["simulated"]["schedule"]:
            one["simulated"].update(schedule=None, witness=None)
            one.update(
                executions=8,
                digests={next(iter(one["digests"])): 8},
                outputs=[],
                groups=[],
                first_differing=None,
            )

    def mend(one: dict[str, Any]) -> None:
        for mode in ("off", "on"):
            observed("torch.nn.AdaptiveMaxPool3d", mode, still)(one)
        observed("torch.nn.ReflectionPad2d", "on", lambda it: it["simulated"]["cpu"].update(agrees=True))(one)

    (pair,) = compare(load([str(run), str(changed(tmp_path / "new.jsonl", mend))])).pairs
    told = {change.row.spec: change for change in pair.changes if change.kind != "same"}
    assert {spec: (it.kind, it.confirmed, it.detail) for spec, it in told.items()} == {
        "torch.nn.AdaptiveMaxPool3d": (
            "improved",
            True,
            "on: differs under resident-blocks (number 0, seed 0) → 0 of 8 schedules differed",
        ),
        "torch.nn.ReflectionPad2d": ("improved", True, "wrong with the flag on no longer"),
    }

    more = changed(
        tmp_path / "more.jsonl",
        lambda one: (
            one.get("kind") == "header" and one["environment"]["simulated"]["executions"].update(lanes=5)
        ),
    )
    (pair,) = compare(load([str(run), str(more)])).pairs
    assert [one.reason for one in pair.obstacles] == ["other_perturbations"]


def test_script_replays_a_schedule(detmatrix: Command, run: Path) -> None:
    """It holds the row, the schedule of each mode and both digests, and nothing that a run file says outside of quotes."""
    detmatrix("repro", "--replay", run.name, "AdaptiveMaxPool3d:smaller_output", "-o", "replay.py")
    text = run.with_name("replay.py").read_text(encoding="utf-8")
    held: list[ReplaySource] = []
    source = text.replace("from detmatrix.scanner.repro.replay import main\n", "")
    exec(source, {"main": lambda one: held.append(msgspec.convert(one, ReplaySource))})

    row = row_of(run, "torch.nn.AdaptiveMaxPool3d:smaller_output:backward:float32")
    assert held == [witness_of(row, read_run(str(run)).header)]
    assert {
        mode: (len(it.digests), it.schedule and it.schedule.name) for mode, it in held[0].modes.items()
    } == {"off": (2, "resident-blocks"), "on": (2, "resident-blocks")}

    refused = detmatrix("repro", "--replay", run.name, "Conv2d:dense")
    assert refused.returncode == 2
    assert "nothing to replay, it ran in no mode (off: not_run (calls cudnnBackendExecute" in refused.stderr


@pytest.mark.parametrize(
    ("change", "same", "line"),
    [
        ({}, True, "the same as recorded"),
        ({"inputs_digest": "2:0"}, False, "the inputs are not those of the run"),
        ({"digests": {"2:a": 3, "2:b": 1}}, False, "NOT what is recorded"),
        ({"outcome": "timeout", "message": "it did not end"}, False, "timeout: it did not end"),
    ],
)
def test_replay_tells_the_same_from_other_bits(
    run: Path, change: dict[str, Any], same: bool, line: str
) -> None:
    """A replay is the same if its inputs, its schedule and the bits of both executions are."""
    row = row_of(run, "torch.nn.AdaptiveMaxPool3d:smaller_output:backward:float32")
    witness = witness_of(row, read_run(str(run)).header)
    seen = msgspec.convert(msgspec.to_builtins(row.observations[0]) | change, Observation)

    lines = list(_compared(witness, witness.modes["off"], seen))
    assert all(is_same for _, is_same in lines) is same
    assert any(text.startswith(line) for text, _ in lines)
