"""A comparison in every format that the command prints."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from reports.compare import html
from reports.compare.runs import Comparison
from reports.compare.view import view_of
from reports.render.json import object_pieces
from reports.render.markdown import generate


def markdown(comparison: Comparison) -> Iterator[str]:
    """Yield for people what is worse first, then what else changed, then what could not be told."""
    return generate("compare", view_of(comparison))


def as_json(comparison: Comparison) -> Iterator[str]:
    """Yield one object; one row per line."""
    view = view_of(comparison)
    yield from object_pieces(view, "pairs", each=lambda pair: object_pieces(pair, "rows", edge=""))
    yield "\n"


RENDERERS: dict[str, Callable[[Comparison], Iterator[str]]] = {
    "md": markdown,
    "html": html.render,
    "json": as_json,
}
