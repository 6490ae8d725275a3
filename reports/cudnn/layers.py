"""The layers where PyTorch tries a nondeterministic engine first, and at which place it tries one in the others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from typing import Any

from scanner.cudnn.problems import CONVOLUTIONS
from scanner.cudnn.pytorch import first_place, ways
from scanner.cudnn.record import Engine, EngineCell, EngineTable

PLACES = ("first", "later", "never", "fallback", "not_known")

# A dtype and a layout.
Way = tuple[str, str]
# (layer, operation) -> GPU -> ways.
LayerWays = dict[tuple[str, str], dict[str, set[Way]]]
_SUFFIXES = {1: "st", 2: "nd", 3: "rd"}


def met_first(table: EngineTable) -> LayerWays:
    """Return where PyTorch tries a nondeterministic engine first."""
    return _layers(table, _first)


def known(table: EngineTable) -> LayerWays:
    """Return where it is known what PyTorch tries."""
    return _layers(table, bool)


def asked(table: EngineTable) -> LayerWays:
    """Return what cuDNN was asked about."""
    return _layers(table, _any)


def _first(engines: tuple[Engine, ...]) -> bool:
    return first_place(engines) == 1


def _any(_engines: tuple[Engine, ...]) -> bool:
    return True


def _layers(table: EngineTable, is_so: Callable[[tuple[Engine, ...]], bool]) -> LayerWays:
    """Return where what PyTorch tries is so, in the order of the layers."""
    found: LayerWays = {}
    for cell in sorted(table.cells, key=_layer):
        on = found.setdefault((table.problems[cell.problem].name, cell.operation), {})
        for dtype, engines in ways(cell).items():
            if is_so(engines):
                on.setdefault(cell.gpu, set()).add((dtype, cell.layout))
    return {place: on for place, on in found.items() if on}


def _layer(cell: EngineCell) -> int:
    return cell.problem


def labels(some: Collection[Way], every: Collection[Way]) -> list[str]:
    """Return dtypes, each with its layouts unless they are all that were asked about."""
    layouts: defaultdict[str, set[str]] = defaultdict(set)
    for dtype, layout in some:
        layouts[dtype].add(layout)
    return sorted(
        dtype if all((dtype, one) in some for name, one in every if name == dtype)
        else f"{dtype} ({', '.join(sorted(found))})"
        for dtype, found in layouts.items()
    )  # fmt: skip


def first_lines(table: EngineTable, gpus: Sequence[str]) -> list[list[str]]:
    """Return for each layer with a nondeterministic engine first its dtypes by GPU, and those that are not known."""
    sure, every = known(table), asked(table)
    return [
        [
            *place,
            *(
                _first_text(
                    on.get(gpu, set()), sure.get(place, {}).get(gpu, set()), every[place].get(gpu, set())
                )
                for gpu in gpus
            ),
        ]
        for place, on in met_first(table).items()
    ]


def _first_text(first: set[Way], sure: set[Way], every: set[Way]) -> str:
    if not sure:
        return "not known"
    told = ", ".join(labels(first, every)) or "none"
    unknown = every - sure
    return f"{told}; not known: {', '.join(labels(unknown, every))}" if unknown else told


def places(table: EngineTable) -> list[dict[str, Any]]:
    """Return how often a nondeterministic engine comes first, later, or not, in the order that PyTorch tries, and where.

    Where the heuristics gave no answer that is not known; where they list nothing that PyTorch keeps, it falls back.
    """
    counts: defaultdict[tuple[str, str, str], list[int]] = defaultdict(lambda: [0] * len(PLACES))
    ranks: defaultdict[tuple[str, str, str], list[tuple[int, int]]] = defaultdict(list)
    for cell in table.cells:
        if cell.operation not in CONVOLUTIONS:
            continue
        for dtype, engines in ways(cell).items():
            key = cell.operation, cell.gpu, dtype
            place = first_place(engines)
            if not engines:
                column = 3 if cell.refused is None else 4
            else:
                column = 2 if place is None else int(place > 1)
            counts[key][column] += 1
            if place is not None:
                ranks[key].append((place, len(engines)))
    return [
        {
            "operation": operation,
            "gpu": gpu,
            "dtype": dtype,
            **dict(zip(PLACES, found, strict=True)),
            "ranks": _ranks(ranks[operation, gpu, dtype]) if any(found[:3]) else "not known",
        }
        for (operation, gpu, dtype), found in counts.items()
    ]


def _ranks(ranks: Sequence[tuple[int, int]]) -> str:
    """Return the places, and of how many, as ranges: "2nd to 7th of 5 to 18"."""
    if not ranks:
        return "none"
    at, of = (sorted(column) for column in zip(*ranks, strict=True))
    return f"{_range(*map(_ordinal, (at[0], at[-1])))} of {_range(str(of[0]), str(of[-1]))}"


def _range(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"


def _ordinal(number: int) -> str:
    return f"{number}th" if number % 100 in range(11, 14) else f"{number}{_SUFFIXES.get(number % 10, 'th')}"
