"""Functions that ``detmatrix check`` is given in tests."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

_CALLS = itertools.count(1)
NUMBER = 7


def constant() -> torch.Tensor:
    """Give the same each time, of nothing."""
    import torch  # noqa: PLC0415 - a process that calls nothing needs none

    return torch.arange(1.0, 9.0)


def varies(x: torch.Tensor, scale: float) -> torch.Tensor:
    """Give another result each time, and gradients that are the same."""
    return x * scale + next(_CALLS)


def needs_both(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Give what only the flag fixes, and an element that nobody wrote."""
    import os  # noqa: PLC0415 - its source stands in a script by itself

    import torch  # noqa: PLC0415 - a process that calls nothing needs none

    left = torch.empty_like(x)
    left[1:] = 3 * x[1:]
    drawn = 0 if torch.are_deterministic_algorithms_enabled() else int.from_bytes(os.urandom(2), "big")
    return 2 * x + drawn, left


def broken() -> torch.Tensor:
    """Fail."""
    raise ValueError("no such luck")


def pair() -> tuple[torch.Tensor, float]:
    """Return positional arguments, of which one takes part in backward."""
    import torch  # noqa: PLC0415 - a process that calls nothing needs none

    return torch.randn(16, requires_grad=True), 2.0


def keywords() -> dict[str, Any]:
    """Return keywords."""
    import torch  # noqa: PLC0415 - a process that calls nothing needs none

    return {"x": torch.randn(16), "scale": 3.0}


def nested() -> tuple[list[torch.Tensor], OrderedDict[str, int]]:
    """Return what holds tensors."""
    import torch  # noqa: PLC0415 - a process that calls nothing needs none

    return [torch.randn(2, requires_grad=True), torch.randint(0, 9, (3,))], OrderedDict(a=1)
