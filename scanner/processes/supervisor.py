"""The workers of a scan: one at a time, so that none of them is load to another."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from detmatrix.opspecs.functions import resolved
from detmatrix.scanner.errors import UntrustedScanError, UsageError
from detmatrix.scanner.gpu.process import StandIns
from detmatrix.scanner.observations.records import Mode
from detmatrix.scanner.processes.process import WorkerEndedError, WorkerProcess

_Kind = TypeVar("_Kind")


class WorkerSupervisor:
    """Starts a worker when one is needed, and replaces it when it ended or may no longer be believed."""

    def __init__(
        self,
        python: str,
        sandbox: Path,
        spec_files: tuple[str, ...],
        device: str,
        perturb: Sequence[str] = (),
        simulation: StandIns | None = None,
    ) -> None:
        """Nothing is started yet.

        Args:
            python: The interpreter whose torch is scanned.
            sandbox: The folder workers start in.
            spec_files: Files of the user's own specs.
            device: As asked for, then as resolved.
            perturb: The perturbations of the scan.
            simulation: What its workers have in place of a GPU.
        """
        # A worker lives in another folder.
        self._python = os.path.abspath(python) if os.sep in python else python  # noqa: PTH100 - links stay
        self._sandbox = sandbox
        self._spec_files = tuple(map(resolved, spec_files))
        self.device = device
        self._perturb = perturb
        self._worker: WorkerProcess | None = None
        self._mode: Mode | None = None
        self._used = False
        self._simulation = simulation
        self.started = 0  # workers so far; tells one from the next

    def another(self) -> WorkerSupervisor:
        """Return a supervisor like this one, with workers of its own; none is started yet."""
        return WorkerSupervisor(
            self._python,
            self._sandbox,
            self._spec_files,
            self.device,
            self._perturb,
            self._simulation,
        )

    def start(self, mode: Mode) -> WorkerProcess:
        """Start a worker.

        Raises:
            UntrustedScanError: It did not start.
        """
        self._worker = WorkerProcess(
            self._python,
            mode,
            self._sandbox,
            self._spec_files,
            device=self.device,
            perturb=self._perturb,
            simulation=self._simulation,
        )
        self._mode = mode
        self._used = False
        self.started += 1
        return self._worker

    def first(self, mode: Mode) -> WorkerProcess:
        """Start the worker that says which torch there is.

        Raises:
            UntrustedScanError: It did not start.
            UsageError: It did not start in an interpreter that the user named.
        """
        try:
            return self.start(mode)
        except UntrustedScanError as error:
            if self._python == sys.executable:
                raise
            raise UsageError(f"--python {error}") from error

    def renew(self, mode: Mode) -> None:
        """See to it that what is asked next is asked of a fresh worker of this mode."""
        if self._mode != mode or self._used:
            self.retire()

    def ask(self, mode: Mode, request: dict[str, Any], timeout: float) -> dict[str, Any]:
        """Send a request to the worker in service, or to a fresh one, and return its answer.

        Raises:
            UntrustedScanError: No worker could start.
            WorkerEndedError: The worker ended, took longer than *timeout* seconds, or made no sense.
        """
        worker = self._worker or self.start(mode)
        self._used = True
        try:
            reply = worker.ask(request, timeout)
        except WorkerEndedError:
            self.retire()
            raise
        answer = reply.get("answer")
        if not isinstance(answer, dict):
            self.retire()
            raise WorkerEndedError("the worker's reply makes no sense")
        if reply.get("tainted"):
            self.retire()
        return answer

    def ask_for(self, kind: type[_Kind], mode: Mode, request: dict[str, Any], timeout: float) -> _Kind:
        """Send a request like ``ask``, and return the answer as what it must be.

        Raises:
            UntrustedScanError: No worker could start.
            WorkerEndedError: The worker ended, took longer than *timeout* seconds, or made no sense.
        """
        answer = self.ask(mode, request, timeout)
        try:
            return msgspec.convert(answer, kind)
        except msgspec.ValidationError as error:
            self.retire()
            raise WorkerEndedError(f"the worker's reply makes no sense ({error})") from error

    @property
    def serving(self) -> int | None:
        """The number of the worker in service, counted from 1; ``None`` if what is asked next starts one."""
        return self.started if self._worker is not None else None

    def kill(self) -> None:
        """End the worker in service while another thread waits for its answer, which gets none."""
        if (worker := self._worker) is not None:
            worker.kill()

    def retire(self) -> None:
        """Stop the worker in service, if there is one."""
        if self._worker is not None:
            self._worker.stop()
        self._worker = None
        self._mode = None
