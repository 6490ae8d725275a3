"""A scan asks what the bits of rows depend on beyond a run: who is asked, what is kept, and what is believed."""

from __future__ import annotations

import contextlib
import itertools
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from msgspec.structs import replace

from detmatrix.opspecs.controls import INVARIANCE_CONTROLS
from detmatrix.opspecs.model import Batch, Call, Case, OpSpec, Planned, call
from detmatrix.opspecs.user import load_specs
from detmatrix.scanner.errors import UsageError
from detmatrix.scanner.invariance import PROPERTIES, Property
from detmatrix.scanner.observations.records import Invariance, Output, Severity, Tried
from detmatrix.scanner.observations.runfile import read_run
from detmatrix.scanner.repro.script import invariance_script
from detmatrix.scanner.verdicts.cells import Cell
from detmatrix.scanner.verdicts.findings import matrix
from detmatrix.scanner.verdicts.invariance import is_control, misled, verdict_of
from detmatrix.scanner.worker import invariance as variants
from detmatrix.scanner.worker.invariance import measure
from tests.commands import Command
from tests.conftest import DATA, refused
from tests.evidence_runs import ASKED_CONTROLS, text
from tests.evidence_runs import asked_of as varying_of
from tests.mutants import INPUT_SOURCE
from tests.runs import SETTINGS, drifting, ran, row, stable, write_run
from tests.scripts import SEED, header, loaded
from tests.scripts import asked as source_asked
from tests.stand_in import QUICK, StandIn

STILL = Cell(verdict="deterministic", runs=8)
FAR = Severity(examined=3, elements=4, differing_elements=1, v_c=0.25, max_ulp=7)
OTHER = Output(name="output", shape=(4,), dtype="float32", differing=10, severity=FAR)
PLACE: dict[str, Any] = {"spec": "a", "case": "b", "direction": "forward", "dtype": "float32"}
SAME = tuple(Tried(value=value, outcome="same", executions=2) for value in ("1", "4"))
TRIED = Invariance(**PLACE, what="threads", outcome="ran", baseline="2 threads", executions=11, trials=SAME)
OPTIONS = (*QUICK, "--runs", 2, "--processes", 1, "--perturb", "quiet")
ASKED = ("--invariance", "threads,batch,layout", "--no-cost", "--no-overloads", "-o", "run.jsonl")


def test_rows_that_did_not_differ_are_asked_each_property_once(tmp_path: Path) -> None:
    """What differs run to run, fails or is not there could not answer."""
    varies = {"spec": "quick.cumsum", "dtype": "float64", "do": "observe", "then": "vary"}
    run = StandIn(tmp_path, varies).scanned("quick.cumsum", "quick.put_", *OPTIONS, *ASKED)

    still = ("cumsum:small:forward", "cumsum:small:backward", "put_:one:forward")
    asked = [(":".join(one.key), one.what) for one in run.invariances if not is_control(one)]
    assert sorted(asked) == sorted((f"quick.{one}:float32", what) for one in still for what in PROPERTIES)
    assert run.closing is not None
    assert run.closing.invariances == len(run.invariances)


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
pytestmark = pytest.mark.usefixtures("one_thread")


def asked(
    op: Any, inputs: Any, what: Property, batch: Batch | None = None, direction: Any = "forward", **more: Any
) -> Invariance:
    """Ask an op one property."""
    spec = OpSpec(name="t", op=op, why=".", cases={"c": Case(inputs=inputs, batch=batch)}, **more)
    return record_of(spec, Planned("t", "c", direction, "float32"), what)


def record_of(spec: OpSpec, one: Any, what: Property, seed: int = 0) -> Invariance:
    """Ask a row a property, as a scan does."""
    place = {"direction": one.direction, "dtype": one.dtype}
    measured = measure(spec, one.case, property=what, **place, device="cpu", seed=seed, max_time=60)
    return msgspec.convert(
        {"spec": one.spec, "case": one.case, "property": what, **place, **measured}, Invariance
    )


def at(measured: Invariance, outcome: str) -> list[str]:
    """Return the values that came out so."""
    return [one.value for one in measured.trials if one.outcome == outcome]


