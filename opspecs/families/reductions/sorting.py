"""Order statistics and sorting: the values are what they are, but ties leave an index to choose.

Values out of {1, 2, 3} tie everywhere; a permutation has no two that are equal.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from detmatrix.opspecs.inputs import Inputs
from detmatrix.opspecs.model import Call, Case, OpSpec, call

if TYPE_CHECKING:
    import torch

KERNELS = "https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/native"

LONG_TIES = "about 341 equal values for each index to choose from (349525 on CUDA)"
MANY_TIES = "about 341 equal values for each index to choose from (1365 on CUDA)"
# As few as several blocks of a GPU share.
LONG = 20_480
ALL_TIES = "about 349525 equal values for each index to choose from"


def _tied(t: Inputs, *args: object, **kwargs: object) -> Call:
    """Long rows of values out of {1, 2, 3}: a result of zeros would hold no information.

    A row is the work of one thread of a CPU, and so there are many of them. A GPU puts several blocks to a row of more than
    20 000, and sorts it by itself if it is the only one or has more than a million.
    """
    shape = t.size(cpu=(64, 1 << 10), cuda=(4, 1 << 20), simulated=(1, LONG))
    return call(t.integers(*shape, low=1, high=4), *args, **kwargs)


def _tied_columns(t: Inputs, *args: object, **kwargs: object) -> Call:
    shape = t.size(cpu=(1 << 10, 64), cuda=(1 << 20, 4), simulated=(LONG, 1))
    return call(t.integers(*shape, low=1, high=4), *args, **kwargs)


def _tied_many(t: Inputs, *args: object, columns: bool = False, **kwargs: object) -> Call:
    """Many rows, or columns, for an op whose row is the work of one block of a GPU: each is a race of its own."""
    rows, length = t.size(cpu=(64, 1 << 10), cuda=(1 << 8, 1 << 12))
    shape = (length, rows) if columns else (rows, length)
    return call(t.integers(*shape, low=1, high=4), *args, **kwargs)


def _tied_flat(t: Inputs, *args: object, **kwargs: object) -> Call:
    length = t.size(cpu=1 << 14, cuda=1 << 20, simulated=LONG)
    return call(t.integers(length, low=1, high=4), *args, **kwargs)


def _tied_short(t: Inputs, *args: object, **kwargs: object) -> Call:
    """Many short rows: sorted by other kernels."""
    rows = t.size(cpu=1 << 10, cuda=1 << 16, simulated=1 << 8)
    return call(t.integers(rows, 64, low=1, high=4), *args, **kwargs)


def _distinct(t: Inputs, *args: object, **kwargs: object) -> Call:
    """Values that all differ: nothing to choose. No dtype of fewer digits could hold them."""
    length = t.size(cpu=1 << 14, cuda=1 << 20, simulated=LONG)
    return call(t.permutation(length).to(t.dtype) + 1, *args, **kwargs)


def _cases(*args: object, **kwargs: object) -> dict[str, Case]:
    """Return the cases of an op whose last argument but those given is a dim."""
    return {
        "tied_rows": Case(
            lambda t: _tied(t, *args, 1, **kwargs),
            LONG_TIES,
            dtypes=("float32", "int64"),
            traits={"output": "indices"},
        ),
        "tied_columns": Case(
            lambda t: _tied_columns(t, *args, 0, **kwargs), LONG_TIES, traits={"output": "indices"}
        ),
        "ties_flat": Case(
            lambda t: _tied_flat(t, *args, 0, **kwargs),
            ALL_TIES,
            # One thread of a CPU does all of it.
            devices=("cuda",),
            traits={"output": "indices"},
        ),
        "distinct": Case(lambda t: _distinct(t, *args, 0, **kwargs), traits={"output": "indices"}),
    }


def _short(*args: object, **kwargs: object) -> Case:
    return Case(
        lambda t: _tied_short(t, *args, **kwargs),
        "about 21 equal values for each index to choose from",
        traits={"output": "indices"},
    )


# Without a dim there is a value and no index.
VALUE = {"value_only": Case(_tied_flat, traits={"output": "value"})}


def _search_cases(*args: object) -> dict[str, Case]:
    """Return the same cases for an op of which a GPU searches each row, or column, with one block."""
    cases = _cases(*args)
    rows, columns = cases["tied_rows"], cases["tied_columns"]
    return cases | {
        "tied_rows": replace(rows, inputs=lambda t: _tied_many(t, *args, 1), provokes=MANY_TIES),
        "tied_columns": replace(
            columns, inputs=lambda t: _tied_many(t, *args, 0, columns=True), provokes=MANY_TIES
        ),
    }


WHY = (
    "Of equal values any may be found, by a search that counts or sorts in parallel "
    f"({KERNELS}/cuda/Sorting.cu). A GPU searches each slice with one block."
)

# The dtype and the form that PyTorch's test of the alert takes.
DOUBLE = {"tied_rows_double": replace(_search_cases()["tied_rows"], dtypes=("float64",), devices=("cuda",))}


def median_out(values: torch.Tensor, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Have ``median`` write into tensors that are given as ``out``."""
    import torch  # noqa: PLC0415 - specs load without it

    shape = values.select(dim, 0).shape
    found = values.new_empty(shape), values.new_empty(shape, dtype=torch.int64)
    torch.median(values, dim, out=found)
    return found


SPECS: tuple[OpSpec, ...] = (
    OpSpec(name="torch.median", why=WHY, cases=_search_cases() | VALUE | DOUBLE),
    OpSpec(
        name="torch.median_out",
        op=median_out,
        why=f"The same as median, by the same kernel. {WHY}",
        cases={"tied_rows": replace(_search_cases()["tied_rows"], dtypes=None, devices=("cuda",))},
        documented=("torch.median",),
    ),
    OpSpec(name="torch.nanmedian", why=WHY, cases=_search_cases() | VALUE),
    OpSpec(name="torch.kthvalue", why=WHY, cases=_search_cases(50) | {"tied_short_rows": _short(20, 1)}),
    OpSpec(
        name="torch.mode",
        why=f"Of equal values, and of values that are equally many, any may be found ({KERNELS}/cuda/TensorModeKernel.cu).",
        cases=_cases(),
    ),
    OpSpec(
        name="torch.topk",
        why=f"Of the values that equal the last one taken, any may be taken ({KERNELS}/cuda/TensorTopK.cu).",
        cases=_cases(50) | {"tied_short_rows": _short(20, 1)},
    ),
    OpSpec(
        name="torch.sort",
        why=f"A sort that is not stable leaves equal values in any order ({KERNELS}/cuda/Sort.cpp).",
        cases={
            "tied_rows": Case(lambda t: _tied(t, dim=1), LONG_TIES, dtypes=("float32", "int64")),
            "tied_columns": Case(lambda t: _tied_columns(t, dim=0), LONG_TIES),
            "ties_flat": Case(lambda t: _tied_flat(t, dim=0), ALL_TIES, devices=("cuda",)),
            "tied_short_rows": Case(
                lambda t: _tied_short(t, dim=1), "about 21 equal values to be put in order"
            ),
            # A stable sort keeps equal values in the order they came in.
            "stable_rows": Case(lambda t: _tied(t, dim=1, stable=True)),
            "distinct": Case(lambda t: _distinct(t, dim=0)),
        },
    ),
)
