"""Tables of cuDNN's engines in every format that the command prints."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec
from tabulate import tabulate

from reports.cudnn.changes import CHANGES, changes
from reports.cudnn.layers import PLACES
from reports.cudnn.view import view
from reports.render import page
from reports.render.json import View, json_of
from reports.render.markdown import generate
from reports.render.terminal import wrapped
from scanner.cudnn.record import EngineTable, encode
from scanner.errors import one_line


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
        yield from _changes(changes(tables))


def _changes(shown: View) -> Iterator[str]:
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


RENDERERS: dict[str, Callable[[Sequence[EngineTable]], Iterator[str]]] = {
    "text": text,
    "md": markdown,
    "json": as_json,
    "html": html,
}
