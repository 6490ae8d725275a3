"""What a worker asks of a device: through ``torch.get_device_module``, with the table of what differs between kinds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch

from detmatrix.scanner.accelerators import ACCELERATORS, MEASURED, kind_of

# The share of this process in the memory of the device; the rest is for workers beside it.
_shares: dict[str, float] = {}


def module_of(device: str) -> Any:
    """Return ``torch.cuda`` and its like, of a device that is not the CPU."""
    kind = kind_of(device)
    # Came with torch 2.3.
    return torch.get_device_module(kind) if hasattr(torch, "get_device_module") else getattr(torch, kind)


def present() -> list[dict[str, Any]]:
    """Describe the devices that this torch sees: of the first kind that is there."""
    for kind in MEASURED:
        if is_there(kind):
            module = module_of(kind)
            return [_described(kind, module, index) for index in range(module.device_count())]
    return []


def is_there(kind: str) -> bool:
    """Tell whether this torch sees a device of a kind."""
    module = getattr(torch, kind, None)
    available = torch.backends.mps.is_available if kind == "mps" else getattr(module, "is_available", None)
    return module is not None and available is not None and bool(available())


def _described(kind: str, module: Any, index: int) -> dict[str, Any]:
    size = memory(f"{kind}:{index}")
    if kind == "mps":
        return {"kind": kind, "name": "Apple GPU", "capability": "", "memory": size}
    capability = module.get_device_capability(index)
    # Of XPU it is a dictionary of dozens of properties.
    text = ".".join(map(str, capability)) if isinstance(capability, tuple) else ""
    return {"kind": kind, "name": module.get_device_name(index), "capability": text, "memory": size}


def tf32() -> list[str]:
    """Name the libraries that may compute float32 in TF32 as this process begins."""
    backends = {"matmul": torch.backends.cuda.matmul, "cuDNN": torch.backends.cudnn}
    found = []
    for name, backend in backends.items():
        # Where the newer settings were used the older ones refuse to be read.
        with suppress(RuntimeError):
            found += [name] * bool(backend.allow_tf32)
    return found


def select(device: str, share: float = 1.0) -> None:
    """Let what follows happen on a device, in a share of its memory."""
    if device == "cpu":
        return
    module = module_of(device)
    if hasattr(module, "set_device"):
        module.set_device(device)
    if share < 1 and _shares.get(device) != share and ACCELERATORS[kind_of(device)].bounds_memory:
        module.set_per_process_memory_fraction(share, device)
        _shares[device] = share


def synchronize(device: str) -> None:
    """Wait until all that is queued is done."""
    if device == "cpu":
        return
    module = module_of(device)
    if kind_of(device) == "mps":
        module.synchronize()
    else:
        module.synchronize(device)


def works(device: str) -> bool:
    """Tell whether a device still answers; an illegal access or a failed assertion stays with a process."""
    try:
        synchronize(device)
    except RuntimeError:
        return False
    return True


def generators(device: str) -> list[torch.Generator]:
    """Return the random generators that an op may draw from."""
    if device == "cpu":
        return [torch.default_generator]
    module = module_of(device)
    if kind_of(device) == "mps":
        return [torch.default_generator, module._get_default_mps_generator()]  # noqa: SLF001 - has no public name
    module.init()
    return [torch.default_generator, module.default_generators[torch.device(device).index or 0]]


def memory(device: str) -> int:
    """Return the bytes of a device that this process may use."""
    module = module_of(device)
    if kind_of(device) == "mps":
        return int(module.recommended_max_memory())
    return int(module.get_device_properties(device).total_memory * _shares.get(device, 1.0))


def peak_memory(device: str, execute: Any) -> int | None:
    """Return the bytes that *execute* takes at its peak, beyond what was allocated; ``None`` where nobody counts."""
    if device == "cpu" or not hasattr(module := module_of(device), "reset_peak_memory_stats"):
        return None
    synchronize(device)
    module.reset_peak_memory_stats(device)
    held = module.memory_allocated(device)
    execute()
    synchronize(device)
    return int(module.max_memory_allocated(device) - held)


@contextmanager
def bounded_memory(device: str, size: int) -> Iterator[None]:
    """Let an allocation fail rather than take more than *size* bytes of a device beyond what is in use."""
    if not ACCELERATORS[kind_of(device)].bounds_memory:
        yield
        return
    module = module_of(device)
    share = _shares.get(device, 1.0)
    total = module.get_device_properties(device).total_memory
    # What is kept for later is given back rather than exceed it.
    most = (module.memory_allocated(device) + size) / total
    module.set_per_process_memory_fraction(min(share, most), device)
    try:
        yield
    finally:
        module.set_per_process_memory_fraction(share, device)


def computes_doubles(device: torch.device) -> bool:
    """Tell whether float64 is known on a device."""
    return device.type not in ACCELERATORS or ACCELERATORS[device.type].doubles
