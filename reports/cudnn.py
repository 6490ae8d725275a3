"""What cuDNN says of its engines: the nondeterministic ones, where PyTorch tries one first, and what changed between releases.

Of a row of the matrix recorded tables say what is *expected*. No engine was run.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from tabulate import tabulate

from detmatrix.reports.render import page
from detmatrix.reports.render.json import View, json_of
from detmatrix.reports.render.markdown import generate
from detmatrix.reports.render.output import wrapped
from detmatrix.scanner.cases.convolutions import is_convolution, layer_of
from detmatrix.scanner.cudnn.gpus import ASSUMED, GPUS, PRESENT, SOURCES
from detmatrix.scanner.cudnn.problems import CONVOLUTIONS, LayerKind, Operation, cudnn_operation
from detmatrix.scanner.cudnn.record import (
    TF32,
    Engine,
    EngineCell,
    EngineTable,
    encode,
    first_place,
    read_table,
    ways,
)
from detmatrix.scanner.errors import one_line
from detmatrix.scanner.observations.records import Row

PLACES = ("first", "later", "never", "fallback", "not_known")

# A dtype and a layout.
Way = tuple[str, str]
# (layer, operation) -> GPU -> ways.
LayerWays = dict[tuple[str, str], dict[str, set[Way]]]
_SUFFIXES = {1: "st", 2: "nd", 3: "rd"}


def met_first(table: EngineTable) -> LayerWays:
    """Return where PyTorch tries a nondeterministic engine first."""
    return _layers(table, lambda engines: first_place(engines) == 1)


def known(table: EngineTable) -> LayerWays:
    """Return where it is known what PyTorch tries."""
    return _layers(table, bool)


def asked(table: EngineTable) -> LayerWays:
    """Return what cuDNN was asked about."""
    return _layers(table, lambda _: True)


def _layers(table: EngineTable, is_so: Callable[[tuple[Engine, ...]], bool]) -> LayerWays:
    """Return where what PyTorch tries is so, in the order of the layers."""
    found: LayerWays = {}
    for cell in sorted(table.cells, key=lambda cell: cell.problem):
        on = found.setdefault((table.problems[cell.problem].name, cell.operation), {})
        for dtype, engines in ways(cell).items():
            if is_so(engines):
                on.setdefault(cell.gpu, set()).add((dtype, cell.layout))
    return {place: on for place, on in found.items() if on}


def labels(some: Collection[Way], every: Collection[Way]) -> list[str]:
    """Return dtypes, each with its layouts unless they are all that were asked about."""
    layouts: defaultdict[str, set[str]] = defaultdict(set)
    for dtype, layout in some:
        layouts[dtype].add(layout)
    whole = {
        dtype for dtype, found in layouts.items() if found >= {it for name, it in every if name == dtype}
    }
    return sorted(
        dtype if dtype in whole else f"{dtype} ({', '.join(sorted(found))})"
        for dtype, found in layouts.items()
    )


def first_lines(table: EngineTable, gpus: Sequence[str]) -> list[list[str]]:
    """Return for each layer with a nondeterministic engine first its dtypes by GPU, and those that are not known."""
    sure, every = known(table), asked(table)

    def text(place: tuple[str, str], gpu: str, first: set[Way]) -> str:
        answered, all_ = sure.get(place, {}).get(gpu, set()), every[place].get(gpu, set())
        if not answered:
            return "not known"
        told = ", ".join(labels(first, all_)) or "none"
        unknown = all_ - answered
        return f"{told}; not known: {', '.join(labels(unknown, all_))}" if unknown else told

    return [
        [*place, *(text(place, gpu, on.get(gpu, set())) for gpu in gpus)]
        for place, on in met_first(table).items()
    ]


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
    ends = [
        f"{it}th" if it % 100 in range(11, 14) else f"{it}{_SUFFIXES.get(it % 10, 'th')}"
        for it in (at[0], at[-1])
    ]
    return f"{_range(*ends)} of {_range(str(of[0]), str(of[-1]))}"


def _range(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"


LIMITS = (
    "Expected, not measured: cuDNN was asked, no engine ran. Accepted is not runnable: an engine that cuDNN accepts may "
    "still fail to build or run on a GPU, and PyTorch then tries the next."
)
_DRIVERS = {
    "stub": "No NVIDIA driver was there: a stub of libcuda.so.1, compiled into a temporary folder, stood in for it.",
    "present": "The NVIDIA driver of the machine was there.",
}
_ATTENTION = (
    "Attention is asked about as the one operation that the backend API has for it (forward since 9.13, backward since 9.17), "
    "without a mask. For it and for normalisations cuDNN accepts the same engines whatever the GPU, also where it says "
    "elsewhere that it does not support one, which says little."
)


def view(table: EngineTable) -> View:
    """Return the report of one release of cuDNN."""
    gpus = [name for name, state in table.gpus.items() if state in {PRESENT, "described"}]
    engines, figures = accepted_engines(table, gpus), _figures(table)
    assumed = sum(line[-1] == ASSUMED for line in figures)
    return View(
        {"cudnn": table.cudnn, "driver": table.driver, "gpus": table.gpus},
        places=(found := places(table)),
        place_lines=[list(one.values()) for one in found],
        engine_lines=[
            [one["operation"], one["engines"], *(_text_of(one["on"][gpu]) for gpu in gpus)] for one in engines
        ],
        first_lines=first_lines(table, gpus),
        limits=LIMITS,
        driver_text=_DRIVERS[table.driver],
        attention=_ATTENTION,
        described=list(table.descriptions),
        figure_lines=figures,
        figures_text=f"GPUs are described by {len(figures)} figures each, of which {assumed} are assumed and the others have a "
        f"source; --format md lists them."
        if figures
        else "",
        names=gpus,
        # What cuDNN refused, by operation and GPU, and how often.
        refused=[
            (*key, count)
            for key, count in Counter(
                (it.operation, it.gpu, it.refused) for it in table.cells if it.refused is not None
            ).items()
        ],
        sentence=sentence(table),
    )


def _figures(table: EngineTable) -> list[list[str]]:
    """Return the figures that cuDNN was told, by GPU, each with where it is from; of other figures than ours nobody knows."""
    told = table.descriptions
    lines = []
    for name in dict.fromkeys(name for one in told.values() for name in one):
        ours = all(one.get(name) == GPUS.get(gpu, {}).get(name) for gpu, one in told.items())
        lines.append([name, *(", ".join(map(str, it)) if isinstance(it := one.get(name, ""), (tuple, list)) else str(it) for one in told.values()),
                      SOURCES.get(name, ASSUMED) if ours else "not known"])  # fmt: skip
    return lines


def sentence(table: EngineTable) -> str:
    """Return a table in one sentence."""
    found = "; ".join(
        f"{operation}: {', '.join(map(str, _numbers(cells))) or ('none' if any(it.engines for it in cells) else 'refused')}"
        for operation, cells in _by_operation(table).items()
    )
    return f"cuDNN {table.cudnn}: engines with the numerical note NONDETERMINISTIC: {found}."


def _by_operation(table: EngineTable) -> dict[Operation, list[EngineCell]]:
    """Return the cells by the operation of cuDNN that was asked about."""
    cells: dict[Operation, list[EngineCell]] = {}
    for cell in table.cells:
        transposed = table.problems[cell.problem].transposed
        cells.setdefault(cudnn_operation(cell.operation, transposed=transposed), []).append(cell)
    return cells


def accepted_engines(table: EngineTable, gpus: Sequence[str]) -> list[dict[str, Any]]:
    """Return for each of cuDNN's operations how many engines each GPU accepts, and which are nondeterministic."""
    return [
        {
            "operation": operation,
            "engines": max(cell.total for cell in some),
            "on": {gpu: _on([cell for cell in some if cell.gpu == gpu and cell.engines]) for gpu in gpus},
        }
        for operation, some in _by_operation(table).items()
    ]


