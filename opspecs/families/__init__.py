"""Op specs: a module for each family of ops, in folders of what they work on."""

from __future__ import annotations

from collections.abc import Callable

from detmatrix.opspecs.inputs import Inputs
from detmatrix.opspecs.model import Call, call

# Where PyTorch's own kernels are, which the specs point into.
KERNELS = "https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/native"


def normals(
    shapes: Callable[..., tuple[tuple[int, ...], ...]], **sizes: tuple[int, ...]
) -> Callable[[Inputs], Call]:
    """Return how arguments are drawn that are all normal values and leaves: of shapes that a function tells of a device's sizes."""
    return lambda t: call(*(t.leaf(t.normal(*shape)) for shape in shapes(*t.size(**sizes))))
