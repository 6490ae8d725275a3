"""What a node does for a shard: the scan that anyone starts, its file in the end, and nothing left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from detmatrix.scanner.cluster import ShardDone, scan_shard
from detmatrix.scanner.observations.runfile import read_run
from tests.stand_in import StandIn

SPECS = Path(__file__).with_name("quick.py")


@pytest.fixture
def nodes_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let the folder for temporary files be one of the test's own."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


def _words(standing: StandIn) -> list[str]:
    options = ["--device", "cpu", "--runs", "4", "--processes", "1", "--no-cost", "--no-overloads"]
    python = ["--python", str(standing.python), "--specs", str(SPECS)]
    return ["--shard", "1/2", *python, *options, "quick"]


def test_file_of_a_shard_comes_back(nodes_folder: Path, tmp_path: Path) -> None:
    """Whole, with the variables that were asked for; the folder of the task is gone."""
    standing = StandIn(tmp_path)

    done = ShardDone(*scan_shard(_words(standing), {"OMP_NUM_THREADS": "3"}))

    assert done.code == 0, done.said
    (tmp_path / "run.jsonl").write_bytes(done.run)
    run = read_run(tmp_path / "run.jsonl")
    assert run.closing is not None
    assert str(run.header.settings.runs) == "4"
    assert {one["variables"]["OMP_NUM_THREADS"] for one in standing.noted if one["do"] == "start"} == {"3"}
    assert [path for path in nodes_folder.iterdir() if "shard" in path.name] == []


def test_scan_that_fails_says_why(nodes_folder: Path, tmp_path: Path) -> None:
    """What it says as it ends is told with its exit code."""
    done = ShardDone(*scan_shard(_words(StandIn(tmp_path, {"do": "start", "then": "exit"})), {}))

    assert done.code == 2
    assert b"detmatrix: " in done.said
    assert [path for path in nodes_folder.iterdir() if "shard" in path.name] == []
