"""The matrix in Markdown: tables as GitHub renders them, which are also what the terminal shows.

Everything a run file says passes through ``code`` or ``plain``: a cell can neither end a table row, nor
start markup, nor send control characters to a terminal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from tabulate import tabulate

from reports import words
from reports.matrix import COMPARED, Matrix
from scanner.verdicts import FINDING_MEANING, VERDICT_MEANING, MatrixRow

_COLUMNS = ("op", "case", "direction", "dtype", "off", "on", "finding", "alert caller")
_MARKUP = re.compile(r"([\\`*\[\]|~$]|\b_|_\b|(?<!\w)_(?!\w))")
_HTML = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def render(matrices: Sequence[Matrix]) -> Iterator[str]:
    """Yield the report in pieces, one document per run and the words once at the end."""
    for one in matrices:
        yield from _run(one)
    yield "## The words\n\nVerdicts, one per cell:\n\n"
    yield from (f"* **{verdict}**: {meaning}\n" for verdict, meaning in VERDICT_MEANING.items())
    yield "\nFindings, one per row:\n\n"
    yield from (f"* **{finding}**: {meaning}\n" for finding, meaning in FINDING_MEANING.items())
    yield (
        "\n*off* and *on* are `torch.use_deterministic_algorithms(False)` and `(True)`; *distinct* counts the "
        "different outputs within a mode; *seeded* marks an op that draws random numbers, whose generator "
        "was seeded before every execution.\n"
    )


def excerpt(matrices: Sequence[Matrix]) -> Iterator[str]:
    """Yield what a page that is about something else shows: what was scanned, the counts, the rows asked for."""
    for one in matrices:
        environment = one.run.header.environment
        where = environment.gpu or f"{environment.cpu}, {environment.threads} threads"
        counts = ", ".join(f"{count} {finding}" for finding, count in one.counts.items() if count)
        yield (
            f"torch {plain(environment.torch)} on {plain(where)}, n = {one.executions} per cell, "
            f"{one.planned} rows: {counts}. {plain(words.shown_words(one) or '')}\n\n"
        )
        yield from (f"**{plain(told)}**\n\n" for told in words.state_words(one))
        yield table(_COLUMNS, map(_cells, one.rows))
        yield "\n"


def code(text: str) -> str:
    """Return *text* as a code span that holds in a table cell."""
    text = _one_line(text).replace("|", "\\|")
    if not text:
        return words.NONE
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    pad = " " if longest else ""
    return f"{'`' * (longest + 1)}{pad}{text}{pad}{'`' * (longest + 1)}"


def plain(text: str) -> str:
    """Return *text* on one line with its Markdown and HTML escaped."""
    return _MARKUP.sub(r"\\\1", _one_line(text)).translate(_HTML)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a GitHub table of cells that are clean already."""
    # Without disable_numparse a version "2.10" would turn into 2.1.
    return tabulate(list(rows), headers=list(columns), tablefmt="github", disable_numparse=True) + "\n"


def _one_line(text: str) -> str:
    """Join lines, and spell out what a terminal could take for a command."""
    text = " ".join(text.split())
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _run(one: Matrix) -> Iterator[str]:
    header = one.run.header
    yield f"# Nondeterminism matrix of torch {plain(header.environment.torch)} on {plain(header.settings.device)}\n\n"
    yield from (f"> [!CAUTION]\n> **{plain(told)}**\n\n" for told in words.state_words(one))
    yield f"Run file {code(one.name)}. {plain(words.n_words(one))}\n\n"
    yield table(
        ("finding", "rows", "meaning"),
        [(finding, str(count), FINDING_MEANING[finding]) for finding, count in one.counts.items()],
    )
    yield "\n"
    if (shown := words.shown_words(one)) is not None:
        yield f"{plain(shown)}\n\n"
    if not one.planned:
        yield "No row was planned.\n\n"
    for family, rows in _families(one.rows):
        yield f"## {plain(family)}\n\n"
        yield table(_COLUMNS, map(_cells, rows))
        yield "\n"
    yield from _reasons(one)
    yield "## Environment\n\n"
    yield from (f"* {plain(label)}: {plain(text)}\n" for label, text in words.environment_words(one))
    yield "\n## Scan\n\n"
    yield from (f"* {plain(label)}: {plain(text)}\n" for label, text in words.settings_words(one))
    yield "\n"


def _families(rows: Iterable[MatrixRow]) -> Iterator[tuple[str, list[MatrixRow]]]:
    """Yield the families in order of first appearance, each with all of its rows."""
    families: dict[str, list[MatrixRow]] = {}
    for family, group in groupby(rows, key=lambda row: row.row.family):
        families.setdefault(family, []).extend(group)
    yield from families.items()


def _cells(row: MatrixRow) -> tuple[str, ...]:
    alert = row.on.alert or row.off.alert
    return (
        code(row.row.spec),
        plain(row.row.case),
        row.row.direction,
        plain(row.row.dtype),
        words.cell_words(row, "off"),
        words.cell_words(row, "on"),
        words.finding_words(row),
        code(alert) if alert else words.NONE,
    )


def _reasons(one: Matrix) -> Iterator[str]:
    """List the cells without a usable verdict under their reasons."""
    reasons: dict[str, list[str]] = {}
    for row in one.rows:
        for mode, cell in (("off", row.off), ("on", row.on)):
            if cell.verdict not in (*COMPARED, "raises"):
                reason = f"{cell.verdict}: {cell.reason or 'no reason was recorded'}"
                reasons.setdefault(reason, []).append(f"{code(row.row.id)} {mode}")
    for row in one.rows:
        usable = {row.off.verdict, row.on.verdict} <= {*COMPARED, "raises"}
        if row.finding == "inconclusive" and usable:
            reasons.setdefault(row.reason or "no reason was recorded", []).append(code(row.row.id))
    if reasons:
        yield "## Cells without a usable verdict\n\n"
    for reason, cells in reasons.items():
        yield f"* {plain(reason)}\n"
        yield from (f"  * {cell}\n" for cell in cells)
    if reasons:
        yield "\n"
