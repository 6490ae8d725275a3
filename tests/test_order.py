"""The perturbation ``order``: what other orders of programs show is told apart from what was measured, in every report."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from msgspec.structs import replace

from detmatrix.scanner.cases.settings import asked_for, settings_for
from detmatrix.scanner.errors import UsageError
from detmatrix.scanner.modes import Mode
from detmatrix.scanner.observations.records import Observation
from detmatrix.scanner.processes.variables import worker_environment
from detmatrix.scanner.verdicts.findings import MatrixRow
from tests.commands import Command
from tests.compared import run_of
from tests.conftest import refused
from tests.evidence_runs import only
from tests.runs import SETTINGS, launching, ran, row, stable, write_run

ROW = row("torch.Tensor.scatter_add_", device="cpu")


def seen(off: list[Observation], on: list[Observation]) -> MatrixRow:
    """Return the only row of a run."""
    (found,) = run_of((ROW, [*off, *on])).rows
    return found


def still(mode: Mode) -> list[Observation]:
    return ran(ROW, mode, *stable())


def test_workers_interpret_kernels_only_where_it_is_asked() -> None:
    """Triton reads the variable when a kernel is defined, so that the worker begins with it."""
    assert "TRITON_INTERPRET" not in worker_environment("off", "cpu", ("quiet", "stress"))
    assert worker_environment("on", "cpu", ("quiet", "order"))["TRITON_INTERPRET"] == "1"


def test_on_a_gpu_kernels_run_on_it() -> None:
    """What a GPU can be asked is not simulated."""
    with pytest.raises(UsageError, match="there is no order on cuda:0"):
        settings_for(asked_for(perturb=("quiet", "order")), "cuda:0")


@pytest.mark.skipif(importlib.util.find_spec("triton") is not None, reason="Triton is installed here")
@pytest.mark.parametrize(
    ("words", "option"),
    [
        (("scan", "cumsum", "--perturb", "quiet,order"), "--perturb order"),
        (("locate", "--order", "a.py"), "--order"),
    ],
    ids=["scan", "locate"],
)
def test_missing_triton_is_told_in_a_line(
    detmatrix: Command, tmp_path: Path, words: tuple[str, ...], option: str
) -> None:
    """With what to do about it."""
    (tmp_path / "a.py").write_text("", encoding="utf-8")
    line = refused(detmatrix(*words))

    assert line.startswith(f"{option}: ")
    assert line.endswith("has no Triton; install it there (pip install triton)")


def test_no_script_is_written_of_what_the_interpreter_showed(detmatrix: Command, tmp_path: Path) -> None:
    """The kernel is not in it; the command that runs the row again is told."""
    observations = [*launching(still("off"), 3), *launching(still("on"), 3)]
    settings = replace(SETTINGS, perturb=("quiet", "order"))
    write_run(tmp_path / "run.jsonl", [(ROW, observations)], settings=settings)
    line = refused(detmatrix("repro", "run.jsonl", ROW.id))

    assert line.startswith(f"{ROW.id}: no script can be written: Triton's interpreter ran its kernels")
    assert line.endswith(f"detmatrix scan {ROW.id} --specs FILE.py --perturb quiet,order")
    assert only(tmp_path / "run.jsonl").rows[0].finding == "order_dependent"
