"""The unattended campaign of .ci/cuda, here on the CPU: it packs what it measured, and goes on with an archive."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from scanner.observations.runfile import read_run
from tests.benchmarks import cuda_campaign

ROOT = Path(__file__).parent.parent
NAMES = ("quiet", "documented", "databases", "cost", "dtypes")


def _campaign(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    variables.pop("PYTHONPATH", None)
    return subprocess.run(
        [folder / ".ci" / "cuda", *arguments], capture_output=True, text=True, env=variables, check=False
    )


def _checkout(folder: Path) -> Path:
    for name in (".ci", "opspecs", "reports", "scanner", "tests"):
        shutil.copytree(
            ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "runs", "traces")
        )
    return folder


@pytest.mark.nightly
def test_campaign_goes_on_with_its_archive(tmp_path: Path) -> None:
    """All runs are in one archive; another checkout that gets it measures nothing again, and what it lacked."""
    first, second = (_checkout(tmp_path / name) for name in ("first", "second"))
    done = _campaign(first, "out", "500", "cpu", "*index_add*")
    assert done.returncode == 0, done.stderr
    archive = first / "out" / "results.tar.xz"
    assert archive.stat().st_size < 16 << 20
    with tarfile.open(archive) as packed:
        names = {Path(name).name for name in packed.getnames()}
    assert {f"torch-cpu-{name}.jsonl.gz" for name in NAMES} <= names
    runs = {name: read_run(first / ".cuda" / "work" / f"torch-cpu-{name}.jsonl") for name in NAMES}
    assert all(run.closing is not None for run in runs.values())

    (second / ".cuda").mkdir()
    shutil.copy(archive, second / ".cuda")
    done = _campaign(second, "out", "500", "cpu", "*index_add*")

    assert done.returncode == 0, done.stderr
    for name, run in runs.items():
        again = read_run(second / ".cuda" / "work" / f"torch-cpu-{name}.jsonl")
        assert (again.header, again.observations) == (run.header, run.observations)


def test_the_timetable_is_of_the_campaign() -> None:
    """Its stages are those of the script, in order, with as many executions and processes."""
    found = []
    for line in (ROOT / ".ci" / "cuda").read_text().replace("\\\n", "").splitlines():
        if scanned := re.match(r"scan (\w+)(.*)", line):
            options = dict(re.findall(r"--(runs|processes) (\d+)", scanned[2]))
            found.append((scanned[1], int(options.get("runs", 50)), int(options.get("processes", 2))))
        elif "scanner cudnn --measure" in line:
            found.append(("engines", 20, 1))

    assert [(one.name, one.runs, one.processes) for one in cuda_campaign.stages()] == found
