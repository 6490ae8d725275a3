"""What scripts and specs do in the modes that a scan was asked for, on real torch."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import msgspec
import pytest

pytest.importorskip("torch")
import torch

from opspecs.families import masked
from opspecs.inputs import Inputs
from opspecs.model import Call, call
from opspecs.registry import select
from scanner.modes import Mode, with_chosen
from scanner.observations.records import Observation
from scanner.repro.script import script
from scanner.verdicts.findings import matrix
from scanner.worker.observe import observe
from tests.runs import row
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


@pytest.mark.parametrize("leaks", [False, True])
def test_gradient_outside_of_the_masks_is_an_error(monkeypatch: pytest.MonkeyPatch, *, leaks: bool) -> None:
    """The map is held against the masks with the flag on; one product that should be zero and is not shows."""
    spec = next(one for one in masked.SPECS if one.name == "masked_conv2d.receptive_field")
    if leaks:
        clean = masked.masked_convolutions
        monkeypatch.setattr(
            masked,
            "masked_convolutions",
            lambda image, *rest: clean(image, *rest) + 1e-30 * image[:, :, -1, -1],
        )
    small = replace(spec, cases={"small": replace(spec.cases["nonzero_gradient"], inputs=_small)})
    torch.use_deterministic_algorithms(True)
    try:
        seen = observe(small, "small", **WHERE, runs=2)
    finally:
        torch.use_deterministic_algorithms(False)

    assert seen["outcome"] == ("invalid" if leaks else "ran"), seen


def _small(t: Inputs) -> Call:
    image = t.leaf(t.normal(1, 1, 8, 8))
    return call(image, [t.normal(2, 1, 3, 3), t.normal(2, 2, 3, 3)], 4, 4)
