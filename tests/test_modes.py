"""The table of modes: what each sets, where there is one, and of which rows it has something to say."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from detmatrix.scanner.cases.settings import asked_for, settings_for
from detmatrix.scanner.modes import MODE_TABLE, Mode
from detmatrix.scanner.observations.runfile import read_run
from detmatrix.scanner.processes.process import WorkerEndedError
from detmatrix.scanner.processes.variables import worker_environment
from detmatrix.scanner.run.passes import PassRunner
from detmatrix.scanner.run.progress import PlainProgress
from tests.bullets import CUBLAS, DETERMINISTIC, read
from tests.evidence_runs import ONE
from tests.runs import SETTINGS, write_run

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
