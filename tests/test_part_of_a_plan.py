"""What is a part of a plan alone says so wherever it is shown, and a run of several machines names them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from detmatrix.reports.coverage import coverages
from detmatrix.reports.matrix.model import load
from detmatrix.scanner.observations.runfile import read_run
from tests.commands import Command, command_in
from tests.sharded import SHARDS, changed, shard_name

# What ``detmatrix.scanner.worker.repro.inputs`` would say of inputs, with torch.
DRAWN: dict[str, Any] = {
    "lines": [],
    "args": "()",
    "kwargs": "{}",
    "leaves": "()",
    "digest": None,
    "op": "torch.cumsum",
    "in_place": False,
    "imports": [],
    "definitions": [],
    "upstream": None,
}


@pytest.fixture(params=["shard", "second file"])
def lone(request: pytest.FixtureRequest, in_shards: Path, tmp_path: Path) -> tuple[Path, str]:
    """Return a complete file that holds a part of its plan, and what it lacks."""
    if request.param == "shard":
        return in_shards / shard_name(3), "shards 1-2, 4-8 of 8 are missing"
    path = Path(shutil.copy(in_shards / "whole.jsonl", tmp_path / "run.2.jsonl"))
    changed(path, file=2, continues="run.jsonl", began=["2026-01-02T03:04:05Z"])
    return path, "its beginning is in another file"


def test_machines_are_told_what_is_missing(
    detmatrix: Command, in_shards: Path, lone: tuple[Path, str]
) -> None:
    """The file is whole, what it is of is not: in the reports of one run, of lists, and of changes."""
    path, missing = lone
    whole = in_shards / "whole.jsonl"

    report = json.loads(detmatrix("report", path, "--format", "json").stdout)
    docs = json.loads(detmatrix("docs", path, "--format", "json").stdout)
    told = [detmatrix(*words).stdout for words in (("docs", path), ("compare", whole, path))]
    compared = json.loads(detmatrix("compare", whole, path, "--format", "json").stdout)

    assert (report["complete"], report["missing"]) == (False, missing)
    assert (report["shard"], report["shards"], report["file"]) == (
        (3, 8, 1) if "shards" in missing else (1, 1, 2)
    )
    assert f"Incomplete: {missing}" in told[0]
    assert f"{path.name}: Incomplete: {missing}" in told[1]
    assert [run["complete"] for run in docs["runs"]] == [False]
    assert [run["complete"] for run in compared["runs"]] == [True, False]
    assert [run["complete"] for it in coverages(load([str(whole)])) for run in it["runs"]] == [True]
    assert [run["complete"] for it in coverages(load([str(path)])) for run in it["runs"]] == [False]


@pytest.fixture
def merged(in_shards: Path, tmp_path: Path) -> Path:
    """Return what two machines observed, of which the second has other variables too."""
    for number in range(1, SHARDS + 1):
        path = Path(shutil.copy(in_shards / shard_name(number), tmp_path))
        if number > 5:
            changed(path, environment={"variables": {"off": {"OMP_NUM_THREADS": "16"}, "on": {}}})
    run = command_in(tmp_path)
    assert run("merge", *map(shard_name, range(1, SHARDS + 1)), "-o", "all.jsonl").returncode == 0
    return tmp_path / "all.jsonl"


@pytest.mark.parametrize("shard", [1, 6])
def test_a_script_is_of_the_machine_that_observed_its_row(
    detmatrix: Command, merged: Path, monkeypatch: pytest.MonkeyPatch, shard: int
) -> None:
    """It names that one, and sets its variables."""
    monkeypatch.setattr("detmatrix.scanner.cli.repro._ask", lambda *_: DRAWN)
    header = read_run(merged).header
    row = next(one for one in header.planned if header.parts[one.part].shard == shard)

    done = detmatrix("repro", merged, row.id)

    assert done.returncode == 0, done.stderr
    of_second = "on Another CPU, 16 threads" in " ".join(done.stdout.replace("\n# ", " ").split())
    assert of_second == (shard == 6)
    assert ("os.environ.setdefault('OMP_NUM_THREADS', '16')" in done.stdout) == of_second
