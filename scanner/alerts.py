"""Recognise the error PyTorch raises for an op without a deterministic implementation.

Only the two texts below are ``raises``; every other exception is ``error``, so that a bug of ours or bad
inputs never read as a finding. The texts are those of ``at::Context::alertNotDeterministic`` and
``alertCuBLASConfigNotDeterministic`` (aten/src/ATen/Context.cpp).
"""

from __future__ import annotations

import re

# What stands behind the name of the caller, and how that of cuBLAS begins.
ALERT = "does not have a deterministic implementation, but you set 'torch.use_deterministic_algorithms(True"
CUBLAS_ALERT = "Deterministic behavior was enabled with either `torch.use_deterministic_algorithms(True)` or"
_CUBLAS_ALERT = (
    f"{CUBLAS_ALERT} `at::Context::setDeterministicAlgorithms(true)`, but this operation is not deterministic because it "
    "uses CuBLAS"
)
_ALERT = re.compile(rf"(?P<caller>\S(?:.*\S)?) {re.escape(ALERT)}")
# Raised by a backward phase that torch.compile compiled with the flag off: it will not run with it on. That is no alert,
# for it says nothing of the op (torch/_functorch/_aot_autograd/runtime_wrappers.py).
REFUSAL = "This compiled backward function is being run with torch.use_deterministic_algorithms(True)"


def caller_in(text: str) -> str | None:
    """Return the caller named in an alert's text, or ``None`` if it is something else."""
    if found := _ALERT.match(text):
        return found["caller"]
    return "cuBLAS" if text.startswith(_CUBLAS_ALERT) else None


def alert_caller(exception: str | None, message: str | None) -> str | None:
    """Return the caller named in an alert, always a ``RuntimeError``; ``None`` if the exception is something else."""
    return caller_in(message) if exception == "RuntimeError" and message is not None else None
