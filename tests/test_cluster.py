"""A scan on a cluster: what it asks Ray for, what is refused, and the files that it leaves."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.clusters import observed
from tests.commands import Command
from tests.fake_ray import GPU, OPTIONS, SPECS, FakeCluster, NodeDiedError, RayError, RayTaskError


def test_shards_make_one_run_file(
    detmatrix: Command, cluster: FakeCluster, prepared: Path, tmp_path: Path
) -> None:
    """It holds what one scan observes; each node is asked for one shard at a time, and nothing else is left."""
    ray = cluster({"CPU": 8.0}, {"CPU": 4.0})

    done = detmatrix("scan", *OPTIONS, "--ray")

    assert done.returncode == 0, done.stderr
    # Until all nodes are free at once nothing else is told.
    assert done.stderr.splitlines()[:4] == [
        "scan: starting Ray",
        "scan: waiting for 2 nodes to be free; see ray status",
        "scan: shard 1/2 is complete: 1 of 2 shards",
        "scan: shard 2/2 is complete: 2 of 2 shards",
    ]
    assert observed(tmp_path / "detmatrix.jsonl") == observed(prepared / "whole.jsonl")
    assert [path.name for path in tmp_path.iterdir()] == ["detmatrix.jsonl"]
    spread = {"num_cpus": 4, "scheduling_strategy": ("STRICT_SPREAD", [{"CPU": 4}, {"CPU": 4}])}
    assert [options for options, _ in ray.asked] == [spread, spread]
    words = ["--runs", "4", "--processes", "1", "--specs", str(SPECS), "--device", "cpu", "--", "quick"]
    assert sorted(ray.asked[0][1][2:]) == sorted(words)
    again = detmatrix("scan", *OPTIONS, "--ray")
    assert "detmatrix.jsonl: the earlier run is kept as detmatrix.jsonl.1" in again.stderr


def test_each_interpreter_and_kind_of_gpu_has_a_run_file(
    detmatrix: Command, cluster: FakeCluster, tmp_path: Path
) -> None:
    """Whole GPUs are asked for, by kind; those without a name are left out where others have one."""
    ray = cluster(
        {"GPU": 2.0, f"{GPU}H100": 1.0}, {"GPU": 1.0, f"{GPU}A100": 1.0}, {"GPU": 1.0}, {"CPU": 4.0}
    )
    scan = [word if word != "cpu" else "cuda" for word in OPTIONS]

    done = detmatrix("scan", *scan, "--ray", "--shards", 2, "--python", "/a/python", "--python", "/b/python")

    assert done.returncode == 0, done.stderr
    assert "scan: waiting for a GPU to be free; see ray status" in done.stderr.splitlines()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "detmatrix-torch-2.13.0+standin-A100-2.jsonl",
        "detmatrix-torch-2.13.0+standin-A100.jsonl",
        "detmatrix-torch-2.13.0+standin-H100-2.jsonl",
        "detmatrix-torch-2.13.0+standin-H100.jsonl",
    ]
    asked = [(options, words[words.index("--python") + 1], words[1]) for options, words in ray.asked]
    assert asked == [
        ({"num_gpus": 1, "accelerator_type": gpu}, python, shard)
        for python in ("/a/python", "/b/python")
        for gpu in ("A100", "H100")
        for shard in ("1/2", "2/2")
    ]


@pytest.mark.parametrize(
    ("end", "code", "text"),
    [
        ((2, b"scan: on\ndetmatrix: /x: no worker started\n"), 2, "/x: no worker started"),
        ((4, b"Traceback\n  odd\nMemoryError\n"), 4, "MemoryError"),
        (RayTaskError(OSError("no space")), 4, "no space"),
    ],
)
def test_what_fails_on_a_node_is_told_in_a_line(
    detmatrix: Command, cluster: FakeCluster, end: RayError | tuple[int, bytes], code: int, text: str
) -> None:
    """Nothing is tried again that would fail again."""
    ray = cluster()
    ray.ends["1/2"] = end

    done = detmatrix("scan", *OPTIONS, "--ray", "--shards", 2)

    assert done.returncode == code
    assert re.fullmatch(rf"detmatrix: shard 1/2( on node)?: {re.escape(text)}", done.stderr.splitlines()[-1])
    assert len(ray.asked) == 2


def test_nodes_must_have_the_same(
    detmatrix: Command, cluster: FakeCluster, prepared: Path, tmp_path: Path
) -> None:
    """A shard of another build, or what is no run file, ends the scan before more of it comes."""
    ray = cluster()
    for name in ("1-of-2.jsonl", "2-of-2.jsonl"):
        text = (prepared / name).read_text()
        (tmp_path / name).write_text(text if name[0] == "1" else text.replace("2.13.0+standin", "2.15.0"))
    ray.prepared = tmp_path

    done = detmatrix("scan", *OPTIONS, "--ray", "--shards", 2)

    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == (
        "detmatrix: python-1-2-of-2.part: is of another plan than the shards before: torch is 2.15.0, not 2.13.0+standin; "
        "all nodes must have the same"
    )
    (tmp_path / "2-of-2.jsonl").write_text('{"kind":"observation"}\n')
    done = detmatrix("scan", *OPTIONS, "--ray", "--shards", 2, "--force")
    assert done.returncode == 3
    assert "install the same detmatrix on all nodes" in done.stderr


@pytest.mark.parametrize(
    ("nodes", "words", "text"),
    [
        ({"CPU": 4.0}, "--device cuda --ray", "--device cuda: no node of the Ray cluster has a GPU"),
        ({"GPU": 4.0}, "--device cuda:1 --ray", "Ray chooses the GPU of each shard; give --device cuda"),
        ({"GPU": 1.0}, "--device cpu --ray", "--ray: no node of the cluster has a CPU for tasks"),
        ({}, "--ray conv2d", "'conv2d' is no address; give HOST:PORT, auto"),
        ({}, "--ray ray://head:10001", "'ray://head:10001' is no address"),
        ({}, "--ray --shard 1/2", "--ray gives out all shards, --shard scans one"),
        ({}, "--shards 2", "--shards says how --ray divides the ops"),
        ({}, "--ray --shards 10001", "10001 is not in the range 1<=x<=10000"),
        ({}, "--python a --python b", "more than one --python is for --ray"),
        ({}, "--ray -o x.jsonl.gz", "a scan writes plain run files"),
    ],
)  # fmt: skip
def test_what_no_cluster_can_be_asked_for(
    detmatrix: Command, cluster: FakeCluster, tmp_path: Path, nodes: dict[str, float], words: str, text: str
) -> None:
    """What it lacks, and options that do not belong together, are told before anything is started; nothing is left."""
    ray = cluster(nodes)

    done = detmatrix("scan", *words.split())

    assert done.returncode == 2
    assert text in done.stderr
    assert not ray.asked
    assert not [*tmp_path.iterdir()]


def test_missing_ray_is_told(detmatrix: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With what installs it."""
    monkeypatch.setitem(sys.modules, "ray", None)

    done = detmatrix("scan", "--ray")

    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == (
        "detmatrix: --ray: Ray is not installed; install it with: pip install 'detmatrix[ray]'"
    )
    assert not [*tmp_path.iterdir()]


# A scan on a cluster that lost shards, or was stopped: what is kept, what is scanned again, and what is finished.


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
