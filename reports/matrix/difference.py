"""How far differing outputs were from the first: joined over processes and outputs, and in words.

Measures are those of ``records.Severity``. What could not be measured is a word: integers are counted, never
subtracted, and processes that differ only from one another are never held against each other element by element.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import reduce
from typing import Any

from scanner.observations.records import Observation, Output, Severity

MEASURES = ("v_c", "v_ermv", "max_abs", "max_rel", "max_ulp")
# Of these only bits are compared.
_COUNTED = ("int", "uint", "bool", "quint", "qint", "bits")
NOT_MEASURED = "not measured"
_WHOLE = 1_000_000  # ULPs beyond it are rounded
_MOST_ULP = 2**63 - 1


def joined(one: Severity | None, other: Severity | None) -> Severity | None:
    """Return the largest of each measure of both, over all that were examined."""
    if one is None or other is None:
        return one or other
    known: dict[str, list[Any]] = {
        name: [value for value in (getattr(one, name), getattr(other, name)) if value is not None]
        for name in Severity.__struct_fields__
    }
    largest: dict[str, Any] = {name: max(values, default=None) for name, values in known.items()}
    return Severity(**largest | {"examined": one.examined + other.examined})


def worst(outputs: Iterable[Output]) -> Severity | None:
    """Return the largest of each measure over several outputs; ``None`` if none was looked at."""
    return reduce(joined, (output.severity for output in outputs), None)


def first_differing(observations: Iterable[Observation]) -> tuple[int, int] | None:
    """Return the first execution that differed from the first of its process, and that process."""
    seen = [(o.first_differing, o.process) for o in observations if o.first_differing is not None]
    return min(seen, default=None)


def distance(output: Output | None, unknown: str = NOT_MEASURED) -> tuple[str, ...]:
    """Say how far an output was from the first.

    Args:
        output: ``None`` stands for one that was measured nowhere.
        unknown: What is said of that one.

    Returns:
        How many of the differing executions were examined, the elements that differ, and the largest absolute,
        relative and ULP distance, V_ermv and V_c.
    """
    severity = output.severity if output else None
    if output is None or severity is None:
        return (unknown, *[NOT_MEASURED] * 6)
    share = f"{100 * severity.differing_elements / severity.elements:.3g} %" if severity.elements else "none"
    none = "not subtracted" if output.dtype.startswith(_COUNTED) else "none comparable"
    return (
        f"{severity.examined} of {output.differing}",
        f"{severity.differing_elements} of {severity.elements} ({share})",
        _number(severity.max_abs, none),
        _number(severity.max_rel, none),
        _ulps(severity.max_ulp, none),
        _number(severity.v_ermv, none),
        _number(severity.v_c, none),
    )


def _number(value: float | None, none: str) -> str:
    if value is None:
        return none
    return f"at least {value:.3g}" if value == sys.float_info.max else f"{value:.3g}"


def _ulps(value: int | None, none: str) -> str:
    if value is None or value < _WHOLE:
        return none if value is None else str(value)
    return f"{'at least ' if value == _MOST_ULP else ''}{value:.3g}"
