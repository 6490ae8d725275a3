"""The coverage of overloads in every format that the command prints."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import asdict

from reports.coverage.model import Coverage
from reports.render.json import object_pieces, one_or_several
from reports.render.markdown import generate


def markdown(coverages: Sequence[Coverage]) -> Iterator[str]:
    """Yield one document per build and kind of device, and the words once at the end."""
    return generate("coverage", coverages)


def as_json(coverages: Sequence[Coverage]) -> Iterator[str]:
    """Yield one object for one build and kind of device, and ``{"coverages": […]}`` for several."""
    return one_or_several("coverages", coverages, _pieces)


def _pieces(one: Coverage) -> Iterator[str]:
    fields = asdict(one)
    del fields["states"]
    return object_pieces(fields, "executed", "never")


RENDERERS: dict[str, Callable[[Sequence[Coverage]], Iterator[str]]] = {"md": markdown, "json": as_json}
