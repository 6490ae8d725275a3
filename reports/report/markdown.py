"""The matrix in Markdown, by templates: tables as GitHub renders them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reports.matrix.model import Matrix
from reports.render.markdown import generate
from reports.report.view import report_view


def render(matrices: Sequence[Matrix], *, whole: bool = False) -> Iterator[str]:
    """Yield the report in pieces: a line an op; if *whole*, then also every row and what lies behind it, run by run."""
    return generate("report" if whole else "report_ops", report_view(matrices))


def excerpt(matrices: Sequence[Matrix], *, whole: bool = False) -> Iterator[str]:
    """Yield what a page that is about something else shows: what was scanned, the counts, the ops, if *whole* the rows."""
    return generate("report_excerpt" if whole else "report_ops_excerpt", report_view(matrices))
