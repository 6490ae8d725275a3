"""Ray places shards on several nodes, which are processes here: nothing is lost with a node."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from detmatrix.scanner.observations.runfile import read_run
from tests import tied
from tests.commands import Command
from tests.stand_in import StandIn
from tests.test_cluster import observed

# What Ray may keep of objects in memory; the least that it takes.
_STORE_BYTES = 80 << 20
# A variable that a run file has of its machine, by which nodes are told apart.
NODE = "NVIDIA_VISIBLE_DEVICES"


class LoopbackCluster:
    """A head that has nothing for tasks, and nodes."""

    def __init__(self, folder: str) -> None:
        from ray.cluster_utils import Cluster  # noqa: PLC0415 - in the nightly session alone

        head = {
            "num_cpus": 0,
            "object_store_memory": _STORE_BYTES,
            "include_dashboard": False,
            "temp_dir": folder,
        }
        # Ray notes the address there, whatever folder it is given, and expects it to be there.
        Path(tempfile.gettempdir(), "ray").mkdir(exist_ok=True)
        self.cluster: Any = Cluster(initialize_head=True, head_node_args=head)
        self.address: str = self.cluster.address
        self._nodes: dict[str, Any] = {}

    def add(self, name: str) -> None:
        """Start a node."""
        self._nodes[name] = self.cluster.add_node(
            num_cpus=2, object_store_memory=_STORE_BYTES, env_vars={NODE: name}
        )

    def kill(self, name: str) -> None:
        """End a node and all that runs there, as if its machine had lost power."""
        self.cluster.remove_node(self._nodes.pop(name), allow_graceful=False)


pytestmark = pytest.mark.nightly
pytest.importorskip("ray", reason="Ray is not installed; nox -s nightly has it")

OPTIONS = ("scatter", "--runs", 4, "--processes", 1, "--no-cost", "--no-overloads")
CPU = (*OPTIONS, "--device", "cpu")


@pytest.fixture(scope="module")
def cluster() -> Iterator[LoopbackCluster]:
    """Return a cluster of four nodes, which ends whatever happens."""
    # Paths of its sockets must be short.
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="ray-") as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cluster = LoopbackCluster(folder)
        try:
            for number in range(1, 5):
                cluster.add(f"node-{number}")
            yield cluster
        finally:
            cluster.cluster.shutdown()


def test_eight_shards_on_four_nodes_are_one_scan_though_one_dies(
    detmatrix_process: Command, cluster: LoopbackCluster, tmp_path: Path
) -> None:
    """Every cell is that of one scan, all nodes take part, none has two shards at a time, and Ray scans a lost one elsewhere."""
    waits = tmp_path / "waits"
    rules = {"do": "observe", "mode": "on", "wait": str(waits)}, {"do": "observe", "seconds": 0.05}
    standing = StandIn(tmp_path, *rules)
    scan = ("scan", *CPU, "--python", standing.python)
    assert detmatrix_process(*scan, "-o", "one.jsonl").returncode == 0
    standing.forget()
    waits.touch()
    command = [sys.executable, "-m", "detmatrix", *scan, "--ray", cluster.address, "--shards", 8]
    driver = tied.start(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    tied.wait_until(lambda: standing.asked("observe"))

    killed = next(one["variables"][NODE] for one in standing.noted if one["do"] == "start")
    cluster.kill(killed)
    waits.unlink()
    printed, said = driver.communicate()

    assert driver.returncode == 0, said
    assert "raylet" not in printed + said
    assert observed(tmp_path / "detmatrix.jsonl") == observed(tmp_path / "one.jsonl")
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


def test_address_that_does_not_answer(detmatrix: Command, tmp_path: Path) -> None:
    """It is told in a line, long before Ray gives up."""
    done = detmatrix("scan", "--ray", "127.0.0.1:9")

    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("detmatrix: --ray 127.0.0.1:9: no Ray answers there (")
    assert not [*tmp_path.iterdir()]
