"""Scattering: sources added, written or otherwise reduced into slots that indices name.

The indices decide: with thousands of sources in a slot the sum depends on the order, with one it cannot.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from detmatrix.opspecs.families.by_index.indexing import KERNELS, form_of
from detmatrix.opspecs.inputs import Inputs
from detmatrix.opspecs.model import BOTH, Call, Case, Device, Direction, OpSpec, call, with_dtypes

if TYPE_CHECKING:
    import torch

FORWARD: tuple[Direction, ...] = ("forward",)

RACES = "about 16 different values written to each slot"
ADDITIONS = "about 1024 additions into each slot (16384 on CUDA)"
FLAT, NESTED = {"dims": "1-D"}, {"dims": "2-D"}
WRITTEN = {"src": "Tensor"}
# What a reduction does to the sources of a slot; of their maximum or minimum any order makes the same.
REDUCED = {"sum": "added into", "mean": "averaged into", "prod": "multiplied into", "amax": "", "amin": ""}
# Added to a value it is the extreme: no two of those that are drawn are so far apart.
BEYOND = {"amax": 200, "amin": -200}


def _flat(t: Inputs) -> Call:
    """Sources in one row, 1024 or more of them into each of 64 slots."""
    sources = t.size(cpu=1 << 16, cuda=1 << 20, simulated=1 << 14)
    return call(t.values(64), 0, t.index(sources, high=64), t.values(sources))


def _permuted(t: Inputs) -> Call:
    length = t.size(cpu=1 << 16, cuda=1 << 20, simulated=1 << 14)
    return call(t.values(length), 0, t.permutation(length), t.values(length))


def _rows(t: Inputs) -> Call:
    """Sources ``(rows, 8)`` into 64 rows, each element with an index of its own."""
    rows = t.size(cpu=1 << 13, cuda=1 << 17, simulated=1 << 11)
    return call(t.values(64, 8), 0, t.index(rows, 8, high=64), t.values(rows, 8))


def _columns(t: Inputs) -> Call:
    """Sources ``(8, columns)`` into 64 columns, each element with an index of its own."""
    columns = t.size(cpu=1 << 13, cuda=1 << 17, simulated=1 << 11)
    return call(t.values(8, 64), 1, t.index(8, columns, high=64), t.values(8, columns))


def _expanded_rows(t: Inputs) -> Call:
    """Sources ``(rows, 8)`` into 64 rows, one index for each row: sums over the edges of a graph."""
    rows = t.size(cpu=1 << 13, cuda=1 << 17, simulated=1 << 12)
    return call(t.values(64, 8), 0, t.index(rows, 1, high=64).expand(rows, 8), t.values(rows, 8))


def _source_grad(t: Inputs) -> Call:
    sources = t.size(cpu=1 << 16, cuda=1 << 20, simulated=1 << 14)
    return call(t.values(64), 0, t.index(sources, high=64), t.leaf(t.values(sources)))


def _races(t: Inputs) -> tuple[int, int]:
    """Sources and slots of a write race; thousands of slots, because a single one is rarely lost twice."""
    return t.size(cpu=(1 << 16, 1 << 12), cuda=(1 << 20, 1 << 16), simulated=(1 << 14, 1 << 11))


def _overwrite(t: Inputs) -> Call:
    sources, slots = _races(t)
    return call(t.values(slots), 0, t.index(sources, high=slots), t.values(sources))


def _overwrite_rows(t: Inputs) -> Call:
    rows, slots = t.size(cpu=(1 << 13, 1 << 9), cuda=(1 << 17, 1 << 13), simulated=(1 << 11, 1 << 7))
    return call(t.values(slots, 8), 0, t.index(rows, 8, high=slots), t.values(rows, 8))


def _scatter_reduced(t: Inputs, reduce: str, *, flat: bool = False) -> Call:
    """Sources reduced into slots, as scatter did it before there was scatter_reduce: thousands of slots of a CPU, 64 of a GPU.

    A GPU multiplies by trying again until nobody else has, so that fewer factors meet in a slot.
    """
    cuda = (1 << 16, 1 << 10) if reduce == "multiply" else (1 << 17, 64)
    sources, slots = t.size(cpu=(1 << 14, 1 << 10), cuda=cuda, simulated=(1 << 12, 1 << 8))
    columns = () if flat else (4,)
    values = _factors(t, "prod" if reduce == "multiply" else reduce, sources, *columns)
    return call(t.values(slots, *columns), 0, t.index(sources, *columns, high=slots), values, reduce=reduce)


def _overwrite_with_one_value(t: Inputs) -> Call:
    sources, slots = _races(t)
    return call(t.values(slots), 0, t.index(sources, high=slots), 0.5)


def _factors(t: Inputs, reduce: str, *shape: int) -> torch.Tensor:
    """Draw values to be reduced; products of thousands must not leave the dtype's range."""
    if reduce == "prod" and t.dtype.is_floating_point:
        return t.uniform(*shape, low=0.99, high=1.01)
    if reduce == "prod" and not t.dtype.is_complex:
        # Signs alone: a zero among thousands of factors, or twos that overflow, would make every product zero.
        return 2 * t.integers(*shape, high=2) - 1
    return t.values(*shape)


