"""The matrix in Markdown, by templates: tables as GitHub renders them, which are also what the terminal shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reports.matrix.model import Matrix
from reports.render.markdown import generate
from reports.report.view import report_view


def render(matrices: Sequence[Matrix]) -> Iterator[str]:
    """Yield the report in pieces, one document per run and the words once at the end."""
    return generate("report", report_view(matrices))


def excerpt(matrices: Sequence[Matrix]) -> Iterator[str]:
    """Yield what a page that is about something else shows: what was scanned, the counts, the rows asked for."""
    return generate("report_excerpt", report_view(matrices))
