"""The interpreter that is scanned: what ``--python`` names, and what it lacks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import Command
from tests.conftest import refused


def _scan_with(detmatrix: Command, python: Path) -> str:
    """Return the line a scan of another interpreter refuses with; it leaves no run file."""
    text = refused(
        detmatrix("scan", "torch.cumsum", "--device", "cpu", "--python", python, "-o", "run.jsonl")
    )
    assert not (python.parent / "run.jsonl").exists()
    return text.removeprefix("--python ")


@pytest.fixture
def bare_python(tmp_path: Path) -> Path:
    """Return an interpreter that has the standard library and nothing else."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    return tmp_path / "bare" / "bin" / "python"


def test_interpreter_without_torch_is_told(detmatrix: Command, bare_python: Path) -> None:
    """Nothing can be scanned there, and the remedy is one command."""
    text = _scan_with(detmatrix, bare_python)

    assert text == f"{bare_python}: has no torch; install it there (pip install torch)"


def test_scan_without_torch_of_its_own_is_not_to_be_trusted(tmp_path: Path, bare_python: Path) -> None:
    """Where nobody named an interpreter, a torch that is missing means that no worker could start: exit 4."""
    # The main process finds what it needs in a way that workers do not inherit.
    path = [str(Path(__file__).parent.parent), *(entry for entry in sys.path if entry)]
    start = f"import sys; sys.path[:0] = {path!r}; from scanner.cli.main import main; main()"

    done = subprocess.run(
        [bare_python, "-c", start, "scan", "torch.cumsum", "--device", "cpu", "-o", tmp_path / "run.jsonl"],
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert refused(done, 4) == f"{bare_python}: has no torch; install it there (pip install torch)"


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (None, "no worker could be started (No such file or directory)"),
        ("", "no worker could be started (Permission denied)"),
        ("#!/bin/sh\necho broken >&2; exit 3\n", "no worker could be started (exited with code 3"),
        ("#!/bin/sh\nkill -9 $$\n", "no worker could be started (killed by SIGKILL"),
    ],
    ids=["missing", "not executable", "exits", "killed"],
)
def test_interpreter_that_does_not_start_is_told(
    detmatrix: Command, tmp_path: Path, script: str | None, expected: str
) -> None:
    """Whatever is wrong with it, the scan says so at once and leaves no file."""
    python = tmp_path / "python"
    if script is not None:
        python.write_text(script)
        python.chmod(0o755 if script else 0o644)

    assert _scan_with(detmatrix, python).startswith(f"{python}: {expected}")