def rows(t: Any) -> Call:
    return call(t.leaf(t.normal(48, 8)), t.leaf(t.normal(8)))


def controls() -> list[Invariance]:
    """Ask all controls all properties."""
    rows = [(spec, planned) for spec in INVARIANCE_CONTROLS for planned in spec.rows("cpu")]
    return [record_of(*one, what) for one, what in itertools.product(rows, PROPERTIES)]


def test_controls_show_what_they_must() -> None:
    """What varies with one property does at every value, and with no other; what varies with none does not."""
    assert misled(controls()) == ()


@pytest.mark.parametrize(
    ("broken", "other", "told"),
    [
        ("_with_threads", lambda _: contextlib.nullcontext(), "by_threads (forward) should show other bits at 2, 3, 4, 8"),
        ("picked", lambda tensor, axis, places: tensor.detach().narrow(axis, 0, len(places)).clone(),
         "by_place (forward) should show other bits at"),
        ("_relaid", lambda tensor, layout: tensor.detach().clone() if layout == "sliced" else None,
         "by_layout (forward) should show other bits at"),
    ],
)  # fmt: skip
def test_a_broken_measurement_misleads_a_control(
    monkeypatch: pytest.MonkeyPatch, broken: str, other: Any, told: str
) -> None:
    """Threads that do not change, items that are always the first, layouts that are one: the controls notice."""
    monkeypatch.setattr(variants, broken, other)

    assert any(told in text for text in misled(controls()))


def test_gradients_are_those_of_the_same_upstream_gradients() -> None:
    """An item's gradient is held against the one it has in the whole; what is summed over the batch is left out."""
    measured = asked("torch.mul", rows, "batch", Batch({0: 0}), direction="backward")

    assert measured.left_out == ("grad of args[1]",)
    assert len(at(measured, "same")) == 33
    assert measured.baseline == "48 items"


