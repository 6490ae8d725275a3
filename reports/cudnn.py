"""What cuDNN says of its engines: the nondeterministic ones, where PyTorch tries one first, and what changed between releases.

Of a row of the matrix recorded tables say what is *expected*. No engine was run.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, get_args

import click
import msgspec

from detmatrix.reports.commands import Place, writes
from detmatrix.reports.render import View, grouped, json_of, markdown_pieces, page_pieces
from detmatrix.scanner.cli.options import Names
from detmatrix.scanner.cudnn.probe import DATA_TYPES
from detmatrix.scanner.cudnn.problems import (
    ASSUMED,
    CONVOLUTIONS,
    GPUS,
    PRESENT,
    SOURCES,
    LayerKind,
    Operation,
    cudnn_operation,
    is_convolution,
    layer_of,
)
from detmatrix.scanner.cudnn.record import EngineCell, EngineTable, encode, first_place, read_table, ways
from detmatrix.scanner.cudnn.take import driver_is_there, find_library, take
from detmatrix.scanner.errors import UsageError, one_line
from detmatrix.scanner.observations.records import Row

# What becomes of the nondeterministic engines in the order in which PyTorch tries engines.
_SUFFIXES = {1: "st", 2: "nd", 3: "rd"}
PLACES = ("first", "later", "never", "fallback", "not_known")

# A dtype and a layout.
Way = tuple[str, str]


class TriedEngines(NamedTuple):
    """What PyTorch tries for a layer in a dtype and a layout."""

    place: str  # of PLACES
    at: int | None  # the first nondeterministic engine, from 1
    of: int  # engines that the heuristics list and PyTorch keeps; 0: it is not known what PyTorch tries


# By layer, operation and GPU.
Layers = dict[tuple[str, str, str], dict[Way, TriedEngines]]


def tried(table: EngineTable) -> Layers:
    """Return what PyTorch tries, in the order of the layers.

    Where the heuristics gave no answer that is not known; where they list nothing that PyTorch keeps, it falls back.
    """
    found: Layers = {}
    operations = get_args(Operation)
    for cell in sorted(table.cells, key=lambda it: (it.problem, operations.index(it.operation))):
        on = found.setdefault((table.problems[cell.problem].name, cell.operation, cell.gpu), {})
        for dtype, engines in ways(cell).items():
            at = first_place(engines)
            listed = "never" if at is None else "first" if at == 1 else "later"
            place = listed if engines else "fallback" if cell.refused is None else "not_known"
            on[dtype, cell.layout] = TriedEngines(place, at, len(engines))
    return found


def _firsts(every: Mapping[Way, TriedEngines]) -> list[Way]:
    return [way for way, one in every.items() if one.place == "first"]


def labels(some: Collection[Way], every: Collection[Way]) -> list[str]:
    """Return dtypes, each with its layouts unless they are all that were asked about."""
    texts = []
    for dtype in {dtype for dtype, _ in some}:
        found, all_ = (sorted(layout for name, layout in ways_ if name == dtype) for ways_ in (some, every))
        texts.append(dtype if found == all_ else f"{dtype} ({', '.join(found)})")
    return sorted(texts)


def first_lines(layers: Layers, gpus: Sequence[str]) -> list[list[str]]:
    """Return for each layer with a nondeterministic engine first its dtypes by GPU, and those that are not known."""

    def text(every: Mapping[Way, TriedEngines]) -> str:
        unknown = [way for way, one in every.items() if not one.of]
        if len(unknown) == len(every):
            return "not known"
        told = ", ".join(labels(_firsts(every), every)) or "none"
        return f"{told}; not known: {', '.join(labels(unknown, every))}" if unknown else told

    first = {key[:2] for key, every in layers.items() if _firsts(every)}
    return [
        [*place, *(text(layers.get((*place, gpu), {})) for gpu in gpus)]
        for place in dict.fromkeys(key[:2] for key in layers)
        if place in first
    ]


def places(layers: Layers) -> list[list[str | int]]:
    """Return how often a nondeterministic engine comes first, later, or not, in the order that PyTorch tries, and where.

    A line has operation, GPU, dtype, the counts of ``PLACES``, and the places.
    """
    found = grouped(
        ((operation, gpu, dtype), one)
        for (_, operation, gpu), every in layers.items()
        if operation in CONVOLUTIONS
        for (dtype, _), one in every.items()
    )
    return [
        [*key, *(sum(one.place == place for one in some) for place in PLACES), _ranks(some)]
        for key, some in found.items()
    ]


def _ranks(some: Sequence[TriedEngines]) -> str:
    """Return the places, and of how many, as ranges: "2nd to 7th of 5 to 18"."""
    ranks = [(one.at, one.of) for one in some if one.at]
    if not ranks:
        return "none" if any(one.of for one in some) else "not known"
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
# Of tables that asked about these, as the recorded ones do.
_ATTENTION = (
    "Attention is asked about as the one operation that the backend API has for it (forward since 9.13, backward since 9.17), "
    "without a mask. For it and for normalisations cuDNN accepts the same engines whatever the GPU, also where it says "
    "elsewhere that it does not support one, which says little."
)


def view(table: EngineTable) -> View:
    """Return the report of one release of cuDNN."""
    gpus = [name for name, state in table.gpus.items() if state in {PRESENT, "described"}]
    layers = tried(table)
    return View(
        {"cudnn": table.cudnn, "driver": table.driver, "gpus": table.gpus},
        place_lines=places(layers),
        engine_lines=[one.cells for one in _accepted(table, gpus)],
        first_lines=first_lines(layers, gpus),
        limits=LIMITS,
        driver_text=_DRIVERS[table.driver],
        attention=_ATTENTION if any(one.heads for one in table.problems) else "",
        described=list(table.descriptions),
        figure_lines=_figures(table),
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
    return grouped(
        (cudnn_operation(cell.operation, transposed=table.problems[cell.problem].transposed), cell)
        for cell in table.cells
    )


def _accepted(table: EngineTable, gpus: Sequence[str]) -> list[View]:
    """Return for each of cuDNN's operations how many engines each GPU accepts, and which are nondeterministic."""
    found = []
    for operation, some in _by_operation(table).items():
        on = {gpu: _on([cell for cell in some if cell.gpu == gpu and cell.engines]) for gpu in gpus}
        engines = max(cell.total for cell in some)
        cells = [operation, engines, *(one.text for one in on.values())]
        found.append(View({"operation": operation, "engines": engines, "on": on}, cells=cells))
    return found


