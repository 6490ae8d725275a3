"""Functions that have a gradient of their own, whose classes need torch as they are defined.

Specs name what is in here by its dotted path, so that a worker alone imports it: a class that a function defines as it is called
is another one each time, and torch.compile would compile the op anew for each of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from opspecs.families.masked import masked_convolutions


class NonzeroGradient(torch.autograd.Function):  # type: ignore[misc]
    """Hands on whether a gradient is exactly zero."""

    @staticmethod
    def forward(_: Any, value: torch.Tensor) -> torch.Tensor:
        """Return the same values."""
        return value.clone()

    @staticmethod
    def backward(_: Any, gradient: torch.Tensor) -> torch.Tensor:
        """Return 1 where the gradient is not exactly zero, else 0."""
        return (gradient != 0).to(gradient.dtype)


def seen_by_masked_convolutions(
    image: torch.Tensor, weights: Sequence[torch.Tensor], row: int, column: int
) -> Any:
    """Return what masked convolutions give; the gradient of the image is 1 where it is not exactly zero, else 0."""
    return masked_convolutions(NonzeroGradient.apply(image), weights, row, column)