def by_neighbours(x: torch.Tensor, axis: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Add to each item the sum of all, whose bits depend on how many there are."""
    return x, x + x.sum(axis, keepdim=True)


def test_items_lie_along_the_axis_that_is_declared() -> None:
    """Of inputs and of outputs; sizes beyond the batch are not tried."""
    measured = asked(by_neighbours, lambda t: call(t.normal(2, 6), 1), "batch", Batch({0: 1}, 1))

    assert measured.baseline == "6 items"
    assert at(measured, "same") == ["6 permuted"] or "6 permuted" in at(measured, "varies")
    assert {"1 first", "5 last", "3 permuted"} <= set(at(measured, "varies"))
    assert not [value for value in at(measured, "varies") if int(value.split()[0]) > 6]
    assert {one.name for trial in measured.trials for one in trial.outputs} == {"output[1]"}


def racing(x: torch.Tensor, numbers: Iterator[int]) -> torch.Tensor:
    """Give other bits each time, with eight threads alone."""
    return x + next(numbers) * (torch.get_num_threads() == 8)


def test_what_is_not_repeatable_does_not_vary() -> None:
    """Executions that differ among themselves at a value say nothing of what the value changes."""
    measured = asked(racing, lambda t: call(t.normal(64), itertools.count(1)), "threads")

    assert at(measured, "not_repeatable") == ["8"]
    assert at(measured, "varies") == []


@pytest.mark.parametrize(
    ("op", "inputs", "values"),
    [
        ("torch.nn.functional.conv2d", lambda t: call(t.normal(2, 3, 8, 8), t.normal(4, 3, 3, 3)),
         [f"{layout} args[{place}]" for place in (0, 1) for layout in ("transposed", "channels_last", "sliced")]),
        ("torch.Tensor.index_add_", lambda t: call(t.normal(4, 6), 0, t.index(5, high=4), t.normal(5, 6)),
         ["transposed args[3]", "sliced args[3]"]),
        ("torch.relu", lambda t: call(t.channels_last(t.normal(2, 3, 8, 8))),
         ["contiguous args[0]", "transposed args[0]", "sliced args[0]"]),
    ],
)  # fmt: skip
def test_every_floating_point_input_is_laid_out_by_itself(op: str, inputs: Any, values: list[str]) -> None:
    """Each in the layouts that it can have and has not; indices, and what is written into, stay."""
    measured = asked(op, inputs, "layout", in_place=op.endswith("_"))

    assert [one.value for one in measured.trials] == values


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

    assert measured.outcome == "not_run"
    assert why in str(measured.message)


# Reports, comparisons and scripts show what a row's bits depend on, where a scan asked, and nothing of it elsewhere.


ASKED_SETTINGS = replace(SETTINGS, invariance=("batch", "layout"))
MM, TAKE = row("torch.mm", "batch"), row("torch.take", "batch")


def run_of(
    path: Path, varies: Mapping[Property, tuple[str, ...]], controls: list[Invariance] = ASKED_CONTROLS
) -> Path:
    """Write a run of a row that varies so, and of one that differs run to run and was not asked."""
    seen = [*ran(MM, "off", *stable()), *ran(MM, "on", *stable())]
    differs = [*ran(TAKE, "off", *drifting()), *ran(TAKE, "on", *stable())]
    return write_run(
        path,
        [(MM, seen), (TAKE, differs)],
        settings=ASKED_SETTINGS,
        invariances=[*varying_of(MM, varies), *controls],
    )


def test_a_run_whose_controls_are_not_there_is_not_trusted(tmp_path: Path) -> None:
    """Whoever takes them out of a run file does not make it look right."""
    path = run_of(tmp_path / "run.jsonl", {"batch": ()}, controls=[])

    assert "Not trustworthy: no control was asked of batch" in " ".join(text("md", path).split())


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize(
    ("what", "other", "same"),
    [
        ("threads", "threads=3", "the baseline"),
        ("batch", "5 of 6, last", "6 of 6, permuted"),
        ("layout", "transposed args[0]", "sliced kwargs['scale']"),
    ],
)
def test_a_script_shows_it_with_torch_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], what: Property, other: str, same: str, direction: str
) -> None:
    """It draws the same inputs, and says of each value that was tried whether the bits are others."""
    path = shutil.copy(DATA / "specs-invariance.py.txt", tmp_path / "mine.py")
    (spec,) = load_specs(str(path))
    of = Planned(spec.name, "only", direction, "float32")  # type: ignore[arg-type]
    planned = row(*of)
    settings = replace(header().settings, invariance=tuple(PROPERTIES))
    head = replace(header(), planned=(planned,), settings=settings)
    (seen,) = matrix(
        head, ran(planned, "off", *stable()), closed=True, invariances=[record_of(spec, planned, what, SEED)]
    )

    loaded(invariance_script(source_asked(of, specs=[str(path)]), seen, head, what))["main"]()

    printed = capsys.readouterr().out.splitlines()
    assert any(line.startswith(f"{other}: other bits, the same ones 10 times") for line in printed)
    assert any(same in line and "the same bits, 10 times" in line for line in printed)
    assert seen.invariance[what].verdict == "varies"
    assert len(printed) == 2 + len(seen.invariance[what].tried)


def test_no_text_of_a_run_file_becomes_code(tmp_path: Path) -> None:
    """A value that no scan tries is refused in a line."""
    path = run_of(tmp_path / "run.jsonl", {"layout": ("sliced args[0]",)})
    path.write_text(path.read_text().replace("sliced args[0]", "sliced args[__import__('os')]"))
    run = read_run(path)
    rows = matrix(run.header, run.observations, closed=True, invariances=run.invariances)
    shown = next(one for one in rows if one.row.spec == "torch.mm")

    with pytest.raises(UsageError, match="as a value that was tried; restore the file"):
        invariance_script(INPUT_SOURCE, shown, run.header, "layout")


def test_a_script_of_what_was_not_tried_is_refused_in_a_line(detmatrix: Command, tmp_path: Path) -> None:
    """With the reason that the run file has."""
    path = run_of(tmp_path / "run.jsonl", {"batch": ("1 first", "8 last"), "layout": ()})
    told = {
        what: refused(detmatrix("repro", path, "torch.take:batch", "--invariance", what))
        for what in ("threads", "batch")
    }

    assert told["threads"].endswith("the scan did not ask for threads; scan with --invariance threads")
    assert "no value of batch was tried (2 of 100 executions differed run to run)" in told["batch"]
