"""The process-wide state an op could change, so that a worker it has changed is not used again."""

# ruff: noqa: PLW0108 - getters are looked up when they are read, since an older torch lacks some

from __future__ import annotations

import builtins
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from detmatrix.scanner.accelerators import MEASURED

# What an op may replace and every later row, or our own comparison of outputs, would then call.
_PATCHABLE: dict[str, Any] = {
    "builtins": builtins,
    "torch": torch,
    "torch.Tensor": torch.Tensor,
    "torch._C": torch._C,  # noqa: SLF001 - the functions behind the public ones
    "torch.autograd": torch.autograd,
    "torch.nn.functional": torch.nn.functional,
}
# How often the flag was changed in this process: an op that sets it and puts it back leaves no other trace. PyTorch's
# compiler sets it, too, to what it is.
_set_flag = torch._C._set_deterministic_algorithms  # noqa: SLF001 - what every way of setting it calls
_times_set = 0


def _counted(*args: Any, **kwargs: Any) -> None:
    global _times_set  # noqa: PLW0603 - there is one flag in a process
    before = _flag()
    _set_flag(*args, **kwargs)
    _times_set += _flag() != before


def _flag() -> tuple[bool, bool]:
    """Return whether the flag is on, and whether it only warns."""
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    return torch.are_deterministic_algorithms_enabled(), warn_only


torch._C._set_deterministic_algorithms = _counted  # noqa: SLF001


def times_set() -> int:
    """Return how often the flag was set in this process."""
    return _times_set


@contextmanager
def uncounted() -> Iterator[None]:
    """Do not count how often the flag is set in the block."""
    global _times_set  # noqa: PLW0603 - there is one flag in a process
    before = _times_set
    try:
        yield
    finally:
        _times_set = before


def _autocast() -> tuple[object, ...]:
    """Return whether each kind of device casts by itself, and to what; before 2.4 each had functions of its own."""
    try:
        return tuple(
            (torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in (*MEASURED, "cpu")
        )
    except (TypeError, AttributeError, RuntimeError):
        gpu = torch.is_autocast_enabled(), torch.get_autocast_gpu_dtype()
        return gpu, (torch.is_autocast_cpu_enabled(), torch.get_autocast_cpu_dtype())


def _rounding() -> str:
    """Return how the processor rounds, by two sums that no two ways of rounding agree on."""
    one, small, three_quarters = 1.0, 2.0**-60, 3 * 2.0**-54
    if one + small > one:
        return "up"
    if one + three_quarters > one:
        return "to nearest"
    return "down" if -one - small < -one else "towards zero"


def _flushed() -> tuple[bool, bool]:
    """Tell whether denormal inputs and denormal results count as zero."""
    denormal, smallest = (torch.tensor(value, dtype=torch.float64) for value in (5e-324, sys.float_info.min))
    return not denormal.mul(1.0).item(), not smallest.mul(0.5).item()


def _patched(old: dict[str, dict[str, Any]], new: dict[str, dict[str, Any]]) -> list[str]:
    """Return the dotted paths of what was replaced, removed, or added before what a class inherits.

    PyTorch adds modules and classes of its own when they are first used; that is no replacement. ``torch.Storage``
    stands for the default dtype, which is read by itself.
    """
    found = [
        f"{owner}.{name}"
        for owner, names in old.items()
        for name, value in names.items()
        if (now := new[owner].get(name)) is not value
        and (owner, name) != ("torch", "Storage")
        and not _wrapped_by_torch(now, value)
    ]
    found += [
        f"torch.Tensor.{name}"
        for name in new["torch.Tensor"].keys() - old["torch.Tensor"].keys()
        if hasattr(torch._C.TensorBase, name)  # noqa: SLF001 - what Tensor inherits from
    ]
    return sorted(found)


def _wrapped_by_torch(now: Any, before: Any) -> bool:
    """Tell whether a function is wrapped by torch itself: its compiler, when it is loaded, does that to ``manual_seed``."""
    made_in = str(getattr(now, "__globals__", {}).get("__name__", ""))
    return getattr(now, "__wrapped__", None) is before and made_in.startswith("torch.")


def _current(what: str) -> tuple[Any, ...]:
    """Return the current device or stream of each kind of accelerator that is in use."""
    modules = [getattr(torch, kind) for kind in MEASURED if hasattr(getattr(torch, kind, None), what)]
    return tuple(getattr(module, what)() for module in modules if module.is_initialized())


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
    "autocast": lambda: _autocast(),
    "denormals flushed": lambda: _flushed(),
    "rounding": lambda: _rounding(),
    "saved tensor hooks": lambda: torch._C._autograd._top_saved_tensors_default_hooks(False),  # noqa: SLF001
    "dispatch modes": lambda: torch._C._len_torch_dispatch_stack(),  # noqa: SLF001 - has no public getter
    "function modes": lambda: torch._C._len_torch_function_stack(),  # noqa: SLF001
    # What each name stands for, by its owner; a copy of a dictionary costs microseconds.
    "functions of torch": lambda: {owner: dict(vars(of)) for owner, of in _PATCHABLE.items()},
    "signal handlers": lambda: {number.name: signal.getsignal(number) for number in signal.Signals},
    "trace functions": lambda: (sys.gettrace(), sys.getprofile()),
    "warnings that raise": lambda: sum(action == "error" for action, *_ in warnings.filters),
    "Python threads": threading.active_count,
    "device": lambda: _current("current_device"),
    "stream": lambda: _current("current_stream"),
    "working directory": os.getcwd,  # a Path would hide a directory that is gone
    # PyTorch's compiler sets variables of its own when it is first used, which any op may be the first to make it do.
    "environment": lambda: {
        name: value
        for name, value in os.environ.items()
        if name != "TORCHINDUCTOR_CACHE_DIR" and not name.startswith("_TORCHINDUCTOR_")
    },
}


