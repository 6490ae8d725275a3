"""Ray clusters of several nodes on this machine, and what runs hold that were observed there."""

from __future__ import annotations

import contextlib
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from detmatrix.scanner.observations.runfile import read_run

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
        self._cluster: Any = Cluster(initialize_head=True, head_node_args=head)
        self.address: str = self._cluster.address
        self._nodes: dict[str, Any] = {}

    def add(self, name: str, gpu: str = "") -> None:
        """Start a node, with a GPU of a kind if one is to be pretended."""
        options = {"num_gpus": 1, "resources": {f"accelerator_type:{gpu}": 1}} if gpu else {}
        self._nodes[name] = self._cluster.add_node(
            num_cpus=2, object_store_memory=_STORE_BYTES, env_vars={NODE: name}, **options
        )

    def kill(self, name: str) -> None:
        """End a node and all that runs there, as if its machine had lost power."""
        self._cluster.remove_node(self._nodes.pop(name), allow_graceful=False)

    def shutdown(self) -> None:
        """End all nodes."""
        self._cluster.shutdown()


@contextlib.contextmanager
def loopback_cluster() -> Iterator[LoopbackCluster]:
    """Have a cluster, which ends whatever happens."""
    # Paths of its sockets must be short.
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="ray-") as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cluster = LoopbackCluster(folder)
        try:
            yield cluster
        finally:
            cluster.shutdown()


def observed(path: Path) -> list[tuple[object, ...]]:
    """Return what a complete run observed of each row in each process, but for the time that it took."""
    run = read_run(path)
    assert run.closing is not None
    return sorted(
        (*one.key, one.mode, one.process, one.outcome, repr(one.groups)) for one in run.observations
    )
