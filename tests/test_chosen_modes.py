"""Modes that ``--modes`` chooses: which rows run in them, what they set, and what is recorded."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from detmatrix.opspecs.model import Case, OpSpec, call
from detmatrix.scanner.cases.settings import asked_for, settings_for
from detmatrix.scanner.modes import MODE_TABLE, Mode
from detmatrix.scanner.observations.runfile import read_run
from detmatrix.scanner.processes.process import WorkerEndedError
from detmatrix.scanner.processes.variables import worker_environment
from detmatrix.scanner.run.passes import PassRunner
from detmatrix.scanner.run.progress import PlainProgress
from tests.bullets import CUBLAS, DETERMINISTIC, read
from tests.commands import Command
from tests.evidence_runs import ONE
from tests.quick import SPECS as QUICK
from tests.runs import SETTINGS, write_run
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


# The table of modes: what each sets, where there is one, and of which rows it has something to say.

_MM = replace(ONE, spec="torch.mm", documented=("torch.mm",), device="cuda:0")
_OTHER = replace(ONE, device="cuda:0")


class _NoWorkers:
    """Stands for the workers; notes which rows it is asked for, and answers nothing."""

    serving = None
    started = 0

    def __init__(self) -> None:
        self.asked: list[str] = []

    def renew(self, _: Mode) -> None:
        pass

    def ask(self, _: Mode, request: dict[str, Any], __: float) -> dict[str, Any]:
        self.asked.append(request["spec"])
        raise WorkerEndedError("there is none")

    def ask_for(self, *_: object) -> None:
        raise WorkerEndedError("there is none")


@pytest.mark.parametrize("mode", MODE_TABLE)
def test_only_modes_that_ask_for_it_have_the_workspace(mode: Mode, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable of the user's own does not reach the mode that is to do without it."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")

    it = MODE_TABLE[mode]
    found = worker_environment(mode, "cuda:0").get("CUBLAS_WORKSPACE_CONFIG")

    without = mode == "no_workspace" or not (it.deterministic or it.deterministic_backward)
    assert found == (None if without else ":4096:8")


@pytest.mark.parametrize(("device", "there"), [("cpu", False), ("cuda:0", True)])
def test_no_cublas_no_mode_without_its_workspace(device: str, there: bool) -> None:
    """On the CPU no worker is started for a mode that only changes what CUDA does."""
    modes = settings_for(asked_for(perturb=("quiet",)), device).modes

    assert ("no_workspace" in modes) == there
    assert {"off", "on", "warn_only", "unfilled"} <= set(modes)


@pytest.mark.parametrize(("heading", "asked"), [(CUBLAS, ["torch.mm"]), (DETERMINISTIC, [])])
def test_rows_run_without_workspace_are_those_the_lists_tie_to_it(
    tmp_path: Path, heading: str, asked: list[str]
) -> None:
    """Torch up to 2.9 has a list of them, and later releases have none, so that nothing is run."""
    settings = replace(SETTINGS, device="cuda:0", modes=tuple(MODE_TABLE), processes=1)
    path = write_run(
        tmp_path / "run.jsonl",
        [(_MM, []), (_OTHER, [])],
        settings=settings,
        claims=read(":func:`torch.mm`", heading),
        closing=None,
    )
    workers = _NoWorkers()
    passes = PassRunner(read_run(path).header, workers, PlainProgress(io.StringIO()), lambda _: None)  # type: ignore[arg-type]

    passes.run("no_workspace", 0)

    assert workers.asked == asked


@pytest.mark.parametrize(
    ("mode", "asked"),
    [
        ("cudnn_deterministic", ["torch.nn.Conv2d", "torch.nn.LSTM"]),
        ("cudnn_benchmark", ["torch.nn.Conv2d", "torch.nn.LSTM"]),
        ("cudnn_both", ["torch.nn.Conv2d", "torch.nn.LSTM"]),
        ("backward_only", ["torch.nn.LSTM"]),
        ("compile_on_cached", []),  # of files of earlier releases
    ],
)
def test_rows_of_a_chosen_mode_on_a_gpu(tmp_path: Path, mode: Mode, asked: list[str]) -> None:
    """With a GPU the modes of cuDNN are run, of the ops that it computes; the flag is switched where there is a backward."""
    lstm = replace(_OTHER, spec="torch.nn.LSTM", op="torch.nn.LSTM", direction="backward", compiled=True)
    planned = [_MM, replace(_OTHER, spec="torch.nn.Conv2d", op="torch.nn.functional.conv2d"), lstm]
    settings = replace(SETTINGS, device="cuda:0", modes=tuple(MODE_TABLE), processes=1)
    path = write_run(tmp_path / "run.jsonl", [(row, []) for row in planned], settings=settings, closing=None)
    workers = _NoWorkers()
    passes = PassRunner(read_run(path).header, workers, PlainProgress(io.StringIO()), lambda _: None)  # type: ignore[arg-type]

    passes.run(mode, 0)

    assert workers.asked == asked
