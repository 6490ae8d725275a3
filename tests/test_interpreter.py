"""The interpreter that is scanned: what ``--python`` names, and what it lacks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import refused


@pytest.fixture
def bare_python(tmp_path: Path) -> Path:
    """Return an interpreter that has the standard library and nothing else."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    return tmp_path / "bare" / "bin" / "python"


def test_scan_without_torch_of_its_own_is_not_to_be_trusted(tmp_path: Path, bare_python: Path) -> None:
    """Where nobody named an interpreter, a torch that is missing means that no worker could start: exit 4."""
    # The main process finds what it needs in a way that workers do not inherit.
    path = [str(Path(__file__).parent.parent), *(entry for entry in sys.path if entry)]
    start = f"import sys; sys.path[:0] = {path!r}; from detmatrix.scanner.cli.main import main; main()"

    done = subprocess.run(
        [bare_python, "-c", start, "scan", "torch.cumsum", "--device", "cpu", "-o", tmp_path / "run.jsonl"],
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert refused(done, 4) == f"{bare_python}: has no torch; install it there (pip install torch)"
