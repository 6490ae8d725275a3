"""A scan asks what the bits of rows depend on beyond a run: who is asked, what is kept, and what is believed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from detmatrix.scanner.invariance import PROPERTIES
from detmatrix.scanner.observations.records import Invariance, Output, Severity, Tried
from detmatrix.scanner.observations.runfile import Run, read_run
from detmatrix.scanner.verdicts.cells import Cell
from detmatrix.scanner.verdicts.invariance import is_control, misled, verdict_of
from tests.commands import Command
from tests.conftest import lines, refusal
from tests.stand_in import StandIn

SPECS = Path(__file__).with_name("quick.py")
STILL = Cell(verdict="deterministic", runs=8)
OTHER = Output(
    name="output",
    shape=(4,),
    dtype="float32",
    differing=10,
    severity=Severity(examined=3, elements=4, differing_elements=1, v_c=0.25, max_ulp=7),
)
TRIED = Invariance(
    spec="a",
    case="b",
    direction="forward",
    dtype="float32",
    what="threads",
    outcome="ran",
    baseline="2 threads",
    executions=11,
    trials=(Tried(value="1", outcome="same", executions=2), Tried(value="4", outcome="same", executions=2)),
)
OPTIONS = ("--specs", SPECS, "--device", "cpu", "--runs", 2, "--processes", 1, "--perturb", "quiet")
ASKED = ("--invariance", "threads,batch,layout", "--no-cost", "--no-overloads", "-o", "run.jsonl")


@pytest.fixture
def scanned(detmatrix: Command, tmp_path: Path) -> Run:
    """Scan quick rows with all properties, by stand-ins."""
    standing = StandIn(
        tmp_path, {"spec": "quick.cumsum", "dtype": "float64", "do": "observe", "then": "vary"}
    )
    done = detmatrix("scan", "quick.cumsum", "quick.put_", *OPTIONS, *ASKED, "--python", standing.python)
    assert done.returncode == 0, done.stderr
    return read_run(tmp_path / "run.jsonl")


def asked_of(run: Run) -> Iterator[tuple[str, str]]:
    """Yield the rows that were asked, each with the property."""
    return ((":".join(one.key), one.what) for one in run.invariances if not is_control(one))


def test_rows_that_did_not_differ_are_asked_each_property_once(scanned: Run) -> None:
    """What differs run to run, fails or is not there could not answer."""
    still = {
        "quick.cumsum:small:forward:float32",
        "quick.cumsum:small:backward:float32",
        "quick.put_:one:forward:float32",
    }

    asked = list(asked_of(scanned))

    assert sorted(asked) == sorted((row, what) for row in still for what in PROPERTIES)
    assert scanned.closing is not None
    assert scanned.closing.invariances == len(scanned.invariances)


@pytest.mark.parametrize(
    ("control", "answer", "said"),
    [
        ("control.by_threads", {"trials": [{"value": "1", "outcome": "same", "executions": 2}]}, "other bits at 1"),
        ("control.invariant", {"outcome": "raised", "message": "no"}, "shows raised (no)"),
        ("control.unrepeatable", {"differing": 0}, "executions of the baseline that differ"),
    ],
)  # fmt: skip
def test_a_measurement_that_is_broken_is_not_trusted(
    detmatrix: Command, tmp_path: Path, control: str, answer: dict[str, Any], said: str
) -> None:
    """What must vary and does not, what must not fail and does: the scan says so, and every report of it."""
    standing = StandIn(tmp_path, {"do": "invariance", "spec": control, "property": "threads", "then": answer})

    done = detmatrix("scan", "quick.put_", *OPTIONS, *ASKED, "--python", standing.python)

    assert done.returncode == 4
    assert said in done.stderr
    assert "Not trustworthy: the control" in detmatrix("report", "run.jsonl").stdout


@pytest.mark.usefixtures("scanned")
def test_records_that_no_scan_can_have_written_are_refused(tmp_path: Path) -> None:
    """A run file comes from anyone: what was not asked, stands twice or contradicts itself is an error."""
    path = tmp_path / "run.jsonl"
    whole = lines(path)
    place = next(
        place for place, one in enumerate(whole) if one["kind"] == "invariance" and one["spec"][0] == "q"
    )

    def refused_with(**changed: Any) -> str:
        path.write_text(
            "".join(json.dumps(one | changed if at == place else one) + "\n" for at, one in enumerate(whole))
        )
        return refusal(path)

    assert "was never planned" in refused_with(spec="quick.other")
    assert "stands twice" in refused_with(
        property="layout" if whole[place]["property"] != "layout" else "batch"
    )
    assert "has other bits in no output" in refused_with(
        trials=[{"value": "1", "outcome": "varies", "executions": 10}]
    )
    nothing = {"examined": 1, "elements": 0, "differing_elements": 0, "v_c": 0.0}
    output = {"name": "output", "shape": [0], "dtype": "float32", "differing": 1, "severity": nothing}
    assert "differs in an output without elements" in refused_with(
        trials=[{"value": "1", "outcome": "varies", "executions": 10, "outputs": [output]}]
    )
    assert "Invalid enum value" in refused_with(property="moon")


def _with(*trials: Tried, **changed: Any) -> Invariance:
    return replace(TRIED, trials=(*TRIED.trials, *trials), **changed)


def test_a_row_varies_where_every_execution_gave_other_bits() -> None:
    """The values are named, with how far the farthest is; a value that raised is told beside them."""
    far = Tried(value="8", outcome="varies", executions=10, outputs=(OTHER,))
    raised = Tried(value="3", outcome="raised", message="ValueError: three")

    seen = verdict_of(_with(far, raised), STILL, "")

    assert (seen.verdict, seen.at, seen.tried, seen.raised) == ("varies", ("8",), ("1", "4", "8"), ("3",))
    assert seen.severity is not None
    assert seen.severity.max_ulp == 7


@pytest.mark.parametrize(
    ("record", "off", "verdict"),
    [
        (TRIED, STILL, "invariant"),
        (None, Cell(verdict="nondeterministic", runs=8, differing=3), "not_repeatable"),
        (None, Cell(verdict="error"), "not_asked"),
        (_with(differing=1), STILL, "not_repeatable"),
        (_with(Tried(value="8", outcome="not_repeatable", executions=10, outputs=(OTHER,))), STILL, "not_repeatable"),
        (_with(*(Tried(value=it, outcome=it, executions=9, outputs=(OTHER,)) for it in ("varies", "not_repeatable"))), STILL, "varies"),
        (replace(TRIED, trials=(Tried(value="1", outcome="raised", message="no"),)), STILL, "error"),
        (replace(TRIED, outcome="timeout", trials=()), STILL, "error"),
        (replace(TRIED, outcome="not_run", message="no batch", trials=()), STILL, "not_asked"),
    ],
)  # fmt: skip
def test_only_what_is_repeatable_has_a_verdict(record: Invariance | None, off: Cell, verdict: str) -> None:
    """A value at which executions differ among themselves does not vary with the property: it is not repeatable."""
    assert verdict_of(record, off, "").verdict == verdict


@pytest.mark.parametrize("control", ["invariant", "by_threads"])
def test_a_control_that_tried_no_value_has_not_answered(control: str) -> None:
    """Where nothing was tried nothing can be the same."""
    (text,) = misled([replace(TRIED, spec=f"control.{control}", trials=())])

    assert text == (
        f"the control {control} (forward) should show values that are tried of threads, and shows none"
    )