def _text_of(on: dict[str, Any]) -> str:
    """Return in words how many engines one GPU accepts, and which are nondeterministic."""
    if not on["cells"]:
        return "none accepted"
    accepted, numbers = (
        _range(str(on["fewest"]), str(on["most"])),
        ", ".join(map(str, on["nondeterministic"])),
    )
    if not numbers:
        return f"{accepted}; none"
    return f"{accepted}; engine {numbers} in {on['cells_nondeterministic']} of {on['cells']} cells"


def _on(cells: Sequence[EngineCell]) -> dict[str, Any]:
    counts = [len(cell.engines) for cell in cells]
    return {
        "fewest": min(counts, default=0),
        "most": max(counts, default=0),
        "nondeterministic": _numbers(cells),
        "cells": len(cells),
        "cells_nondeterministic": sum(any(one.nondeterministic for one in cell.engines) for cell in cells),
    }


CHANGES = {"newly_first": "newly first", "no_longer_first": "no longer first"}


def changes(tables: Iterable[EngineTable]) -> View:
    """Return what changed from release to release, in the order given."""
    tables = list(tables)
    firsts = [met_first(table) for table in tables]
    steps = [
        _step(old, new, before, after)
        for old, new, before, after in zip(tables, tables[1:], firsts, firsts[1:], strict=False)
    ]
    counts = _first_counts(tables, firsts)
    return View(
        {
            "tables": [
                {
                    "cudnn": table.cudnn,
                    "driver": table.driver,
                    "engines": accepted_engines(table, list(table.gpus)),
                }
                for table in tables
            ],
            "steps": steps,
        },
        step_lines=[
            {
                "title": f"{step['old']} to {step['new']}",
                "not_compared": ", ".join(step["not_compared"]),
                "lines": [
                    [title, one["layer"], one["operation"], one["gpu"], ", ".join(one["dtypes"])]
                    for name, title in CHANGES.items()
                    for one in step[name]
                ],
                "counts": [
                    [operation, gpu, *(found[operation, gpu] for found in of_step)]
                    for gpu, operation, _ in counts
                    if any(found[operation, gpu] for found in of_step)
                ],
            }
            for step in steps
            # In how many layers an engine comes first now, or no longer, by operation and GPU.
            for of_step in [[Counter((it["operation"], it["gpu"]) for it in step[name]) for name in CHANGES]]
        ],
        limits=LIMITS,
        sentences=[sentence(table) for table in tables],
        count_lines=[
            [gpu, operation, *("not known" if count is None else count for count in found)]
            for gpu, operation, found in counts
        ],
        names=[table.cudnn for table in tables],
    )


