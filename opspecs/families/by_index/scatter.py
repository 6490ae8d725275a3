"""Scattering: sources added, written or otherwise reduced into slots that indices name.

The indices decide: with thousands of sources in a slot the sum depends on the order, with one it cannot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from detmatrix.opspecs.families import KERNELS
from detmatrix.opspecs.families.by_index.indexing import RACED, RACES, Sizes, form_of
from detmatrix.opspecs.inputs import Inputs
from detmatrix.opspecs.model import BOTH, Call, Case, Device, OpSpec, Tensor, call, with_dtypes

ADDITIONS = "about 1024 additions into each slot (16384 on CUDA)"
ROW_ADDITIONS = "about 128 additions into each slot (2048 on CUDA)"
FLAT, NESTED = {"dims": "1-D"}, {"dims": "2-D"}
WRITTEN = {"src": "Tensor"}
# What a reduction does to the sources of a slot; of their maximum or minimum any order makes the same.
REDUCED = {"sum": "added into", "mean": "averaged into", "prod": "multiplied into", "amax": "", "amin": ""}
# Added to a value it is the extreme: no two of those that are drawn are so far apart.
BEYOND = {"amax": 200, "amin": -200}

# Sources and slots.
FLAT_SUMS: Sizes = {"cpu": (1 << 16, 64), "cuda": (1 << 20, 64), "simulated": (1 << 14, 64)}
ROW_SUMS: Sizes = {"cpu": (1 << 13, 64), "cuda": (1 << 17, 64), "simulated": (1 << 11, 64)}
RACED_ROWS: Sizes = {"cpu": (1 << 13, 1 << 9), "cuda": (1 << 17, 1 << 13), "simulated": (1 << 11, 1 << 7)}


def _scattered(sizes: Sizes, *each: int, columns: bool = False) -> Callable[[Inputs], Call]:
    """Return the arguments of an op that scatters sources, rows or *columns* of a shape, with an index for each element."""

    def inputs(t: Inputs) -> Call:
        sources, slots = t.size(**sizes)
        into, source = ((*each, count) if columns else (count, *each) for count in (slots, sources))
        return call(t.values(*into), int(columns), t.index(*source, high=slots), t.leaf(t.values(*source)))

    return inputs


def _permuted(t: Inputs) -> Call:
    length, _ = t.size(**FLAT_SUMS)
    return call(t.values(length), 0, t.permutation(length), t.values(length))


def _expanded_rows(t: Inputs) -> Call:
    """One index for each row: sums over the edges of a graph."""
    rows, slots = t.size(**{**ROW_SUMS, "simulated": (1 << 12, 64)})
    return call(t.values(slots, 8), 0, t.index(rows, 1, high=slots).expand(rows, 8), t.values(rows, 8))


def _one_value(t: Inputs) -> Call:
    sources, slots = t.size(**RACED)
    return call(t.values(slots), 0, t.index(sources, high=slots), 0.5)


def _factors(t: Inputs, reduce: str, *shape: int) -> Tensor:
    """Draw values to be reduced; products of thousands must not leave the dtype's range."""
    if reduce not in {"prod", "multiply"} or t.dtype.is_complex:
        return t.values(*shape)
    if t.dtype.is_floating_point:
        return t.uniform(*shape, low=0.99, high=1.01)
    # Signs alone: a zero among thousands of factors, or twos that overflow, would make every product zero.
    return 2 * t.integers(*shape, high=2) - 1


def _into(t: Inputs, reduce: str, *shape: int) -> Tensor:
    """Draw what sources are reduced into; on a GPU about half of the elements, chosen at random, are the extreme of their slot.

    Of thousands of sources in a slot one would nearly always lie beyond it, and its gradient be zero everywhere.
    """
    drawn, beyond = _factors(t, reduce, *shape), t.size(cpu=0, cuda=BEYOND.get(reduce, 0))
    return drawn + beyond * t.mask(*shape) if beyond else drawn


def _reduced(reduce: str, *each: int, include_self: bool) -> Callable[[Inputs], Call]:
    """Return the arguments of a reduction of sources of a shape, with an index for each element.

    A GPU multiplies by trying again until nobody else has: a million factors in 64 slots would take it minutes.
    """

    def inputs(t: Inputs) -> Call:
        cuda = (1 << 18, 1 << 12) if reduce == "prod" else (1 << 20, 64)
        sources, slots = t.size(cpu=(1 << 14, 1 << 10), cuda=cuda, simulated=(1 << 13, 1 << 10))
        into, index = t.leaf(_into(t, reduce, slots, *each)), t.index(sources, *each, high=slots)
        source = t.leaf(_factors(t, reduce, sources, *each))
        return call(into, 0, index, source, reduce=reduce, include_self=include_self)

    return inputs


