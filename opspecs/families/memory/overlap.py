"""Overlapping memory: several elements of a tensor are one place, which is written to or gets several gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from detmatrix.opspecs.families import KERNELS
from detmatrix.opspecs.inputs import Inputs
from detmatrix.opspecs.model import Call, Case, OpSpec, call

if TYPE_CHECKING:
    import torch


def copy_through_overlap(base: torch.Tensor, source: torch.Tensor, stride: int) -> torch.Tensor:
    """Copy rows into *base*, each of them *stride* elements behind the one before."""
    base.as_strided(source.shape, (stride, 1)).copy_(source)
    return base


def _overlapping_rows(t: Inputs, *, overlap: bool = True) -> Call:
    """Two long rows, one for each of two threads, which then write the same places at the same time.

    A thread of a CPU begins some microseconds behind the one that wakes it, in which that one writes about a thousand elements.
    """
    length, step = t.size(cpu=(1 << 17, 1 << 10), cuda=(1 << 20, 1), simulated=(1 << 13, 1))
    stride = step if overlap else length
    # The last elements of the base stay what they were.
    return call(t.values(length + stride + 16), t.values(2, length), stride)


def _windows(t: Inputs, step: int) -> Call:
    """Windows of 16 elements, a *step* behind one another."""
    windows = t.size(cpu=1 << 12, cuda=1 << 16, simulated=1 << 10)
    return call(t.leaf(t.normal(16 + step * (windows - 1))), (windows, 16), (step, 1))


SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        name="torch.Tensor.copy_",
        op=copy_through_overlap,
        why="Threads write the elements of a tensor in any order, and where two elements are one place the last one written "
        "stays. The flag neither detects nor prevents it, its documentation says "
        "(https://docs.pytorch.org/docs/stable/generated/torch.use_deterministic_algorithms.html).",
        cases={
            "overlapping_rows": Case(_overlapping_rows, "2 different values written to nearly each place"),
            "disjoint_rows": Case(lambda t: _overlapping_rows(t, overlap=False)),
        },
        in_place=True,
    ),
    OpSpec(
        name="torch.as_strided",
        why="Where windows overlap its backward is index_add, which on CUDA adds each gradient with an atomic addition, in "
        f"the order in which threads arrive ({KERNELS}/cuda/Indexing.cu). On a CPU one thread adds to a tensor of one dim.",
        directions=("backward",),
        cases={
            "overlapping": Case(lambda t: _windows(t, 1), "up to 16 gradients added into each element"),
            "disjoint": Case(lambda t: _windows(t, 16)),
        },
    ),
)