@contextmanager
def mode_restored() -> Iterator[None]:
    """Put the worker's mode back behind the block."""
    deterministic, warn_only = _flag()
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(deterministic, warn_only=warn_only)


@contextmanager
def flag_set(deterministic: bool) -> Iterator[None]:
    """Set the flag for the block, and nothing else; it is not the op that sets it."""
    before, warn_only = _flag()
    _set_flag(deterministic, warn_only=warn_only)
    try:
        yield
    finally:
        _set_flag(before, warn_only=warn_only)


def snapshot() -> dict[str, Any]:
    """Return the flags every later case would inherit, by the name a reader knows them by."""
    return {name: _read(getter) for name, getter in _GETTERS.items()}


def _read(getter: Callable[[], Any]) -> Any:
    """Return a flag, or why it cannot be read: an older torch lacks some, and mixing its APIs breaks others."""
    try:
        return getter()
    except Exception as error:  # noqa: BLE001 - that it cannot be read is state as well
        return f"unreadable ({type(error).__name__})"


def changed_since(before: dict[str, Any]) -> dict[str, str]:
    """Return what becomes of a case that has changed the process; nothing if it has not."""
    changed = changes(before, snapshot())
    return {"outcome": "invalid", "message": f"changed global state ({changed})"} if changed else {}


def changes(before: dict[str, Any], after: dict[str, Any]) -> str:
    """Say what changed, as ``"default dtype: torch.float32 -> torch.float64"``; empty if nothing did."""
    lines: list[str] = []
    for name, old in before.items():
        new = after[name]
        if new == old:
            continue
        if not (isinstance(old, dict) and isinstance(new, dict)):
            lines.append(f"{name}: {old} -> {new}")
        elif name != "functions of torch":
            names = sorted(k for k in old.keys() | new.keys() if old.get(k) != new.get(k))
            lines.append(f"{name}: {', '.join(names)}")
        elif patched := _patched(old, new):
            lines.append(f"replaced {', '.join(patched)}")
    return "; ".join(lines)
