"""Which rows are compiled: those of one case of each op in each direction, unless all are asked for.

A row says of itself that it is, as it is planned: a file that continues a scan, or that measures some rows again, plans a part of
the rows, and compiles of these what the whole scan did.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from detmatrix.scanner.modes import MODE_TABLE
from detmatrix.scanner.observations.records import Row, Settings

WHY_NOT = "one case of each op is compiled in each direction; --compile-all compiles all"

Key = tuple[str, str, str, str]


def with_compiled(planned: Iterable[Row], settings: Settings) -> tuple[Row, ...]:
    """Return the rows of some ops, all that are planned of each, with those marked that are compiled.

    Of each direction that is the first row that provokes a difference, since of an innocent one little can be learnt.
    """
    rows = tuple(planned)
    if not any(MODE_TABLE[mode].compiles for mode in settings.modes):
        return rows
    chosen: dict[tuple[str, str], Row] = {}
    for row in rows:
        known = chosen.setdefault((row.spec, row.direction), row)
        if not known.provokes and row.provokes:
            chosen[row.spec, row.direction] = row
    return tuple(
        replace(row, compiled=True) if settings.compile_all or row is chosen[row.spec, row.direction] else row
        for row in rows
    )
