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

from detmatrix.opspecs.families.images import convolution
from detmatrix.opspecs.inputs import Inputs
from detmatrix.opspecs.masked import masked_convolutions
from detmatrix.opspecs.model import Call, call
from detmatrix.opspecs.registry import select
from detmatrix.reports.explain import explained
from detmatrix.reports.matrix.model import load
from detmatrix.reports.matrix.ops import ops_view
from detmatrix.scanner.cases.known import KnownOp
from detmatrix.scanner.modes import Mode, with_chosen
from detmatrix.scanner.observations.records import Compiled, Observation
from detmatrix.scanner.repro.script import script
from detmatrix.scanner.verdicts.findings import matrix
from detmatrix.scanner.verdicts.vocabulary import MODE_FINDING_MEANING, ModeFinding
from tests.observed import observed
from tests.runs import SETTINGS, row, write_run
from tests.scripts import OUTPUT, asked, header, loaded


def _script(
    modes: tuple[Mode, ...] = ("off", "on", "backward_only", "forward_only"),
    seen: dict[Mode, dict[str, Any]] | None = None,
) -> str:
    """Return the script of a row that was run in these modes, with what was seen otherwise in some."""
    ((spec, planned),) = select(["torch.take:permutation:backward:float32"], "cpu")
    planned_row = row(*planned, family=spec.family)
    outputs = (msgspec.structs.replace(OUTPUT, name="grad of args[0]"),)
    usual: dict[str, Any] = {"outcome": "ran", "executions": 2, "digests": {"a": 2}, "outputs": outputs}
    seen_of_all = [
        Observation(**planned._asdict(), mode=mode, process=0, **usual | (seen or {}).get(mode, {}))
        for mode in modes
    ]
    head = header()
    settings = msgspec.structs.replace(head.settings, modes=with_chosen(modes))
    head = msgspec.structs.replace(head, planned=(planned_row,), settings=settings)
    (found,) = matrix(head, seen_of_all, closed=True)
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


def test_script_claims_nothing_of_what_was_not_compiled() -> None:
    """Under torch.compile the op would run eagerly, which the scan calls no verdict; the comment says why the mode is left out."""
    eagerly = {"outcome": "not_run", "message": "not compiled: dynamic shape", "executions": 0, "digests": {}}
    text = _script(
        ("off", "on", "backward_only", "compile_on"),
        {"compile_on": eagerly | {"compiled": Compiled(graphs=0, breaks=1, kernels=0)}},
    )

    comment = " ".join(line[2:] for line in text.splitlines() if line.startswith("# "))
    code = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    assert "for mode in ('backward_only',):" in code
    assert "compile_on" not in code
    assert "not compiled: dynamic shape" in comment


STILL, OTHER, RACES = {"a": 200}, {"b": 200}, {"a": 180, "b": 20}


