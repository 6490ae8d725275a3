"""Counted words, for every message and report."""

from __future__ import annotations

from collections.abc import Sequence


def several(count: int, what: str, ending: str = "s") -> str:
    """Return a number with its noun: "1 row", "2 rows"; "2 processes" with the ending "es"."""
    return f"{count} {what}{'' if count == 1 else ending}"


def first_of(names: Sequence[str], most: int) -> str:
    """Return the first names of several, and how many more there are: "a, b and 3 more"."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"
