"""What a table of engines shows: the nondeterministic ones, and where PyTorch meets one first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from reports.cudnn.layers import first_lines, places
from reports.render.json import View
from scanner.cudnn.gpus import ASSUMED, GPUS, PRESENT, SOURCES
from scanner.cudnn.problems import cudnn_operation
from scanner.cudnn.record import EngineCell, EngineTable

LIMITS = (
    "Expected, not measured: cuDNN was asked, no engine was run. Accepted is not runnable: an engine that cuDNN accepts may "
    "still not be built or run on a GPU, and PyTorch then tries the next."
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
    engines = accepted_engines(table, gpus)
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
        figure_lines=_figures(table),
        figures_text=_figures_text(table),
        names=gpus,
        refused=_refused(table),
        sentence=sentence(table),
    )


def _figures(table: EngineTable) -> list[list[str]]:
    """Return the figures that cuDNN was told, by GPU, each with where it is from; of other figures than ours nobody knows."""
    told = table.descriptions
    lines = []
    for name in dict.fromkeys(name for one in told.values() for name in one):
        ours = all(one.get(name) == GPUS.get(gpu, {}).get(name) for gpu, one in told.items())
        lines.append([name, *(_figure(one.get(name, "")) for one in told.values()),
                      SOURCES.get(name, ASSUMED) if ours else "not known"])  # fmt: skip
    return lines


def _figures_text(table: EngineTable) -> str:
    """Say how many figures of the described GPUs have a source."""
    sources = [line[-1] for line in _figures(table)]
    assumed = sum(source == ASSUMED for source in sources)
    return (
        f"GPUs are described by {len(sources)} figures each, of which {assumed} are assumed and the others have a source; "
        f"--format md lists them."
        if sources
        else ""
    )


def _figure(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, (tuple, list)) else str(value)


def sentence(table: EngineTable) -> str:
    """Return a table in one sentence."""
    numbers: defaultdict[str, set[int]] = defaultdict(set)
    accepting = set()
    for cell in table.cells:
        operation = _asked(table, cell)
        numbers[operation] |= {one.number for one in cell.engines if one.nondeterministic}
        accepting |= {operation} if cell.engines else set()
    found = "; ".join(
        f"{operation}: {', '.join(map(str, sorted(some))) or ('none' if operation in accepting else 'refused')}"
        for operation, some in numbers.items()
    )
    return f"cuDNN {table.cudnn}: engines with the numerical note NONDETERMINISTIC: {found}."


def _asked(table: EngineTable, cell: EngineCell) -> str:
    return cudnn_operation(cell.operation, transposed=table.problems[cell.problem].transposed)


def accepted_engines(table: EngineTable, gpus: Sequence[str]) -> list[dict[str, Any]]:
    """Return for each of cuDNN's operations how many engines each GPU accepts, and which are nondeterministic."""
    cells: defaultdict[str, list[EngineCell]] = defaultdict(list)
    for cell in table.cells:
        cells[_asked(table, cell)].append(cell)
    return [
        {
            "operation": operation,
            "engines": max(cell.total for cell in some),
            "on": {gpu: _on([cell for cell in some if cell.gpu == gpu and cell.engines]) for gpu in gpus},
        }
        for operation, some in cells.items()
    ]


def _text_of(on: dict[str, Any]) -> str:
    """Return in words how many engines one GPU accepts, and which are nondeterministic."""
    if not on["cells"]:
        return "none accepted"
    range_ = f"{on['fewest']} to {on['most']}" if on["fewest"] < on["most"] else str(on["most"])
    numbers = ", ".join(map(str, on["nondeterministic"]))
    if not numbers:
        return f"{range_}; none"
    return f"{range_}; engine {numbers} in {on['cells_nondeterministic']} of {on['cells']} cells"


def _on(cells: Sequence[EngineCell]) -> dict[str, Any]:
    counts = [len(cell.engines) for cell in cells]
    return {
        "fewest": min(counts, default=0),
        "most": max(counts, default=0),
        "nondeterministic": sorted(
            {one.number for cell in cells for one in cell.engines if one.nondeterministic}
        ),
        "cells": len(cells),
        "cells_nondeterministic": sum(any(one.nondeterministic for one in cell.engines) for cell in cells),
    }


def _refused(table: EngineTable) -> list[tuple[str, str, str, int]]:
    """Return what cuDNN refused, by operation and GPU, and how often."""
    counts: defaultdict[tuple[str, str, str], int] = defaultdict(int)
    for cell in table.cells:
        if cell.refused is not None:
            counts[cell.operation, cell.gpu, cell.refused] += 1
    return [(*key, count) for key, count in counts.items()]
