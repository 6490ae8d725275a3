"""Synthetic records of invariance: rows that vary at some values, and controls that show what they must."""

from __future__ import annotations

from collections.abc import Mapping

from detmatrix.scanner.invariance import Property
from detmatrix.scanner.observations.records import Invariance, Output, Row, Severity, Tried
from detmatrix.scanner.run.passes import place_of
from tests.runs import row

VALUES: dict[Property, tuple[str, tuple[str, ...]]] = {
    "threads": ("2 threads", ("1", "4")),
    "batch": ("48 items", ("1 first", "8 last", "48 permuted")),
    "layout": ("the inputs as drawn", ("transposed args[0]", "sliced args[0]")),
}
SEVERITY = Severity(examined=3, elements=200, differing_elements=50, v_c=0.25, max_ulp=77)


def asked_of(of: Row, varies: Mapping[Property, tuple[str, ...]]) -> list[Invariance]:
    """Return the records of a row that was asked properties, each with the values at which it has other bits."""
    name = "output" if of.direction == "forward" else "grad of args[0]"
    other = Output(name=name, shape=(200,), dtype=of.dtype, differing=10, severity=SEVERITY)
    return [
        Invariance(
            **place_of(of),
            what=what,
            outcome="ran",
            baseline=VALUES[what][0],
            executions=11,
            trials=tuple(
                Tried(value=value, outcome="varies", executions=10, outputs=(other,))
                if value in at
                else Tried(value=value, outcome="same", executions=2)
                for value in VALUES[what][1]
            ),
        )
        for what, at in varies.items()
    ]


ASKED_CONTROLS = [
    one
    for what in VALUES
    if what != "threads"
    for one in asked_of(row("control.invariant", "image"), {what: ()})
]