def _into(t: Inputs, reduce: str, *shape: int) -> torch.Tensor:
    """Draw what sources are reduced into; on a GPU about half of the elements, chosen at random, are the extreme of their slot.

    Of thousands of sources in a slot one would nearly always lie beyond it, and its gradient be zero everywhere.
    """
    drawn, beyond = _factors(t, reduce, *shape), t.size(cpu=0, cuda=BEYOND.get(reduce, 0))
    return drawn + beyond * t.mask(*shape) if beyond else drawn


def _reduce(t: Inputs, reduce: str, *columns: int, include_self: bool = True) -> Call:
    """Sources in one row, or in columns, into thousands of slots of a CPU, 64 of a GPU.

    A GPU multiplies by trying again until nobody else has: a million factors in 64 slots would take it minutes.
    """
    cuda = (1 << 18, 1 << 12) if reduce == "prod" else (1 << 20, 64)
    sources, slots = t.size(cpu=(1 << 14, 1 << 10), cuda=cuda, simulated=(1 << 13, 1 << 10))
    into, index = t.leaf(_into(t, reduce, slots, *columns)), t.index(sources, *columns, high=slots)
    source = t.leaf(_factors(t, reduce, sources, *columns))
    return call(into, 0, index, source, reduce=reduce, include_self=include_self)


def _reduce_rows(t: Inputs, reduce: str) -> Call:
    """Sources ``(rows, 8)``, each element with an index of its own."""
    cuda = (1 << 15, 1 << 9) if reduce == "prod" else (1 << 17, 64)
    rows, slots = t.size(cpu=(1 << 12, 1 << 8), cuda=cuda, simulated=(1 << 10, 1 << 6))
    index = t.index(rows, 8, high=slots)
    return call(_factors(t, reduce, slots, 8), 0, index, _factors(t, reduce, rows, 8), reduce=reduce)


def _reduce_permutation(t: Inputs, reduce: str) -> Call:
    length = t.size(cpu=1 << 15, cuda=1 << 20, simulated=1 << 13)
    return call(
        _factors(t, reduce, length), 0, t.permutation(length), _factors(t, reduce, length), reduce=reduce
    )


def _reduction(
    name: str,
    inputs: Callable[..., Call],
    provokes: str,
    traits: dict[str, str],
    devices: tuple[Device, ...] = ("cpu", "cuda"),
) -> dict[str, Case]:
    """Return the three cases that each form of a reduction has: with what is there, without it, and of integers."""
    shared = Case(inputs=inputs, provokes=provokes, traits=traits, devices=devices)
    return {
        name: replace(shared, directions=BOTH),
        f"{name}_exclude_self": replace(shared, inputs=lambda t: inputs(t, include_self=False)),
        # Integers that wrap around make the same in any order.
        f"{name}_integers": replace(shared, dtypes=("int64",)),
    }


