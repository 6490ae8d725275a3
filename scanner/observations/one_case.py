"""Which rows run in modes that take long for each of them: those of one case of each op, unless all are asked for."""

from __future__ import annotations

from collections.abc import Iterable

from scanner.observations.records import Row, Settings

WHY_NOT = "one case of each op is compiled; --compile-all compiles all"

Key = tuple[str, str, str, str]


def one_case_rows(planned: Iterable[Row], settings: Settings) -> frozenset[Key]:
    """Return the keys of the rows that run in such modes: all directions of one case in one dtype.

    The case is the first that provokes a difference, since of an innocent one little can be learnt.
    """
    rows = list(planned)
    if settings.compile_all:
        return frozenset(row.key for row in rows)
    chosen: dict[str, Row] = {}
    for row in rows:
        known = chosen.setdefault(row.spec, row)
        if not _provokes(known) and _provokes(row):
            chosen[row.spec] = row
    return frozenset(
        row.key for row in rows if (row.case, row.dtype) == (chosen[row.spec].case, chosen[row.spec].dtype)
    )


def _provokes(row: Row) -> bool:
    return bool(row.provokes or row.provoked)
