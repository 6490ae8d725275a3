"""What scripts and specs do in the modes that a scan was asked for, on real torch."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("torch")
import torch

from opspecs.families import masked
from opspecs.inputs import Inputs
from opspecs.masked import masked_convolutions
from opspecs.model import Call, OpSpec, call
from opspecs.registry import select
from reports.explain.view import explained
from reports.matrix.by_op import ops_view
from reports.matrix.model import load
from reports.matrix.view import row_view
from scanner.modes import MODE_TABLE, Mode, with_chosen
from scanner.observations.records import Observation
from scanner.repro.script import script
from scanner.verdicts.findings import matrix
from scanner.worker.dispatcher.fake_trace import trace
from scanner.worker.observe import observe
from tests import scripts
from tests.runs import SETTINGS, row, write_run
from tests.scripts import OUTPUT, asked, header, loaded

WHERE: dict[str, Any] = {"direction": "backward", "dtype": "float32", "device": "cpu", "seed": 0}


def _script() -> str:
    """Return the script of a row that was run in four modes."""
    ((spec, planned),) = select(["torch.take:permutation:backward:float32"], "cpu")
    planned_row = row(planned.spec, planned.case, planned.direction, planned.dtype, family=spec.family)
    modes: tuple[Mode, ...] = ("off", "on", "backward_only", "forward_only")
    observed = [
        Observation(
            **planned._asdict(), mode=mode, process=0, outcome="ran", executions=2, digests={"a": 2},
            outputs=(msgspec.structs.replace(OUTPUT, name="grad of args[0]"),),
        )
        for mode in modes
    ]  # fmt: skip
    head = header()
    settings = msgspec.structs.replace(head.settings, modes=with_chosen(modes))
    head = msgspec.structs.replace(head, planned=(planned_row,), settings=settings)
    (found,) = matrix(head, observed, closed=True)
    return script(asked(planned), found, head)


@pytest.mark.parametrize(
    ("mode", "settings"),
    [
        ("off", [False]),
        ("on", [True]),
        ("backward_only", [False, True, False, True, False]),
        ("forward_only", [True, False, True, False, True]),
    ],
)
def test_script_switches_the_flag_as_the_scan_did(
    monkeypatch: pytest.MonkeyPatch, mode: Mode, settings: list[bool]
) -> None:
    """Between the parts of each of two executions, and back; other modes keep what they set."""
    names = loaded(_script())
    calls: list[bool] = []
    set_flag = torch.use_deterministic_algorithms

    def note(flag: bool, **more: Any) -> None:
        calls.append(flag)
        set_flag(flag, **more)

    monkeypatch.setattr(torch, "use_deterministic_algorithms", note)
    monkeypatch.setattr(sys, "argv", ["script", mode])
    try:
        names["observe"](mode)
    finally:
        set_flag(False)

    assert calls == settings


def test_masks_say_what_an_output_sees() -> None:
    """Counted by hand of three layers: the row above, widening by one each, and the pixels to the left."""
    draws = Inputs("field", dtype="float32", device="cpu", direction="backward")
    image = draws.normal(1, 1, 7, 7)
    weights = [draws.normal(1, 1, 3, 3) for _ in range(3)]

    field = masked.receptive_field(call(image, weights, 4, 3))[0, 0]

    assert ["".join("#" if pixel else "." for pixel in line) for line in field.tolist()] == [
        ".......",
        "#######",
        "######.",
        "#####..",
        "###....",
        ".......",
        ".......",
    ]


FIELD = next(one for one in masked.SPECS if one.name == "masked_conv2d.receptive_field")
CHOSEN: tuple[Mode, ...] = ("off", "on", "backward_only", "forward_only")


def _seen(mode: Mode, spec: OpSpec, case: str) -> dict[str, Any]:
    torch.use_deterministic_algorithms(MODE_TABLE[mode].deterministic)
    try:
        return observe(spec, case, **WHERE, runs=2, execution=MODE_TABLE[mode].execution)
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("mode", CHOSEN)
def test_no_pixel_outside_of_the_masks_has_a_gradient_on_the_cpu(mode: Mode) -> None:
    """The flag has no part in it."""
    seen = _seen(mode, FIELD, "nonzero_gradient")

    assert (seen["outcome"], seen["reference"]["elements"]) == ("ran", 0)
    assert seen["digests"] == {seen["reference"]["digest"]: 2}


@pytest.mark.parametrize("mode", CHOSEN)
def test_gradient_outside_of_the_masks_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mode: Mode
) -> None:
    """One product that should be zero and is not shows in every mode; that is no error, and no report is silent about it."""
    monkeypatch.setattr(
        "opspecs.masked.masked_convolutions",
        lambda image, *rest: masked_convolutions(image, *rest) + 1e-30 * image[:, :, -1, -1],
    )
    small = replace(FIELD, cases={"small": replace(FIELD.cases["nonzero_gradient"], inputs=_small)})

    seen = _seen(mode, small, "small")

    assert (seen["outcome"], seen["reference"]["elements"]) == ("ran", 1)
    planned = row(FIELD.name, "small", "backward", family="convolution")
    place = {"spec": FIELD.name, "case": "small", "direction": "backward", "dtype": "float32"}
    both = [
        msgspec.convert(place | seen | {"mode": one, "process": 0}, Observation)
        for one in dict.fromkeys(("off", "on", mode))
    ]
    settings = msgspec.structs.replace(SETTINGS, runs=2, processes=1, modes=with_chosen((mode,)))
    run = load([str(write_run(tmp_path / "run.jsonl", [(planned, both)], settings=settings))])
    (op,) = ops_view(run, [[row_view(one) for one in run[0].rows]]).ops
    assert (op.action, op.is_clean) == ("not its reference: 1 row", False)
    (found,) = run[0].rows
    assert mode in found.unlike_reference
    view = row_view(found)
    assert ", not its reference" in view.finding_words()
    assert "2 not as its reference, 1 element of the first" in view.cells[mode].details
    told = explained(FIELD.name, (), (), {}, run, ["run.jsonl"], libraries=())
    assert told["action"].startswith("In 1 row it did not give what the reference of the case says")
    assert "Nothing" not in told["action"]
    assert told["measured"][0]["cases"]["backward"][0]["doubts"]["not its reference"] == 1


def test_masked_convolutions_are_traced_and_written_out() -> None:
    """A trace walks their backward phase without values, and a script has all of the op that is not torch's."""
    ((spec, planned),) = select([f"{FIELD.name}:*:backward:float32"], "cpu")

    told = {one["mode"]: one["outcome"] for one in trace(spec, planned.case, **WHERE)}
    names = loaded(script(asked(planned), scripts.seen(spec, planned), header()))

    assert told == {"off": "traced", "on": "traced", "late": "traced"}
    args, kwargs, leaves = names["inputs"]()
    (gradient,) = names["execute"](args, kwargs, leaves)
    assert torch.equal(gradient, masked.receptive_field(call(*args)))


def _small(t: Inputs) -> Call:
    image = t.leaf(t.normal(1, 1, 8, 8))
    return call(image, [t.normal(2, 1, 3, 3), t.normal(2, 2, 3, 3)], 4, 4)
