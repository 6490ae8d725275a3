"""Scans whose stand-in workers answer within this process: fast enough to be cut at every byte and at every request."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from detmatrix.scanner.cases import catalog
from detmatrix.scanner.cases.settings import Plan, asked_for
from detmatrix.scanner.observations.records import Mode
from detmatrix.scanner.observations.runfile import Run
from detmatrix.scanner.processes import process
from detmatrix.scanner.run.progress import PlainProgress
from detmatrix.scanner.run.scan import scan
from tests import quick
from tests.stand_in_worker import BUILD, answer


class Requests:
    """What workers are asked, and what happens then."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        # Called with the number of a request, from 0, before it is answered.
        self.before: Callable[[int], None] = lambda _: None

    def worker(self, _: str, mode: Mode, *__: object, **___: object) -> _Worker:
        """Start a worker; the arguments are those of ``detmatrix.scanner.processes.process.WorkerProcess``."""
        return _Worker(self, mode)


class _Worker:
    """A stand-in that is no process."""

    def __init__(self, requests: Requests, mode: Mode) -> None:
        self._requests = requests
        self._mode = mode
        self.build = BUILD

    def ask(self, request: dict[str, Any], _: float) -> dict[str, Any]:
        asked = self._requests.asked
        asked.append({**request, "mode": self._mode})
        self._requests.before(len(asked) - 1)
        return {"answer": answer(asked[-1]), "tainted": False}

    def stop(self) -> None:
        pass


def in_process(patch: pytest.MonkeyPatch) -> Requests:
    """Let workers answer within this process until the patch is undone, and two small specs be the catalog."""
    requests = Requests()
    patch.setattr(process, "WorkerProcess", requests.worker)
    # Choosing from the whole catalog, and looking for installed specs, would take longer than all else here.
    patch.setattr(
        catalog, "SPECS", [spec for spec in quick.SPECS if spec.name in {"quick.put_", "quick.missing"}]
    )
    patch.setattr(catalog, "_may_bring_specs", lambda: False)
    return requests


def small_scan(path: Path, *, resume: bool = False) -> Run:
    """Scan two small rows with everything on, or go on with that."""
    plan = Plan(
        output=path,
        settings=asked_for(device="cpu", runs=2, processes=1, perturb=("quiet",)),
        resume=resume,
        force=not resume,
    )
    return scan(plan, PlainProgress(io.StringIO()))