def _first_counts(
    tables: Sequence[EngineTable], firsts: Sequence[LayerWays]
) -> list[tuple[str, str, list[int | None]]]:
    """Return for each GPU and operation in how many layers a nondeterministic engine comes first, by release."""
    operations = dict.fromkeys(operation for found in firsts for _, operation in found)
    return [
        (
            gpu,
            operation,
            [
                sum(gpu in on for (_, one), on in found.items() if one == operation)
                if gpu in _ordered(table)
                else None
                for table, found in zip(tables, firsts, strict=True)
            ],
        )
        for gpu in dict.fromkeys(gpu for table in tables for gpu in table.gpus)
        for operation in operations
    ]


def _ordered(table: EngineTable) -> set[str]:
    """Return the GPUs for which the heuristics answered."""
    return {cell.gpu for cell in table.cells if cell.order}


def _step(old: EngineTable, new: EngineTable, before: LayerWays, after: LayerWays) -> dict[str, Any]:
    """Return what one release has that the other has not, where what PyTorch tries is known in both."""
    return {
        "old": old.cudnn,
        "new": new.cudnn,
        "not_compared": sorted((set(old.gpus) | set(new.gpus)) - (_ordered(old) & _ordered(new))),
        "no_longer_first": _only(old, before, after, known(new)),
        "newly_first": _only(new, after, before, known(old)),
    }


def _only(table: EngineTable, first: LayerWays, other: LayerWays, sure: LayerWays) -> list[dict[str, Any]]:
    """Return what is first in this table and not in the other one, of what is known there."""
    every = asked(table)
    return [
        {"layer": layer, "operation": operation, "gpu": gpu, "dtypes": labels(alone, every[place][gpu])}
        for (layer, operation), on in first.items()
        for gpu, some in on.items()
        if (
            alone := (some & sure.get(place := (layer, operation), {}).get(gpu, set()))
            - other.get(place, {}).get(gpu, set())
        )
    ]