def _scatter_reduce_cases(reduce: str) -> dict[str, Case]:
    """Return the cases of one reduction; a GPU has all of them in one row, a CPU in columns, for it divides those only."""
    what = REDUCED[reduce]
    collisions = what and f"about 16 values {what} each slot ({64 if reduce == 'prod' else 16384} on CUDA)"
    flat, nested = {"reduce": reduce} | FLAT, {"reduce": reduce} | NESTED
    return {
        **_reduction(
            f"{reduce}_columns",
            lambda t, **options: _reduce(t, reduce, 4, **options),
            collisions,
            nested,
            ("cpu",),
        ),
        **_reduction(reduce, partial(_reduce, reduce=reduce), collisions, flat, ("cuda",)),
        f"{reduce}_rows": Case(
            inputs=lambda t: _reduce_rows(t, reduce),
            provokes=what and f"about {64 if reduce == 'prod' else 2048} values {what} each slot",
            devices=("cuda",),
            traits=nested,
        ),
        f"{reduce}_permutation": Case(inputs=lambda t: _reduce_permutation(t, reduce), traits=flat),
    }


def _index_reduce(t: Inputs, reduce: str, *, include_self: bool = True) -> Call:
    """Source rows into few rows, each row with one index; a CPU divides rows, and only long ones."""
    rows = 1 << 13 if reduce == "prod" else 1 << 17
    rows, slots, columns = t.size(cpu=(6, 2, 40_000), cuda=(rows, 64, 32), simulated=(1 << 10, 1 << 6, 32))
    into, index = t.leaf(_into(t, reduce, slots, columns)), t.index(rows, high=slots)
    source = t.leaf(_factors(t, reduce, rows, columns))
    return call(into, 0, index, source, reduce=reduce, include_self=include_self)


def _index_reduce_permutation(t: Inputs, reduce: str) -> Call:
    rows, columns = t.size(cpu=(1 << 12, 8), cuda=(1 << 17, 32))
    into, source = _factors(t, reduce, rows, columns), _factors(t, reduce, rows, columns)
    return call(into, 0, t.permutation(rows), source, reduce=reduce)


def _index_reduce_cases(reduce: str) -> dict[str, Case]:
    """Return the cases of one reduction."""
    what, traits = REDUCED[reduce], {"reduce": reduce}
    collisions = what and f"about 3 rows {what} each slot ({128 if reduce == 'prod' else 2048} on CUDA)"
    return {
        **_reduction(f"{reduce}_rows", partial(_index_reduce, reduce=reduce), collisions, traits),
        f"{reduce}_permutation": Case(inputs=lambda t: _index_reduce_permutation(t, reduce), traits=traits),
    }


# Of the other forms of scatter.
DUPLICATES = {
    "duplicates": Case(inputs=_overwrite, provokes=RACES, devices=("cuda",), traits=WRITTEN | FLAT),
    "duplicate_rows": Case(inputs=_overwrite_rows, provokes=RACES, traits=WRITTEN | NESTED),
}
# Said of the CPU.
ONE_ROW = "On a CPU one thread goes along the dim that is scattered, so that a tensor of one dim is the work of one thread."

SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        name="torch.Tensor.scatter_add_",
        why="On CUDA every source is added to its slot with an atomic addition, in the order in which threads "
        f"arrive ({KERNELS}/cuda/ScatterGatherKernel.cu). {ONE_ROW}",
        cases={
            **with_dtypes(
                "collisions",
                Case(inputs=_flat, provokes=ADDITIONS, traits=FLAT),
                ("float64", "float16", "bfloat16", "int64"),
                "cuda",
            ),
            "rows": Case(
                inputs=_rows, provokes="about 128 additions into each slot (2048 on CUDA)", traits=NESTED
            ),
            # Integer addition commutes exactly: the same race, without a trace.
            "columns": Case(
                inputs=_columns,
                provokes="about 128 additions into each slot (2048 on CUDA)",
                dtypes=("float32", "float64", "float16", "bfloat16", "int64"),
                traits=NESTED,
            ),
            "expanded_rows": Case(
                inputs=_expanded_rows,
                provokes="about 128 rows added into each slot (2048 on CUDA)",
                traits=NESTED,
            ),
            "no_collisions": Case(inputs=_permuted, traits=FLAT),
            # Each source's gradient is read from its slot; nothing is added.
            "source_grad": Case(inputs=_source_grad, directions=("backward",), traits=FLAT),
        },
        in_place=True,
    ),
    form_of(
        "torch.Tensor.scatter_add_",
        "torch.scatter_add",
        {
            "collisions": Case(inputs=_flat, provokes=ADDITIONS, devices=("cuda",), traits=FLAT),
            "columns": Case(
                inputs=_columns, provokes="about 128 additions into each slot (2048 on CUDA)", traits=NESTED
            ),
        },
    ),
    OpSpec(
        name="torch.Tensor.scatter",
        why="Of several values with one index the last one written stays, and threads write in any order "
        f"({KERNELS}/cuda/ScatterGatherKernel.cu). {ONE_ROW}",
        cases={
            "duplicates": Case(inputs=_overwrite, provokes=RACES, traits=WRITTEN | FLAT),
            "duplicate_rows": Case(
                inputs=_overwrite_rows, provokes=RACES, dtypes=("float32", "int64"), traits=WRITTEN | NESTED
            ),
            "permutation": Case(inputs=_permuted, traits=WRITTEN | FLAT),
            **{
                f"reduce_{reduce}{rows}": Case(
                    inputs=partial(_scatter_reduced, reduce=reduce, flat=not rows),
                    provokes=f"about 16 values {what} each slot ({64 if reduce == 'multiply' else 2048} on CUDA)",
                    devices=("cpu", "cuda") if rows else ("cuda",),
                    traits=WRITTEN | (NESTED if rows else FLAT),
                )
                for reduce, what in (("add", REDUCED["sum"]), ("multiply", REDUCED["prod"]))
                for rows in ("_rows", "")
            },
            # Whichever write is last, it writes the same.
            "one_value": Case(inputs=_overwrite_with_one_value, traits={"src": "value"} | FLAT),
        },
    ),
    form_of("torch.Tensor.scatter", "torch.Tensor.scatter_", DUPLICATES),
    form_of("torch.Tensor.scatter", "torch.scatter", DUPLICATES),
    OpSpec(
        name="torch.Tensor.scatter_reduce",
        why="On CUDA every source is reduced into its slot with an atomic operation, in the order in which threads "
        f"arrive ({KERNELS}/cuda/ScatterGatherKernel.cu).",
        cases={name: case for reduce in REDUCED for name, case in _scatter_reduce_cases(reduce).items()},
    ),
    form_of(
        "torch.Tensor.scatter_reduce",
        "torch.Tensor.scatter_reduce_",
        {
            name: replace(_scatter_reduce_cases(reduce)[name], directions=FORWARD)
            for reduce in REDUCED
            for name in (f"{reduce}_columns", reduce)
        },
    ),
    form_of(
        "torch.Tensor.scatter_reduce",
        "torch.scatter_reduce",
        {
            name: replace(_scatter_reduce_cases("sum")[name], directions=FORWARD)
            for name in ("sum_columns", "sum")
        },
    ),
    OpSpec(
        name="torch.Tensor.index_reduce",
        why="On CUDA every row is reduced into its slot with atomic operations, in the order in which threads "
        f"arrive ({KERNELS}/cuda/Indexing.cu).",
        # It has no sum: that is index_add.
        cases={
            name: case
            for reduce in REDUCED
            if reduce != "sum"
            for name, case in _index_reduce_cases(reduce).items()
        },
    ),
    form_of(
        "torch.Tensor.index_reduce",
        "torch.Tensor.index_reduce_",
        {
            f"{reduce}_rows": replace(_index_reduce_cases(reduce)[f"{reduce}_rows"], directions=FORWARD)
            for reduce in REDUCED
            if reduce != "sum"
        },
    ),
)