def _on(cells: Sequence[EngineCell]) -> View:
    """Return how many engines one GPU accepts of an operation, and which are nondeterministic."""
    counts, numbers = [len(cell.engines) for cell in cells], _numbers(cells)
    fewest, most = min(counts, default=0), max(counts, default=0)
    racing = sum(any(one.nondeterministic for one in cell.engines) for cell in cells)
    noted = f"engine {', '.join(map(str, numbers))} in {racing} of {len(cells)} cells" if numbers else "none"
    return View(
        {
            "fewest": fewest,
            "most": most,
            "nondeterministic": numbers,
            "cells": len(cells),
            "cells_nondeterministic": racing,
        },
        text=f"{_range(str(fewest), str(most))}; {noted}" if cells else "none accepted",
    )


def changes(tables: Sequence[EngineTable]) -> View:
    """Return what changed from release to release, in the order given."""
    layers = [tried(table) for table in tables]
    # In how many layers a nondeterministic engine comes first.
    firsts = [Counter(key[1:] for key, every in found.items() if _firsts(every)) for found in layers]
    counts = [*zip(map(_ordered, tables), firsts, strict=True)]
    return View(
        {
            "tables": [
                {"cudnn": table.cudnn, "driver": table.driver, "engines": _accepted(table, list(table.gpus))}
                for table in tables
            ],
            "steps": [_step(*both) for both in pairwise(zip(tables, layers, strict=True))],
        },
        limits=LIMITS,
        sentences=[sentence(table) for table in tables],
        count_lines=[
            [
                gpu,
                operation,
                *(its[operation, gpu] if gpu in ordered else "not known" for ordered, its in counts),
            ]
            for gpu in dict.fromkeys(gpu for table in tables for gpu in table.gpus)
            for operation in dict.fromkeys(operation for found in firsts for operation, _ in found)
        ],
        names=[table.cudnn for table in tables],
    )


def _step(before: tuple[EngineTable, Layers], after: tuple[EngineTable, Layers]) -> View:
    """Return in which layers a nondeterministic engine comes first in one of two releases only."""
    (old, then), (new, now) = before, after
    gone, came = _only(then, now), _only(now, then)
    return View(
        {
            "old": old.cudnn,
            "new": new.cudnn,
            "not_compared": sorted((set(old.gpus) | set(new.gpus)) - (_ordered(old) & _ordered(new))),
            "no_longer_first": gone,
            "newly_first": came,
        },
        lines=[
            [title, one["layer"], one["operation"], one["gpu"], ", ".join(one["dtypes"])]
            for title, some in (("newly first", came), ("no longer first", gone))
            for one in some
        ],
    )


def _ordered(table: EngineTable) -> set[str]:
    """Return the GPUs for which the heuristics answered."""
    return {cell.gpu for cell in table.cells if cell.order}


