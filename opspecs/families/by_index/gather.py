"""Selecting by index: backward, an element collects the gradient of every place it was copied to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from detmatrix.opspecs import serial
from detmatrix.opspecs.families import KERNELS
from detmatrix.opspecs.families.by_index.indexing import FEW, SUMS, Sizes
from detmatrix.opspecs.inputs import Inputs
from detmatrix.opspecs.model import BOTH, Call, Case, OpSpec, call, with_dtypes

# What the cases below say of themselves; sizes are those of what is drawn.
ADDITIONS = "about 16 gradients added into each element (16384 on CUDA)"
ROW_ADDITIONS = "about 16 gradients added into each element (2048 on CUDA)"
REPEATED = "about 16 gradients added into each element (1024 on CUDA)"
ONE_DIM = "On a CPU one thread adds to a tensor of one dim."

# Selected places, elements or rows, and columns; a CPU fights for thousands of elements, a GPU for few.
ROWS: Sizes = {"cpu": (1 << 13, 1 << 9, 8), "cuda": (1 << 17, 64, 32), "simulated": (1 << 12, 1 << 8, 4)}


def _selected(sizes: Sizes, dim: int = 0) -> Callable[[Inputs], Call]:
    """Return the arguments of ``index_select``, of elements, rows or columns, and of ``gather`` of elements."""

    def inputs(t: Inputs) -> Call:
        places, elements, *width = t.size(**sizes)
        shape = (*width, elements) if dim else (elements, *width)
        return call(t.leaf(t.normal(*shape)), dim, t.index(places, high=elements))

    return inputs


def _once(t: Inputs, *dim: int) -> Call:
    places = t.size(**SUMS)[0]
    return call(t.leaf(t.normal(places)), *dim, t.permutation(places))


def _gather_rows(t: Inputs, *, expanded: bool = False, **options: bool) -> Call:
    """Gather elements with an index each, or rows with one index *expanded* to all of their elements."""
    places, rows, columns = t.size(**ROWS)
    index = t.index(places, 1 if expanded else columns, high=rows)
    index = index.expand(places, columns) if expanded else index
    return call(t.leaf(t.normal(rows, columns)), 0, index, **options)


def _gather_columns(t: Inputs) -> Call:
    places, columns, rows = t.size(**ROWS)
    return call(t.leaf(t.normal(rows, columns)), 1, t.index(rows, places, high=columns))


def _repeat_rows(t: Inputs) -> Call:
    _, rows, columns = t.size(**ROWS)
    repeats = t.index(rows, high=t.size(cpu=32, cuda=1 << 12))
    return call(t.leaf(t.normal(rows, columns)), repeats, dim=0)


def _repeat(t: Inputs, length: int, high: int) -> Call:
    return call(t.leaf(t.normal(length)), t.index(length, high=high))


def _take(t: Inputs, *dim: int) -> Call:
    places, elements = t.size(**SUMS)
    return call(t.leaf(t.normal(elements)), t.index(places, high=elements), *dim)


def _take_pairs(t: Inputs, *dim: int) -> Call:
    """Take elements of all rows, or of each column by itself."""
    places, rows, columns = t.size(**ROWS)
    source = t.leaf(t.normal(rows, columns))
    return call(source, t.index(places, columns, high=rows if dim else rows * columns), *dim)


COLLISIONS = Case(_selected(SUMS), ADDITIONS, directions=BOTH)
DOUBLE = ("float64",)

SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        name="torch.gather",
        why="Its backward is scatter_add, which on CUDA adds each gradient with an atomic addition, in the order "
        f"in which threads arrive ({KERNELS}/cuda/ScatterGatherKernel.cu). {ONE_DIM}",
        directions=("backward",),
        cases={
            **with_dtypes(
                "collisions", replace(COLLISIONS, reference=serial.summed_gradient), DOUBLE, "cuda"
            ),
            **with_dtypes(
                "rows", Case(partial(_gather_rows, sparse_grad=False), ROW_ADDITIONS), DOUBLE, "cpu"
            ),
            "columns": Case(_gather_columns, ROW_ADDITIONS),
            "expanded_rows": Case(partial(_gather_rows, expanded=True), ROW_ADDITIONS),
            # The gradient lists what belongs to each element, and leaves the sum to whoever coalesces it.
            "sparse_grad": Case(partial(_gather_rows, sparse_grad=True)),
            "permutation": Case(lambda t: _once(t, 0)),
        },
        cuda_dtypes=("float16", "bfloat16"),
    ),
    OpSpec(
        name="torch.index_select",
        why="Its backward is index_add, which on CUDA adds each gradient with an atomic addition, in the order in "
        f"which threads arrive ({KERNELS}/cuda/Indexing.cu). On a CPU one thread selects from a tensor of one dim, and adds to "
        "it.",
        directions=("backward",),
        cases={
            **with_dtypes("collisions", COLLISIONS, DOUBLE, "cuda"),
            **with_dtypes("rows", Case(_selected(ROWS), ROW_ADDITIONS), DOUBLE, "cpu"),
            "columns": Case(_selected(ROWS, 1), ROW_ADDITIONS),
            "few_indices": Case(
                _selected(FEW), "about 8 gradients added into each element of 2 rows (in order on CUDA)"
            ),
            "permutation": Case(lambda t: _once(t, 0)),
            # An index without a dim chooses one row.
            "one_row": Case(
                lambda t: call(t.leaf(t.normal(9, 16)), 0, t.index(1, high=9)[0]),
                dtypes=("float32",),
                devices=("cuda",),
            ),
        },
        cuda_dtypes=("float16", "bfloat16"),
    ),
    OpSpec(
        name="torch.repeat_interleave",
        why="With a tensor of repeats its backward is index_add, which on CUDA adds each gradient with an atomic "
        f"addition, in the order in which threads arrive ({KERNELS}/Repeat.cpp, {KERNELS}/cuda/Indexing.cu). {ONE_DIM}",
        directions=("backward",),
        cases={
            **with_dtypes(
                "uneven",
                Case(
                    lambda t: _repeat(t, *t.size(cpu=(1 << 12, 32), cuda=(1 << 10, 1 << 11))),
                    REPEATED,
                    directions=BOTH,
                ),
                DOUBLE,
                "cuda",
            ),
            **with_dtypes("uneven_rows", Case(_repeat_rows, ROW_ADDITIONS), DOUBLE, "cpu"),
            # Another path: one number instead of a tensor.
            "even": Case(
                lambda t: call(
                    t.leaf(t.normal(t.size(cpu=1 << 12, cuda=1 << 10))), t.size(cpu=16, cuda=1 << 10)
                ),
                "16 gradients added into each element (1024 on CUDA)",
            ),
            "at_most_once": Case(lambda t: _repeat(t, t.size(**SUMS)[0], 2)),
        },
        cuda_dtypes=("float16", "bfloat16"),
    ),
    OpSpec(
        name="torch.take",
        why="Its backward is put_ with accumulate=True, which adds each gradient in the order in which threads "
        f"reach its element ({KERNELS}/cpu/IndexKernel.cpp, {KERNELS}/cuda/IndexKernel.cu). On a CPU one thread adds "
        "values of any other dtype than float32.",
        directions=("backward",),
        cases={
            "collisions": Case(_take, ADDITIONS, directions=BOTH, dtypes=("float32", "float64")),
            "rows": Case(_take_pairs, ROW_ADDITIONS),
            "permutation": Case(_once),
        },
    ),
    OpSpec(
        name="torch.take_along_dim",
        why="It gathers, and so its backward is scatter_add, which on CUDA adds each gradient with an atomic "
        f"addition ({KERNELS}/cuda/ScatterGatherKernel.cu).",
        directions=("backward",),
        cases={
            # On a CPU one thread adds to it.
            "collisions": Case(lambda t: _take(t, 0), ADDITIONS, devices=("cuda",)),
            "rows": Case(lambda t: _take_pairs(t, 0), ROW_ADDITIONS),
        },
    ),
)
