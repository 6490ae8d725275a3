"""Where the mode stands in PyTorch's dispatcher: the compiler is kept out, and composite ops are taken apart.

Ops that only call other ops are taken apart by autograd, ahead of a mode; in inference mode it is given the composite op.
"""

from __future__ import annotations

from typing import Any

import torch

_has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key  # noqa: SLF001 - has no public name
_Key = torch._C.DispatchKey  # noqa: SLF001
_excluded = torch._C._dispatch_tls_local_exclude_set  # noqa: SLF001
_included = torch._C._dispatch_tls_local_include_set  # noqa: SLF001
# Gives back what was excluded when the op was called, ahead of autocast; where a release has none, ops stay whole.
_as_called: Any = getattr(torch._C, "_RestorePythonTLSSnapshot", None)  # noqa: SLF001
# Dispatch keys under which a composite op may have a kernel of its own.
_DEVICES = ("CPU", "CUDA", "XPU", "MPS")
# They see to conjugate and negative views, and note what was excluded when an op was called.
_LIFTED = [
    getattr(_Key, key)
    for key in ("Conjugate", "Negative", "ZeroTensor", "PythonTLSSnapshot")
    if hasattr(_Key, key)
]
# Loading the compiler itself takes seconds.
eval_frame = torch._C._dynamo.eval_frame  # noqa: SLF001


def not_compiled(function: Any) -> None:
    """Keep the compiler out of a function; how, depends on the release."""
    if hasattr(eval_frame, "set_code_exec_strategy"):
        skip = eval_frame._FrameAction.SKIP  # noqa: SLF001 - has no public name
        eval_frame.set_code_exec_strategy(
            function.__code__,
            eval_frame._FrameExecStrategy(skip, skip),  # noqa: SLF001
        )
    elif hasattr(eval_frame, "skip_code"):
        eval_frame.skip_code(function.__code__)


class CompositeOp:
    """Calls the ops that a composite op is made of as it does without a mode.

    While a mode is given an op, what comes ahead of a mode is excluded: autocast and, or else results are wrong, what
    resolves conjugate views.
    """

    def __init__(self, func: Any, name: str) -> None:
        # Not ``func.decompose``, which takes other kernels once the compiler's decompositions are loaded.
        self._op = func._op_dk  # noqa: SLF001 - has no public name
        # Where it is cast itself, what it calls is not.
        self._casts = [
            getattr(_Key, key)
            for key in (f"Autocast{device}" for device in _DEVICES)
            if hasattr(_Key, key) and not _has_kernel(name, key)
        ]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Execute it; the ops that it calls are given to the mode that is entered."""
        included, excluded = _included(), _excluded()
        with _as_called():
            asked = _excluded()
            for key in (*_LIFTED, *[key for key in self._casts if not asked.has(key)]):
                excluded = excluded.remove(key)
            with torch._C._ForceDispatchKeyGuard(included, excluded):  # noqa: SLF001 - has no public name
                return self._op(_Key.CompositeImplicitAutograd, *args, **kwargs)


def composite(func: Any, name: str) -> CompositeOp | None:
    """Return how a composite op is taken apart; ``None`` if it has a kernel."""
    taken_apart = hasattr(_as_called, "__enter__") and _has_kernel(name, "CompositeImplicitAutograd")
    return (
        None
        if not taken_apart or any(_has_kernel(name, key) for key in _DEVICES)
        else CompositeOp(func, name)
    )
