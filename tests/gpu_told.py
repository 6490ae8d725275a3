"""What stands for the worker's side of a simulated GPU, and tells what a test says."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from detmatrix.opspecs.model import Case, OpSpec, call
from detmatrix.scanner.schedules import SCHEDULES
from detmatrix.scanner.worker import simulated
from detmatrix.scanner.worker.observe import observe

CONFLICTS: dict[str, Any] = {
    "pairs": [0, 0, 0],
    "commuting": 0,
    "tame": 0,
    "doubts": [],
    "told": [],
    "inexact": False,
}
TOLD: dict[str, Any] = {
    "launch": 0, "kernel": "k", "address": 64, "scope": "warps", "kinds": ["float add", "float add"], "blocks": [0, 0],
    "threads": [1, 33], "lines": [7, 7], "steps": [9, 9], "values": [1, 2], "old": 3, "shows": True,
}  # fmt: skip


class Gpu:
    """Stands for the worker's side of a simulated GPU."""

    def __init__(self, patch: pytest.MonkeyPatch, **told: Any) -> None:
        self.now = ("canonical", 0)
        self.begun: list[tuple[str, int]] = []
        self.whole = False  # small integers are asked for
        self.skips: bool | None = False
        self.moved: bool | None = False
        self.shifted: bool | None = False
        found: dict[str, Any] = {
            "launches": [],
            "faults": [],
            "libraries": [],
            "products": [],
            "swapped": (True, True),
        } | told
        self.told = found
        patch.setattr(simulated, "active", lambda: True)
        patch.setattr(simulated, "begin", self._begin)
        patch.setattr(simulated, "report", self._report)

    def _report(self) -> simulated.Report:
        self.moved = False  # the CPU, which is asked behind it, knows no such thing
        return simulated.Report(**self.told)

    def _begin(
        self, name: str, number: int, seed: int, deadline: float, *, log: bool = False, **how: bool
    ) -> None:
        assert seed == 5
        assert deadline > time.perf_counter()
        self.whole |= log and (name, number) == ("canonical", 0)
        assert self.whole or log == ((name, number) == ("canonical", 1))
        self.now = (name, number)
        self.skips, self.moved, self.shifted = how.get("skip"), how.get("moved"), how.get("shifted")
        self.begun.append(self.now)

    def observe(self, op: Callable[..., Any], runs: int = 8) -> dict[str, Any]:
        """Observe an op on it."""
        spec = OpSpec(name="own", op=op, why="", cases={"one": Case(inputs=lambda t: call(t.normal(64)))})
        options: dict[str, Any] = {
            "direction": "forward",
            "dtype": "float32",
            "device": "cpu",
            "seed": 5,
            "runs": runs,
        }
        return observe(spec, "one", **options, perturbations=list(SCHEDULES), seconds=100.0)
