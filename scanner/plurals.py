"""Counted words, for every message and report."""


def several(count: int, what: str, ending: str = "s") -> str:
    """Return a number with its noun: "1 row", "2 rows"; "2 processes" with the ending "es"."""
    return f"{count} {what}{'' if count == 1 else ending}"
