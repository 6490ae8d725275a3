"""The process-wide state an op could change, so that a worker it has changed is not used again."""

from __future__ import annotations

import os
from typing import Any

import torch


def snapshot() -> dict[str, Any]:
    """Return the flags every later case would inherit, by the name a reader knows them by."""
    return {
        "use_deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "warn_only": torch.is_deterministic_algorithms_warn_only_enabled(),
        "fill_uninitialized_memory": _fill_uninitialized_memory(),
        "cudnn.enabled": torch.backends.cudnn.enabled,
        "cudnn.benchmark": torch.backends.cudnn.benchmark,
        "cudnn.deterministic": torch.backends.cudnn.deterministic,
        "cudnn.allow_tf32": torch.backends.cudnn.allow_tf32,
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "default dtype": str(torch.get_default_dtype()),
        "default device": str(torch.empty(0).device),
        "thread count": torch.get_num_threads(),
        "grad mode": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "anomaly mode": torch.is_anomaly_enabled(),
        "autocast": torch.is_autocast_enabled(),
        "denormals flushed": not torch.tensor(5e-324, dtype=torch.float64).mul(1.0).item(),
        "working directory": os.getcwd(),  # noqa: PTH109 - a Path would hide a directory that is gone
        "environment": dict(os.environ),
    }


def _fill_uninitialized_memory() -> bool | None:
    """Return the flag, or ``None`` for torch before 2.2, which has none."""
    module = getattr(torch.utils, "deterministic", None)
    return None if module is None else bool(module.fill_uninitialized_memory)


def changes(before: dict[str, Any], after: dict[str, Any]) -> str:
    """Say what changed, as ``"default dtype: torch.float32 -> torch.float64"``; empty if nothing did."""
    told = []
    for name, old in before.items():
        new = after[name]
        if new == old:
            continue
        if name == "environment":
            names = sorted(k for k in old.keys() | new.keys() if old.get(k) != new.get(k))
            told.append(f"environment: {', '.join(names)}")
        else:
            told.append(f"{name}: {old} -> {new}")
    return "; ".join(told)
