"""A user's own files may bear the names of our packages: they are never run in place of ours."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from detmatrix.scanner.processes.process import ImportSandbox, WorkerSupervisor, packages_for
from tests import tied
from tests.conftest import DATA, refused

ROOT = Path(__file__).parent.parent


# What is installed has what it needs beside its modules.

BUILD = "import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1])"
# Recorded files that no test here asks for; packing them takes seconds.
HEAVY = shutil.ignore_patterns("__pycache__", "runs", "engines")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of this checkout, without its recorded files."""
    folder = tmp_path_factory.mktemp("wheel")
    for package in ("opspecs", "reports", "scanner"):
        shutil.copytree(ROOT / package, folder / package, ignore=HEAVY)
    shutil.copytree(ROOT / "detmatrix", folder / "detmatrix", symlinks=True)
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, folder)
    done = tied.run([sys.executable, "-c", BUILD, str(folder)], cwd=folder)
    assert done.returncode == 0, done.stderr
    return next(folder.glob("*.whl"))


def test_a_project_keeps_packages_of_its_own(built: Path, tmp_path: Path) -> None:
    """The wheel owns the one name detmatrix: no test, no function and no module of theirs gets ours."""
    site, project = tmp_path / "site", tmp_path / "project"
    with zipfile.ZipFile(built) as archive:
        archive.extractall(site)
    assert {path.name for path in site.iterdir() if path.suffix != ".dist-info"} == {"detmatrix"}
    for name in ("opspecs", "reports", "scanner"):
        (project / name).mkdir(parents=True)
        (project / name / "__init__.py").write_text("NAME = 'theirs'\n", encoding="utf-8")
    # Says which packages it got.
    shutil.copy(DATA / "own-project.py.txt", project / "test_own.py")
    (project / "x.py").write_text("import torch\ndef args(): return (torch.ones(4),)\n", encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": f"{site}{os.pathsep}{project}"}

    for command in (
        ["pytest", "-q", "-p", "no:cacheprovider", "test_own.py"],
        ["detmatrix", "check", "test_own.py:own", "--inputs", "x.py:args", "--runs", "2"],
    ):
        done = tied.run([sys.executable, "-m", *command], cwd=project, env=environment)
        assert done.returncode == 0, done.stdout + done.stderr


def test_all_that_runs_is_in_the_wheel(built: Path) -> None:
    """Modules, and the sources of the simulated GPU, which are compiled where a scan runs."""
    with zipfile.ZipFile(built) as archive:
        packed = set(archive.namelist())
    paths = [path for package in ("opspecs", "reports", "scanner") for path in (ROOT / package).rglob("*.*")]
    needed = [path.relative_to(ROOT) for path in paths if path.suffix in {".py", ".c", ".h"}]

    assert {path.parent.name for path in needed if path.suffix == ".c"} == {"engine", "runtime"}
    assert {f"detmatrix/{path.as_posix()}" for path in needed} - packed == set()


# What a worker finds to import: packages in a folder of their own, and never others in the place of ours.


def test_packages_of_a_folder_are_seen_and_do_not_shadow_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What pip has put beside is there for workers; what has the names of our packages is not taken for them."""
    packages = tmp_path / "packages"
    for name, text in {"separate": "NAME = 'found'", "detmatrix": "raise OSError"}.items():
        (packages / name).mkdir(parents=True)
        (packages / name / "__init__.py").write_text(text)
    shutil.copy(DATA / "specs-telling.py.txt", tmp_path / "own.py")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"packages{os.pathsep}{os.pathsep}")
    with ImportSandbox() as sandbox:
        supervisor = WorkerSupervisor(sys.executable, sandbox.path, (str(tmp_path / "own.py"),), "cpu")
        row = {"spec": "own.tells", "case": "one", "direction": "forward", "dtype": "float32"}
        try:
            answer = supervisor.ask(
                "off", {"do": "observe", **row, "device": "cpu", "seed": 0, "runs": 1}, 60
            )
        finally:
            supervisor.retire()

        found, *ours = answer["message"].partition(", own.py")[0].split()
        assert found == "found"
        assert ours == [
            str(sandbox.path / "detmatrix" / name / "__init__.py") for name in ("opspecs", "scanner")
        ]


def test_another_interpreter_has_packages_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What was installed for one is not given to another."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    other = tmp_path / "python"
    other.write_text("#!/bin/sh")
    other.chmod(0o755)

    assert packages_for(sys.executable) == {"PYTHONPATH": str(tmp_path)}
    assert packages_for(str(other)) == {}


# The interpreter that is scanned: what ``--python`` names, and what it lacks.


def test_scan_without_torch_of_its_own_is_not_to_be_trusted(tmp_path: Path) -> None:
    """Where nobody named an interpreter, a torch that is missing means that no worker could start: exit 4."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    bare = tmp_path / "bare" / "bin" / "python"
    # The main process finds what it needs in a way that workers do not inherit.
    path = [str(Path(__file__).parent.parent), *(entry for entry in sys.path if entry)]
    start = f"import sys; sys.path[:0] = {path!r}; from detmatrix.scanner.cli.main import main; main()"

    done = subprocess.run(
        [bare, "-c", start, "scan", "torch.cumsum", "--device", "cpu", "-o", tmp_path / "run.jsonl"],
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert refused(done, 4) == f"{bare}: has no torch; install it there (pip install torch)"
