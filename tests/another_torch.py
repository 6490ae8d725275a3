"""Stands for an interpreter with another torch: the one here, in which an op raises the alert and one differs."""

from __future__ import annotations

import os
import runpy
import sys
import time
import warnings
from typing import Any

ALERT = (
    "cumsum_planted does not have a deterministic implementation, but you set "
    "'torch.use_deterministic_algorithms(True)'. You can turn off determinism just for this operation"
)


def main() -> None:
    """Plant the changes, and be the worker; the arguments are ``-m detmatrix.scanner.worker ...``, as of an interpreter."""
    _, _, module, *arguments = sys.argv
    sys.path[0] = os.getcwd()  # noqa: PTH109 - as -m does
    from detmatrix.scanner.worker import perturb  # noqa: F401, PLC0415 - before torch, as the worker does

    _plant()
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _plant() -> None:
    import torch  # noqa: PLC0415

    cumsum, cumprod = torch.cumsum, torch.cumprod

    def raises(*args: Any, **kwargs: Any) -> Any:
        if torch.is_deterministic_algorithms_warn_only_enabled():
            warnings.warn(ALERT, stacklevel=2)
        elif torch.are_deterministic_algorithms_enabled():
            raise RuntimeError(ALERT)
        return cumsum(*args, **kwargs)

    def differs(*args: Any, **kwargs: Any) -> Any:
        return cumprod(*args, **kwargs) + time.perf_counter_ns() % 1009

    torch.cumsum, torch.cumprod = raises, differs


if __name__ == "__main__":
    main()
