"""Engines executed again and again, on a cuDNN of a few lines of C that works on the host's memory."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from reports.cudnn.render import RENDERERS
from scanner.cudnn import take as taking
from scanner.cudnn.gpus import PRESENT
from scanner.cudnn.measure import measure
from scanner.cudnn.problems import Problem
from scanner.cudnn.record import EngineTable, Executions, encode, read_table
from scanner.errors import UsageError
from tests import fake_cudnn

pytestmark = pytest.mark.skipif(fake_cudnn.COMPILER is None, reason="there is no C compiler")
LAYER = Problem("Net", "conv", 1, 2, (4, 4), 2, 3, padding=1)
NORM = Problem("Net", "norm", 2, 3, (4, 4), norm="batch")
ATTENTION = Problem("Net", "attention", 2, 8, (4,), heads=2)
SAME, OTHER = Executions(4), Executions(4, 3)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the fake once."""
    return fake_cudnn.build(tmp_path_factory.mktemp("cudnn"))


def _measured(
    library: Path,
    monkeypatch: pytest.MonkeyPatch,
    fake: str = "",
    layers: tuple[Problem, ...] = (LAYER,),
    **more: float,
) -> EngineTable:
    monkeypatch.setenv("FAKE_CUDNN", fake)
    monkeypatch.setattr(taking, "driver_is_there", lambda: True)
    table = taking.take(str(library), [PRESENT], ["float16"], ["contiguous"], lambda _: None, layers)
    return measure(table, str(library), 4, more.get("seconds"), lambda _: None, "cpu")


def _came_to(table: EngineTable) -> list[list[Executions | None]]:
    return [[engine.executed for engine in cell.engines] for cell in table.cells]


def test_bits_are_compared(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine that writes something else each time differs in every further execution, the other in none.

    Attention and normalisations have their tensors too, also the number that lies in the host's memory.
    """
    table = _measured(library, monkeypatch, layers=(LAYER, NORM, ATTENTION))

    assert _came_to(table) == [[SAME, OTHER]] * 7
    assert table.measured is not None
    assert (table.measured.gpu, table.measured.runs) == ("cpu", 4)


def test_notes_are_held_against_bits(library: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where bits and note disagree every format says so, and a record is read again as it was."""
    table = _measured(library, monkeypatch, "swapped")

    assert _came_to(table) == [[OTHER, SAME]] * 3
    for form in ("text", "md", "html"):
        said = " ".join("".join(RENDERERS[form]([table])).split())
        assert "never differed, though noted nondeterministic" in said
        assert "differed, though not noted nondeterministic" in said
        assert "Measured on cpu" in said
    (tmp_path / "table.json").write_text(encode(table))
    assert read_table(tmp_path / "table.json") == table


def test_what_cannot_be_built_is_not_runnable(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says what cuDNN refused; the other engines are executed."""
    refused_plan = Executions(failed="EXECUTION_PLAN: finalize: CUDNN_STATUS_NOT_SUPPORTED")
    table = _measured(library, monkeypatch, "unbuilt")

    assert _came_to(table) == [[refused_plan, OTHER]] * 3
    assert "not runnable" in "".join(RENDERERS["md"]([table]))


def test_engine_that_ends_the_process(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It costs itself; what comes behind it is executed in another process."""
    table = _measured(library, monkeypatch, "dies", (NORM,))

    assert _came_to(table) == [[SAME, Executions(failed="ended the process (SIGABRT)")]] * 2


def test_time_ends_it(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was not tried in time is not said to have been."""
    table = _measured(library, monkeypatch, seconds=1e-6)

    assert _came_to(table) == [[None, None]] * 3
    said = " ".join("".join(RENDERERS["text"]([table])).split())
    assert "6 engines of cells were not tried" in said


def test_torch_without_a_gpu(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver with no torch that could use it is one line."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(taking, "driver_is_there", lambda: True)
    table = taking.take(str(library), [PRESENT], ["float16"], ["contiguous"], lambda _: None, [LAYER])

    with pytest.raises(UsageError, match=r"--measure cannot execute engines: torch .* finds no GPU for CUDA"):
        measure(table, str(library), 4, None, lambda _: None)
