"""Shards of a plan: what they scan together is what one scan does, however their files are joined, and on a cluster, by Ray.

``tests/golden/*-shard.*`` show that one says what is missing.
"""

from __future__ import annotations

import gzip
import json
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from detmatrix.reports.matrix.model import load
from detmatrix.scanner.cluster import scan_shard
from detmatrix.scanner.observations.runfile import Run, read_run
from tests import conftest, tied
from tests.commands import Command, command_in
from tests.conftest import RECORDED, lines, table, write_lines
from tests.large import write_shard
from tests.stand_in import QUICK, StandIn

# Of the scan whose shards are prepared.
OPTIONS = ("quick", *QUICK, "--runs", 4, "--processes", 1)
SHARDS = ("1-of-2.jsonl", "2-of-2.jsonl")
# A cluster tells of its shards, whatever becomes of them.
refused = partial(conftest.refused, progress=("scan: ",))


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the files of a scan in two shards, and ``whole.jsonl``, the same in one; tests change copies."""
    folder = tmp_path_factory.mktemp("prepared")
    scan = ("scan", *OPTIONS, "--python", StandIn(folder).python)
    for number, name in enumerate(SHARDS, start=1):
        done = command_in(folder)(*scan, "--shard", f"{number}/2", "-o", name)
        assert done.returncode == 0, done.stderr
    assert command_in(folder)(*scan, "-o", "whole.jsonl").returncode == 0
    return folder


def changed(path: Path, folder: Path, **fields: Any) -> Path:
    """Copy a run file into a folder with another header; what is a dictionary is added to."""
    records = lines(path)
    for name, value in fields.items():
        records[0][name] = {**records[0][name], **value} if isinstance(value, dict) else value
    return write_lines(folder / "other.jsonl", records)


def cells(path: Path) -> dict[str, tuple[object, ...]]:
    """Return what a complete run says of each row, in the planned order, but for how long it took."""
    (matrix,) = load([str(path)])
    assert matrix.run.closing is not None
    return {
        row.row.id: (
            row.finding,
            *((it.verdict, it.runs, it.differing, it.distinct, it.first, it.alert, it.by_process)
              for it in (row.off, row.on, row.warn_only)),
        )
        for row in matrix.rows
    }  # fmt: skip


def _observed(run: Run) -> Counter[tuple[object, ...]]:
    return Counter((one.key, one.mode, one.process) for one in run.observations)


def test_shards_on_two_machines_are_one_scan(prepared: Path, tmp_path: Path) -> None:
    """Every cell is that of one scan, every row is observed once, and each names the machine it was observed on."""
    merged = tmp_path / "all.jsonl"
    there = changed(prepared / SHARDS[1], tmp_path, environment={"cpu": "Another CPU", "threads": 16})
    done = command_in(prepared)("merge", SHARDS[0], there, "-o", merged)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    one, other = read_run(prepared / "whole.jsonl"), read_run(merged)
    assert cells(merged) == cells(prepared / "whole.jsonl")
    assert [*cells(merged)] == [*cells(prepared / "whole.jsonl")]  # in the planned order
    assert _observed(other) == _observed(one)
    assert other.closing is not None
    assert (len(other.costs), len(other.dispatches)) == (len(one.costs), len(one.dispatches))
    assert [part.environment.cpu == "Another CPU" for part in other.header.parts] == [False, True]
    workers = {row.key: other.header.parts[row.part].shard for row in other.header.planned}
    assert {one.key: one.worker + 1 for one in other.observations} == workers
    assert workers == {row.key: other.header.groups[row.spec] for row in other.header.planned}


def test_the_bytes_depend_on_what_is_joined_alone(prepared: Path, tmp_path: Path) -> None:
    """Any order gives the same bytes, plain and compressed; a merged file is no shard."""
    run = command_in(prepared)

    def merged(name: str, *paths: object) -> bytes:
        assert run("merge", *paths, "-o", tmp_path / name).returncode == 0
        return (tmp_path / name).read_bytes()

    expected = merged("all.jsonl", *SHARDS)

    assert merged("backwards.jsonl", *reversed(SHARDS)) == expected
    packed = merged("a.jsonl.gz", *SHARDS)
    assert packed == merged("b.jsonl.gz", *reversed(SHARDS))
    assert gzip.decompress(packed) == expected
    line = refused(run("merge", tmp_path / "all.jsonl", "-o", tmp_path / "again.jsonl"))
    assert line == f"{tmp_path / 'all.jsonl'}: is a merged file; give the files that it was made of"


@pytest.mark.parametrize(("second", "code", "text"), table("commands.txt", "not joined"))
def test_what_is_not_joined(prepared: Path, tmp_path: Path, second: str, code: str, text: str) -> None:
    """The first thing that differs is named, in one line, and nothing is written."""
    other = {"first": Path(SHARDS[0]), "recorded": RECORDED / "torch-2.1.2-cpu.jsonl.gz"}.get(second)
    other = other or changed(prepared / SHARDS[1], tmp_path, **json.loads(second))

    line = refused(command_in(prepared)("merge", SHARDS[0], other, "-o", tmp_path / "all.jsonl"), int(code))

    assert line.startswith(str(other))
    assert text in line
    assert not (tmp_path / "all.jsonl").exists()
    assert not [*tmp_path.glob(".detmatrix*")]


def test_a_row_that_no_file_observed(prepared: Path, tmp_path: Path) -> None:
    """What is joined of all shards is not called complete without it, and nothing is written."""
    # The first row of the plan.
    other, records = tmp_path / "other.jsonl", lines(prepared / SHARDS[0])
    lost = next(one for one in records if one["kind"] == "observation" and "control" not in one["spec"])
    ours = {name: lost[name] for name in ("spec", "case", "direction", "dtype")}
    kept = [one for one in records if one["kind"] == "header" or not ours.items() <= one.items()]
    kinds = Counter(one["kind"] for one in kept)
    kept[-1] |= {
        "observations": kinds["observation"],
        "costs": kinds["cost"],
        "dispatches": kinds["dispatch"],
    }
    write_lines(other, kept)

    line = refused(command_in(prepared)("merge", other, *SHARDS[1:], "-o", tmp_path / "all.jsonl"), 3)

    assert line == f"{other}: has no observation of {':'.join(ours.values())}; scan with --resume"
    assert not (tmp_path / "all.jsonl").exists()


def test_nothing_is_overwritten_unasked(prepared: Path, tmp_path: Path) -> None:
    """Neither an input, nor what is there; --force overwrites the latter."""
    run, merged = command_in(prepared), tmp_path / "all.jsonl"
    merged.write_text("precious")

    assert "is there already" in run("merge", SHARDS[0], "-o", merged).stderr
    assert "is one of the files to merge" in run("merge", SHARDS[0], "-o", SHARDS[0], "--force").stderr
    assert run("merge", SHARDS[0], "-o", merged, "--force").returncode == 0
    assert read_run(merged).header.parts


def test_entries_of_databases(tmp_path: Path, detmatrix: Command) -> None:
    """Their rows stand in lines behind the header, in planned order, whatever was joined first."""
    for number in range(1, 4):
        write_shard(tmp_path / f"{number}.jsonl", 700, number, 3)
    detmatrix("merge", "1.jsonl", "2.jsonl", "3.jsonl", "-o", "all.jsonl")
    detmatrix("merge", "3.jsonl", "1.jsonl", "2.jsonl", "-o", "again.jsonl")

    run = read_run(tmp_path / "all.jsonl")
    assert (tmp_path / "again.jsonl").read_bytes() == (tmp_path / "all.jsonl").read_bytes()
    assert [*dict.fromkeys(row.spec for row in run.header.planned)] == [*run.header.groups]
    assert [one.entries for one in run.header.enumerated] == [7]
    assert {*Counter((one.key, one.mode, one.process) for one in run.observations).values()} == {1}
    # A sentinel stands before the row that it stood before in its shard.
    before = read_run(tmp_path / "2.jsonl")
    for then, now in zip(before.sentinels, (one for one in run.sentinels if one.worker == 1), strict=True):
        assert run.header.planned[now.before].key == before.header.planned[then.before].key


def test_a_compressed_merged_file_may_be_large(
    prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it holds is held against its own size: it is no file that unpacks to a thousand times of it."""
    monkeypatch.setattr("detmatrix.scanner.observations.opening.MOST_UNPACKED", 1)
    run, merged = command_in(prepared), tmp_path / "all.jsonl.gz"
    run("merge", *SHARDS, "-o", merged)
    assert run("report", merged).returncode == 0

    merged.write_bytes(gzip.compress(gzip.decompress(merged.read_bytes()) + b" " * (10 << 20)))
    assert "unpack it with gunzip if you trust it" in refused(run("report", merged), 3)


