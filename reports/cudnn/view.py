"""What a table of engines shows: the nondeterministic ones, and where PyTorch meets one first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from operator import not_
from typing import Any

from reports.cudnn.algorithms import ANSWER, ANSWER_SAYS, GUIDE, GUIDE_SAYS, SEARCHED, algorithm_lines
from reports.cudnn.executed import executed
from reports.render.json import View
from scanner.cudnn.gpus import ASSUMED, GPUS, PRESENT, SOURCES
from scanner.cudnn.problems import CONVOLUTIONS, cudnn_operation
from scanner.cudnn.pytorch import first_place, ways
from scanner.cudnn.record import Engine, EngineCell, EngineTable

LIMITS = (
    "Expected, not measured: cuDNN was asked, no engine was run. Accepted is not runnable: an engine that cuDNN accepts may "
    "still not be built or run on a GPU, and PyTorch then tries the next."
)
PLACES = ("first", "later", "never", "fallback", "not_known")
_MEASURED = (
    "Expected, not measured, but for what stands under executed engines. Accepted is not runnable: an engine that cuDNN "
    "accepts may still not be built or run on a GPU, and PyTorch then tries the next."
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
    engines = _engines(table, gpus)
    return View(
        {"cudnn": table.cudnn, "driver": table.driver, "gpus": table.gpus},
        executed=executed(table),
        places=_places(table),
        engine_lines=[
            [one["operation"], one["engines"], *(_text_of(one["on"][gpu]) for gpu in gpus)] for one in engines
        ],
        first_lines=_first_lines(table, gpus),
        algorithm_lines=algorithm_lines(table),
        answer=ANSWER,
        answer_says=ANSWER_SAYS,
        guide=GUIDE,
        guide_says=GUIDE_SAYS,
        searched=SEARCHED,
        limits=LIMITS if table.measured is None else _MEASURED,
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


def met_first(table: EngineTable) -> dict[tuple[str, str], dict[str, set[str]]]:
    """Return the layers where PyTorch tries a nondeterministic engine first: (layer, operation) -> GPU -> dtypes.

    A dtype that is so in one layout alone is followed by that layout.
    """
    return _layers(table, _first)


def _first(engines: tuple[Engine, ...]) -> bool:
    return first_place(engines) == 1


def _first_lines(table: EngineTable, gpus: Sequence[str]) -> list[list[str]]:
    """Return for each of these layers the dtypes by GPU, and those of which it is not known what PyTorch tries."""
    unknown, asked = _layers(table, not_), _layers(table, _any)
    return [
        [
            *place,
            *(
                _first_text(on.get(gpu, set()), unknown.get(place, {}).get(gpu, set()), asked[place].get(gpu))
                for gpu in gpus
            ),
        ]
        for place, on in met_first(table).items()
    ]


def _first_text(first: set[str], unknown: set[str], asked: set[str] | None) -> str:
    if asked is None or unknown == asked:
        return "not known"
    told = ", ".join(sorted(first)) or "none"
    return f"{told}; not known: {', '.join(sorted(unknown))}" if unknown else told


def _any(_engines: tuple[Engine, ...]) -> bool:
    return True


def _layers(
    table: EngineTable, is_so: Callable[[tuple[Engine, ...]], bool]
) -> dict[tuple[str, str], dict[str, set[str]]]:
    """Return the dtypes where what PyTorch tries is so: (layer, operation) -> GPU -> dtypes, with the layout if only one is."""
    layouts: defaultdict[tuple[str, str], defaultdict[tuple[str, str], set[str]]]
    layouts = defaultdict(lambda: defaultdict(set))
    asked: defaultdict[tuple[str, str, str, str], set[str]] = defaultdict(set)
    for cell in table.cells:
        name = table.problems[cell.problem].name
        for dtype, engines in ways(cell).items():
            asked[name, cell.operation, cell.gpu, dtype].add(cell.layout)
            if is_so(engines):
                layouts[name, cell.operation][cell.gpu, dtype].add(cell.layout)
    found: dict[tuple[str, str], dict[str, set[str]]] = {}
    # In the order of the layers.
    for name, operation in dict.fromkeys(
        (table.problems[cell.problem].name, cell.operation) for cell in sorted(table.cells, key=_layer)
    ):
        on: defaultdict[str, set[str]] = defaultdict(set)
        for (gpu, dtype), some in layouts.get((name, operation), {}).items():
            every = some == asked[name, operation, gpu, dtype]
            on[gpu].add(dtype if every else f"{dtype} ({', '.join(sorted(some))})")
        if on:
            found[name, operation] = dict(on)
    return found


def _layer(cell: EngineCell) -> int:
    return cell.problem


def _asked(table: EngineTable, cell: EngineCell) -> str:
    return cudnn_operation(cell.operation, transposed=table.problems[cell.problem].transposed)


def _engines(table: EngineTable, gpus: Sequence[str]) -> list[dict[str, Any]]:
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


def _places(table: EngineTable) -> list[dict[str, Any]]:
    """Return how often a nondeterministic engine comes first, later, or not, in the order that PyTorch tries.

    Where the heuristics gave no answer that is not known; where they list nothing that PyTorch keeps, it falls back.
    """
    counts: defaultdict[tuple[str, str, str], list[int]] = defaultdict(lambda: [0] * len(PLACES))
    for cell in table.cells:
        if cell.operation not in CONVOLUTIONS:
            continue
        for dtype, engines in ways(cell).items():
            place = first_place(engines)
            if not engines:
                column = 3 if cell.refused is None else 4
            else:
                column = 2 if place is None else int(place > 1)
            counts[cell.operation, cell.gpu, dtype][column] += 1
    return [
        {
            "operation": operation,
            "gpu": gpu,
            "dtype": dtype,
            **dict(zip(PLACES, found, strict=True)),
        }
        for (operation, gpu, dtype), found in counts.items()
    ]


def _refused(table: EngineTable) -> list[tuple[str, str, str, int]]:
    """Return what cuDNN refused, by operation and GPU, and how often."""
    counts: defaultdict[tuple[str, str, str], int] = defaultdict(int)
    for cell in table.cells:
        if cell.refused is not None:
            counts[cell.operation, cell.gpu, cell.refused] += 1
    return [(*key, count) for key, count in counts.items()]


def changes(tables: Iterable[EngineTable]) -> View:
    """Return what changed from release to release, in the order given."""
    tables = list(tables)
    firsts = [met_first(table) for table in tables]
    steps = [
        _step(old, new, before, after)
        for old, new, before, after in zip(tables, tables[1:], firsts, firsts[1:], strict=False)
    ]
    return View(
        {
            "tables": [
                {"cudnn": table.cudnn, "driver": table.driver, "engines": _engines(table, list(table.gpus))}
                for table in tables
            ],
            "steps": steps,
        },
        step_lines=[
            {
                "title": f"{step['old']} to {step['new']}",
                "not_compared": ", ".join(step["not_compared"]),
                "lines": _step_lines(step),
            }
            for step in steps
        ],
        limits=LIMITS,
        sentences=[sentence(table) for table in tables],
        count_lines=[
            [gpu, operation, *("not known" if count is None else count for count in counts)]
            for gpu, operation, counts in _first_counts(tables, firsts)
        ],
        names=[table.cudnn for table in tables],
    )


def _first_counts(
    tables: Sequence[EngineTable], firsts: Sequence[dict[tuple[str, str], dict[str, set[str]]]]
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


def _step(
    old: EngineTable,
    new: EngineTable,
    before: dict[tuple[str, str], dict[str, set[str]]],
    after: dict[tuple[str, str], dict[str, set[str]]],
) -> dict[str, Any]:
    """Return what one release has that the other has not, where what PyTorch tries is known in both."""
    both = _ordered(old) & _ordered(new)
    not_after, not_before = _layers(new, not_), _layers(old, not_)
    gone, came = (
        [
            {"layer": layer, "operation": operation, "gpu": gpu, "dtypes": sorted(missing)}
            for (layer, operation), on in these.items()
            for gpu, dtypes in on.items()
            if gpu in both
            and (
                missing := _comparable(
                    dtypes - those.get((layer, operation), {}).get(gpu, set()),
                    unknown.get((layer, operation), {}).get(gpu, set()),
                )
            )
        ]
        for these, those, unknown in ((before, after, not_after), (after, before, not_before))
    )
    return {
        "old": old.cudnn,
        "new": new.cudnn,
        "not_compared": sorted((set(old.gpus) | set(new.gpus)) - both),
        "no_longer_first": gone,
        "newly_first": came,
    }


def _comparable(dtypes: set[str], unknown: set[str]) -> set[str]:
    """Return the dtypes of which no layout is unknown in the other release."""
    names = {one.partition(" (")[0] for one in unknown}
    return {one for one in dtypes if one.partition(" (")[0] not in names}


def _step_lines(step: dict[str, Any]) -> list[list[str]]:
    return [
        [title, one["layer"], one["operation"], one["gpu"], ", ".join(one["dtypes"])]
        for title, some in (
            ("newly first", step["newly_first"]),
            ("no longer first", step["no_longer_first"]),
        )
        for one in some
    ]
