"""Reading and writing by index: sums into few slots, and races for a slot.

Two things can depend on order here. With ``accumulate`` many values are added into one slot; without it
many values are written there and the last one stays. A permutation leaves neither anything to choose.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from detmatrix.opspecs import serial
from detmatrix.opspecs.families import KERNELS
from detmatrix.opspecs.inputs import Inputs
from detmatrix.opspecs.model import Call, Case, OpSpec, Tensor, call, each, with_dtypes

# What the cases below say of themselves; sizes are those of the helpers.
ADDITIONS = "about 16 additions into each slot (16384 on CUDA)"
RACES = "about 16 different values written to each slot"
GRADIENTS = "about 16 gradients added"
ROW_RACES = "about 8 different rows written to each slot"

# The documented conditions these cases meet. Of any index that holds tensors torch makes a list of tensors.
ACCUMULATE, OVERWRITE = {"accumulate": "True"}, {"accumulate": "False"}
LISTED = {"index": "list of tensors"}


# Sources, slots and, of rows, columns, by device. 16 float32 addends, in random order, give another sum in 3 of 4 slots. A CPU keeps
# thousands of slots, because its threads spend milliseconds in fighting for 64; a GPU gets thousands of addends for each.
Sizes = Mapping[str, tuple[int, ...]]
SUMS: Sizes = {"cpu": (1 << 16, 1 << 12), "cuda": (1 << 20, 64), "simulated": (1 << 14, 1 << 10)}
ROW_SUMS: Sizes = {"cpu": (1 << 14, 1 << 10, 4), "cuda": (1 << 17, 64, 32)}
# 1000 x 1000 gave 1000 distinct outputs in 1000 runs on an H100, 40 x 40 gave 1. Wide rows have a kernel of their own.
WIDE: Sizes = {"cpu": (1 << 13, 1 << 9, 16), "cuda": (1000, 10, 1000), "simulated": (1 << 8, 1 << 4, 128)}
WIDE_COLUMNS: Sizes = {**WIDE, "simulated": (1 << 11, 1 << 7, 8)}
# CUDA takes another kernel for 16 indices or fewer (indexFuncSmallIndex).
FEW: Sizes = {"cpu": (16, 2, 1 << 12), "cuda": (16, 2, 1 << 20)}
# Of a write race: thousands of slots, because a single one is rarely lost twice.
RACED: Sizes = {"cpu": (1 << 16, 1 << 12), "cuda": (1 << 20, 1 << 16), "simulated": (1 << 14, 1 << 11)}
RACED_ROWS: Sizes = {"cpu": (1 << 14, 1 << 11, 4), "cuda": (1 << 17, 1 << 14, 32)}


def _pairs(t: Inputs) -> tuple[tuple[Tensor, Tensor], int, int]:
    """Two index tensors into a square, how many pairs they make, and the side of the square."""
    sources, side = t.size(cpu=(1 << 16, 64), cuda=(1 << 20, 8), simulated=(1 << 14, 32))
    return (t.index(sources, high=side), t.index(sources, high=side)), sources, side


def _drawn(
    sizes: Sizes, form: str, *, dim: int = 0, permuted: bool = False, **options: bool
) -> Callable[[Inputs], Call]:
    """Return the arguments of an op that adds or writes sources into slots along *dim*, as many slots as sources if *permuted*.

    The *form* is ``"dim"`` of ``index_add`` and ``index_copy``, ``"place"`` of ``put``, ``"indices"`` of ``index_put``.
    """

    def inputs(t: Inputs) -> Call:
        sources, slots, *width = t.size(**sizes)
        slots = sources if permuted else slots
        into, source = ((*width, count) if dim else (count, *width) for count in (slots, sources))
        written = t.values(*into)
        index = t.permutation(sources) if permuted else t.index(sources, high=slots)
        at = {"dim": (dim, index), "place": (index,), "indices": ((index,),)}[form]
        return call(written, *at, t.values(*source), **options)

    return inputs


def _index_put_pair_sums(t: Inputs) -> Call:
    indices, sources, side = _pairs(t)
    return call(t.values(side, side), indices, t.values(sources), accumulate=True)


def _index_put_quantized_races(t: Inputs) -> Call:
    sources, slots = t.size(**RACED)
    return call(t.quantized(slots), (t.index(sources, high=slots),), t.quantized(sources).dequantize())


def _getitem(sizes: Sizes, *more: slice) -> Callable[[Inputs], Call]:
    """Return the arguments of an index into what has so many elements, or rows, with slices of further dims."""

    def inputs(t: Inputs) -> Call:
        sources, slots, *width = t.size(**sizes)
        source, index = t.leaf(t.normal(slots, *width)), t.index(sources, high=slots)
        return call(source, (index, *more) if more else index)

    return inputs


def _getitem_pairs(t: Inputs) -> Call:
    indices, _, side = _pairs(t)
    return call(t.leaf(t.normal(side, side)), indices)


def _getitem_flat(index: Callable[[Inputs, int], object]) -> Callable[[Inputs], Call]:
    """Return the arguments of an index, made for so many elements, that names none of them twice."""

    def inputs(t: Inputs) -> Call:
        length = t.size(**SUMS)[0]
        return call(t.leaf(t.normal(length)), index(t, length))

    return inputs


# What several forms of an op have in common.
_ADDED = Case(_drawn(SUMS, "dim"), ADDITIONS)
_ADDED_ROWS = Case(_drawn(WIDE, "dim"), "about 16 rows added into each slot (100 on CUDA)")
_PUT_SUMS, _INDEX_PUT_SUMS = (
    Case(inputs, ADDITIONS, traits=ACCUMULATE, reference=serial.summed)
    for inputs in (_drawn(SUMS, "place", accumulate=True), _drawn(SUMS, "indices", accumulate=True))
)
# Which write stays is nobody's promise of put_, even with the flag on: it raises.
_PUT_RACES = Case(_drawn(RACED, "place"), RACES, traits=OVERWRITE)
_INDEX_PUT_RACES = replace(_PUT_RACES, inputs=_drawn(RACED, "indices"), reference=serial.last_written)
_COPY_RACES, _COPY_ROW_RACES = (
    Case(inputs, provokes, reference=serial.last_written)
    for inputs, provokes in ((_drawn(RACED, "dim"), RACES), (_drawn(RACED_ROWS, "dim"), ROW_RACES))
)


def form_of(of: str, name: str, cases: Mapping[str, Case]) -> OpSpec:
    """Return the spec of another form of an op, by whose name the lists speak of it: in place, functional, or not a method."""
    first = of.rpartition(".")[2]
    form = f"The functional form of {first}" if first.endswith("_") else "The same as the method"
    form = f"The in-place form of {first}" if name.endswith("_") else form
    why = f"{form}, by the same kernel."
    return OpSpec(name=name, why=why, cases=cases, documented=(of,), in_place=name.endswith("_"))


SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        name="torch.index_add",
        why="On CUDA every source is added to its slot with an atomic addition, in the order in which threads "
        f"arrive ({KERNELS}/cuda/Indexing.cu). On a CPU one thread adds to a tensor of one dim, in a loop over the indices.",
        cases={
            **with_dtypes("collisions", _ADDED, ("float64", "int64"), "cuda"),
            "rows": _ADDED_ROWS,
            # Integer addition commutes exactly: the same race, without a trace.
            "rows_dtypes": replace(
                _ADDED_ROWS,
                provokes="about 16 rows added into each slot",
                dtypes=("float64", "int64"),
                devices=("cpu",),
            ),
            "columns": Case(
                _drawn(WIDE_COLUMNS, "dim", dim=1), "about 16 columns added into each slot (100 on CUDA)"
            ),
            "few_indices": Case(
                _drawn(FEW, "dim"), "about 8 rows added into each of 2 slots (in order on CUDA)"
            ),
            "no_collisions": Case(_drawn(SUMS, "dim", permuted=True)),
            # Neither what is added to nor what is added has a dim.
            "number": Case(
                lambda t: call(t.normal(1)[0], 0, t.index(1, high=1), t.normal(1)[0]),
                dtypes=("float32",),
                devices=("cuda",),
            ),
        },
        cuda_dtypes=("float16", "bfloat16"),
    ),
    form_of(
        "torch.index_add",
        "torch.Tensor.index_add_",
        {"collisions": replace(_ADDED, devices=("cuda",)), "rows": _ADDED_ROWS},
    ),
    OpSpec(
        name="torch.Tensor.index_put_",
        why="Values with equal indices are added (accumulate=True) or overwrite each other (accumulate=False) in "
        f"the order in which threads reach them ({KERNELS}/cpu/IndexKernel.cpp). On a CPU values of any other dtype "
        "than float32 are added by one thread; on CUDA they are sorted by index, and those of a slot added in order.",
        cases={
            "accumulate": replace(_INDEX_PUT_SUMS, dtypes=("float32", "float64", "complex64", "int64")),
            "accumulate_rows": replace(
                _INDEX_PUT_SUMS,
                inputs=_drawn(ROW_SUMS, "indices", accumulate=True),
                provokes="about 16 rows added into each slot (2048 on CUDA)",
            ),
            "accumulate_pairs": Case(
                _index_put_pair_sums,
                "about 16 additions at each pair of indices (16384 on CUDA)",
                traits=ACCUMULATE,
            ),
            "accumulate_permutation": Case(
                _drawn(SUMS, "indices", permuted=True, accumulate=True), traits=ACCUMULATE
            ),
            "overwrite": replace(_INDEX_PUT_RACES, dtypes=("float32", "int64")),
            "overwrite_rows": replace(
                _INDEX_PUT_RACES, inputs=_drawn(RACED_ROWS, "indices"), provokes=ROW_RACES
            ),
            # A kernel of its own, which quantizes what it writes.
            "overwrite_quantized": Case(
                _index_put_quantized_races, RACES, dtypes=("quint8", "qint8", "qint32"), traits=OVERWRITE
            ),
            "overwrite_permutation": Case(
                _drawn(SUMS, "indices", permuted=True, accumulate=False), traits=OVERWRITE
            ),
        },
        documented=("torch.Tensor.index_put",),
        in_place=True,
    ),
    OpSpec(
        name="torch.Tensor.index_put",
        why="The functional form of index_put_, by the same kernel.",
        cases={"accumulate": _INDEX_PUT_SUMS, "overwrite": _INDEX_PUT_RACES},
    ),
    form_of("torch.Tensor.index_put", "torch.index_put", {"accumulate": _INDEX_PUT_SUMS}),
    OpSpec(
        name="torch.Tensor.put_",
        why="Values with equal indices are added (accumulate=True) or overwrite each other (accumulate=False) in "
        f"the order in which threads reach them ({KERNELS}/cuda/IndexKernel.cu, {KERNELS}/cpu/IndexKernel.cpp). On a "
        "CPU values of any other dtype than float32 are added by one thread.",
        cases={
            "accumulate": replace(_PUT_SUMS, dtypes=("float32", "float64", "int64")),
            "accumulate_permutation": Case(
                _drawn(SUMS, "place", permuted=True, accumulate=True), traits=ACCUMULATE
            ),
            "overwrite": replace(_PUT_RACES, dtypes=("float32", "int64")),
            "overwrite_permutation": Case(
                _drawn(SUMS, "place", permuted=True, accumulate=False), traits=OVERWRITE
            ),
        },
        in_place=True,
    ),
    form_of("torch.Tensor.put_", "torch.Tensor.put", {"accumulate": _PUT_SUMS, "overwrite": _PUT_RACES}),
    OpSpec(
        name="torch.Tensor.__getitem__",
        why=f"Its backward is index_put with accumulate=True ({KERNELS}/cpu/IndexKernel.cpp). On a CPU values of any other dtype "
        "than float32 are added by one thread; on CUDA they are sorted by index, and added in order.",
        directions=("backward",),
        cases={
            **each(
                {
                    "collisions": Case(
                        _getitem(SUMS),
                        f"{GRADIENTS} into each element (16384 on CUDA)",
                        dtypes=("float32", "float64"),
                    ),
                    "rows": Case(_getitem(ROW_SUMS), f"{GRADIENTS} into each row (2048 on CUDA)"),
                },
                traits=LISTED,
                reference=serial.summed_gradient,
            ),
            "pairs": Case(
                _getitem_pairs, f"{GRADIENTS} at each pair of indices (16384 on CUDA)", traits=LISTED
            ),
            "index_and_slice": Case(
                _getitem(ROW_SUMS, slice(1, None)), f"{GRADIENTS} into each row (2048 on CUDA)", traits=LISTED
            ),
            "basic_slice": Case(
                _getitem_flat(lambda _, length: slice(1, length // 2, 2)), traits={"index": "slice"}
            ),
            "boolean_mask": Case(_getitem_flat(lambda t, length: t.mask(length)), traits=LISTED),
            "permutation": Case(_getitem_flat(lambda t, length: t.permutation(length)), traits=LISTED),
        },
        cuda_dtypes=("float16", "bfloat16"),
    ),
    OpSpec(
        name="torch.Tensor.index_copy",
        why="Of several values copied to one index the last one written stays, and threads write in any order "
        f"({KERNELS}/cpu/IndexKernel.cpp, {KERNELS}/cuda/IndexKernel.cu).",
        cases={
            "duplicates": replace(_COPY_RACES, dtypes=("float32", "int64")),
            "duplicate_rows": _COPY_ROW_RACES,
            "duplicate_columns": Case(
                _drawn(RACED_ROWS, "dim", dim=1),
                "about 8 different columns written to each slot",
                reference=partial(serial.last_written, dim=1),
            ),
            # The arguments of index_add without collisions.
            "permutation": Case(_drawn(SUMS, "dim", permuted=True)),
        },
    ),
    form_of("torch.Tensor.index_copy", "torch.index_copy", {"duplicates": _COPY_RACES}),
    form_of(
        "torch.Tensor.index_copy",
        "torch.Tensor.index_copy_",
        {"duplicates": _COPY_RACES, "duplicate_rows": _COPY_ROW_RACES},
    ),
)
