"""Windows laid out as columns, and back: where they overlap, going back adds them up."""

from __future__ import annotations

from detmatrix.opspecs.families import KERNELS
from detmatrix.opspecs.inputs import Inputs
from detmatrix.opspecs.model import BACKWARD, BOTH, Call, Case, OpSpec, call


def _unfold(t: Inputs, kernel: int, stride: int) -> Call:
    batch, channels, side = t.size(cpu=(2, 2, 36), cuda=(4, 8, 108))
    return call(t.leaf(t.normal(batch, channels, side, side)), kernel, stride=stride)


def _fold(t: Inputs, kernel: int, stride: int) -> Call:
    batch, channels, side = t.size(cpu=(2, 2, 36), cuda=(4, 8, 108))
    places = ((side - kernel) // stride + 1) ** 2
    return call(t.leaf(t.normal(batch, channels * kernel**2, places)), (side, side), kernel, stride=stride)


def _slide(t: Inputs, step: int) -> Call:
    return call(t.leaf(t.normal(*t.size(cpu=(32, 1 << 11), cuda=(64, 1 << 15)))), 1, 16, step)


SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        name="torch.nn.Unfold",
        op="torch.nn.functional.unfold",
        why=f"Its backward adds up all windows that hold an element, which one thread does: for each element on CUDA "
        f"({KERNELS}/cuda/im2col.cuh), for all of them on a CPU ({KERNELS}/im2col.h, col2im).",
        directions=BACKWARD,
        cases={
            "overlapping": Case(lambda t: _unfold(t, 5, 1), "up to 25 gradients added into each element"),
            "disjoint": Case(lambda t: _unfold(t, 3, 3)),
        },
    ),
    OpSpec(
        name="torch.nn.Fold",
        op="torch.nn.functional.fold",
        why=f"It adds up all windows that hold an element ({KERNELS}/cuda/im2col.cuh). On a CPU one thread does so "
        f"({KERNELS}/im2col.h, col2im).",
        cases={
            "overlapping": Case(
                lambda t: _fold(t, 5, 1), "up to 25 values added into each element", directions=BOTH
            ),
            "disjoint": Case(lambda t: _fold(t, 3, 3)),
        },
    ),
    OpSpec(
        name="torch.Tensor.unfold",
        why=f"Its backward adds up all windows that hold an element ({KERNELS}/UnfoldBackward.h).",
        directions=BACKWARD,
        cases={
            "many_overlapping": Case(lambda t: _slide(t, 1), "up to 16 gradients added into each element"),
            "many_disjoint": Case(lambda t: _slide(t, 16)),
        },
    ),
)
