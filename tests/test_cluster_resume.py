"""A scan on a cluster that lost shards, or was stopped: what goes on, what is given up, and what is finished."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from tests.clusters import observed
from tests.commands import Command
from tests.fake_ray import OPTIONS, FakeCluster, NodeDiedError


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


def test_lost_shard_goes_on_with_what_it_sent(
    detmatrix: Command, cluster: FakeCluster, prepared: Path, tmp_path: Path
) -> None:
    """A node that dies costs nothing but time, and is told."""
    ray = cluster()
    ray.ends["2/2"] = [NodeDiedError(), (-9, b""), NodeDiedError()]
    # This one has told all that there was to tell.
    ray.ends["1/2"] = [NodeDiedError]

    done = detmatrix("scan", *OPTIONS, "--ray", "--shards", 2)

    assert done.returncode == 0, done.stderr
    assert "shard 1/2" not in done.stderr.replace("scan: shard 1/2 on node\n", "")
    assert "shard 2/2 on node was lost (NodeDiedError); it goes on where there is room" in done.stderr
    assert "shard 2/2 on node was lost (it was stopped (SIGKILL)); it goes on" in done.stderr
    sent = [b"".join(held) for _, words, held in ray.asked if "2/2" in words]
    assert len(sent) == 4
    assert 0 == len(sent[0]) < len(sent[1]) < len(sent[2]) < len(sent[3])
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


def test_shard_that_is_always_lost_keeps_no_other_from_being_observed(
    detmatrix: Command, cluster: FakeCluster, prepared: Path, tmp_path: Path
) -> None:
    """It is given up in the end; what was observed stays, and the same command goes on with the rest."""
    ray = cluster()
    ray.ends["1/2"] = [NodeDiedError()] * 20

    done = detmatrix("scan", *OPTIONS, "--ray", "--resume")

    assert done.returncode == 4
    lines = done.stderr.splitlines()
    assert lines[-1].startswith(
        "detmatrix: shard 1/2 on node (NodeDiedError) is not complete (1 such); see ray status"
    )
    assert not (tmp_path / "detmatrix.jsonl").exists()
    assert detmatrix("scan", *OPTIONS, "--ray").stderr.splitlines()[-1] == (
        "detmatrix: detmatrix.shards: holds the shards of an unfinished scan; go on with --resume, or start over with --force"
    )
    ray.ends.clear()
    ray.asked.clear()
    assert detmatrix("scan", *OPTIONS, "--ray", "--resume").returncode == 0
    assert [words[2] for _, words, _ in ray.asked] == ["1/2"]
    assert observed(tmp_path / "detmatrix.jsonl") == observed(prepared / "whole.jsonl")


def test_shard_that_measures_the_same_again_gets_nowhere(detmatrix: Command, cluster: FakeCluster) -> None:
    """Each node begins it anew and is lost before it has more than the first: that is given up as well."""
    ray = cluster()
    ray.elsewhere = True
    ray.ends["1/2"] = [NodeDiedError()] * 20

    done = detmatrix("scan", *OPTIONS, "--ray")

    assert done.returncode == 4
    assert (
        "scan: shard 1/2 on node (NodeDiedError) was lost 3 times in a row before it measured anything new"
        in (done.stderr.splitlines())
    )
    assert [words[2] for _, words, _ in ray.asked].count("1/2") == 3


def test_other_number_of_shards_is_refused(detmatrix: Command, cluster: FakeCluster, tmp_path: Path) -> None:
    """What was observed would be left behind; --force says that it may be."""
    ray = cluster()
    ray.ends["1/2"] = [NodeDiedError()] * 20
    assert detmatrix("scan", *OPTIONS, "--ray", "--shards", 2).returncode == 4
    ray.asked.clear()
    ray.ends.clear()

    done = detmatrix("scan", *OPTIONS, "--ray", "--shards", 3, "--resume")

    assert (done.returncode, done.stderr.splitlines()[-1]) == (
        2,
        "detmatrix: detmatrix.shards: holds shards of 2; give --shards 2, or start over with --force",
    )
    assert ray.asked == []
    assert len([*(tmp_path / "detmatrix.shards").iterdir()]) == 2
    assert detmatrix("scan", *OPTIONS, "--ray", "--shards", 2, "--resume").returncode == 0


def test_all_runs_are_merged_before_any_is_written(
    detmatrix: Command, cluster: FakeCluster, tmp_path: Path
) -> None:
    """What would fail at the second leaves no first, which the next attempt would take for an earlier run."""
    ray = cluster()
    ray.ends["2/2"] = [None, *[NodeDiedError()] * 20]
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
    assert len([*damaged.parent.iterdir()]) == 4
    damaged.write_text(whole)
    assert detmatrix(*scan).returncode == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "detmatrix-torch-2.13.0+standin-2.jsonl",
        "detmatrix-torch-2.13.0+standin.jsonl",
    ]


def test_full_disk_keeps_the_shards_and_the_earlier_run(
    detmatrix: Command, cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the merged run has no room, the line says how to go on with what was observed."""
    cluster()
    (tmp_path / "detmatrix.jsonl").write_text("earlier\n")
    with monkeypatch.context() as patch:
        patch.setattr("scanner.observations.merge.encode", _no_room)
        done = detmatrix("scan", *OPTIONS, "--ray")

    assert (done.returncode, done.stderr.splitlines()[-1]) == (
        2,
        "detmatrix: detmatrix.shards: cannot be merged (No space left on device); make room and go on with --resume",
    )
    assert (tmp_path / "detmatrix.jsonl").read_text() == "earlier\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["detmatrix.jsonl", "detmatrix.shards"]
    assert len([*(tmp_path / "detmatrix.shards").iterdir()]) == 2
    done = detmatrix("scan", *OPTIONS, "--ray", "--resume")
    assert done.returncode == 0
    assert (tmp_path / "detmatrix.jsonl.1").read_text() == "earlier\n"


def _no_room(_: object) -> bytes:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
