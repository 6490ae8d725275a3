"""Order statistics and sorting: the values are what they are, but ties leave an index to choose.

Values out of {1, 2, 3} tie everywhere; a permutation has no two that are equal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from detmatrix.opspecs.families import KERNELS
from detmatrix.opspecs.inputs import Inputs
from detmatrix.opspecs.model import Call, Case, OpSpec, call

if TYPE_CHECKING:
    import torch


TIES = "about {} equal values for each index to choose from"
LONG_TIES, ALL_TIES = f"{TIES.format(341)} (349525 on CUDA)", TIES.format(349525)
# As few as several blocks of a GPU share.
LONG = 20_480


# A row is the work of one thread of a CPU, and so there are many of them. A GPU puts several blocks to a row of more than
# 20 000, and sorts it by itself if it is the only one or has more than a million. Of an op whose row is the work of one block of a
# GPU *each* row or column is a race of its own. Short rows are sorted by other kernels. An op that waits
# for the GPU several times in each row gets *few* values.
SHAPES: dict[str, dict[str, tuple[int, ...]]] = {
    "rows": {"cpu": (64, 1 << 10), "cuda": (4, 1 << 20), "simulated": (1, LONG)},
    "columns": {"cpu": (1 << 10, 64), "cuda": (1 << 20, 4), "simulated": (LONG, 1)},
    "each_row": {"cpu": (64, 1 << 10), "cuda": (1 << 8, 1 << 12)},
    "each_column": {"cpu": (1 << 10, 64), "cuda": (1 << 12, 1 << 8)},
    "few_rows": {"cpu": (64, 1 << 10), "cuda": (2, 1 << 16), "simulated": (1, LONG)},
    "few_columns": {"cpu": (1 << 10, 64), "cuda": (1 << 16, 2), "simulated": (LONG, 1)},
    "few_flat": {"cpu": (1 << 14,), "cuda": (1 << 16,), "simulated": (LONG,)},
    "flat": {"cpu": (1 << 14,), "cuda": (1 << 20,), "simulated": (LONG,)},
    "short_rows": {"cpu": (1 << 10, 64), "cuda": (1 << 16, 64), "simulated": (1 << 8, 64)},
}


def _tied(shape: str, *args: object, **kwargs: object) -> Callable[[Inputs], Call]:
    """Return arguments of values out of {1, 2, 3}: a result of zeros would hold no information."""
    return lambda t: call(t.integers(*t.size(**SHAPES[shape]), low=1, high=4), *args, **kwargs)


def _distinct(t: Inputs, *args: object, shape: str = "flat", **kwargs: object) -> Call:
    """Values that all differ: nothing to choose. No dtype of fewer digits could hold them."""
    (length,) = t.size(**SHAPES[shape])
    return call(t.permutation(length).to(t.dtype) + 1, *args, **kwargs)


def _cases(*args: object, each: bool = False, few: bool = False) -> dict[str, Case]:
    """Return the cases of an op whose last argument but those given is a dim; ``SHAPES`` says when *each* row races, and when *few* do."""
    rows, columns, flat, ties, all_ties = "rows", "columns", "flat", LONG_TIES, ALL_TIES
    if each:
        rows, columns, ties = "each_row", "each_column", f"{TIES.format(341)} (1365 on CUDA)"
    elif few:
        rows, columns, flat, all_ties = "few_rows", "few_columns", "few_flat", TIES.format(21845)
        ties = f"{TIES.format(341)} (21845 on CUDA)"
    return {
        "tied_rows": Case(_tied(rows, *args, 1), ties, dtypes=("float32", "int64"), traits=INDICES),
        "tied_columns": Case(_tied(columns, *args, 0), ties, traits=INDICES),
        # One thread of a CPU does all of it.
        "ties_flat": Case(_tied(flat, *args, 0), all_ties, devices=("cuda",), traits=INDICES),
        "distinct": Case(lambda t: _distinct(t, *args, 0, shape=flat), traits=INDICES),
    }


INDICES = {"output": "indices"}
SHORT = {"tied_short_rows": Case(_tied("short_rows", 20, 1), TIES.format(21), traits=INDICES)}
# Without a dim there is a value and no index.
VALUE = {"value_only": Case(_tied("flat"), traits={"output": "value"})}
SEARCHED = _cases(each=True)
WHY = (
    "Of equal values any may be found, by a search that counts or sorts in parallel "
    f"({KERNELS}/cuda/Sorting.cu). A GPU searches each slice with one block."
)

# The dtype and the form that PyTorch's test of the alert takes.
DOUBLE = {"tied_rows_double": replace(SEARCHED["tied_rows"], dtypes=("float64",), devices=("cuda",))}


def median_out(values: torch.Tensor, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Have ``median`` write into tensors that are given as ``out``."""
    import torch  # noqa: PLC0415 - specs load without it

    shape = values.select(dim, 0).shape
    found = values.new_empty(shape), values.new_empty(shape, dtype=torch.int64)
    torch.median(values, dim, out=found)
    return found


SPECS: tuple[OpSpec, ...] = (
    OpSpec(name="torch.median", why=WHY, cases=SEARCHED | VALUE | DOUBLE),
    OpSpec(
        name="torch.median_out",
        op=median_out,
        why=f"The same as median, by the same kernel. {WHY}",
        cases={"tied_rows": replace(SEARCHED["tied_rows"], dtypes=None, devices=("cuda",))},
        documented=("torch.median",),
    ),
    OpSpec(name="torch.nanmedian", why=WHY, cases=SEARCHED | VALUE),
    OpSpec(name="torch.kthvalue", why=WHY, cases=_cases(50, each=True) | SHORT),
    OpSpec(
        name="torch.mode",
        why=f"Of equal values, and of values that are equally many, any may be found ({KERNELS}/cuda/TensorModeKernel.cu).",
        cases=_cases(few=True),
    ),
    OpSpec(
        name="torch.topk",
        why=f"Of the values that equal the last one taken, any may be taken ({KERNELS}/cuda/TensorTopK.cu).",
        cases=_cases(50) | SHORT,
    ),
    OpSpec(
        name="torch.sort",
        why=f"A sort that is not stable leaves equal values in any order ({KERNELS}/cuda/Sort.cpp).",
        cases={
            "tied_rows": Case(_tied("rows", dim=1), LONG_TIES, dtypes=("float32", "int64")),
            "tied_columns": Case(_tied("columns", dim=0), LONG_TIES),
            "ties_flat": Case(_tied("flat", dim=0), ALL_TIES, devices=("cuda",)),
            "tied_short_rows": Case(_tied("short_rows", dim=1), "about 21 equal values to be put in order"),
            # A stable sort keeps equal values in the order they came in.
            "stable_rows": Case(_tied("rows", dim=1, stable=True)),
            "distinct": Case(lambda t: _distinct(t, dim=0)),
        },
    ),
)
