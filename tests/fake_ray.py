"""Stands for Ray, in this process: each task returns what a prepared file of its shard holds, or ends as a test says.

``tests/test_cluster_nightly.py`` has the same done by Ray.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.commands import command_in
from tests.stand_in import StandIn

GPU = "accelerator_type:"
SPECS = Path(__file__).with_name("quick.py")
# Of the scan whose shards are prepared.
OPTIONS = ("quick", "--specs", SPECS, "--device", "cpu", "--runs", 4, "--processes", 1)


class RayError(Exception):
    """What Ray raises where a task is lost."""


class NodeDiedError(RayError):
    """The node of a task died."""


class RayTaskError(RayError):
    """A task raised something itself."""

    def __init__(self, cause: Exception) -> None:
        self.cause = cause


class FakeRay:
    """What a scan has of the module ``ray``."""

    exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)
    cloudpickle = SimpleNamespace(register_pickle_by_value=lambda _: None)

    def __init__(self, prepared: Path, nodes: Sequence[dict[str, float]] = ({"CPU": 2.0},)) -> None:
        """Have tasks tell what the files ``I-of-N.jsonl`` of a folder hold, on such nodes."""
        self.prepared = prepared
        self._nodes = nodes
        # How the task of a shard ends, if not well: an error, or the exit code and last words.
        self.ends: dict[str, RayError | tuple[int, bytes]] = {}
        self.asked: list[tuple[dict[str, Any], list[str]]] = []

    def init(self, address: str, **_: object) -> None:
        """Connect."""

    def shutdown(self) -> None:
        """Disconnect."""

    def nodes(self) -> list[dict[str, Any]]:
        """Return the nodes, of which the last has died."""
        return [
            *({"Alive": True, "Resources": one} for one in self._nodes),
            {"Alive": False, "Resources": {"GPU": 9.0}},
        ]

    def cluster_resources(self) -> dict[str, float]:
        """Return what all nodes have."""
        return {name: value for node in self._nodes for name, value in node.items()}

    def remote(self, **_: object) -> Any:
        """Make a task of a function."""
        return lambda _: SimpleNamespace(
            options=lambda **options: SimpleNamespace(remote=self._starter(options))
        )

    def wait(self, going: list[Any], **_: object) -> tuple[list[Any], list[Any]]:
        """Return the task that has waited longest."""
        return going[:1], going[1:]

    def get(self, task: Any) -> object:
        """Return the result of a task, or raise how it ended."""
        if isinstance(task.result, BaseException):
            raise task.result
        return task.result

    def cancel(self, going: Any) -> None:
        """Stop a task."""

    def _starter(self, options: dict[str, Any]) -> Any:
        def start(words: list[str], _: object) -> _Task:
            self.asked.append((options, words))
            shard = words[words.index("--shard") + 1]
            end = self.ends.get(shard)
            if isinstance(end, RayError):
                return _Task(end)
            data = (self.prepared / f"{shard.replace('/', '-of-')}.jsonl").read_bytes()
            if end:
                data = data[: len(data) // 2]
                return _Task(("node", *end, data[: data.rfind(b"\n") + 1]))
            return _Task(("node", 0, b"", data))

        return start


class _Task:
    """What stands for the result of a task."""

    def __init__(self, result: object) -> None:
        self.result = result


# Puts a stand-in with such nodes in the place of Ray, and returns it.
FakeCluster = Callable[..., FakeRay]


def prepare_shards(folder: Path) -> None:
    """Write the files of a scan in two shards, and ``whole.jsonl``, the same in one."""
    scan = ("scan", *OPTIONS, "--python", StandIn(folder).python)
    for number in (1, 2):
        done = command_in(folder)(*scan, "--shard", f"{number}/2", "-o", f"{number}-of-2.jsonl")
        assert done.returncode == 0, done.stderr
    assert command_in(folder)(*scan, "-o", "whole.jsonl").returncode == 0


def stand_for_ray(ray: FakeRay, patch: pytest.MonkeyPatch) -> None:
    """Have a scan find a stand-in where it looks for Ray."""
    patch.setitem(sys.modules, "ray", ray)
    patch.setattr("detmatrix.scanner.cluster._variables", lambda _: {})
    group = SimpleNamespace(placement_group=lambda bundles, strategy: (strategy, bundles))
    strategies = SimpleNamespace(PlacementGroupSchedulingStrategy=lambda bundles: bundles)
    patch.setitem(sys.modules, "ray.util.placement_group", group)
    patch.setitem(sys.modules, "ray.util.scheduling_strategies", strategies)
