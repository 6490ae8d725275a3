"""What rows measured, held against what the files of their build let expect."""

from __future__ import annotations

from collections.abc import Iterable

from reports.matrix.expected import ExpectedRows, ExpectedText
from reports.matrix.model import COMPARED
from scanner.verdicts.findings import MatrixRow

# What a trace comes to that ends without an alert that is known.
_PASSES = ("reroutes", "asks", "same")
DISAGREEMENTS = (
    "Rows that measured something else than the files of their build let expect: an alert of another caller or none where "
    "one was expected, or one where the trace ends without. One of the two is not understood."
)


def disagreements(expected: ExpectedRows, rows: Iterable[MatrixRow]) -> list[tuple[MatrixRow, str]]:
    """Return the rows that measured something else than the files let expect, and what; none of another device's."""
    found = ((row, disagreement(row, expected.of(row.row))) for row in rows if expected.same_device)
    return [(row, text) for row, text in found if text is not None]


def disagreement(row: MatrixRow, said: ExpectedText) -> str | None:
    """Say where a row measured something else than the files of its build let expect; ``None`` if it did not, or who knows.

    An alert is expected of a case whose trace met one or reaches, by an overload, a function that always alerts. None is
    expected of a case whose trace ends without one that is known.
    """
    callers = sorted({link.place.alert for link in said.alerts if link.place.alert is not None})
    if row.on.verdict == "raises" and row.on.alert is not None:
        if said.way == "met" or row.on.alert in callers or not (callers or said.way in _PASSES):
            return None
        return f"raised {row.on.alert}; expected {', '.join(callers) or f'no alert ({said.trace})'}"
    sure = [link for link in said.alerts if link.overload is not None and link.place.path == "always"]
    if row.on.verdict in COMPARED and (said.way == "met" or (said.way == "alerts" and sure)):
        return f"ran to its end; expected {', '.join(callers) or 'an alert'} ({said.trace})"
    return None
