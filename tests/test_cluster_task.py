"""What a node does for a shard: the scan that anyone starts, its lines as they come, and nothing left behind."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from scanner.cluster.task import BEGAN, ENDED, LINES, scan_shard
from scanner.observations.runfile import read_run
from tests.stand_in import StandIn, using

SPECS = Path(__file__).with_name("quick.py")
NAME = "run-1-of-2.jsonl"


@pytest.fixture
def nodes_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let the folder for temporary files be one of the test's own."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


def _words(standing: StandIn, shard: str = "1/2") -> list[str]:
    options = ["--device", "cpu", "--runs", "4", "--processes", "1", "--no-cost", "--no-overloads"]
    return [
        "--resume",
        "--shard",
        shard,
        "--python",
        str(standing.python),
        "--specs",
        str(SPECS),
        *options,
        "quick",
    ]


def test_lines_come_as_they_are_written(nodes_folder: Path, tmp_path: Path) -> None:
    """A task that is stopped ends the scan and all below it; the next one goes on with what was sent, on any machine."""
    waits = tmp_path / "waits"
    waits.touch()
    standing = StandIn(tmp_path, {"spec": "quick.fails", "mode": "on", "wait": str(waits)})
    told = scan_shard(_words(standing), NAME, [], {"OMP_NUM_THREADS": "3"})
    assert next(told)[0] == BEGAN
    what, number, sent = next(told)
    assert (what, number) == (LINES, 1)
    while b'"mode":"off"' not in sent:
        sent += next(told)[2]
    assert sent.endswith(b"\n")

    told.close()

    deadline = time.monotonic() + 60
    while using(standing) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not using(standing)
    assert [path for path in nodes_folder.iterdir() if "shard" in path.name] == []
    assert {one["variables"]["OMP_NUM_THREADS"] for one in standing.noted if one["do"] == "start"} == {"3"}
    waits.unlink()
    # As if the first machine had been another one.
    held = sent.replace(b'"cores":', b'"cores":1')
    files = {1: held, 2: b""}
    code = None
    for what, number, data in scan_shard(_words(standing), NAME, [held], {"OMP_NUM_THREADS": "3"}):
        if what == LINES:
            files[number] += data
        code = number if what == ENDED else None
    assert code == 0
    assert files[1] == held
    (tmp_path / "second.jsonl").write_bytes(files[2])
    run = read_run(tmp_path / "second.jsonl")
    assert run.closing is not None
    assert run.header.file == 2


def test_what_a_killed_task_left_behind_is_removed(nodes_folder: Path, tmp_path: Path) -> None:
    """The folders of those that live are theirs; what a scan says as it ends is told with its exit code."""
    standing = StandIn(tmp_path, {"do": "start", "then": "exit"})
    (nodes_folder / "detmatrix-shard-dead").mkdir()
    (nodes_folder / "detmatrix-shard-dead" / NAME).touch()
    told = scan_shard(_words(standing), NAME, [], {})
    next(told)

    what, code, said = [*told][-1]

    assert (what, code) == (ENDED, 2)
    assert b"detmatrix: " in said
    assert [path.name for path in nodes_folder.iterdir() if "shard" in path.name] == []
