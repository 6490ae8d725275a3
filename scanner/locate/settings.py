"""What is set, in a program's process, of what decides whether its bits repeat."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
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
# With these on, the compiler times kernels.
_TUNING = ("max_autotune", "max_autotune_pointwise", "max_autotune_gemm", "coordinate_descent_tuning")
_TUNED, _DRAWN = "autotuning", "drawn by seed(), or of more than 32 bits"
_SDPA = ("flash", "mem_efficient", "cudnn", "math")


@dataclass
class Noted:
    """What is set before a program, and what it does of which nothing tells at its end."""

    seed: int = field(default_factory=torch.initial_seed)
    hashes: str = field(default_factory=lambda: os.environ.get("PYTHONHASHSEED", "not set"))
    # Loaders that draw: with their own generator, and without.
    loaders: Counter[bool] = field(default_factory=Counter)
    seeds: set[int] = field(default_factory=set)  # of generators that ops and loaders were given
    compiles: str = "not used"

    def compiled(self, mode: str | None = None, options: Mapping[str, Any] | None = None, **_: Any) -> None:
        """Note what ``torch.compile`` is asked for."""
        tuned = any(value for name, value in (options or {}).items() if name in _TUNING)
        if tuned or "max-autotune" in str(mode):
            self.compiles = _TUNED
        elif self.compiles != _TUNED:
            self.compiles = "no autotuning"


def settings_now(noted: Noted) -> dict[str, str]:
    """Return what is set; nothing of it starts a device."""
    flag = str(torch.are_deterministic_algorithms_enabled())
    warns = torch.is_deterministic_algorithms_warn_only_enabled()
    found = {"torch.use_deterministic_algorithms": f"{flag}, warn_only" if warns else flag}
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
    seed = torch.initial_seed()
    found["torch.manual_seed"] = "not called" if seed == noted.seed else _DRAWN if drawn(seed) else "called"
    seeds = noted.seeds
    found["torch.Generator"] = _DRAWN if any(map(drawn, seeds)) else "seeded" if seeds else "not used"
    states = python_states()
    for name in ("random", "numpy.random"):
        found[name] = "drawn from" if name in states else "not drawn from"
    alone, all_with = noted.loaders[False], "all with a generator" if noted.loaders[True] else "not used"
    found["torch.utils.data.DataLoader"] = f"{alone} without a generator" if alone else all_with
    config = sys.modules.get("torch._inductor.config")
    tuned = any(getattr(config, name, False) for name in _TUNING)
    found["torch.compile"] = _TUNED if tuned else noted.compiles
    found["threads"] = str(torch.get_num_threads())
    found |= {name: os.environ.get(name, "not set") for name in _VARIABLES}
    if found["PYTHONHASHSEED"] != noted.hashes:
        # Python has read it before.
        found["PYTHONHASHSEED"] = f"{noted.hashes}; {found['PYTHONHASHSEED']} came too late"
    return found


def drawn(seed: int) -> bool:
    """Tell whether a seed has as many bits as those that ``seed()`` draws; that of a new generator is the same each time."""
    return seed >= 1 << 32 and seed != torch.Generator().initial_seed()
