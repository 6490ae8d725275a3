"""Modes under torch.compile: whether what a scan was asked to compile can be."""

from __future__ import annotations

from scanner.errors import UntrustedScanError, UsageError
from scanner.modes import COMPILES_SINCE, MODE_TABLE
from scanner.observations.records import Header
from scanner.observations.versions import minor
from scanner.processes.supervisor import WorkerSupervisor
from scanner.run.progress import Progress


def compile_first(header: Header, supervisor: WorkerSupervisor, progress: Progress) -> None:
    """See to it that what is to be compiled can be, before anything is measured.

    Raises:
        UsageError: It cannot.
    """
    modes = [mode for mode in header.settings.modes if MODE_TABLE[mode].compiles]
    if not modes:
        return
    mode, torch = modes[0], header.environment.torch
    if minor(torch) < COMPILES_SINCE:
        least = ".".join(map(str, COMPILES_SINCE))
        raise UsageError(f"--modes {mode}: needs torch {least} or newer, and this is {torch}; leave it out")
    progress.doing("torch.compile compiles a first function, which may take a minute")
    supervisor.retire()
    try:
        supervisor.start(mode)
    except UntrustedScanError as error:
        raise UsageError(
            f"--modes {mode}: {error}; install what is missing, or leave the mode out"
        ) from error
    supervisor.retire()
