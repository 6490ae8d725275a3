"""The unattended campaign of .ci/cuda, here on the CPU: it packs what it measured, and goes on with an archive."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path

import pytest

from detmatrix.scanner.observations.runfile import read_run
from tests import tied

ROOT = Path(__file__).parent.parent
NAMES = ("quiet", "documented", "databases", "cost", "dtypes")
VERSION = "7.8.9"


@pytest.fixture
def variables(tmp_path: Path) -> dict[str, str]:
    """Return an environment whose python3 finds all that is installed here but detmatrix, as on a machine with a GPU."""
    site, path = tmp_path / "site", tmp_path / "bin"
    site.mkdir()
    for one in Path(sysconfig.get_path("purelib")).iterdir():
        if "detmatrix" not in one.name:
            (site / one.name).symlink_to(one)
    path.mkdir()
    python = path / "python3"
    # Without -S the folder that detmatrix is installed in would be searched as well.
    python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -S "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    return os.environ | {"PATH": f"{path}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(site)}


def _campaign(folder: Path, variables: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [folder / ".ci" / "cuda", *arguments], capture_output=True, text=True, env=variables, check=False
    )


def _checkout(folder: Path) -> Path:
    """Copy what the campaign runs, as a version that is installed nowhere."""
    folder.mkdir()
    shutil.copytree(ROOT / "detmatrix", folder / "detmatrix", symlinks=True)
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    project = re.sub(r'^version = ".*"$', f'version = "{VERSION}"', project, flags=re.MULTILINE)
    (folder / "pyproject.toml").write_text(project, encoding="utf-8")
    for name in (".ci", "opspecs", "reports", "scanner", "tests"):
        shutil.copytree(
            ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "runs", "traces")
        )
    return folder


@pytest.mark.nightly
def test_campaign_goes_on_with_its_archive(tmp_path: Path, variables: dict[str, str]) -> None:
    """All runs are in one archive; another checkout that gets it measures nothing again, and what it lacked."""
    first, second = (_checkout(tmp_path / name) for name in ("first", "second"))
    done = _campaign(first, variables, "out", "500", "cpu", "*index_add*")
    assert done.returncode == 0, done.stderr
    archive = first / "out" / "results.tar.xz"
    assert archive.stat().st_size < 16 << 20
    with tarfile.open(archive) as packed:
        names = {Path(name).name for name in packed.getnames()}
    assert {f"torch-cpu-{name}.jsonl.gz" for name in NAMES} <= names
    runs = {name: read_run(first / ".cuda" / "work" / f"torch-cpu-{name}.jsonl") for name in NAMES}
    assert all(run.closing is not None for run in runs.values())
    assert {run.header.tool for run in runs.values()} == {VERSION}

    (second / ".cuda").mkdir()
    shutil.copy(archive, second / ".cuda")
    done = _campaign(second, variables, "out", "500", "cpu", "*index_add*")

    assert done.returncode == 0, done.stderr
    for name, run in runs.items():
        again = read_run(second / ".cuda" / "work" / f"torch-cpu-{name}.jsonl")
        assert (again.header, again.observations) == (run.header, run.observations)


@pytest.mark.parametrize("installed", [False, True], ids=["not installed", "beside an installed one"])
def test_a_checkout_says_its_own_version(
    tmp_path: Path, variables: dict[str, str], *, installed: bool
) -> None:
    """Run files name it, and another version does not go on with them; on the machine with a GPU nothing is installed."""
    python = sys.executable if installed else "python3"
    command = [python, "-m", "detmatrix", "--version"]

    done = tied.run(command, cwd=_checkout(tmp_path / "checkout"), env=variables)

    assert (done.returncode, done.stdout) == (0, f"detmatrix {VERSION}\n"), done.stderr
