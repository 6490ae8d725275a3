"""A scan on a cluster that lost shards, or was stopped: what is kept, what is scanned again, and what is finished."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from tests.clusters import observed
from tests.commands import Command
from tests.fake_ray import OPTIONS, FakeCluster, NodeDiedError, RayTaskError


def test_finished_scan_is_resumed_in_a_moment(
    detmatrix: Command, cluster: FakeCluster, prepared: Path, tmp_path: Path
) -> None:
    """As without Ray: nothing is scanned again nor renamed, and what is asked for must be what is there."""
    ray, run = cluster(), tmp_path / "detmatrix.jsonl"
    assert detmatrix("scan", *OPTIONS, "--ray").returncode == 0
    before = run.read_bytes()
    ray.asked.clear()

    done = detmatrix("scan", *OPTIONS, "--ray", "--resume", "--fail-on", "over_alert")

    assert (done.returncode, ray.asked) == (1, [])
    assert done.stdout.startswith("4 ops, 7 rows")
    assert ([*tmp_path.iterdir()], run.read_bytes()) == ([run], before)
    other = detmatrix("scan", *OPTIONS, "--seed", 7, "--ray", "--resume")
    assert other.returncode == 2
    assert (
        "detmatrix.jsonl: cannot be resumed, --seed is not the one it began with (7, it has 0)"
        in other.stderr
    )
    # One shard of it by itself is no finished scan.
    shutil.copy(prepared / "1-of-2.jsonl", run)
    assert detmatrix("scan", *OPTIONS, "--ray", "--resume").returncode == 0
    assert len(ray.asked) == 2
    assert observed(run) == observed(prepared / "whole.jsonl")


def test_lost_shard_keeps_no_other_from_being_scanned(
    detmatrix: Command, cluster: FakeCluster, prepared: Path, tmp_path: Path
) -> None:
    """Complete shards stay, and the same command scans the lost one again."""
    ray = cluster()
    for end in (NodeDiedError(), RayTaskError(InterruptedError("it was stopped by signal 9"))):
        ray.ends["1/2"] = end
        why = "NodeDiedError" if isinstance(end, NodeDiedError) else "it was stopped by signal 9"

        done = detmatrix("scan", *OPTIONS, "--ray", "--resume")

        assert done.returncode == 4
        assert done.stderr.splitlines()[-1] == (
            f"detmatrix: shard 1/2 ({why}) was lost 3 times (1 such); see ray status and the logs of the node, then go on with "
            "--resume"
        )
        assert not (tmp_path / "detmatrix.jsonl").exists()
    assert detmatrix("scan", *OPTIONS, "--ray").stderr.splitlines()[-1] == (
        "detmatrix: detmatrix.shards: holds the shards of an unfinished scan; go on with --resume, or start over with --force"
    )
    ray.ends.clear()
    ray.asked.clear()
    assert detmatrix("scan", *OPTIONS, "--ray", "--resume").returncode == 0
    assert [words[1] for _, words in ray.asked] == ["1/2"]
    assert observed(tmp_path / "detmatrix.jsonl") == observed(prepared / "whole.jsonl")


def test_what_lacks_a_shard_is_no_run(
    detmatrix: Command, cluster: FakeCluster, prepared: Path, tmp_path: Path
) -> None:
    """Nothing is written, nothing is removed, and the line says what is missing."""
    ray = cluster()
    ray.prepared = tmp_path
    shutil.copy(prepared / "1-of-2.jsonl", tmp_path / "1-of-1.jsonl")

    done = detmatrix("scan", *OPTIONS, "--ray", "--shards", 1)

    assert (done.returncode, done.stderr.splitlines()[-1]) == (
        4,
        "detmatrix: detmatrix.shards: shard 2 of 2 is missing; go on with --resume, or start over with --force",
    )
    assert not (tmp_path / "detmatrix.jsonl").exists()
    kept = tmp_path / "detmatrix.shards" / "python-1-1-of-1.jsonl"
    assert kept.read_bytes() == (prepared / "1-of-2.jsonl").read_bytes()


def test_all_runs_are_merged_before_any_is_written(
    detmatrix: Command, cluster: FakeCluster, tmp_path: Path
) -> None:
    """What would fail at the second leaves no first, which the next attempt would take for an earlier run."""
    ray = cluster()
    ray.ends["2/2"] = NodeDiedError()
    scan = ("scan", *OPTIONS, "--ray", "--python", "/a/python", "--python", "/b/python", "--resume")
    assert detmatrix(*scan).returncode == 4
    ray.ends.clear()
    damaged = tmp_path / "detmatrix.shards" / "python-2-1-of-2.jsonl"
    whole = damaged.read_text()
    first, last = whole.splitlines()[-2:]
    damaged.write_text(whole.replace(f"{first}\n{last}\n", f"{last}\n"))

    done = detmatrix(*scan)

    assert done.returncode == 3
    assert str(damaged.relative_to(tmp_path)) in done.stderr.splitlines()[-1]
    assert [path.name for path in tmp_path.iterdir()] == ["detmatrix.shards"]
    damaged.write_text(whole)
    assert detmatrix(*scan).returncode == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "detmatrix-torch-2.13.0+standin-2.jsonl",
        "detmatrix-torch-2.13.0+standin.jsonl",
    ]


def test_full_disk_keeps_the_shards_and_the_earlier_run(
    detmatrix: Command, cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the merged run has no room, the line says how to go on with the shards."""
    cluster()
    (tmp_path / "detmatrix.jsonl").write_text("earlier\n")
    with monkeypatch.context() as patch:
        patch.setattr("detmatrix.scanner.observations.merge.encode", _no_room)
        done = detmatrix("scan", *OPTIONS, "--ray")

    assert (done.returncode, done.stderr.splitlines()[-1]) == (
        2,
        "detmatrix: detmatrix.shards: cannot be merged (No space left on device); make room and go on with --resume",
    )
    assert (tmp_path / "detmatrix.jsonl").read_text() == "earlier\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["detmatrix.jsonl", "detmatrix.shards"]
    done = detmatrix("scan", *OPTIONS, "--ray", "--resume")
    assert done.returncode == 0
    assert (tmp_path / "detmatrix.jsonl.1").read_text() == "earlier\n"


def _no_room(_: object) -> bytes:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
