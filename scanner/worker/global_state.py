"""The process-wide state an op could change, so that a worker it has changed is not used again."""

# ruff: noqa: PLW0108 - getters are looked up when they are read, since an older torch lacks some

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

_GETTERS: dict[str, Callable[[], Any]] = {
    "use_deterministic_algorithms": torch.are_deterministic_algorithms_enabled,
    "warn_only": torch.is_deterministic_algorithms_warn_only_enabled,
    "fill_uninitialized_memory": lambda: torch.utils.deterministic.fill_uninitialized_memory,
    "cudnn.enabled": lambda: torch.backends.cudnn.enabled,
    "cudnn.benchmark": lambda: torch.backends.cudnn.benchmark,
    "cudnn.deterministic": lambda: torch.backends.cudnn.deterministic,
    "cudnn.allow_tf32": lambda: torch.backends.cudnn.allow_tf32,
    "mkldnn.enabled": lambda: torch._C._get_mkldnn_enabled(),  # noqa: SLF001 - has no public getter
    "mkldnn.deterministic": lambda: torch.backends.mkldnn.deterministic,
    "matmul.allow_tf32": lambda: torch.backends.cuda.matmul.allow_tf32,
    "matmul.allow_fp16_reduction": lambda: torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction,
    "matmul.allow_bf16_reduction": lambda: torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction,
    "flash attention": lambda: torch.backends.cuda.flash_sdp_enabled(),
    "memory efficient attention": lambda: torch.backends.cuda.mem_efficient_sdp_enabled(),
    "math attention": lambda: torch.backends.cuda.math_sdp_enabled(),
    "cuDNN attention": lambda: torch.backends.cuda.cudnn_sdp_enabled(),
    "float32_matmul_precision": torch.get_float32_matmul_precision,
    "default dtype": lambda: str(torch.get_default_dtype()),
    "default device": lambda: str(torch.empty(0).device),
    "thread count": torch.get_num_threads,
    "grad mode": torch.is_grad_enabled,
    "inference mode": torch.is_inference_mode_enabled,
    "anomaly mode": torch.is_anomaly_enabled,
    "autocast": torch.is_autocast_enabled,
    "denormals flushed": lambda: not torch.tensor(5e-324, dtype=torch.float64).mul(1.0).item(),
    "CUDA device": lambda: torch.cuda.current_device() if torch.cuda.is_initialized() else None,
    "CUDA stream": lambda: torch.cuda.current_stream().cuda_stream if torch.cuda.is_initialized() else None,
    "working directory": os.getcwd,  # a Path would hide a directory that is gone
    # PyTorch names the folder of its compiler when it first loads it, which any op may be the first to make it do.
    "environment": lambda: {
        name: value for name, value in os.environ.items() if name != "TORCHINDUCTOR_CACHE_DIR"
    },
}


@contextmanager
def mode_restored() -> Iterator[None]:
    """Put the worker's mode back behind the block."""
    deterministic = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(deterministic, warn_only=warn_only)


def snapshot() -> dict[str, Any]:
    """Return the flags every later case would inherit, by the name a reader knows them by."""
    return {name: _read(getter) for name, getter in _GETTERS.items()}


def _read(getter: Callable[[], Any]) -> Any:
    """Return a flag, or why it cannot be read: an older torch lacks some, and mixing its APIs breaks others."""
    try:
        return getter()
    except Exception as error:  # noqa: BLE001 - that it cannot be read is state as well
        return f"unreadable ({type(error).__name__})"


def changes(before: dict[str, Any], after: dict[str, Any]) -> str:
    """Say what changed, as ``"default dtype: torch.float32 -> torch.float64"``; empty if nothing did."""
    lines = []
    for name, old in before.items():
        new = after[name]
        if new == old:
            continue
        if name == "environment" and isinstance(old, dict) and isinstance(new, dict):
            names = sorted(k for k in old.keys() | new.keys() if old.get(k) != new.get(k))
            lines.append(f"environment: {', '.join(names)}")
        else:
            lines.append(f"{name}: {old} -> {new}")
    return "; ".join(lines)
