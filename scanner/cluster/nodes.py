"""A Ray cluster: connect to one, or start one on this machine, and what a scan can have of it."""

from __future__ import annotations

import contextlib
import importlib
import os
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from scanner.errors import UsageError
from scanner.plurals import several

# Addresses that are no HOST:PORT: Ray on this machine, for this scan alone; the cluster that this machine belongs to.
LOCAL, AUTO = "local", "auto"
ANSWER_SECONDS = 15.0

# Ray itself waits for two minutes, and is in the way of Ctrl-C meanwhile.
_PROBE = (
    "import sys, ray\n"
    "try: ray.init(sys.argv[1], logging_level='CRITICAL', log_to_driver=False)\n"
    "except Exception as error: print(' '.join(str(error).split())); sys.exit(1)"
)
# Of Ray on this machine: what it keeps are pieces of run files.
_STORE_BYTES = 1 << 28
_TYPE = "accelerator_type:"


class NodePool(NamedTuple):
    """Nodes or GPUs that are alike, so that what is observed on them is one run."""

    gpu: str  # as Ray names it; empty for nodes, and for GPUs that it cannot name
    places: int  # how many shards it scans at once
    options: dict[str, Any]  # of a task that runs there

    @property
    def awaited(self) -> str:
        """What must be free before the first task begins."""
        return "a GPU" if "num_gpus" in self.options else several(self.places, "node")


@contextlib.contextmanager
def connected(address: str) -> Iterator[Any]:
    """Be a program of a Ray cluster, and yield ``ray``; where the address is that of this machine, start Ray and end it.

    Raises:
        UsageError: Ray is not installed, does not answer, or is another release.
    """
    # Ray reads it when it is imported.
    for name, value in _variables(address).items():
        os.environ.setdefault(name, value)
    try:
        ray = importlib.import_module("ray")
    except ImportError:
        raise UsageError(
            "--ray: Ray is not installed; install it with: pip install 'detmatrix[ray]'"
        ) from None
    # Ray has its processes search the current folder of who starts it, where anything may lie.
    with tempfile.TemporaryDirectory() as empty:
        options: dict[str, Any] = {}
        if address == LOCAL:
            options = {"include_dashboard": False, "object_store_memory": _STORE_BYTES}
        else:
            _refuse_silent(address, empty)
        handler = signal.getsignal(signal.SIGTERM)
        try:
            with contextlib.chdir(empty):
                ray.init(address, logging_level="ERROR", log_to_driver=False, **options)
            signal.signal(signal.SIGTERM, handler)  # Ray has one of its own
            yield ray
        finally:
            ray.shutdown()


def _variables(address: str) -> dict[str, str]:
    """Return the variables that Ray is to have, unless the user gave it others."""
    # It prints the logs of a node that died where the summary of a scan goes.
    quiet = {"RAY_DEDUP_LOGS_SKIP_REGEX": "."}
    if address != LOCAL:
        return quiet
    # Nobody else can have code run there, nothing is reported of it, and its processes have the priority of any other.
    return quiet | {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",
    }


def _refuse_silent(address: str, folder: str) -> None:
    """Find out in a process of its own whether Ray answers.

    Raises:
        UsageError: It does not, or not to this release of it.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-c", _PROBE, address],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=ANSWER_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise UsageError(
            f"--ray {address}: no Ray answers there within {ANSWER_SECONDS:g} seconds; see ray status on a node of the cluster"
        ) from None
    if done.returncode:
        raise UsageError(f"--ray {address}: {done.stdout.strip() or 'no Ray answers there'}")


def device_there(ray: Any, asked: str) -> str:
    """Return the device of the scan of each task: what was asked for, or what the cluster has.

    Raises:
        UsageError: A GPU was asked for by its number.
    """
    if asked == "auto":
        return "cuda" if ray.cluster_resources().get("GPU") else "cpu"
    if ":" in asked:
        raise UsageError(
            f"--device {asked}: Ray chooses the GPU of each shard; give --device {asked.partition(':')[0]}"
        )
    return asked


def pools_there(ray: Any, device: str, most: int) -> list[NodePool]:
    """Return the kinds of nodes or GPUs that a scan on *device* can have.

    Args:
        ray: The module, connected.
        device: ``"cpu"``, or a kind of accelerator.
        most: More than so many nodes are not asked for.

    Raises:
        UsageError: There are none.
    """
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if device == "cpu":
        return [_nodes([int(node.get("CPU", 0)) for node in nodes], most)]
    gpus: dict[str, int] = {}
    for node in nodes:
        named = [name.removeprefix(_TYPE) for name in node if name.startswith(_TYPE)]
        if node.get("GPU"):
            gpu = named[0] if named else ""
            gpus[gpu] = gpus.get(gpu, 0) + int(node["GPU"])
    if len(gpus) > 1:
        gpus.pop("", None)  # which of the others they are cannot be told
    if not gpus:
        raise UsageError(
            f"--device {device}: no node of the Ray cluster has a GPU; give --device cpu, or see ray status for what it has"
        )
    # Never a share of a GPU: two scans on one would be load to one another.
    return [
        NodePool(gpu, count, {"num_gpus": 1, **({"accelerator_type": gpu} if gpu else {})})
        for gpu, count in sorted(gpus.items())
    ]


def _nodes(cores: Sequence[int], most: int) -> NodePool:
    """Return what has one task at a time on each node, beside nothing else of Ray's if nodes have equally many cores."""
    able = sorted((count for count in cores if count), reverse=True)[:most]
    if not able:
        raise UsageError("--ray: no node of the cluster has a CPU for tasks; see ray status for what it has")
    least = able[-1]
    group = importlib.import_module("ray.util.placement_group")
    strategies = importlib.import_module("ray.util.scheduling_strategies")
    # A bundle on each node, which one task fills. That of a node that dies moves to one that comes.
    bundles = group.placement_group([{"CPU": least}] * len(able), strategy="STRICT_SPREAD")
    strategy = strategies.PlacementGroupSchedulingStrategy(bundles)
    return NodePool("", len(able), {"num_cpus": least, "scheduling_strategy": strategy})
