"""Markdown that holds whatever text it is given: tables, code spans, escaped words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from tabulate import tabulate

from scanner.errors import one_line

# Stands where there is nothing to say.
NONE = "none"
_MARKUP = re.compile(r"([\\`*\[\]|~$]|\b_|_\b|(?<!\w)_(?!\w))")
_HTML = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def code(text: str) -> str:
    """Return *text* as a code span that holds in a table cell."""
    text = one_line(text).replace("|", "\\|")
    if not text:
        return NONE
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    pad = " " if longest else ""
    return f"{'`' * (longest + 1)}{pad}{text}{pad}{'`' * (longest + 1)}"


def plain(text: str) -> str:
    """Return *text* on one line with its Markdown and HTML escaped."""
    return _MARKUP.sub(r"\\\1", one_line(text)).translate(_HTML)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a GitHub table of cells that are clean already."""
    # Without disable_numparse a version "2.10" would turn into 2.1.
    return tabulate(list(rows), headers=list(columns), tablefmt="github", disable_numparse=True) + "\n"
