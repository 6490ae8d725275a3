"""Modes under torch.compile: whether what a scan was asked to compile can be."""

from __future__ import annotations

from scanner.errors import UntrustedScanError, UsageError
from scanner.modes import MODE_TABLE
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
    torch = header.environment.torch
    for mode in modes:
        if minor(torch) < (since := MODE_TABLE[mode].since):
            least = ".".join(map(str, since))
            raise UsageError(
                f"--modes {mode}: needs torch {least} or newer, and this is {torch}; leave it out"
            )
    progress.doing("torch.compile compiles a first function, which may take a minute")
    supervisor.retire()
    try:
        supervisor.start(modes[0])
    except UntrustedScanError as error:
        raise UsageError(
            f"--modes {modes[0]}: {error}; install what is missing, or leave the mode out"
        ) from error
    supervisor.retire()