def _only(layers: Layers, other: Layers) -> list[dict[str, Any]]:
    """Return what is first in one table and not in the other, of what is known there."""
    found = []
    for (layer, operation, gpu), every in layers.items():
        there = other.get((layer, operation, gpu), {})
        if alone := [
            way for way in _firsts(every) if way in there and there[way].of and there[way].place != "first"
        ]:
            found.append({"layer": layer, "operation": operation, "gpu": gpu, "dtypes": labels(alone, every)})
    return found


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


def expected_engines(row: Row, torch: str) -> str:
    """Return which engines of the cuDNN that a build ("2.9.1+cu128") requires a row may meet; nothing where nothing is recorded."""
    cudnn = _REQUIRED.get(torch)
    if cudnn is None or not is_convolution(row):
        return ""
    layer = layer_of(row)
    if layer is None:
        return f"cuDNN {cudnn}: not known which recorded layers are like it: stride, dilation and groups of the case are not recorded"
    operations: tuple[Operation, ...] = ("forward",) if row.direction == "forward" else layer.gradients
    asked = [cudnn_operation(one, transposed=layer.problem.transposed) for one in operations]
    if not asked:
        return ""
    kind = layer.problem.kind
    told = (_engines_words(one, kind, _alike(cudnn, one, kind, row.dtype, layer.layout)) for one in asked)
    return f"cuDNN {cudnn}: {'; '.join(told)}; not measured, and accepted is not runnable"


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
        # PyTorch allows TF32 in convolutions, which stands first, unless told otherwise.
        tried, *_ = ways(cell).values()
        # What PyTorch falls back to, where the heuristics list nothing that it keeps, is not known.
        firsts[cell.gpu] += [first_place(tried) == 1] if tried else []
    counts = ", ".join(
        f"{gpu} {f'{sum(some)} of {len(some)}' if some else 'not known'}" for gpu, some in firsts.items()
    )
    engines = f"engine{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"
    return f"{of}: {engines} noted nondeterministic, tried first for recorded layers like it: {counts}"


RENDERERS: dict[str, Callable[[Sequence[EngineTable]], Iterable[str]]] = {
    "md": lambda tables: (
        markdown_pieces("cudnn_changes", changes(tables))
        if len(tables) > 1
        else markdown_pieces("cudnn", view(tables[0]))
    ),
    # What changed, and then the last release.
    "html": lambda tables: page_pieces(
        "cudnn", report=view(tables[-1]), changes=changes(tables) if len(tables) > 1 else None
    ),
    # The record of one release, to be read again, or what changed between several.
    "json": lambda tables: [
        msgspec.json.format(json_of(changes(tables)), indent=1) + "\n"
        if len(tables) > 1
        else encode(tables[0])
    ],
}


@click.command()
@click.option(
    "--library",
    metavar="PATH",
    help="The libcudnn.so.9 to ask. Default: the one that pip installed beside this Python.",
)
@click.option("--arch", type=Names(), metavar="NAME[,NAME...]",
              help=f"GPUs to ask about: {', '.join(GPUS)}, which are described to cuDNN, and {PRESENT}, the one that is "
              "there. Default: all that can be asked about.")  # fmt: skip
@click.option("--read", "recorded", metavar="TABLE.json", multiple=True,
              help="Render this recorded table (.gz too) instead; of several, what changed from one to the next.")  # fmt: skip
@writes(RENDERERS, "Markdown, a page, or JSON: the record, to be read again.")
def cudnn(library: str | None, arch: tuple[str, ...] | None, recorded: tuple[str, ...], to: Place) -> int:
    """Ask cuDNN which of its engines are nondeterministic, and where PyTorch tries one first.

    No GPU is needed: GPUs are described to cuDNN (9.8 or newer), and without NVIDIA's driver a stub of it is compiled
    into a temporary folder. No engine is run: what cuDNN says is expected, not measured, and an engine
    that it accepts may still not run.
    """
    if to.path is not None and to.path.endswith(".gz"):
        raise UsageError(f"{to.path}: a table is written plain; choose a name without .gz, compress it later")
    if recorded and (library is not None or arch is not None):
        raise UsageError("--read renders a recorded table; leave --library and --arch out")
    to.check(recorded)
    if recorded:
        return to.write([read_table(path) for path in recorded], recorded)
    gpus = arch or (*GPUS, *([PRESENT] if driver_is_there() else []))
    if unknown := [name for name in gpus if name not in (*GPUS, PRESENT)]:
        raise UsageError(f"--arch: no GPU {unknown[0]!r} is described; choose: {', '.join((*GPUS, PRESENT))}")

    def said(what: str) -> None:
        click.echo(f"cudnn: {one_line(what)}", err=True)

    layouts = ("contiguous", "channels_last")
    return to.write([take(library or find_library(), gpus, tuple(DATA_TYPES), layouts, said)])
