"""How far differing outputs lie apart, in every report."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from reports.matrix.rows import distance
from scanner.observations.records import Output
from scanner.verdicts.cells import cell_of
from tests.evidence_runs import ONE, SEVERITY
from tests.runs import ran


def test_the_worst_of_each_measure_counts() -> None:
    """Joined over processes and outputs each measure is the largest known; nothing known stays nothing."""
    far = replace(SEVERITY, max_abs=None, max_ulp=9, v_c=0.5, differing_elements=50)
    outputs = [
        Output(name="output", shape=(192,), dtype="float32", differing=1, severity=severity)
        for severity in (SEVERITY, far, None)
    ]
    processes = [replace(ran(ONE, "off", {"a": 2})[0], outputs=(output,)) for output in outputs]
    found = replace(SEVERITY, examined=6, v_c=0.5, differing_elements=50)

    assert cell_of(processes).outputs == (replace(outputs[0], differing=3, severity=found),)
    assert cell_of(processes).severity == cell_of([*reversed(processes)]).severity == found
    assert cell_of(processes[2:]).severity is None


@pytest.mark.parametrize(
    ("dtype", "changes", "lines"),
    [
        ("float32", {}, ("48 of 192 (25 %)", "0.0625", "1.5e-05", "128", "2.5e-07", "0.25")),
        (
            "float32",
            {"max_ulp": 1_234_567},
            ("48 of 192 (25 %)", "0.0625", "1.5e-05", "1.23e+06", "2.5e-07", "0.25"),
        ),
        ("float64", {"max_ulp": 2**63 - 1}, (None, None, None, "at least 9.22e+18", None, None)),
        ("float64", {"max_rel": 1.7976931348623157e308}, (None, None, "at least 1.8e+308", None, None, None)),
        (
            "float32",
            {"max_rel": None, "v_ermv": None},
            (None, None, "none comparable", None, "none comparable", None),
        ),
        ("int64", {"max_abs": None}, (None, "not subtracted", None, None, None, None)),
        ("uint8", {"max_ulp": None}, (None, None, None, "not subtracted", None, None)),
        ("bool", {"v_ermv": None}, (None, None, None, None, "not subtracted", None)),
    ],
)
def test_distances_in_words(dtype: str, changes: dict[str, Any], lines: tuple[str | None, ...]) -> None:
    """What cannot be subtracted, compared or represented is a word."""
    output = Output(
        name="output", shape=(192,), dtype=dtype, differing=1, severity=replace(SEVERITY, **changes)
    )
    _, *found = distance(output)

    assert [said for said in lines if said] == [said for said, want in zip(found, lines, strict=True) if want]


def test_first_differing_execution_is_the_earliest() -> None:
    """Of several processes the earliest execution counts, and its process is named."""
    seen = ran(ONE, "off", {"a": 9, "b": 1}, {"a": 4, "b": 6}, {"a": 10})

    assert cell_of(seen).first_differing == (4, 1)
    assert cell_of(seen[2:]).first_differing is None