@pytest.mark.parametrize(
    ("mode", "off", "late", "finding"),
    [
        ("backward_only", STILL, RACES, "silent"),
        ("backward_only", RACES, RACES, "silent"),
        ("backward_only", RACES, STILL, "fixed_by_mode"),
        ("forward_only", STILL, RACES, "differs"),
        ("forward_only", RACES, RACES, "also_differs"),
        ("forward_only", STILL, STILL, "as_off"),
        ("forward_only", STILL, OTHER, "mode_dependent"),
    ],
)
def test_script_says_whose_finding_it_is(
    mode: Mode,
    off: dict[str, int],
    late: dict[str, int],
    finding: ModeFinding,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It ends in the finding of the mode, which is that of the scan; that of off and on is not left to be taken for it."""
    seen: dict[Mode, dict[str, int]] = {"off": off, "on": STILL, "unfilled": STILL, mode: late}
    text = _script(tuple(seen), {one: {"executions": 200, "digests": found} for one, found in seen.items()})
    cells = {
        one: ("nondeterministic" if len(found) > 1 else "deterministic", next(iter(found)))
        for one, found in seen.items()
    }
    names = loaded(text)
    names["cell"], names["RUNS"] = cells.__getitem__, 200

    names["main"]()

    own = "deterministic" if off is STILL else "fixed_by_mode"
    assert capsys.readouterr().out.splitlines()[-2:] == [
        f"finding with the flag off and on: {own}",
        f"finding in {mode}: {finding}",
    ]
    comment = " ".join(line[2:] for line in text.splitlines() if line.startswith("# "))
    assert f" {own} with the flag off and on: " in comment
    assert f" {finding} in {mode}: {MODE_FINDING_MEANING[finding]}" in comment
    if finding == "mode_dependent":
        names["RUNS"] = 20
        names["main"]()
        assert capsys.readouterr().out.splitlines()[-1].startswith(f"finding in {mode}: inconclusive")


def test_masks_say_what_an_output_sees() -> None:
    """Counted by hand of three layers: the row above, widening by one each, and the pixels to the left."""
    draws = Inputs("field", dtype="float32", device="cpu", direction="backward")
    image = draws.normal(1, 1, 7, 7)
    weights = [draws.normal(1, 1, 3, 3) for _ in range(3)]

    field = convolution.receptive_field(call(image, weights, 4, 3))[0, 0]

    assert ["".join("#" if pixel else "." for pixel in line) for line in field.tolist()] == [
        ".......",
        "#######",
        "######.",
        "#####..",
        "###....",
        ".......",
        ".......",
    ]


FIELD = next(one for one in convolution.SPECS if one.name == "masked_conv2d.receptive_field")
CHOSEN: tuple[Mode, ...] = ("off", "on", "backward_only", "forward_only")


@pytest.mark.parametrize("mode", CHOSEN)
def test_a_gradient_outside_of_the_masks_is_told_and_there_is_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mode: Mode
) -> None:
    """One product that should be zero and is not shows in every mode; that is no error, and no report is silent about it."""
    right = observed(FIELD, mode=mode, direction="backward")
    assert (right["outcome"], right["reference"]["elements"]) == ("ran", 0)
    assert right["digests"] == {right["reference"]["digest"]: 2}
    monkeypatch.setattr(
        "detmatrix.opspecs.masked.masked_convolutions",
        lambda image, *rest: masked_convolutions(image, *rest) + 1e-30 * image[:, :, -1, -1],
    )
    small = replace(FIELD, cases={"small": replace(FIELD.cases["nonzero_gradient"], inputs=_small)})

    seen = observed(small, mode=mode, direction="backward")

    assert (seen["outcome"], seen["reference"]["elements"]) == ("ran", 1)
    planned = row(FIELD.name, "small", "backward", family="convolution")
    place = {"spec": FIELD.name, "case": "small", "direction": "backward", "dtype": "float32"}
    both = [
        msgspec.convert(place | seen | {"mode": one, "process": 0}, Observation)
        for one in dict.fromkeys(("off", "on", mode))
    ]
    settings = msgspec.structs.replace(SETTINGS, runs=2, processes=1, modes=with_chosen((mode,)))
    run = load([str(write_run(tmp_path / "run.jsonl", [(planned, both)], settings=settings))])
    (op,) = ops_view(run)["ops"]
    assert (op.action, op.is_clean) == ("not its reference: 1 row", False)
    (found,) = run[0].rows
    assert mode in found.unlike_reference
    assert ", not its reference" in found.finding_words()
    assert "2 not as its reference, 1 element of the first" in found.cells[mode].details
    told = explained(KnownOp(FIELD.name, (), (), ()), {}, run)
    assert told["action"].startswith("On CPU, in 1 row it did not match the reference of the case")
    assert "Nothing" not in told["action"]
    assert told["measured"][0]["cases"]["backward"][0]["doubts"]["not its reference"] == 1


def _small(t: Inputs) -> Call:
    image = t.leaf(t.normal(1, 1, 8, 8))
    return call(image, [t.normal(2, 1, 3, 3), t.normal(2, 2, 3, 3)], 4, 4)
