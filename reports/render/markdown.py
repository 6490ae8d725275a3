"""Markdown that holds whatever text it is given: tables, code spans, escaped words, and templates of them.

In a template (``reports/templates/NAME.md.j2``) every value is escaped by ``plain`` unless it is ``Markdown`` already:
what a filter below returns, or what the template itself declares with ``|safe``. What macros, ``~`` and ``join`` return
is text like any other, so that forgetting ``|safe`` shows, and lets nothing through.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache

import jinja2
from tabulate import tabulate

from detmatrix.scanner.errors import one_line
from detmatrix.scanner.plurals import several

# Stands where there is nothing to say.
NONE = "none"
_MARKUP = re.compile(r"([\\`*\[\]|~$]|\b_|_\b|(?<!\w)_(?!\w))")
_REFERENCE = re.compile(r"(?::\w+:)?(`{1,2})~?([^`]+)\1")
_HTML = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
# ``code`` and ``plain`` put a backslash before every bar of a value, so that the others are the template's own.
_BAR = re.compile(r"(?<!\\)\|")


class Markdown(str):
    """Text whose Markdown is meant, which a template leaves as it is."""

    __slots__ = ()


def code(text: str) -> Markdown:
    """Return *text* as a code span that holds in a table cell."""
    text = one_line(text).replace("|", "\\|")
    if not text:
        return Markdown(NONE)
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    pad = " " if longest else ""
    return Markdown(f"{'`' * (longest + 1)}{pad}{text}{pad}{'`' * (longest + 1)}")


def codes(texts: Sequence[str], most: int | None = None) -> Markdown:
    """Return the first *most* texts as code spans, and how many more there are."""
    more = "" if most is None or len(texts) <= most else f" and {len(texts) - most} more"
    return Markdown(", ".join(map(code, texts[:most])) + more)


def plain(text: str) -> Markdown:
    """Return *text* on one line with its Markdown and HTML escaped."""
    return Markdown(_MARKUP.sub(r"\\\1", one_line(text)).translate(_HTML))


def bullet(text: str) -> Markdown:
    """Return the words of a bullet of PyTorch's docstring with its roles stripped and its code kept."""
    parts = (code(part) if is_code else _spaced(part) for is_code, part in pieces(text))
    return Markdown("".join(parts).strip())


def pieces(text: str) -> list[tuple[bool, str]]:
    """Return the words of a bullet in pieces, each with whether it is code."""
    found: list[tuple[bool, str]] = []
    end = 0
    for one in _REFERENCE.finditer(text):
        found += [(False, text[end : one.start()]), (True, one[2])]
        end = one.end()
    return [*found, (False, text[end:])]


def _spaced(text: str) -> str:
    """Return *text* escaped, with a space at either end where it had one."""
    ends = (" " if text[:1].isspace() else "", " " if text[-1:].isspace() else "")
    return plain(text).join(ends) if text.strip() else ends[0]


def meanings(words: Mapping[str, str]) -> Markdown:
    """Return a list of words of ours and what they mean, in Markdown of ours."""
    return Markdown("\n".join(f"* **{plain(word)}**: {meaning}" for word, meaning in words.items()))


def cells(values: Iterable[object]) -> Markdown:
    """Return values as the cells of a line of a table, without the bars at its ends."""
    return Markdown(" | ".join(map(_finished, values)))


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a GitHub table of cells that are clean already."""
    # Without disable_numparse a version "2.10" would turn into 2.1.
    return tabulate(list(rows), headers=list(columns), tablefmt="github", disable_numparse=True) + "\n"


def aligned(lines: str) -> str:
    """Return the table that a template writes in a filter block, one line ``| cell | cell |`` per row, the columns first."""
    columns, *rows = ([cell.strip() for cell in _BAR.split(line)[1:-1]] for line in lines.strip().split("\n"))
    return table(columns, rows)


def generate(name: str, report: object) -> Iterator[str]:
    """Yield in pieces what a template makes of a report.

    Args:
        name: Of the template, ``reports/templates/NAME.md.j2``.
        report: What it shows, under this name.
    """
    yield from _environment().get_template(f"{name}.md.j2").generate(report=report)


def _finished(value: object) -> str:
    """Escape what a template prints, unless its Markdown is meant."""
    return value if isinstance(value, Markdown) else plain(str(value))


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("detmatrix.reports"),
        autoescape=False,  # noqa: S701 - which would escape for HTML; ``finalize`` escapes for Markdown
        finalize=_finished,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "bullet": bullet,
        "cells": cells,
        "code": code,
        "codes": codes,
        "line": one_line,
        "meanings": meanings,
        "safe": Markdown,
        "table": aligned,
    }
    environment.globals["several"] = several
    return environment
