"""Scattering: sources added into slots that indices name, one index for each element.

The indices decide: with thousands of sources in a slot the sum depends on the order, with one it cannot.
"""

from __future__ import annotations

from opspecs.inputs import Inputs
from opspecs.model import Call, Case, OpSpec, call

KERNELS = "https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/native"


def _flat(t: Inputs) -> Call:
    """Sources in one row, 1024 or more of them into each of 64 slots."""
    sources = t.size(cpu=1 << 16, cuda=1 << 20)
    return call(t.values(64), 0, t.index(sources, high=64), t.values(sources))


def _permuted(t: Inputs) -> Call:
    length = t.size(cpu=1 << 16, cuda=1 << 20)
    return call(t.values(length), 0, t.permutation(length), t.values(length))


def _rows(t: Inputs) -> Call:
    """Sources ``(rows, 8)`` into 64 rows, each element with an index of its own."""
    rows = t.size(cpu=1 << 13, cuda=1 << 17)
    return call(t.values(64, 8), 0, t.index(rows, 8, high=64), t.values(rows, 8))


def _columns(t: Inputs) -> Call:
    """Sources ``(8, columns)`` into 64 columns, each element with an index of its own."""
    columns = t.size(cpu=1 << 13, cuda=1 << 17)
    return call(t.values(8, 64), 1, t.index(8, columns, high=64), t.values(8, columns))


def _expanded_rows(t: Inputs) -> Call:
    """Sources ``(rows, 8)`` into 64 rows, one index for each row: sums over the edges of a graph."""
    rows = t.size(cpu=1 << 13, cuda=1 << 17)
    return call(t.values(64, 8), 0, t.index(rows, 1, high=64).expand(rows, 8), t.values(rows, 8))


def _source_grad(t: Inputs) -> Call:
    sources = t.size(cpu=1 << 16, cuda=1 << 20)
    return call(t.values(64), 0, t.index(sources, high=64), t.leaf(t.values(sources)))


SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        name="torch.Tensor.scatter_add_",
        op="torch.Tensor.scatter_add_",
        why="On CUDA every source is added to its slot with an atomic addition, in the order in which threads "
        f"arrive ({KERNELS}/cuda/ScatterGatherKernel.cu).",
        cases={
            # Integer addition commutes exactly: the same race, without a trace.
            "collisions": Case(
                inputs=_flat,
                provokes="about 1024 additions into each slot (16384 on CUDA)",
                dtypes=("float32", "float64", "float16", "bfloat16", "int64"),
            ),
            "rows": Case(inputs=_rows, provokes="about 128 additions into each slot (2048 on CUDA)"),
            "columns": Case(inputs=_columns, provokes="about 128 additions into each slot (2048 on CUDA)"),
            "expanded_rows": Case(
                inputs=_expanded_rows, provokes="about 128 rows added into each slot (2048 on CUDA)"
            ),
            "no_collisions": Case(inputs=_permuted),
            # Each source's gradient is read from its slot; nothing is added.
            "source_grad": Case(inputs=_source_grad, directions=("backward",)),
        },
        in_place=True,
    ),
)
