"""Kinds of accelerators, declared as data: what differs between them, whatever ``torch.get_device_module`` gives for one.

A worker asks a device through ``detmatrix.scanner.worker.accelerator``; ROCm presents itself as CUDA.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Accelerator:
    """A kind of device beside the CPU."""

    label: str
    # The parts of dispatch keys: "SparseCUDA".
    key: str
    # Perturbations that cannot be brought about there, and why.
    lacks: dict[str, str]
    # Whether memory can be bounded for a process, and its peak is counted.
    bounds_memory: bool = True
    # Whether nvidia-smi knows its driver.
    nvidia: bool = False
    # Whether it computes in float64.
    doubles: bool = True
    # Whether it is one of torch's CUDA devices, of which an interpreter executes the kernels: nothing there is measured.
    simulated: bool = False


# By the name that torch gives the kind; `--device auto` takes the first that is there. `--simulate` asks for the last.
ACCELERATORS: dict[str, Accelerator] = {
    "cuda": Accelerator(label="CUDA", key="CUDA", lacks={}, nvidia=True),
    "xpu": Accelerator(label="XPU", key="XPU", lacks={}, bounds_memory=False),
    "mps": Accelerator(
        label="MPS", key="MPS", lacks={"stress": "it has one stream"}, bounds_memory=False, doubles=False
    ),
    "simulated": Accelerator(label="CUDA, simulated", key="CUDA", lacks={}, simulated=True),
}
# Those that torch knows by these names.
MEASURED = tuple(kind for kind, it in ACCELERATORS.items() if not it.simulated)
SIMULATED = "simulated:0"


def lacking(device: str) -> str:
    """Say in one line what a scan cannot do on a device; empty if nothing."""
    if device == "cpu":
        return ""
    of = ACCELERATORS[kind_of(device)]
    lines = [f"no perturbation {name} ({why})" for name, why in of.lacks.items()]
    lines += [] if of.bounds_memory else ["memory is not bounded, so that one worker runs at a time"]
    return f"{of.label}: {'; '.join(lines)}" if lines else ""


def label_of(device: str) -> str:
    """Return the kind of a device in words: ``"CUDA"`` of ``"cuda:0"``."""
    kind = kind_of(device)
    return ACCELERATORS[kind].label if kind in ACCELERATORS else kind.upper()


def kind_of(device: str) -> str:
    """Return the kind of a device, ``"cuda"`` of ``"cuda:0"``."""
    return device.partition(":")[0]
