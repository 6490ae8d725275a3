"""How far differing outputs lie apart, in every report."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from reports.matrix.difference import distance, first_differing, worst
from reports.matrix.model import outputs_of
from scanner.observations.records import Output
from tests.evidence_runs import ONE, SEVERITY, quiet_row, rows_of, table_of, text
from tests.runs import ran, write_run


def test_how_far_in_full(run: Path) -> None:
    """Of what differed: output, first execution, elements, distances; integers are counted."""
    message = text("md", run).split("## Magnitude of differences")[1].split("\n## ")[0]
    lines = {line.split("`")[1]: re.sub(r"\s+", " ", line) for line in message.splitlines() if "`" in line}

    assert lines["torch.Tensor.scatter_add_:collisions:forward:float32"].endswith(
        "| 47 (process 0) | `output` | 6 of 6 | 48 of 192 (25 %) | 0.0625 | 1.5e-05 | 128 | 2.5e-07 | 0.25 |"
    )
    assert "| warn_only | 9 of 100, 10 distinct |" in lines["torch.Tensor.put_:duplicates:forward:float32"]
    assert "| 6 of 192 (3.12 %) | not subtracted |" in lines["torch.topk:ties:forward:int64"]
    assert (
        "| the first of a process | `not known` | not measured: differs between processes only | not measured |"
        in lines["torch.nn.Conv2d:wide:backward:float32"]
    )
    assert len(lines) == 4


def test_a_run_in_which_nothing_differed_has_no_distances(tmp_path: Path) -> None:
    """There is no such section without a difference."""
    assert "Magnitude of differences" not in text("md", write_run(tmp_path / "r.jsonl", [quiet_row()]))


def test_how_many_executions_were_examined(run: Path) -> None:
    """Distances say of how many of the differing executions they are the largest, in Markdown and in the panels."""
    message = re.sub(r" +", " ", text("md", run))
    panels = text("html", run)

    assert "of each measure the largest over the executions that were examined" in message
    assert "| examined | elements differing |" in message
    assert "| `output` | 3 of 9 | 48 of 192 (25 %) |" in message
    assert "| `output` | 1 of 5 | 6 of 192 (3.12 %) |" in message
    assert '"off","output","47 (process 0)","6 of 6","48 of 192 (25 %)"' in panels
    assert (
        '"first of a process","not measured: differs between processes only","not measured"'
        in panels.replace('"the first', '"first')
    )


def test_severity_for_machines(run: Path) -> None:
    """JSON has every measure of every output, CSV the worst of each over the outputs."""
    (output,) = rows_of(run)["torch.Tensor.scatter_add_"]["off"]["outputs"]
    flat = table_of(run)["torch.Tensor.scatter_add_"]

    assert output["severity"] | {"examined": 6} == output["severity"]  # of both processes
    assert output["severity"]["max_ulp"] == 128
    assert output["differing"] == 6
    assert [flat[f"off_{name}"] for name in ("v_c", "v_ermv", "max_abs", "max_rel", "max_ulp")] == [
        "0.25",
        "2.5e-07",
        "0.0625",
        "1.5e-05",
        "128",
    ]
    assert [flat[f"on_{name}"] for name in ("v_c", "max_ulp")] == ["NA", "NA"]
    assert table_of(run)["torch.topk"]["off_max_abs"] == "NA"
    assert rows_of(run)["torch.Tensor.scatter_add_"]["off"]["first_differing"] == {
        "execution": 47,
        "process": 0,
    }


def test_the_worst_of_each_measure_counts() -> None:
    """Joined over processes and outputs each measure is the largest known; nothing known stays nothing."""
    far = replace(SEVERITY, max_abs=None, max_ulp=9, v_c=0.5, differing_elements=50)
    outputs = [
        Output(name="output", shape=(192,), dtype="float32", differing=1, severity=severity)
        for severity in (SEVERITY, far, None)
    ]
    found = worst(outputs)

    assert found == replace(SEVERITY, examined=6, v_c=0.5, differing_elements=50)
    assert worst(reversed(outputs)) == found
    assert worst(outputs[2:]) is None
    processes = [replace(ran(ONE, "off", {"a": 2})[0], outputs=(output,)) for output in outputs]
    assert outputs_of(processes) == (replace(outputs[0], differing=3, severity=found),)


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

    assert first_differing(seen) == (4, 1)
    assert first_differing(seen[2:]) is None
