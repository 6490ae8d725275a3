"""The rows of a plan that patterns select: what scan selects of the catalog, selected of what was scanned."""

from __future__ import annotations

from collections.abc import Sequence

from detmatrix.opspecs.patterns import OpNames, near, op_names, ops_of, recorded_names, rows_of
from detmatrix.scanner.errors import UsageError
from detmatrix.scanner.observations.records import Row


def names_of_row(row: Row) -> OpNames:
    """Return what the op of a row is called."""
    return op_names(row.spec, row.family, row.op, row.documented)


def selected_rows(
    patterns: Sequence[str], rows: Sequence[Row], where: str, scanned: Sequence[Row] = ()
) -> set[str]:
    """Return the ids of the rows that patterns select; *scanned* is what there is besides.

    Raises:
        UsageError: A pattern selects nothing, which *where* begins to say; near matches are named.
    """
    # A row is planned once for each run that has it.
    named = list(dict.fromkeys((names_of_row(row), row.id) for row in rows))
    found: set[str] = set()
    for pattern in patterns:
        matching = rows_of(pattern, named)
        if not matching:
            close = near(pattern, named)
            hint = f"did you mean {' or '.join(close)}?" if close else "detmatrix report shows what there is"
            there = [*(op for op, _ in named), *map(names_of_row, scanned)]
            if not ops_of(pattern, there) and ops_of(pattern, _known()):
                hint = "that is an op which was not scanned here"
            raise UsageError(f"{where} {pattern!r}; {hint}")
        found |= matching
    return found


def _known() -> list[OpNames]:
    """Return the ops of the catalog and of PyTorch's databases."""
    from detmatrix.opspecs.registry import SPECS, names_of  # noqa: PLC0415 - only a name that selects nothing needs it

    return [*map(names_of, SPECS), *recorded_names()]
