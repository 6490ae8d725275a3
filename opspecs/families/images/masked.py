"""Masked convolutions, as a PixelCNN stacks them: which pixels an output sees is known from the masks alone.

A gradient that is not exactly zero where a mask forbids it is a leak, however small: an algorithm that computes in another
domain (FFT, Winograd) does not multiply by the zeros of a mask.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from detmatrix.opspecs.inputs import Inputs
from detmatrix.opspecs.model import Call, Case, OpSpec, call

if TYPE_CHECKING:
    import torch

LAYERS = 12
KERNEL = 3


def receptive_field(call: Call, _: torch.Tensor | None = None) -> torch.Tensor:
    """Return 1 where a pixel takes part in the output by the masks, else 0: no convolution is computed."""
    image, weights, row, column = call.args
    import torch  # noqa: PLC0415

    field = torch.zeros(image.shape[-2:], dtype=torch.bool)
    field[row, column] = True
    for layer in reversed(range(len(weights))):
        middle = weights[layer].shape[-1] // 2
        offsets = [
            (down, right)
            for down in range(-middle, 1)
            for right in range(-middle, middle + 1)
            if (down, right) < (0, int(layer > 0))
        ]
        field = torch.stack([_shifted(field, *offset) for offset in offsets]).any(dim=0)
    return field.expand(image.shape).to(image.dtype).to(image.device)


def _shifted(field: torch.Tensor, down: int, right: int) -> torch.Tensor:
    """Return a map moved by so many rows and columns; what leaves the image is lost."""
    moved = field.roll((down, right), (0, 1))
    if down:
        moved[down:] = False
    if right:
        moved[:, slice(right, None) if right < 0 else slice(right)] = False
    return moved


def _stack(t: Inputs) -> Call:
    """Draw an image of one channel and the weights, and ask for the position in the middle."""
    side, channels = t.size(cpu=(32, 8), cuda=(64, 64))
    image = t.leaf(t.normal(1, 1, side, side))
    widths = [1, *[channels] * LAYERS]
    # So that neither the values nor their gradients grow or vanish on the way.
    weights = [
        t.normal(after, before, KERNEL, KERNEL) * (4 * before) ** -0.5 for before, after in pairwise(widths)
    ]
    return call(image, weights, side // 2, side // 2)


WHY = (
    "cuDNN chooses among algorithms that give the gradient of a convolution; in those that compute in another domain the zeros "
    "of a mask do not stay zeros, and pixels that an output must not see get a gradient. What an output must see is drawn in "
    "https://uvadlc-notebooks.readthedocs.io/en/latest/tutorial_notebooks/tutorial12/Autoregressive_Image_Modeling.html."
)


PROVOKES = "12 layers, each of which may be computed by another algorithm"
SPECS: tuple[OpSpec, ...] = tuple(
    OpSpec(
        name=name,
        op=f"detmatrix.opspecs.masked.{op}",
        why=WHY,
        directions=("backward",),
        cases={case: Case(_stack, PROVOKES, reference=reference, holds_always=reference is not None)},
    )
    for name, op, case, reference in (
        ("masked_conv2d", "masked_convolutions", "input_gradient", None),
        ("masked_conv2d.receptive_field", "seen_by_masked_convolutions", "nonzero_gradient", receptive_field),
    )
)
