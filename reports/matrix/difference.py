"""How far differing outputs were from the first: joined over processes and outputs, and in words.

Measures are those of ``records.Severity``. What could not be measured is a word: integers are counted, never
subtracted, and processes that differ only from one another are never held against each other element by element.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TypeVar

from msgspec import Struct

from scanner.observations.records import Observation, Output, Severity

Number = TypeVar("Number", int, float)

MEASURES = ("v_c", "v_ermv", "max_abs", "max_rel", "max_ulp")
# Of these only bits are compared.
_COUNTED = ("int", "uint", "bool", "quint", "qint", "bits")
NOT_MEASURED = "not measured"
_WHOLE = 1_000_000  # ULPs beyond it are rounded
_MOST_ULP = 2**63 - 1


class Distance(Struct, frozen=True):
    """The words for one output."""

    examined: str  # "3 of 9": the differing executions that were measured, of those that differed
    elements: str
    max_abs: str
    max_rel: str
    max_ulp: str
    v_ermv: str
    v_c: str


def joined(one: Severity | None, other: Severity | None) -> Severity | None:
    """Return the largest of each measure of both."""
    if one is None or other is None:
        return one or other
    return Severity(
        examined=one.examined + other.examined,
        elements=max(one.elements, other.elements),
        differing_elements=max(one.differing_elements, other.differing_elements),
        v_c=max(one.v_c, other.v_c),
        v_ermv=_largest(one.v_ermv, other.v_ermv),
        max_abs=_largest(one.max_abs, other.max_abs),
        max_rel=_largest(one.max_rel, other.max_rel),
        max_ulp=_largest(one.max_ulp, other.max_ulp),
        not_finite=max(one.not_finite, other.not_finite),
    )


def worst(outputs: Iterable[Output]) -> Severity | None:
    """Return the largest of each measure over several outputs; ``None`` if none was looked at."""
    severity: Severity | None = None
    for output in outputs:
        if output.severity is not None:
            severity = joined(severity, output.severity)
    return severity


def first_differing(observations: Iterable[Observation]) -> tuple[int, int] | None:
    """Return the first execution that differed from the first of its process, and that process."""
    seen = [(o.first_differing, o.process) for o in observations if o.first_differing is not None]
    return min(seen, default=None)


def distance(output: Output | None, unknown: str = NOT_MEASURED) -> Distance:
    """Say how far an output was from the first; ``None`` stands for one that was measured nowhere, as *unknown* says."""
    severity = output.severity if output else None
    if output is None or severity is None:
        return Distance(unknown, *[NOT_MEASURED] * 6)
    share = f"{100 * severity.differing_elements / severity.elements:.3g} %" if severity.elements else "none"
    none = "not subtracted" if output.dtype.startswith(_COUNTED) else "none comparable"
    return Distance(
        examined=f"{severity.examined} of {output.differing}",
        elements=f"{severity.differing_elements} of {severity.elements} ({share})",
        max_abs=_number(severity.max_abs, none),
        max_rel=_number(severity.max_rel, none),
        max_ulp=_ulps(severity.max_ulp, none),
        v_ermv=_number(severity.v_ermv, none),
        v_c=_number(severity.v_c, none),
    )


def _number(value: float | None, none: str) -> str:
    if value is None:
        return none
    return f"at least {value:.3g}" if value == sys.float_info.max else f"{value:.3g}"


def _ulps(value: int | None, none: str) -> str:
    if value is None:
        return none
    text = str(value) if value < _WHOLE else f"{value:.3g}"
    return f"at least {text}" if value == _MOST_ULP else text


def _largest(one: Number | None, other: Number | None) -> Number | None:
    if one is None or other is None:
        return one if other is None else other
    return max(one, other)
