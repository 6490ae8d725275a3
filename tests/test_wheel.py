"""What is installed has what it needs beside its modules."""

from __future__ import annotations

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


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The names of the files in a wheel of this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    for package in ("opspecs", "reports", "scanner"):
        shutil.copytree(ROOT / package, folder / package, ignore=HEAVY)
    for file in ("pyproject.toml", "detmatrix.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, folder)
    done = tied.run([sys.executable, "-c", BUILD, str(folder)], cwd=folder)
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("*.whl")
    with zipfile.ZipFile(built) as archive:
        return set(archive.namelist())


def _files(folder: str, *endings: str) -> set[str]:
    paths = (path for path in (ROOT / folder).rglob("*") if path.suffix in endings)
    return {path.relative_to(ROOT).as_posix() for path in paths}


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

    imported = lines - sys.stdlib_module_names - {"scanner"}
    assert imported
    assert imported <= names
