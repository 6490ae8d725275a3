"""The environment of a worker: what it inherits, what its mode asks for, and where its threads run."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence

from detmatrix.scanner.accelerators import ACCELERATORS, SIMULATED, kind_of
from detmatrix.scanner.modes import MODE_TABLE
from detmatrix.scanner.observations.records import Mode
from detmatrix.scanner.perturbations import variables_of

# What a worker inherits; everything else of the user's environment stays outside.
INHERITED = (
    "ATEN_CPU_CAPABILITY", "CUDA_DEVICE_ORDER", "CUDA_HOME", "CUDA_VISIBLE_DEVICES", "DYLD_LIBRARY_PATH",
    "GOMP_CPU_AFFINITY", "HIP_VISIBLE_DEVICES", "HOME", "KMP_AFFINITY", "LANG", "LC_ALL", "LD_LIBRARY_PATH",
    "MKL_CBWR", "MKL_NUM_THREADS", "NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_TF32_OVERRIDE",
    "NVIDIA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "OMP_PLACES", "OMP_PROC_BIND", "ONEAPI_DEVICE_SELECTOR",
    "PATH", "PYTORCH_CUDA_ALLOC_CONF", "TMPDIR",
)  # fmt: skip
_PACKAGES = "PYTHONPATH"
# PyTorch's databases walk through sets of strings: which sample is the third must not differ from process to process.
_SAME_ORDER = {"PYTHONHASHSEED": "0"}


def worker_environment(mode: Mode, device: str, perturb: Sequence[str] = ()) -> dict[str, str]:
    """Return the whole environment of a worker: the allow-list, what mode and perturbations set, and where threads run."""
    inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
    asked = {**MODE_TABLE[mode].variables} | variables_of(perturb)
    return inherited | _SAME_ORDER | asked | _pinning(inherited, device)


def packages_for(python: str) -> dict[str, str]:
    """Return where an interpreter looks for packages that pip has put into a folder of its own (``--target``).

    That is this one's PYTHONPATH, and what lies there may not be made for another interpreter. Whatever packages lie there,
    a worker starts in a folder that has ours, which come first.
    """
    found = shutil.which(python)
    folders = [os.path.abspath(one) for one in os.environ.get(_PACKAGES, "").split(os.pathsep) if one]  # noqa: PTH100
    if found is None or os.path.abspath(found) != os.path.abspath(sys.executable) or not folders:  # noqa: PTH100
        return {}
    return {_PACKAGES: os.pathsep.join(folders)}


def _pinning(inherited: dict[str, str], device: str) -> dict[str, str]:
    """Bind each OpenMP thread to a core of its own on the CPU, unless the user has placed them; say how many there are.

    Left to themselves the threads of a fresh process may share a core for its whole life. They then never run at
    the same time, so that nothing races, and each parallel region waits for the scheduler. Beside a simulated GPU there is
    one: more would take the cores from its interpreter, most of all while they wait for the next parallel region.
    """
    if device == SIMULATED:
        return {"OMP_NUM_THREADS": "1"}
    if kind_of(device) in ACCELERATORS or sys.platform != "linux":
        return {}
    placed = {"GOMP_CPU_AFFINITY", "KMP_AFFINITY", "OMP_PLACES", "OMP_PROC_BIND"} & inherited.keys()
    return {} if placed else {"OMP_PROC_BIND": "true"}