_RECORDED = Path(__file__).parent / "engines"
_read = cache(read_table)
# The cuDNN that the wheel of a build requires, by its metadata on PyPI, where its table is recorded. Wheels of the same
# release for another CUDA may require another, those for CPUs and ROCm none.
_REQUIRED = {
    **dict.fromkeys(("2.8.0+cu128", "2.9.0+cu128", "2.9.1+cu128", "2.10.0+cu128"), "9.10.2"),
    "2.11.0+cu130": "9.19.0",
    **dict.fromkeys(("2.12.0+cu130", "2.12.1+cu130", "2.13.0+cu130"), "9.20.0"),
    **dict.fromkeys(("2.14.0+cu130", "2.14.1+cu130"), "9.24.0"),
    "2.15.0+cu132": "9.26.0",
}


class RowEngines(NamedTuple):
    """What is said of the engines that a row may meet, and those that are noted nondeterministic: "weight gradient engine 20"."""

    text: str = ""
    nondeterministic: tuple[str, ...] = ()


def expected_engines(row: Row, torch: str) -> RowEngines:
    """Return which engines of the cuDNN that a build requires a row may meet; nothing where nothing is recorded.

    Args:
        row: A row of the matrix.
        torch: The build's version, with its CUDA: "2.9.1+cu128".
    """
    cudnn = _REQUIRED.get(torch)
    if cudnn is None or not is_convolution(row):
        return RowEngines()
    layer = layer_of(row)
    if layer is None:
        return RowEngines(
            f"cuDNN {cudnn}: not known which recorded layers are like it: stride, dilation and groups of the case are not recorded"
        )
    operations: tuple[Operation, ...] = ("forward",) if row.direction == "forward" else layer.gradients
    asked = [cudnn_operation(one, transposed=layer.problem.transposed) for one in operations]
    if not asked:
        return RowEngines()
    alike = [_alike(cudnn, one, layer.problem.kind, row.dtype, layer.layout) for one in asked]
    told = (_engines_words(one, layer.problem.kind, cells) for one, cells in zip(asked, alike, strict=True))
    return RowEngines(
        f"cuDNN {cudnn}: {'; '.join(told)}; not measured, and accepted is not runnable",
        tuple(
            f"{one} engine {number}"
            for one, cells in zip(asked, alike, strict=True)
            for number in _numbers(cells)
        ),
    )


@cache
def _alike(
    cudnn: str, operation: Operation, kind: LayerKind, dtype: str, layout: str
) -> tuple[EngineCell, ...]:
    """Return the recorded cells of one of cuDNN's operations for layers of a kind."""
    table = _read(_RECORDED / f"cudnn-{cudnn}.json.gz")
    return tuple(
        cell
        for cell in _by_operation(table).get(operation, ())
        if (cell.dtype, cell.layout) == (dtype, layout) and table.problems[cell.problem].kind == kind
    )


def _numbers(cells: Sequence[EngineCell]) -> list[int]:
    """Return the engines that are noted nondeterministic."""
    return sorted({one.number for cell in cells for one in cell.engines if one.nondeterministic})


def _engines_words(operation: Operation, kind: LayerKind, cells: Sequence[EngineCell]) -> str:
    """Say which engines are nondeterministic for layers of a kind, and for how many of them one comes first."""
    of = f"{operation} ({kind})"
    if not cells:
        return f"{of}: no recorded layer like it"
    numbers = _numbers(cells)
    if not numbers:
        return f"{of}: no engine noted nondeterministic for recorded layers like it"
    firsts: defaultdict[str, list[bool]] = defaultdict(list)
    for cell in cells:
        # PyTorch allows TF32 in convolutions unless told otherwise.
        tried = ways(cell)[TF32 if cell.dtype == "float32" else cell.dtype]
        # What PyTorch falls back to, where the heuristics list nothing that it keeps, is not known.
        firsts[cell.gpu] += [first_place(tried) == 1] if tried else []
    counts = ", ".join(
        f"{gpu} {f'{sum(some)} of {len(some)}' if some else 'not known'}" for gpu, some in firsts.items()
    )
    engines = f"engine{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"
    return f"{of}: {engines} noted nondeterministic, tried first for recorded layers like it: {counts}"