def _reduce_rows(t: Inputs, reduce: str) -> Call:
    cuda = (1 << 15, 1 << 9) if reduce == "prod" else (1 << 17, 64)
    rows, slots = t.size(cpu=(1 << 12, 1 << 8), cuda=cuda, simulated=(1 << 10, 1 << 6))
    index = t.index(rows, 8, high=slots)
    return call(_factors(t, reduce, slots, 8), 0, index, _factors(t, reduce, rows, 8), reduce=reduce)


def _scatter_reduced(t: Inputs, reduce: str, each: tuple[int, ...]) -> Call:
    """Sources reduced into slots, as scatter did it before there was scatter_reduce."""
    cuda = (1 << 16, 1 << 10) if reduce == "multiply" else (1 << 17, 64)
    sources, slots = t.size(cpu=(1 << 14, 1 << 10), cuda=cuda, simulated=(1 << 12, 1 << 8))
    source = _factors(t, reduce, sources, *each)
    return call(t.values(slots, *each), 0, t.index(sources, *each, high=slots), source, reduce=reduce)


def _reduce_permutation(t: Inputs, reduce: str) -> Call:
    length = t.size(cpu=1 << 15, cuda=1 << 20, simulated=1 << 13)
    into = _factors(t, reduce, length)
    return call(into, 0, t.permutation(length), _factors(t, reduce, length), reduce=reduce)


def _reduction(
    name: str,
    inputs: Callable[..., Callable[[Inputs], Call]],
    provokes: str,
    traits: dict[str, str],
    devices: tuple[Device, ...] = ("cpu", "cuda"),
) -> dict[str, Case]:
    """Return the three cases that each form of a reduction has: with what is there, without it, and of integers."""
    shared = Case(inputs(include_self=True), provokes, traits=traits, devices=devices)
    return {
        name: replace(shared, directions=BOTH),
        f"{name}_exclude_self": replace(shared, inputs=inputs(include_self=False)),
        # Integers that wrap around make the same in any order.
        f"{name}_integers": replace(shared, dtypes=("int64",)),
    }


def _scatter_reduce_cases(reduce: str) -> dict[str, Case]:
    """Return the cases of one reduction; a GPU has all of them in one row, a CPU in columns, for it divides those only."""
    what, traits = REDUCED[reduce], {"reduce": reduce}
    collisions = what and f"about 16 values {what} each slot ({64 if reduce == 'prod' else 16384} on CUDA)"
    return {
        **_reduction(
            f"{reduce}_columns", partial(_reduced, reduce, 4), collisions, traits | NESTED, ("cpu",)
        ),
        **_reduction(reduce, partial(_reduced, reduce), collisions, traits | FLAT, ("cuda",)),
        f"{reduce}_rows": Case(
            partial(_reduce_rows, reduce=reduce),
            what and f"about {64 if reduce == 'prod' else 2048} values {what} each slot",
            devices=("cuda",),
            traits=traits | NESTED,
        ),
        f"{reduce}_permutation": Case(partial(_reduce_permutation, reduce=reduce), traits=traits | FLAT),
    }


def _index_reduce(reduce: str, *, include_self: bool) -> Callable[[Inputs], Call]:
    """Return the arguments of rows reduced into few rows, each row with one index; a CPU divides rows, and only long ones."""

    def inputs(t: Inputs) -> Call:
        many = 1 << 13 if reduce == "prod" else 1 << 17
        rows, slots, columns = t.size(
            cpu=(6, 2, 40_000), cuda=(many, 64, 32), simulated=(1 << 10, 1 << 6, 32)
        )
        into, index = t.leaf(_into(t, reduce, slots, columns)), t.index(rows, high=slots)
        source = t.leaf(_factors(t, reduce, rows, columns))
        return call(into, 0, index, source, reduce=reduce, include_self=include_self)

    return inputs


def _index_reduce_permutation(t: Inputs, reduce: str) -> Call:
    shape = t.size(cpu=(1 << 12, 8), cuda=(1 << 17, 32))
    into, source = _factors(t, reduce, *shape), _factors(t, reduce, *shape)
    return call(into, 0, t.permutation(shape[0]), source, reduce=reduce)


def _index_reduce_cases(reduce: str) -> dict[str, Case]:
    """Return the cases of one reduction."""
    what, traits = REDUCED[reduce], {"reduce": reduce}
    collisions = what and f"about 3 rows {what} each slot ({128 if reduce == 'prod' else 2048} on CUDA)"
    return {
        **_reduction(f"{reduce}_rows", partial(_index_reduce, reduce), collisions, traits),
        f"{reduce}_permutation": Case(partial(_index_reduce_permutation, reduce=reduce), traits=traits),
    }


