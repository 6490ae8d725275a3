"""Modes that ``--modes`` chooses: which rows run in them, what they set, and what is recorded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from detmatrix.opspecs.model import Case, OpSpec, call
from detmatrix.scanner.modes import MODE_TABLE, Mode
from detmatrix.scanner.observations.runfile import read_run
from tests.commands import Command
from tests.quick import SPECS as QUICK
from tests.stand_in import StandIn

SPECS = Path(__file__).with_name("quick.py")
OPTIONS = ("--specs", SPECS, "--device", "cpu", "--runs", 4, "--processes", 1, "--no-cost", "--no-overloads")


def test_rows_run_are_those_that_a_mode_concerns(detmatrix: Command, tmp_path: Path) -> None:
    """Only rows with a backward phase run in backward_only; the run file says that it was asked for."""
    standing = StandIn(tmp_path)

    done = detmatrix("scan", "quick", *OPTIONS, "--python", standing.python, "--modes", "off,backward_only")

    assert done.returncode == 0, done.stderr
    asked = {row for mode, row in standing.asked("observe") if mode == "backward_only"}
    assert asked == {
        f"quick.cumsum:small:backward:{dtype}"
        for spec in QUICK
        if spec.name == "quick.cumsum"
        for dtype in spec.dtypes
    }
    run = read_run(tmp_path / "detmatrix.jsonl")
    assert run.header.settings.modes == ("off", "on", "warn_only", "unfilled", "backward_only")
    assert run.closing is not None
    assert run.closing.distrust == ()


def test_what_cannot_run_here_is_one_line(detmatrix: Command, tmp_path: Path) -> None:
    """No worker starts for cuDNN on the CPU; the modes are recorded all the same, and the scan says why they say nothing."""
    standing = StandIn(tmp_path)

    done = detmatrix(
        "scan", "quick", *OPTIONS, "--python", standing.python, "--modes", "cudnn_deterministic,cudnn_both"
    )

    said = [line for line in done.stderr.splitlines() if "cudnn" in line]
    assert said == ["scan: modes cudnn_deterministic, cudnn_both: not run, cuDNN computes on CUDA alone"]
    assert not {one["mode"] for one in standing.noted} & {"cudnn_deterministic", "cudnn_both"}
    assert read_run(tmp_path / "detmatrix.jsonl").header.settings.modes[-2:] == (
        "cudnn_deterministic",
        "cudnn_both",
    )


@pytest.fixture
def flag_off() -> Iterator[Any]:
    """Return torch, with the flag off before and behind."""
    torch = pytest.importorskip("torch")
    yield torch
    torch.use_deterministic_algorithms(False)


def _planted(torch: Any) -> OpSpec:
    """Return an op that looks at the flag in its forward phase alone, and then cannot do without it, as MaxPool3d on CUDA."""

    class Put(torch.autograd.Function):  # type: ignore[misc]
        """Its backward phase has no deterministic implementation."""

        @staticmethod
        def forward(_: Any, value: Any) -> Any:
            return value * 2

        @staticmethod
        def backward(_: Any, gradient: Any) -> Any:
            return torch.zeros_like(gradient).put_(torch.arange(gradient.numel()), gradient * 2)

    def op(value: Any) -> Any:
        return value * 2 if torch.are_deterministic_algorithms_enabled() else Put.apply(value)

    case = Case(inputs=lambda t: call(t.leaf(t.normal(4))))
    return OpSpec(name="planted.put", op=op, why="Planted.", cases={"one": case}, directions=("backward",))


@pytest.mark.parametrize(
    ("mode", "outcome"), [("off", "ran"), ("on", "ran"), ("backward_only", "raised"), ("forward_only", "ran")]
)
def test_flag_is_switched_between_forward_and_backward(flag_off: Any, mode: Mode, outcome: str) -> None:
    """An op that is made deterministic in its forward phase raises where the flag is on in the backward one alone."""
    from detmatrix.scanner.worker.observe import observe  # noqa: PLC0415 - needs torch

    it = MODE_TABLE[mode]
    flag_off.use_deterministic_algorithms(it.deterministic)
    where: dict[str, Any] = {"direction": "backward", "dtype": "float32", "device": "cpu", "seed": 0}

    seen = observe(_planted(flag_off), "one", **where, runs=3, execution=it.execution)

    assert (seen["outcome"], "put_" in str(seen.get("message"))) == (outcome, outcome == "raised")
    assert flag_off.are_deterministic_algorithms_enabled() == it.deterministic
