"""The rows of a plan that patterns select: what scan selects of the catalog, selected of what was scanned."""

from __future__ import annotations

from collections.abc import Sequence

from opspecs.patterns import OpNames, near, op_names, rows_of
from scanner.errors import UsageError
from scanner.observations.records import Row


def names_of_row(row: Row) -> OpNames:
    """Return what the op of a row is called."""
    return op_names(row.spec, row.family, row.op, row.documented)


def chosen_rows(patterns: Sequence[str], rows: Sequence[Row], where: str) -> set[str]:
    """Return the ids of the rows that patterns select.

    Args:
        patterns: Each selects at least one row.
        rows: What there is.
        where: Stands before what is said of a pattern that selects none.

    Raises:
        UsageError: A pattern selects nothing; near matches are named.
    """
    # A row is planned once for each run that has it.
    named = list(dict.fromkeys((names_of_row(row), row.id) for row in rows))
    found: set[str] = set()
    for pattern in patterns:
        matching = rows_of(pattern, named)
        if not matching:
            close = near(pattern, named)
            hint = f"did you mean {' or '.join(close)}?" if close else "detmatrix report shows what there is"
            raise UsageError(f"{where} {pattern!r}; {hint}")
        found |= matching
    return found
