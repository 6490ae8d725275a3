"""A user's own files may bear the names of our packages: they are never run in place of ours."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from detmatrix.scanner.processes.sandbox import ImportSandbox
from detmatrix.scanner.processes.variables import worker_environment
from tests import tied

ROOT = Path(__file__).parent.parent
RUN = ROOT / "reports" / "runs" / "torch-2.13.0-cpu.jsonl.gz"
# As pip writes a console script.
CONSOLE = "import sys; from detmatrix.scanner.cli.main import main; sys.exit(main())"


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """A folder of a user's, whose files say so if they are run."""
    for name in ("scanner.py", "opspecs.py", "reports/__init__.py", "reports/cli/__init__.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("import pathlib; pathlib.Path('was_run').touch()\nraise SystemExit(77)\n")
    return tmp_path


def _runs(planted: Path, *command: str, path: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": path}
    return tied.run([sys.executable, *command], cwd=planted, env=environment)


@pytest.mark.parametrize("arguments", [["list", "take"], ["report", str(RUN), "--rows", "torch.take:*"]])
def test_console_script_runs_ours(planted: Path, arguments: list[str]) -> None:
    """With PYTHONPATH=. the current folder is searched before the packages that are installed."""
    done = _runs(planted, "-c", CONSOLE, *arguments, path=f".{os.pathsep}{ROOT}")

    assert (done.returncode, done.stderr) == (0, "")
    assert "torch.take" in done.stdout
    assert not (planted / "was_run").exists()


def test_module_runs_ours(planted: Path) -> None:
    """``python -m`` searches the current folder first."""
    arguments = ["report", str(RUN), "--rows", "torch.take:*"]
    done = _runs(planted, "-m", "detmatrix", *arguments, path=str(ROOT))

    assert (done.returncode, done.stderr) == (0, "")
    assert not (planted / "was_run").exists()


def test_worker_imports_ours(planted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker starts in a folder of its own and inherits no PYTHONPATH."""
    monkeypatch.chdir(planted)
    monkeypatch.setenv("PYTHONPATH", ".")
    script = "from detmatrix import opspecs, scanner; print(scanner.__file__, opspecs.__file__)"

    with ImportSandbox() as sandbox:
        done = subprocess.run(
            [sys.executable, "-c", script],
            cwd=sandbox.path,
            env=worker_environment("off", "cpu"),
            capture_output=True,
            text=True,
            check=True,
        )
        found = [Path(name).resolve().parent for name in done.stdout.split()]

    assert found == [ROOT / "scanner", ROOT / "opspecs"]
    assert not (planted / "was_run").exists()
