"""Kinds of accelerators, declared as data: what differs between them, whatever ``torch.get_device_module`` gives for one.

A worker asks a device through ``scanner.worker.device``; ROCm presents itself as CUDA.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Accelerator:
    """A kind of device beside the CPU."""

    label: str
    # What PyTorch's documentation asks for when the flag is on; users who leave it off live without it.
    variables: dict[str, str]
    # The parts of dispatch keys: "SparseCUDA".
    key: str
    # Perturbations that cannot be brought about there, and why.
    lacks: dict[str, str]
    # Whether memory can be bounded for a process, and its peak is counted.
    bounds_memory: bool = True
    # Whether it computes in float64.
    doubles: bool = True


# By the name that torch gives the kind; `--device auto` takes the first that is there.
ACCELERATORS: dict[str, Accelerator] = {
    "cuda": Accelerator(
        label="CUDA",
        variables={"CUBLAS_WORKSPACE_CONFIG": ":4096:8"},
        key="CUDA",
        lacks={},
    ),
    "xpu": Accelerator(label="XPU", variables={}, key="XPU", lacks={}, bounds_memory=False),
    "mps": Accelerator(
        label="MPS",
        variables={},
        key="MPS",
        lacks={"stress": "it has one stream"},
        bounds_memory=False,
        doubles=False,
    ),
}


def kind_of(device: str) -> str:
    """Return the kind of a device, ``"cuda"`` of ``"cuda:0"``."""
    return device.partition(":")[0]