COLLISIONS = Case(_scattered(FLAT_SUMS), ADDITIONS, traits=FLAT)
COLUMNS = Case(_scattered(ROW_SUMS, 8, columns=True), ROW_ADDITIONS, traits=NESTED)
DUPLICATES = Case(_scattered(RACED), RACES, traits=WRITTEN | FLAT)
DUPLICATE_ROWS = Case(_scattered(RACED_ROWS, 8), RACES, traits=WRITTEN | NESTED)
SCATTER_REDUCE = {reduce: _scatter_reduce_cases(reduce) for reduce in REDUCED}
# It has no sum: that is index_add.
INDEX_REDUCE = {reduce: _index_reduce_cases(reduce) for reduce in REDUCED if reduce != "sum"}
WIDE_DTYPES = ("float64", "float16", "bfloat16", "int64")


def _forward(cases: Mapping[str, Case], *names: str) -> dict[str, Case]:
    """Return some of the cases, with outputs alone."""
    return {name: replace(cases[name], directions=("forward",)) for name in names}


# Said of the CPU.
ONE_ROW = "On a CPU one thread goes along the dim that is scattered, so that a tensor of one dim is the work of one thread."

SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        name="torch.Tensor.scatter_add_",
        why="On CUDA every source is added to its slot with an atomic addition, in the order in which threads "
        f"arrive ({KERNELS}/cuda/ScatterGatherKernel.cu). {ONE_ROW}",
        cases={
            **with_dtypes("collisions", COLLISIONS, WIDE_DTYPES, "cuda"),
            "rows": replace(COLUMNS, inputs=_scattered(ROW_SUMS, 8)),
            # Integer addition commutes exactly: the same race, without a trace.
            "columns": replace(COLUMNS, dtypes=("float32", *WIDE_DTYPES)),
            "expanded_rows": Case(
                _expanded_rows, "about 128 rows added into each slot (2048 on CUDA)", traits=NESTED
            ),
            "no_collisions": Case(_permuted, traits=FLAT),
            # Each source's gradient is read from its slot; nothing is added.
            "source_grad": Case(_scattered(FLAT_SUMS), directions=("backward",), traits=FLAT),
        },
        in_place=True,
    ),
    form_of(
        "torch.Tensor.scatter_add_",
        "torch.scatter_add",
        {"collisions": replace(COLLISIONS, devices=("cuda",)), "columns": COLUMNS},
    ),
    OpSpec(
        name="torch.Tensor.scatter",
        why="Of several values with one index the last one written stays, and threads write in any order "
        f"({KERNELS}/cuda/ScatterGatherKernel.cu). {ONE_ROW}",
        cases={
            "duplicates": DUPLICATES,
            "duplicate_rows": replace(DUPLICATE_ROWS, dtypes=("float32", "int64")),
            "permutation": Case(_permuted, traits=WRITTEN | FLAT),
            **{
                f"reduce_{reduce}{rows}": Case(
                    partial(_scatter_reduced, reduce=reduce, each=each),
                    f"about 16 values {what} each slot ({64 if reduce == 'multiply' else 2048} on CUDA)",
                    devices=("cpu", "cuda") if each else ("cuda",),
                    traits=WRITTEN | (NESTED if each else FLAT),
                )
                for reduce, what in (("add", REDUCED["sum"]), ("multiply", REDUCED["prod"]))
                for rows, each in {"_rows": (4,), "": ()}.items()
            },
            # Whichever write is last, it writes the same.
            "one_value": Case(_one_value, traits={"src": "value"} | FLAT),
        },
    ),
    *(
        form_of(
            "torch.Tensor.scatter",
            name,
            {"duplicates": replace(DUPLICATES, devices=("cuda",)), "duplicate_rows": DUPLICATE_ROWS},
        )
        for name in ("torch.Tensor.scatter_", "torch.scatter")
    ),
    OpSpec(
        name="torch.Tensor.scatter_reduce",
        why="On CUDA every source is reduced into its slot with an atomic operation, in the order in which threads "
        f"arrive ({KERNELS}/cuda/ScatterGatherKernel.cu).",
        cases={name: case for cases in SCATTER_REDUCE.values() for name, case in cases.items()},
    ),
    *(
        form_of(
            "torch.Tensor.scatter_reduce",
            name,
            {
                case: declared
                for reduce in reductions
                for case, declared in _forward(SCATTER_REDUCE[reduce], f"{reduce}_columns", reduce).items()
            },
        )
        for name, reductions in {
            "torch.Tensor.scatter_reduce_": [*REDUCED],
            "torch.scatter_reduce": ["sum"],
        }.items()
    ),
    OpSpec(
        name="torch.Tensor.index_reduce",
        why="On CUDA every row is reduced into its slot with atomic operations, in the order in which threads "
        f"arrive ({KERNELS}/cuda/Indexing.cu).",
        cases={name: case for cases in INDEX_REDUCE.values() for name, case in cases.items()},
    ),
    form_of(
        "torch.Tensor.index_reduce",
        "torch.Tensor.index_reduce_",
        {
            name: case
            for reduce, cases in INDEX_REDUCE.items()
            for name, case in _forward(cases, f"{reduce}_rows").items()
        },
    ),
)
