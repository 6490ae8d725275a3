"""The simulated GPU of a scan: whether this machine and the scanned build can have one, and what the run file says of it."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from detmatrix.scanner.errors import UsageError
from detmatrix.scanner.gpu.device import device
from detmatrix.scanner.gpu.process import StandIns, prepare
from detmatrix.scanner.observations.records import Settings, SimulatedDevice
from detmatrix.scanner.run.progress import Progress
from detmatrix.scanner.schedules import LEAST_RUNS, split

# What the interpreter needs beside the standard library: the extra "simulate".
_NEEDS = ("lz4", "numpy", "zstandard")
_GPU = Path(__file__).parents[1] / "gpu"
# NVIDIA's driver makes the first, Windows below Linux has the second.
_REAL = (Path("/dev/nvidia0"), Path("/dev/dxg"))


def simulation_for(settings: Settings, python: str, progress: Progress) -> StandIns | None:
    """Prepare the simulated GPU that a scan asks for; ``None`` if it asks for none."""
    if not settings.simulate:
        return None
    if settings.runs < LEAST_RUNS:
        raise UsageError(f"--runs {settings.runs}: a simulated scan takes {LEAST_RUNS} executions or more")
    return simulated_gpu(settings.simulate, python, progress, multiprocessors=settings.multiprocessors)


def simulated_gpu(
    architecture: str, python: str, progress: Progress | None = None, *, multiprocessors: int = 0
) -> StandIns:
    """Prepare a simulated GPU for the torch of an interpreter; refuse a machine or a build that cannot have one."""
    if sys.platform != "linux" or platform.machine() not in {"x86_64", "AMD64"}:
        here = f"{platform.system()} on {platform.machine()}"
        raise UsageError(
            f"--simulate runs builds of torch for Linux on x86-64, and this is {here}; use such a machine"
        )
    if missing := [name for name in _NEEDS if find_spec(name) is None]:
        raise UsageError(
            f"--simulate needs {', '.join(missing)}; install them: pip install 'detmatrix[simulate]'"
        )
    if shutil.which(python) is None:
        raise UsageError(f"--python {python}: is no interpreter that can be executed")
    if progress and any(path.exists() for path in _REAL):
        progress.note("there is a GPU here; it is not used, and nothing of this scan is measured on it")
    if progress:
        progress.doing(f"preparing a simulated GPU ({architecture})")
    # It is asked from another folder.
    python = os.path.abspath(python) if os.sep in python else python  # noqa: PTH100 - links stay
    return prepare(python, architecture, multiprocessors=multiprocessors)


def described(settings: Settings) -> SimulatedDevice | None:
    """Return what the run file says of the simulated GPU; ``None`` if there is none."""
    if not settings.simulate:
        return None
    of = device(int(settings.simulate.removeprefix("sm_")), settings.multiprocessors)
    return SimulatedDevice(
        architecture=settings.simulate,
        name=of.name,
        multiprocessors=of["MultiProcessorCount"],
        build=_build(),
        executions={name: count for name, count in split(settings.runs).items() if count},
    )


@cache
def _build() -> str:
    """Return a digest of the interpreter and the stand-ins: other ones may give other orders."""
    found = hashlib.sha256()
    for path in sorted(path for path in _GPU.rglob("*") if path.suffix in {".py", ".c", ".h"}):
        found.update(path.relative_to(_GPU).as_posix().encode() + b"\0" + path.read_bytes())
    return found.hexdigest()[:16]
