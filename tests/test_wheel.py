"""What is installed has what it needs beside its modules."""

from __future__ import annotations

import os
import shutil
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests import tied

ROOT = Path(__file__).parent.parent
BUILD = "import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1])"
# Recorded files that no test here asks for; packing them takes seconds.
HEAVY = shutil.ignore_patterns("__pycache__", "runs", "engines")


# A project that has packages of the names of our folders, and says which it got.
OWN = """
import opspecs, reports, scanner
def own(x):
    assert {opspecs.NAME, reports.NAME, scanner.NAME} == {"theirs"}
    return x + x
def test_own(detmatrix_locate):
    own(1)
"""


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


@pytest.fixture(scope="module")
def wheel(built: Path) -> set[str]:
    """The names of its files."""
    with zipfile.ZipFile(built) as archive:
        return set(archive.namelist())


def test_a_project_keeps_packages_of_its_own(built: Path, tmp_path: Path) -> None:
    """The wheel owns the one name detmatrix: no test, no function and no module of theirs gets ours."""
    site, project = tmp_path / "site", tmp_path / "project"
    with zipfile.ZipFile(built) as archive:
        archive.extractall(site)
    assert {path.name for path in site.iterdir() if path.suffix != ".dist-info"} == {"detmatrix"}
    for name in ("opspecs", "reports", "scanner"):
        (project / name).mkdir(parents=True)
        (project / name / "__init__.py").write_text("NAME = 'theirs'\n", encoding="utf-8")
    (project / "test_own.py").write_text(OWN, encoding="utf-8")
    (project / "x.py").write_text("import torch\ndef args(): return (torch.ones(4),)\n", encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": f"{site}{os.pathsep}{project}"}

    for command in (
        ["pytest", "-q", "-p", "no:cacheprovider", "test_own.py"],
        ["detmatrix", "check", "test_own.py:own", "--inputs", "x.py:args", "--runs", "2"],
    ):
        done = tied.run([sys.executable, "-m", *command], cwd=project, env=environment)
        assert done.returncode == 0, done.stdout + done.stderr


def _files(folder: str, *endings: str) -> set[str]:
    paths = (path for path in (ROOT / folder).rglob("*") if path.suffix in endings)
    return {f"detmatrix/{path.relative_to(ROOT).as_posix()}" for path in paths}


def test_sources_of_the_simulated_gpu_are_in_the_wheel(wheel: set[str]) -> None:
    """They are compiled where a scan runs, so that each source and header has to be there."""
    sources = _files("scanner/gpu", ".c", ".h")

    assert {Path(name).parent.name for name in sources} == {"engine", "runtime"}
    assert sources - wheel == set()


@pytest.mark.parametrize("package", ["opspecs", "reports", "scanner"])
def test_modules_are_in_the_wheel(wheel: set[str], package: str) -> None:
    """A folder that has modules is a package."""
    assert _files(package, ".py") - wheel == set()


def test_extra_has_what_the_simulated_gpu_imports() -> None:
    """What is no module of ours, and none of Python's, is a requirement of the extra."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = {Requirement(one).name for one in project["optional-dependencies"]["simulate"]}
    lines = {
        line.split()[1].partition(".")[0]
        for path in (ROOT / "scanner" / "gpu").rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.startswith(("import ", "from "))
    }

    imported = lines - sys.stdlib_module_names - {"detmatrix"}
    assert imported
    assert imported <= names