# --shard: which rows a shard has, how it goes on, and what is no shard.


def test_a_shard_goes_on_as_the_shard_that_it_is(prepared: Path, tmp_path: Path, detmatrix: Command) -> None:
    """--resume needs no --shard, takes the same one, and refuses another; without a file it starts."""
    python = StandIn(tmp_path).python
    whole = (prepared / SHARDS[1]).read_text().splitlines(keepends=True)
    path = tmp_path / "shard.jsonl"
    path.write_text("".join(whole[: len(whole) // 2]))
    again = ("scan", "--resume", "--python", python, "-o", path)

    line = refused(detmatrix(*again, "--shard", "1/2"))
    assert "--shard is not the one it began with (1/2, it has 2/2)" in line
    assert detmatrix(*again, "--shard", "2/2", *OPTIONS).returncode == 0
    assert cells(path) == cells(prepared / SHARDS[1])
    started = tmp_path / "new.jsonl"
    done = detmatrix("scan", *OPTIONS, "--shard", "2/2", "--resume", "--python", python, "-o", started)
    assert done.returncode == 0
    assert cells(started) == cells(path)


# On a cluster: what is asked of Ray, what is refused, and the files that stay.


class RayError(Exception):
    """What Ray raises where a task is lost."""


class NodeDiedError(RayError):
    """The node of a task died."""


class RayTaskError(RayError):
    """A task raised something itself."""

    def __init__(self, cause: Exception) -> None:
        self.cause = cause


class _FakeRay:
    """What a scan has of the module ``ray``: tasks tell what the files ``I-of-N.jsonl`` of a folder hold, on such nodes."""

    exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)
    cloudpickle = SimpleNamespace(register_pickle_by_value=lambda _: None)

    def __init__(self, prepared: Path, nodes: Sequence[dict[str, float]]) -> None:
        self.prepared = prepared
        self._nodes = nodes
        # How the task of a shard ends, if not well: an error, or the exit code and last words.
        self.ends: dict[str, RayError | tuple[int, bytes]] = {}
        self.asked: list[tuple[dict[str, Any], list[str]]] = []

    def init(self, *_: object, **__: object) -> None: ...

    shutdown = cancel = init

    def nodes(self) -> list[dict[str, Any]]:
        """Return the nodes, of which the last has died."""
        alive = [{"Alive": True, "Resources": one} for one in self._nodes]
        return [*alive, {"Alive": False, "Resources": {"GPU": 9.0}}]

    def cluster_resources(self) -> dict[str, float]:
        return {name: value for node in self._nodes for name, value in node.items()}

    def remote(self, **options: object) -> Any:
        asked = {name: value for name, value in options.items() if "retr" not in name}

        def task(words: list[str], _: object) -> Callable[[], object]:
            self.asked.append((asked, words))
            return partial(self._ended, words[words.index("--shard") + 1])

        return lambda _: SimpleNamespace(remote=task)

    def wait(self, going: list[Any], **_: object) -> tuple[list[Any], list[Any]]:
        """Return the task that has waited longest."""
        return going[:1], going[1:]

    def get(self, task: Callable[[], object]) -> object:
        return task()

    def _ended(self, shard: str) -> object:
        """Return what the task of a shard comes to; one that fails has half of its file."""
        end = self.ends.get(shard, (0, b""))
        if isinstance(end, RayError):
            raise end
        data = (self.prepared / f"{shard.replace('/', '-of-')}.jsonl").read_bytes()
        return "node", *end, data if end[0] == 0 else data[: data.rfind(b"\n", 0, len(data) // 2) + 1]


# Puts a stand-in with such nodes in the place of Ray, and returns it.
FakeCluster = Callable[..., _FakeRay]


@pytest.fixture
def cluster(prepared: Path, monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """Return a function that puts a stand-in with such nodes in the place of Ray."""
    group = SimpleNamespace(placement_group=lambda bundles, strategy: (strategy, bundles))
    strategies = SimpleNamespace(PlacementGroupSchedulingStrategy=lambda bundles: bundles)

    def standing(*nodes: dict[str, float]) -> _FakeRay:
        ray = _FakeRay(prepared, nodes or ({"CPU": 2.0}, {"CPU": 2.0}))
        monkeypatch.setitem(sys.modules, "ray", ray)
        monkeypatch.setattr("detmatrix.scanner.cluster._variables", lambda _: {})
        monkeypatch.setitem(sys.modules, "ray.util.placement_group", group)
        monkeypatch.setitem(sys.modules, "ray.util.scheduling_strategies", strategies)
        return ray

    return standing


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
        "scan: waiting for the nodes or a GPU to be free; see ray status",
        "scan: shard 1/2 is complete: 1 of 2 shards",
        "scan: shard 2/2 is complete: 2 of 2 shards",
    ]
    assert cells(tmp_path / "detmatrix.jsonl") == cells(prepared / "whole.jsonl")
    assert [path.name for path in tmp_path.iterdir()] == ["detmatrix.jsonl"]
    spread = {"num_cpus": 4, "scheduling_strategy": ("STRICT_SPREAD", [{"CPU": 4}, {"CPU": 4}])}
    assert [options for options, _ in ray.asked] == [spread, spread]
    words = ["--runs", "4", "--processes", "1", *map(str, QUICK), "--", "quick"]
    assert sorted(ray.asked[0][1][2:]) == sorted(words)
    again = detmatrix("scan", *OPTIONS, "--ray")
    assert "detmatrix.jsonl: the earlier run is kept as detmatrix.jsonl.1" in again.stderr


def test_each_shard_has_a_whole_gpu(detmatrix: Command, cluster: FakeCluster, tmp_path: Path) -> None:
    """There are as many shards as GPUs, of whatever kind; the interpreter is one of the nodes."""
    ray = cluster({"GPU": 1.0}, {"GPU": 1.0}, {"CPU": 4.0})
    scan = [word if word != "cpu" else "cuda" for word in OPTIONS]

    done = detmatrix("scan", *scan, "--ray", "--python", "/a/python")

    assert done.returncode == 0, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["detmatrix.jsonl"]
    asked = [(options, words[words.index("--python") + 1], words[1]) for options, words in ray.asked]
    assert asked == [({"num_gpus": 1}, "/a/python", shard) for shard in ("1/2", "2/2")]


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

    line = refused(detmatrix("scan", *OPTIONS, "--ray", "--shards", 2), code)

    assert re.fullmatch(rf"shard 1/2( on node)?: {re.escape(text)}", line)
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

    assert refused(detmatrix("scan", *OPTIONS, "--ray", "--shards", 2)) == (
        "2-of-2.part: is of another plan than the shards before: torch is 2.15.0, not 2.13.0+standin; "
        "all nodes must have the same"
    )
    (tmp_path / "2-of-2.jsonl").write_text('{"kind":"observation"}\n')
    line = refused(detmatrix("scan", *OPTIONS, "--ray", "--shards", 2, "--force"), 3)
    assert "install the same detmatrix on all nodes" in line


@pytest.mark.parametrize(
    ("nodes", "words", "text"),
    [
        ({"CPU": 4.0}, "--device cuda --ray", "--device cuda: no node of the Ray cluster has a GPU"),
        ({"GPU": 4.0}, "--device cuda:1 --ray", "Ray chooses the GPU of each shard; give --device cuda"),
        ({"GPU": 1.0}, "--device cpu --ray", "--ray: no node of the cluster has a CPU for tasks"),
        (None, "--ray", "--ray: Ray is not installed; install it with: pip install 'detmatrix[ray]'"),
    ],
)  # fmt: skip
def test_what_no_cluster_can_be_asked_for(
    detmatrix: Command, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
    nodes: dict[str, float] | None, words: str, text: str,
) -> None:  # fmt: skip
    """What it lacks is told before anything is started; nothing is left."""
    ray = cluster(nodes or {})
    if nodes is None:
        monkeypatch.setitem(sys.modules, "ray", None)

    assert text in refused(detmatrix("scan", *words.split()))
    assert not ray.asked
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
    line = refused(detmatrix("scan", *OPTIONS, "--seed", 7, "--ray", "--resume"))
    assert "detmatrix.jsonl: cannot be resumed, --seed is not the one it began with (7, it has 0)" in line
    # One shard of it by itself is no finished scan.
    shutil.copy(prepared / "1-of-2.jsonl", run)
    assert detmatrix("scan", *OPTIONS, "--ray", "--resume").returncode == 0
    assert len(ray.asked) == 2
    assert cells(run) == cells(prepared / "whole.jsonl")


def test_lost_shard_keeps_no_other_from_being_scanned(
    detmatrix: Command, cluster: FakeCluster, prepared: Path, tmp_path: Path
) -> None:
    """Complete shards stay, and the same command scans the lost one again."""
    ray = cluster()
    for end in (NodeDiedError(), RayTaskError(InterruptedError("it was stopped by signal 9"))):
        ray.ends["1/2"] = end
        why = "NodeDiedError" if isinstance(end, NodeDiedError) else "it was stopped by signal 9"

        assert refused(detmatrix("scan", *OPTIONS, "--ray", "--resume"), 4) == (
            f"shard 1/2 ({why}) was lost 3 times (1 such); see ray status and the logs of the node, then go on with "
            "--resume"
        )
        assert not (tmp_path / "detmatrix.jsonl").exists()
    assert refused(detmatrix("scan", *OPTIONS, "--ray")) == (
        "detmatrix.shards: holds the shards of an unfinished scan; go on with --resume, or start over with --force"
    )
    ray.ends.clear()
    ray.asked.clear()
    assert detmatrix("scan", *OPTIONS, "--ray", "--resume").returncode == 0
    assert [words[1] for _, words in ray.asked] == ["1/2"]
    assert cells(tmp_path / "detmatrix.jsonl") == cells(prepared / "whole.jsonl")


def test_what_lacks_a_shard_is_no_run(
    detmatrix: Command, cluster: FakeCluster, prepared: Path, tmp_path: Path
) -> None:
    """Nothing is written, nothing is removed, and the line says what is missing."""
    ray = cluster()
    ray.prepared = tmp_path
    shutil.copy(prepared / "1-of-2.jsonl", tmp_path / "1-of-1.jsonl")

    assert refused(detmatrix("scan", *OPTIONS, "--ray", "--shards", 1), 4) == (
        "detmatrix.shards: shard 2 of 2 is missing; go on with --resume, or start over with --force"
    )
    assert not (tmp_path / "detmatrix.jsonl").exists()
    kept = tmp_path / "detmatrix.shards" / "1-of-1.jsonl"
    assert kept.read_bytes() == (prepared / "1-of-2.jsonl").read_bytes()


@pytest.mark.parametrize("fails", [False, True])
def test_a_shard_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    """Its whole file, with the variables that were asked for, or what it says as it ends; the folder of the task is gone."""
    (folder := tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    standing = StandIn(tmp_path, *([{"do": "start", "then": "exit"}] if fails else []))
    python = ["--python", str(standing.python), "--no-cost", "--no-overloads"]

    words = ["--shard", "1/2", *python, *map(str, OPTIONS)]
    _, code, said, data = scan_shard(words, {"OMP_NUM_THREADS": "3"})

    assert code == (2 if fails else 0), said
    assert (b"detmatrix: " in said) == fails
    assert [path for path in folder.iterdir() if "shard" in path.name] == []
    assert {one["variables"]["OMP_NUM_THREADS"] for one in standing.noted if one["do"] == "start"} == {"3"}
    if not fails:
        (tmp_path / "run.jsonl").write_bytes(data)
        run = read_run(tmp_path / "run.jsonl")
        assert run.closing is not None
        assert run.header.settings.runs == 4


# Ray itself places shards on several nodes, which are processes here: nothing is lost with a node.

# What Ray may keep of objects in memory; the least that it takes.
_STORE_BYTES = 80 << 20
# A variable that a run file has of its machine, by which nodes are told apart.
NODE = "NVIDIA_VISIBLE_DEVICES"


SCATTER = ("scatter", "--runs", 4, "--processes", 1, "--no-cost", "--no-overloads", "--device", "cpu")


@pytest.fixture(scope="module")
def nodes() -> Iterator[tuple[str, Callable[[str], None]]]:
    """Return the address of a cluster of four nodes, beside a head without anything for tasks, and what ends a node by its name.

    All that runs on the node ends with it, as if its machine had lost power. The cluster ends whatever happens.
    """
    pytest.importorskip("ray", reason="Ray is not installed; nox -s nightly has it")
    from ray.cluster_utils import Cluster  # noqa: PLC0415 - in the nightly session alone

    # Paths of its sockets must be short.
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="ray-") as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        least = {"object_store_memory": _STORE_BYTES}
        head = {"num_cpus": 0, "include_dashboard": False, "temp_dir": folder, **least}
        # Ray notes the address there, whatever folder it is given, and expects it to be there.
        Path(tempfile.gettempdir(), "ray").mkdir(exist_ok=True)
        cluster: Any = Cluster(initialize_head=True, head_node_args=head)
        try:
            names = [f"node-{number}" for number in range(1, 5)]
            there = {name: cluster.add_node(num_cpus=2, env_vars={NODE: name}, **least) for name in names}
            yield cluster.address, lambda name: cluster.remove_node(there[name], allow_graceful=False)
        finally:
            cluster.shutdown()


@pytest.mark.nightly
def test_eight_shards_on_four_nodes_are_one_scan_though_one_dies(
    detmatrix_process: Command, nodes: tuple[str, Callable[[str], None]], tmp_path: Path
) -> None:
    """Every cell is that of one scan, all nodes take part, none has two shards at a time, and Ray scans a lost one elsewhere."""
    (address, kill), waits = nodes, tmp_path / "waits"
    rules = {"do": "observe", "mode": "on", "wait": str(waits)}, {"do": "observe", "seconds": 0.05}
    standing = StandIn(tmp_path, *rules)
    scan = ("scan", *SCATTER, "--python", standing.python)
    assert detmatrix_process(*scan, "-o", "one.jsonl").returncode == 0
    standing.forget()
    waits.touch()
    command = [sys.executable, "-m", "detmatrix", *scan, "--ray", address, "--shards", 8]
    driver = tied.start(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    tied.wait_until(lambda: standing.asked("observe"))

    killed = next(one["variables"][NODE] for one in standing.noted if one["do"] == "start")
    kill(killed)
    waits.unlink()
    printed, said = driver.communicate()

    assert driver.returncode == 0, said
    assert "raylet" not in printed + said
    assert cells(tmp_path / "detmatrix.jsonl") == cells(tmp_path / "one.jsonl")
    # Each shard of a node began when the one before it had ended; that it began is known to the second.
    spans: dict[str, list[tuple[float, float]]] = {}
    for part in read_run(tmp_path / "detmatrix.jsonl").header.parts:
        assert part.closing is not None
        began = datetime.fromisoformat(part.started).timestamp()
        spans.setdefault(part.environment.variables["off"][NODE], []).append((began, part.closing.seconds))
    assert sum(map(len, spans.values())) == 8
    assert spans.keys() == {f"node-{number}" for number in range(1, 5)} - {killed}
    for of_node in map(sorted, spans.values()):
        assert all(second[0] > first[0] + first[1] - 1 for first, second in pairwise(of_node)), spans


@pytest.mark.nightly
def test_address_that_does_not_answer(detmatrix: Command, tmp_path: Path) -> None:
    """It is told in a line, long before Ray gives up."""
    done = detmatrix("scan", "--ray", "127.0.0.1:9")

    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("detmatrix: --ray 127.0.0.1:9: no Ray answers there (")
    assert not [*tmp_path.iterdir()]
