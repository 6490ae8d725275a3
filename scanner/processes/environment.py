"""The machine and the build a scan ran on, as the run file's header records them."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from detmatrix.scanner.accelerators import ACCELERATORS, SIMULATED, kind_of
from detmatrix.scanner.errors import UsageError
from detmatrix.scanner.modes import modes_on
from detmatrix.scanner.observations.records import Environment, SimulatedDevice
from detmatrix.scanner.observations.settings import MOST_WORKERS
from detmatrix.scanner.processes.process import WorkerBuild, worker_environment

# Bytes of a device that a process must have for the widest rows.
_LEAST_MEMORY = 4 << 30
# What says more of the user than of the scan.
_PRIVATE = {"HOME", "LANG", "LC_ALL", "PATH", "TMPDIR"}
# By what Linux tells kinds of CPUs apart, on x86 and on Arm, and by what torch and its libraries choose kernels: a hypervisor may hide
# some of it.
_CPUS = Path("/proc/cpuinfo")
_MODEL = ("cpu family", "model", "CPU implementer", "CPU part")
_KERNELS = ("avx2", "avx512f", "avx512_vnni", "amx_tile", "sve", "sve2")
_PROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"


def resolve_device(asked: str, build: WorkerBuild) -> str:
    """Return ``"cpu"`` or ``"cuda:N"`` for what the user asked of the scanned build; refuse what is not there."""
    if asked == "auto":
        return f"{build['devices'][0]['kind']}:0" if build["devices"] else "cpu"
    if asked == "cpu":
        return "cpu"
    if asked == SIMULATED:
        if not build["devices"]:
            raise UsageError(f"--simulate: torch {build['torch']} does not take the stand-ins for a GPU")
        return SIMULATED
    if missing := missing_device(asked, build):
        hint = "" if build["devices"] else "; use --device cpu"
        raise UsageError(f"--device {asked}: {missing}{hint}")
    return f"{kind_of(asked)}:{int(asked.partition(':')[2] or 0)}"


def missing_device(device: str, build: WorkerBuild) -> str | None:
    """Say that a device is not there for the build of a worker; ``None`` if it is."""
    if device == "cpu":
        return None
    count = sum(one["kind"] == kind_of(device) for one in build["devices"])
    if int(device.partition(":")[2] or 0) < count:
        return None
    built = (
        f" (CUDA {build['cuda']})" if build["cuda"] else f" (ROCm {build['rocm']})" if build["rocm"] else ""
    )
    torch = f"torch {build['torch']}{built or ' (built without CUDA)'}"
    label = ACCELERATORS[kind_of(device)].label
    return (
        f"{torch} sees {count} {label} device(s), numbered from 0"
        if count
        else f"{torch} sees no {label} device here"
    )


def workers_for(device: str, build: WorkerBuild) -> int:
    """Return how many workers run side by side: one on the CPU, where they would be load to one another."""
    if device == "cpu" or not ACCELERATORS[kind_of(device)].bounds_memory:
        return 1
    if device == SIMULATED:
        # A worker waits while its interpreter works.
        return min(MOST_WORKERS, os.cpu_count() or 1)
    memory = build["devices"][int(device.partition(":")[2] or 0)]["memory"]
    # Each has a process of either mode, of which one works.
    return max(1, min(MOST_WORKERS, (os.cpu_count() or 1) // 2, memory // (2 * _LEAST_MEMORY)))


def environment(
    device: str, build: WorkerBuild, simulated: SimulatedDevice | None = None, *, ordered: bool = True
) -> Environment:
    """Describe machine and build, and the environment of workers; *ordered* as there."""
    index = int(device.partition(":")[2] or 0)
    gpu = build["devices"][index] if device != "cpu" else None
    cpu, cpu_model = _cpu()
    return Environment(
        torch=build["torch"],
        torch_git=build["torch_git"],
        cuda=build["cuda"],
        cudnn=build["cudnn"],
        driver=_driver() if gpu and ACCELERATORS[kind_of(device)].nvidia and not build["rocm"] else None,
        # Nobody who reads the name alone takes it for one that was measured.
        gpu=gpu and gpu["name"] + (", simulated" if simulated else ""),
        gpu_capability=gpu and gpu["capability"],
        simulated=simulated,
        rocm=build["rocm"],
        # It says something of a GPU alone.
        tf32=tuple(build["tf32"]) if gpu else (),
        cpu=cpu,
        cpu_model=cpu_model,
        cores=os.cpu_count() or 0,
        threads=build["threads"],
        # The cores that this process, and so its workers, may use; macOS has no such limit.
        affinity=tuple(
            sorted(os.sched_getaffinity(0))
            if hasattr(os, "sched_getaffinity")
            else range(os.cpu_count() or 0)
        ),
        load=load(),
        python=build["python"],
        os=platform.platform(),
        variables={
            mode: {
                name: value
                for name, value in sorted(worker_environment(mode, device, ordered=ordered).items())
                if name not in _PRIVATE
            }
            for mode in modes_on(device)
        },
    )


def load() -> tuple[float, ...]:
    """Return the 1, 5 and 15 minute load averages."""
    return tuple(round(value, 2) for value in os.getloadavg())


def _cpu() -> tuple[str, str | None]:
    """Return the name of the CPU, and of which model it is, where Linux says so."""
    try:
        lines = _CPUS.read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine(), None
    # Cores may be of several kinds.
    facts: dict[str, dict[str, None]] = {}
    for line in lines:
        key, _, value = line.partition(":")
        facts.setdefault(key.strip(), {})[value.strip()] = None
    able = " ".join([*facts.get("flags", ()), *facts.get("Features", ())]).split()
    model = [f"{key} {' and '.join(sorted(facts[key]))}" for key in _MODEL if key in facts]
    model += [it for it in _KERNELS if it in able]
    return next(iter(facts.get("model name", ())), "") or platform.machine(), ", ".join(model) or None


def _driver() -> str | None:
    """Return the version of the NVIDIA driver, or ``None`` where nvidia-smi does not tell."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return None
    try:
        text = subprocess.run(
            [command, "--query-gpu=driver_version", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return text.stdout.strip().split("\n", 1)[0] or None


def tool_version() -> str:
    """Return the version of the checkout that runs, which need not be installed; else of what is installed."""
    try:
        project = tomllib.loads(_PROJECT.read_text(encoding="utf-8"))["project"]
        if project["name"] == "detmatrix":
            return str(project["version"])
    except (OSError, ValueError, KeyError, TypeError):
        pass  # none lies beside an installed package, but for what somebody else has put there
    try:
        return version("detmatrix")
    except PackageNotFoundError:
        return "unknown"
