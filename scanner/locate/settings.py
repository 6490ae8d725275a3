"""What is set, in a program's process, of what decides whether its bits repeat."""

from __future__ import annotations

import os
from typing import Any

import torch

from detmatrix.scanner.locate.recorder import python_states

# Variables of the environment that PyTorch, its libraries and Python read.
_VARIABLES = (
    "CUBLAS_WORKSPACE_CONFIG",
    "PYTHONHASHSEED",
    "TORCHINDUCTOR_MAX_AUTOTUNE",
    "NCCL_ALGO",
    "NCCL_PROTO",
    "NCCL_NVLS_ENABLE",
    "NCCL_MAX_NCHANNELS",
    "NVIDIA_TF32_OVERRIDE",
)
# Attributes below ``torch.backends``.
_SWITCHES = (
    "cudnn.benchmark",
    "cudnn.deterministic",
    "cudnn.allow_tf32",
    "cuda.matmul.allow_tf32",
    "cuda.matmul.allow_fp16_reduced_precision_reduction",
)
_SDPA = ("flash", "mem_efficient", "cudnn", "math")


def settings_now(first_seed: int, loaders: dict[bool, int]) -> dict[str, str]:
    """Return what is set; nothing of it starts a device.

    Args:
        first_seed: Of PyTorch's generator, before the program.
        loaders: How many data loaders draw with a generator of their own, and without.
    """
    found = {"torch.use_deterministic_algorithms": str(torch.are_deterministic_algorithms_enabled())}
    for name in _SWITCHES:
        value: Any = torch.backends
        try:
            for part in name.split("."):
                value = getattr(value, part, None)
        except RuntimeError:  # the program said it by fp32_precision, and torch refuses to mix both
            value = "said by fp32_precision"
        found[f"torch.backends.{name}"] = str(value)
    enabled = [one for one in _SDPA if getattr(torch.backends.cuda, f"{one}_sdp_enabled", bool)()]
    found["scaled_dot_product_attention"] = ", ".join(enabled) or "unknown"
    found["torch.manual_seed"] = "called" if torch.initial_seed() != first_seed else "not called"
    drawn = python_states()
    for name in ("random", "numpy.random"):
        found[name] = "drawn from" if name in drawn else "not drawn from"
    found["torch.utils.data.DataLoader"] = (
        f"{loaders[False]} without a generator"
        if loaders[False]
        else "all with a generator"
        if loaders[True]
        else "not used"
    )
    found["threads"] = str(torch.get_num_threads())
    return found | {name: os.environ.get(name, "not set") for name in _VARIABLES}
