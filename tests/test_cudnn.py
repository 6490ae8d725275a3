"""What the process that loads cuDNN says: against a cuDNN of a few lines of C, whose answers are known."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pytest

from detmatrix.scanner.cudnn import take as taking
from detmatrix.scanner.cudnn.problems import PROBLEMS
from detmatrix.scanner.cudnn.record import Engine, EngineTable
from detmatrix.scanner.errors import BuildError
from tests import fake_cudnn
from tests.commands import Command
from tests.conftest import refused

pytestmark = pytest.mark.skipif(fake_cudnn.COMPILER is None, reason="there is no C compiler")
LAYER = PROBLEMS[0]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the fake once."""
    return fake_cudnn.build(tmp_path_factory.mktemp("cudnn"))


@pytest.fixture(autouse=True)
def _no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taking, "driver_is_there", lambda: False)


def _take(library: Path, *gpus: str) -> EngineTable:
    return taking.take(str(library), gpus or ("H100",), ["float32"], ["contiguous"], lambda _: None, [LAYER])


def test_engines_notes_and_order(library: Path) -> None:
    """Each accepted engine stands there with its notes, in the order of the heuristics, whatever cuDNN prints."""
    table = _take(library)

    assert (table.cudnn, table.driver, table.gpus) == ("9.28.0", "stub", {"H100": "described"})
    assert [cell.operation for cell in table.cells] == ["forward", "data gradient", "weight gradient"]
    for cell in table.cells:
        assert (cell.total, cell.order, cell.refused) == (3, (2, 0), None)
        assert cell.engines == (Engine(0, ()), Engine(2, ("NONDETERMINISTIC",)))


def test_heuristics_that_end_the_process(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engines of that GPU are kept without their order, and the other GPUs have theirs."""
    monkeypatch.setenv("FAKE_CUDNN", "crash")
    cells = _take(library, "B200", "H100").cells

    crashed, other = ([cell for cell in cells if cell.gpu == gpu] for gpu in ("B200", "H100"))
    assert [len(cell.engines) for cell in cells] == [2] * 6
    assert [cell.order for cell in other] == [(2, 0)] * 3
    assert all(cell.order == () and "heuristics end the process" in (cell.refused or "") for cell in crashed)
    assert "SIGABRT" in (crashed[0].refused or "")


def test_a_process_that_fails_at_its_end(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it has said until then is all that was asked."""
    expected = _take(library).cells
    monkeypatch.setenv("FAKE_CUDNN", "unloads")

    assert _take(library).cells == expected


def test_cudnn_without_described_gpus(
    detmatrix: Command, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cuDNN before 9.8 reads no description: one line says so."""
    monkeypatch.setenv("FAKE_CUDNN", "old")
    done = detmatrix("cudnn", "--library", str(library), "--arch", "H100")

    assert done.returncode == 3
    assert done.stderr.splitlines()[-1] == (
        f"detmatrix: {library}: cuDNN 9.28.0 cannot be told of GPUs that are not there (DEVICEPROP: set "
        "DEVICEPROP_JSON_REPRESENTATION: CUDNN_STATUS_BAD_PARAM); give one since 9.8"
    )


def test_without_a_compiler(detmatrix: Command, library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line says what to install."""
    monkeypatch.setattr(shutil, "which", lambda _: None)

    assert refused(detmatrix("cudnn", "--library", str(library))) == (
        "cudnn: without NVIDIA's driver a stub of libcuda.so.1 is compiled, and there is no C compiler; install gcc"
    )


def test_without_cudnn(detmatrix: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line says which extra to install."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)

    assert refused(detmatrix("cudnn")) == (
        "cudnn: there is no cuDNN beside this Python; install one with pip install 'detmatrix[cudnn]', or name one with "
        "--library; --read shows a recorded table"
    )


def test_library_that_is_none(tmp_path: Path) -> None:
    """A file that cannot be loaded is told in a line."""
    (tmp_path / "libcudnn.so.9").write_text("no library")

    with pytest.raises(BuildError, match=r"cannot be loaded \(.*\); install one with"):
        _take(tmp_path / "libcudnn.so.9")
