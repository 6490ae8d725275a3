"""Tables of cuDNN's engines in every format that the command prints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec
from tabulate import tabulate

from reports.cudnn.view import PLACES, changes, view
from reports.render import page
from reports.render.json import json_of
from reports.render.markdown import generate
from scanner.cudnn.record import EngineTable, encode
from scanner.errors import one_line

_EXECUTED = [
    "operation",
    "engine",
    "note",
    "cells run",
    "cells that differed",
    "note against bits",
    "failed with",
]


def markdown(tables: Sequence[EngineTable]) -> Iterator[str]:
    """Yield one release, or what changed between several."""
    if len(tables) == 1:
        return generate("cudnn", view(tables[0]))
    return generate("cudnn_changes", changes(tables))


def html(tables: Sequence[EngineTable]) -> Iterator[str]:
    """Yield a page of one release, or of what changed and then of the last one."""
    step = changes(tables) if len(tables) > 1 else None
    return page.generate("cudnn", script=False, report=view(tables[-1]), changes=step)


def as_json(tables: Sequence[EngineTable]) -> Iterator[str]:
    """Yield the record of one release, to be read again, or what changed between several."""
    if len(tables) == 1:
        yield encode(tables[0])
    else:
        yield msgspec.json.format(json_of(changes(tables)), indent=1) + "\n"


def text(tables: Sequence[EngineTable]) -> Iterator[str]:
    """Yield for a terminal: which engines are nondeterministic, and how often PyTorch tries one first."""
    for table in tables:
        shown = view(table)
        yield f"{one_line(shown.sentence)}\n{shown.driver_text}\n{shown.limits}\n"
        yield f"{shown.figures_text}\n\n" if shown.figures_text else "\n"
        yield _table(["operation", "of", *shown.names], shown.engine_lines)
        yield "accepted, fewest to most; then the numbers of those that are nondeterministic\n\n"
        yield _table(
            ["tries a nondeterministic engine", "GPU", "dtype", *(name.replace("_", " ") for name in PLACES)],
            ([one[key] for key in ("operation", "gpu", "dtype", *PLACES)]
             for one in shown.places if any(one[key] for key in PLACES if key != "never")),
        )  # fmt: skip
        yield (
            "layers and layouts, in PyTorch's order with benchmark off; --format md names the layers, and what is said of the "
            "older API's algorithms (BWD_FILTER_ALGO_0, ...)\n"
        )
        if shown.executed is not None:
            yield f"\n{one_line(shown.executed.sentence)}\n\n"
            yield _table(_EXECUTED, shown.executed.lines)


def _table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    cells = [[one_line(str(cell)) for cell in row] for row in rows]
    return tabulate(cells, headers=heads, tablefmt="simple", disable_numparse=True) + "\n"


RENDERERS: dict[str, Callable[[Sequence[EngineTable]], Iterator[str]]] = {
    "text": text,
    "md": markdown,
    "json": as_json,
    "html": html,
}
