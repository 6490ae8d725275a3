"""The masked convolutions of ``detmatrix.opspecs.families.images.convolution``: a stack of them, and which pixels have a gradient.

Specs name it by its dotted path, so that a worker alone imports it, with torch: a class that a function defines as it is called
is another one each time, and torch.compile would compile the op anew for each of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

# A negative slope as of leaky ReLU, so that no gradient is zero because a unit is off.
SLOPE = 0.5


def masked_convolutions(image: torch.Tensor, weights: Sequence[torch.Tensor], row: int, column: int) -> Any:
    """Return what a stack of masked convolutions gives at one position of the image."""
    for layer, weight in enumerate(weights):
        masked = weight.clone()
        middle = weight.shape[-1] // 2
        masked[:, :, middle + 1 :] = 0
        # The first layer does not see the pixel itself, which the others may.
        masked[:, :, middle, middle + (layer > 0) :] = 0
        image = torch.nn.functional.leaky_relu(
            torch.nn.functional.conv2d(image, masked, padding=middle), negative_slope=SLOPE
        )
    return image[:, :, row, column]


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
