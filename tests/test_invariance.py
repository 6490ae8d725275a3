"""A scan asks what the bits of rows depend on beyond a run: who is asked, what is kept, and what is believed."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from msgspec.structs import replace

from detmatrix.opspecs.controls import INVARIANCE_CONTROLS
from detmatrix.opspecs.model import Batch, Call, Case, OpSpec, call
from detmatrix.scanner.invariance import PROPERTIES, Property
from detmatrix.scanner.observations.records import Invariance, Output, Severity, Tried
from detmatrix.scanner.observations.runfile import Run, read_run
from detmatrix.scanner.verdicts.cells import Cell
from detmatrix.scanner.verdicts.invariance import is_control, misled, verdict_of
from detmatrix.scanner.worker import invariance as variants
from detmatrix.scanner.worker.invariance import measure
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
    nothing = {"examined": 1, "elements": 0, "differing_elements": 0, "v_c": 0.0}
    output = {"name": "output", "shape": [0], "dtype": "float32", "differing": 1, "severity": nothing}
    assert "Expected `int` >= 1" in refused_with(
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


# What a worker measures of threads, batch and layout, on real torch: ops with known answers, and measurements that are broken.

# One thread of its own has each process of a test run, so that the baseline is known.
OWN = 1
pytestmark = pytest.mark.usefixtures("one_thread")


def asked(op: Any, inputs: Any, what: Property, batch: Batch | None = None, **more: Any) -> dict[str, Any]:
    """Measure one property of an op."""
    direction = more.pop("direction", "forward")
    spec = OpSpec(name="t", op=op, why=".", cases={"c": Case(inputs=inputs, batch=batch)}, **more)
    return measure(
        spec, "c", property=what, direction=direction, dtype="float32", device="cpu", seed=0, max_time=60
    )


def at(measured: dict[str, Any], outcome: str) -> list[str]:
    """Return the values that came out so."""
    return [one["value"] for one in measured["trials"] if one["outcome"] == outcome]


def rows(t: Any) -> Call:
    return call(t.leaf(t.normal(48, 8)), t.leaf(t.normal(8)))


def controls() -> list[Invariance]:
    """Ask all controls all properties, as a scan does."""
    found = []
    for spec, what in itertools.product(INVARIANCE_CONTROLS, PROPERTIES):
        for row in spec.rows("cpu"):
            asked: dict[str, Any] = {"property": what, "direction": row.direction, "dtype": row.dtype}
            answer = measure(spec, row.case, **asked, device="cpu", seed=0, max_time=60)
            found.append(msgspec.convert({**row._asdict(), **asked, **answer}, Invariance))
    return found


def test_controls_show_what_they_must() -> None:
    """What varies with one property does at every value, and with no other; what varies with none does not."""
    assert misled(controls()) == ()


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        ("_with_threads", "by_threads (forward) should show other bits at 2, 3, 4, 8"),
        ("picked", "by_place (forward) should show other bits at"),
        ("_relaid", "by_layout (forward) should show other bits at"),
    ],
)
def test_a_broken_measurement_misleads_a_control(
    monkeypatch: pytest.MonkeyPatch, broken: str, told: str
) -> None:
    """Threads that do not change, items that are always the first, layouts that are one: the controls notice."""
    others: dict[str, Any] = {
        "_with_threads": lambda _: contextlib.nullcontext(),
        "picked": lambda tensor, axis, places: tensor.detach().narrow(axis, 0, len(places)).clone(),
        "_relaid": lambda tensor, layout: tensor.detach().clone() if layout == "sliced" else None,
    }
    monkeypatch.setattr(variants, broken, others[broken])

    assert any(told in text for text in misled(controls()))


def test_threads_split_a_real_sum() -> None:
    """PyTorch's own reduction joins as many partial sums as there are threads, whatever the cores."""
    measured = asked("torch.sum", lambda t: call(t.normal(1 << 17)), "threads")

    assert (measured["outcome"], measured["baseline"], measured["differing"]) == ("ran", "1 thread", 0)
    assert at(measured, "varies")
    assert torch.get_num_threads() == OWN


def test_gradients_are_those_of_the_same_upstream_gradients() -> None:
    """An item's gradient is held against the one it has in the whole; what is summed over the batch is left out."""
    measured = asked("torch.mul", rows, "batch", Batch({0: 0}), direction="backward")

    assert measured["left_out"] == ("grad of args[1]",)
    assert len(at(measured, "same")) == 33
    assert measured["baseline"] == "48 items"


def by_neighbours(x: torch.Tensor, axis: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Add to each item the sum of all, whose bits depend on how many there are."""
    return x, x + x.sum(axis, keepdim=True)


def test_items_lie_along_the_axis_that_is_declared() -> None:
    """Of inputs and of outputs; sizes beyond the batch are not tried."""
    measured = asked(by_neighbours, lambda t: call(t.normal(2, 6), 1), "batch", Batch({0: 1}, 1))

    assert measured["baseline"] == "6 items"
    assert at(measured, "same") == ["6 permuted"] or "6 permuted" in at(measured, "varies")
    assert {"1 first", "5 last", "3 permuted"} <= set(at(measured, "varies"))
    assert not [value for value in at(measured, "varies") if int(value.split()[0]) > 6]
    assert {one["name"] for trial in measured["trials"] for one in trial["outputs"]} == {"output[1]"}


def racing(x: torch.Tensor, numbers: Iterator[int]) -> torch.Tensor:
    """Give other bits each time, with eight threads alone."""
    return x + next(numbers) * (torch.get_num_threads() == 8)


def test_what_is_not_repeatable_does_not_vary() -> None:
    """Executions that differ among themselves at a value say nothing of what the value changes."""
    measured = asked(racing, lambda t: call(t.normal(64), itertools.count(1)), "threads")

    assert at(measured, "not_repeatable") == ["8"]
    assert at(measured, "varies") == []


def test_every_floating_point_input_is_laid_out_by_itself() -> None:
    """Each in the layouts that it can have and has not; indices, and what is written into, stay."""
    image = asked(
        "torch.nn.functional.conv2d", lambda t: call(t.normal(2, 3, 8, 8), t.normal(4, 3, 3, 3)), "layout"
    )
    written = asked(
        "torch.Tensor.index_add_",
        lambda t: call(t.normal(4, 6), 0, t.index(5, high=4), t.normal(5, 6)),
        "layout",
        in_place=True,
    )
    last = asked("torch.relu", lambda t: call(t.channels_last(t.normal(2, 3, 8, 8))), "layout")

    assert [one["value"] for one in image["trials"]] == [
        f"{layout} args[{place}]" for place in (0, 1) for layout in ("transposed", "channels_last", "sliced")
    ]
    assert [one["value"] for one in written["trials"]] == ["transposed args[3]", "sliced args[3]"]
    assert last["trials"][0]["value"] == "contiguous args[0]"


@pytest.mark.parametrize(
    ("op", "inputs", "what", "batch", "why"),
    [
        ("torch.relu", lambda t: call(t.normal(4, 4)), "batch", None, "its spec declares no batch"),
        ("torch.dropout", lambda t: call(t.normal(48, 4), 0.5, True), "batch", Batch({0: 0}), "it draws random numbers"),
        ("torch.bincount", lambda t: call(t.index(8, high=4)), "layout", None, "no floating-point input"),
    ],
)  # fmt: skip
def test_what_cannot_be_asked_says_why(
    op: str, inputs: Any, what: Property, batch: Batch | None, why: str
) -> None:
    """It is no verdict, and no failure."""
    measured = asked(op, inputs, what, batch)

    assert measured["outcome"] == "not_run"
    assert why in measured["message"]
