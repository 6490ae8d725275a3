"""What was found in a program, in every format that the command prints."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from reports.render.json import json_of
from scanner.located import Located
from scanner.located_words import text


def as_text(located: Located) -> Iterator[str]:
    """Yield a table for a terminal."""
    yield text(located)


def as_json(located: Located) -> Iterator[str]:
    """Yield one object."""
    yield msgspec.json.format(json_of(located), indent=1) + "\n"


RENDERERS: dict[str, Callable[[Located], Iterator[str]]] = {"text": as_text, "json": as_json}
