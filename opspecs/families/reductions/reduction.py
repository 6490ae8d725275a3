"""Reductions: softmax of rows, sums and means of rows and of everything, whose additions a kernel groups as it likes."""

from __future__ import annotations

from detmatrix.opspecs.families import KERNELS
from detmatrix.opspecs.inputs import Inputs
from detmatrix.opspecs.model import ITEMS, Call, Case, OpSpec, batched, call


def _rows(t: Inputs, **options: object) -> Call:
    return call(t.leaf(t.normal(ITEMS, t.size(cpu=1 << 12, cuda=1 << 15))), **options)


def _cancelling(t: Inputs) -> Call:
    """Values whose sum is rounding alone: each thread of a CPU adds a part, and other parts leave another rest."""
    length = t.size(cpu=1 << 20, cuda=1 << 24, simulated=1 << 17)
    values = t.normal(length)
    return call(values - values[t.permutation(length)])


SPECS: tuple[OpSpec, ...] = (
    *(
        OpSpec(
            name=f"torch.nn.functional.{name}",
            why=f"Adds the exponentials of a whole row; the kernel chooses the order ({KERNELS}/cuda/SoftMax.cu).",
            cases={
                "batch": batched(
                    lambda t: _rows(t, dim=-1), "4096 exponentials added in each row (32768 on CUDA)"
                )
            },
        )
        for name in ("softmax", "log_softmax")
    ),
    *(
        OpSpec(
            name=f"torch.{name}",
            why="Adds whole rows, cut into lanes and blocks whose partial sums are joined "
            f"({KERNELS}/cpu/SumKernel.cpp, {KERNELS}/cuda/Reduce.cuh).",
            cases={
                "batch": batched(
                    lambda t: _rows(t, dim=-1),
                    "4096 elements added in each row (32768 on CUDA)",
                    directions=("forward",),
                ),
                "everything": Case(_cancelling, "1048576 elements added (16777216 on CUDA)"),
            },
        )
        for name in ("sum", "mean")
    ),
)
