"""What the report of a program shows, in every format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from msgspec.structs import asdict as fields_of

from reports.locate.matrix import PlaceInMatrix, index_of
from reports.render.json import View
from scanner.errors import one_line
from scanner.located import Located
from scanner.located_words import (
    CAUSE_MEANING,
    HEADS,
    advice,
    cells,
    details,
    notes,
    summary,
    text,
    worst_first,
)


def view_of(located: Located, runs: Sequence[str] = ()) -> View:
    """Return the report of a program.

    Args:
        located: What its process found.
        runs: Run files in which its ops are looked up; none: the recorded one of its release, if there is one.
    """
    roots = worst_first(located.roots)
    index = index_of(runs, located.torch) if roots else None
    places = [index.place(root.site) if index else None for root in roots]
    shown = [
        View(
            {**asdict(root), "matrix": place and fields_of(place), "to_do": advice(root)},
            name=one_line(root.site.op),
            cells=cells(root),
            details="; ".join(details(root)),
            place=matrix_words(place) if place else None,
        )
        for root, place in zip(roots, places, strict=True)
    ]
    return View(
        {**asdict(located), "roots": shown},
        summary=summary(located),
        heads=HEADS,
        notes=notes(located),
        causes={cause: CAUSE_MEANING[cause] for cause in dict.fromkeys(root.cause for root in roots)},
        text=text(located, {number: one.place for number, one in enumerate(shown) if one.place}),
    )


def matrix_words(place: PlaceInMatrix) -> str:
    """Say what the matrix shows of an op."""
    said = f"In the matrix: {place.finding} ({place.row})"
    if place.alerts:
        said += f", alert caller {', '.join(place.alerts)}"
    said += f". {place.why}"
    return said + (f" Documented: {'; '.join(place.documented)}." if place.documented else " Not documented.")
