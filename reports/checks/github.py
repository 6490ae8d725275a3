"""Annotations in the form that GitHub Actions reads from the log of a job: one workflow command a line.

Titles and texts hold what run files say, which may be anything. GitHub ends a command at a line break, and a property at
a comma or a colon: these, and its escape character, are escaped as its own toolkit does it, after everything that is not
printable has been spelled out. No line begins with anything but a command of ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from reports.checks.model import Annotation
from scanner.errors import one_line

_DATA = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
_PROPERTY = _DATA | str.maketrans({":": "%3A", ",": "%2C"})


def render(annotations: Iterable[Annotation]) -> Iterator[str]:
    """Yield a line for each annotation, errors first: GitHub shows ten of each level of one step."""
    for one in sorted(annotations, key=lambda one: one.level != "error"):
        properties = f"file={_escaped(one.file, _PROPERTY)},title={_escaped(one.title, _PROPERTY)}"
        yield f"::{one.level} {properties}::{_escaped(one.text, _DATA)}\n"


def _escaped(text: str, table: dict[int, str]) -> str:
    return one_line(text).translate(table)
