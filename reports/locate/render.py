"""What was found in a program, in every format that the command prints."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from reports.render.json import View, json_of
from reports.render.markdown import generate
from reports.render.page import generate_still
from scanner.errors import safe_lines


def as_text(report: View) -> Iterator[str]:
    """Yield a table for a terminal, and below it a paragraph for each root."""
    yield safe_lines(report.text)


def as_json(report: View) -> Iterator[str]:
    """Yield one object."""
    yield msgspec.json.format(json_of(report), indent=1) + "\n"


def as_markdown(report: View) -> Iterator[str]:
    """Yield a document."""
    return generate("locate", report)


def as_html(report: View) -> Iterator[str]:
    """Yield a page without a script."""
    return generate_still("locate", report=report)


RENDERERS: dict[str, Callable[[View], Iterator[str]]] = {
    "text": as_text,
    "md": as_markdown,
    "html": as_html,
    "json": as_json,
}