def _text(tables: Sequence[EngineTable]) -> Iterator[str]:
    """Yield for a terminal: which engines are nondeterministic, and how often PyTorch tries one first."""
    for table in tables:
        shown = view(table)
        for said in (shown.sentence, shown.driver_text, shown.limits, shown.figures_text):
            yield from _lines(said)
        yield "\n"
        yield _table(["operation of cuDNN", "of", *shown.names], shown.engine_lines)
        yield from _lines(
            "Accepted, fewest to most, then the numbers of those that are noted nondeterministic, and in how many cells: a layer in "
            "a dtype and a layout."
        )
        yield "\n"
        met = [one for one in shown.places if any(one[key] for key in PLACES if key != "never")]
        yield _table(
            ["operation", "GPU", "dtype", *(name.replace("_", " ") for name in PLACES), "place"],
            ([one[key] for key in ("operation", "gpu", "dtype", *PLACES, "ranks")] for one in met),
        )
        yield from _lines(
            "In how many layers and layouts PyTorch, with benchmark off, tries a nondeterministic engine first, later or never. "
            "fallback: the heuristics list none that it keeps; not known: they gave no answer. place: of the first nondeterministic "
            "engine among those that PyTorch tries, over the layers that have one. The forward of a transposed convolution is a "
            "data gradient for cuDNN, and the reverse."
        )
        if never := [one for one in shown.places if one not in met]:
            yield from _lines(f"Never in any layer: {_never(never)}.")
        yield from _lines("--format md names the layers.")
    if len(tables) > 1:
        yield from _change_lines(changes(tables))


def _change_lines(shown: View) -> Iterator[str]:
    """Yield what changed from release to release, in numbers."""
    yield "\n"
    yield from _lines("Layers where PyTorch tries a nondeterministic engine first, by release of cuDNN:")
    yield "\n"
    yield _table(
        ["operation", "GPU", *shown.names], ([line[1], line[0], *line[2:]] for line in shown.count_lines)
    )
    for step in shown.step_lines:
        yield "\n"
        yield from _lines(
            f"{step['title']}: {'layers that differ in a dtype and layout' if step['counts'] else 'no layer differs'}."
        )
        if step["not_compared"]:
            yield from _lines(
                f"Not compared, because the order is not known in both: {step['not_compared']}."
            )
        if step["counts"]:
            yield "\n"
            yield _table(["operation", "GPU", *CHANGES.values()], step["counts"])
    yield from _lines(
        "--format md names the layers, dtypes and layouts; a layer may come in one and go in another."
    )


def _never(some: Iterable[Mapping[str, str]]) -> str:
    """Name operations, GPUs and dtypes."""
    dtypes: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for one in some:
        dtypes[one["operation"], one["gpu"]].append(one["dtype"])
    return "; ".join(
        f"{operation} on {gpu} in {', '.join(names)}" for (operation, gpu), names in dtypes.items()
    )


def _lines(said: str) -> Iterator[str]:
    yield from (f"{line}\n" for line in wrapped(said))


def _table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    cells = [[one_line(str(cell)) for cell in row] for row in rows]
    return tabulate(cells, headers=heads, tablefmt="simple", disable_numparse=True) + "\n"


RENDERERS: dict[str, Callable[[Sequence[EngineTable]], Iterable[str]]] = {
    "text": _text,
    "md": lambda tables: (
        generate("cudnn_changes", changes(tables)) if len(tables) > 1 else generate("cudnn", view(tables[0]))
    ),
    # What changed, and then the last release.
    "html": lambda tables: page.generate(
        "cudnn", script=False, report=view(tables[-1]), changes=changes(tables) if len(tables) > 1 else None
    ),
    # The record of one release, to be read again, or what changed between several.
    "json": lambda tables: [
        msgspec.json.format(json_of(changes(tables)), indent=1) + "\n"
        if len(tables) > 1
        else encode(tables[0])
    ],
}
