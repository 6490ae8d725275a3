"""The memory that merging and reporting take: that of a merge is bounded by the plan, that of a report by the observations.

python -m tests.benchmarks.merging [OBSERVATIONS [SHARDS]] [--folder DIR] [--steps merge,text]: write the shards of a run of so
many observations (100 000 by default, in 50 shards), merge them, and report the merged file in each format. Each figure is of a
process of its own, which ends where it would need more memory than is free. All files are compressed, and reports are removed as
soon as they are written; shards and merged file go with the last step, unless they have a folder, in which those that are
there are taken: then one step after the other can be measured.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from detmatrix.reports.cli.report import RENDERERS
from detmatrix.reports.matrix.model import load
from detmatrix.reports.render.output import write_report
from detmatrix.scanner.observations.merge import write_merged
from tests.large import write_shard

SHARDS = 50
STEPS = ("merge", "load", *RENDERERS)


def step(name: str, files: list[Path]) -> None:
    """Do one step: the last file is the merged one."""
    *shards, merged = files
    if name == "merge":
        write_merged(shards, merged)
    elif name == "load":
        load([str(merged)])
    else:
        with tempfile.TemporaryDirectory(dir=merged.parent) as folder:
            write_report(Path(folder, f"report.{name}"), RENDERERS[name](load([str(merged)])))


def measured(name: str, files: Sequence[Path]) -> tuple[float, int]:
    """Return the seconds and the peak memory of one step in a process of its own.

    Raises:
        ChildProcessError: It failed; the text says how.
    """
    command = [sys.executable, "-m", "tests.benchmarks.merging", "--step", name, *map(str, files)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise ChildProcessError(done.stderr.strip().rpartition("\n")[2] or f"ended with {done.returncode}")
    seconds, peak = done.stdout.split()
    return float(seconds), int(peak)


def _measured_step(name: str, files: list[Path]) -> None:
    """Do one step, and print its seconds and its peak memory; in the process that is measured."""
    # What needs more ends by itself, and no other process with it.
    free = _kilobytes("/proc/meminfo", "MemAvailable") * 1024
    resource.setrlimit(resource.RLIMIT_DATA, (free, free))
    started = time.perf_counter()
    step(name, files)
    print(time.perf_counter() - started, _kilobytes("/proc/self/status", "VmHWM") * 1024)


def _kilobytes(path: str, name: str) -> int:
    return int(re.findall(rf"{name}:\s+(\d+) kB", Path(path).read_text())[0])


def _write_packed(path: Path, observations: int, shard: int, shards: int) -> None:
    """Write a shard, compressed, unless it is there."""
    if path.exists():
        return
    plain = write_shard(path.with_suffix(""), observations, shard, shards)
    unfinished = path.with_suffix(".part")
    with plain.open("rb") as lines, gzip.open(unfinished, "wb", compresslevel=1) as packed:
        shutil.copyfileobj(lines, packed, 1 << 20)
    plain.unlink()
    unfinished.rename(path)


def main() -> int:
    """Print seconds and peak memory of each step."""
    if sys.argv[1:2] == ["--step"]:
        _measured_step(sys.argv[2], [Path(path) for path in sys.argv[3:]])
        return 0
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("observations", type=int, nargs="?", default=100_000)
    parser.add_argument("shards", type=int, nargs="?", default=SHARDS)
    parser.add_argument(
        "--folder", type=Path, help="keep shards and merged file there, and take those that are there"
    )
    parser.add_argument("--steps", default=",".join(STEPS), help=f"some of {','.join(STEPS)}")
    asked = parser.parse_args()
    observations, shards = asked.observations, asked.shards
    with contextlib.ExitStack() as ending:
        folder = asked.folder or Path(ending.enter_context(tempfile.TemporaryDirectory()))
        merged = folder / f"merged-{observations}-{shards}.jsonl.gz"
        files = [
            folder / f"shard-{number}-of-{shards}-{observations}.jsonl.gz" for number in range(1, shards + 1)
        ]
        folder.mkdir(exist_ok=True)
        if "merge" in asked.steps.split(","):
            for number, path in enumerate(files, start=1):
                _write_packed(path, observations, number, shards)
            size = sum(path.stat().st_size for path in files)
            print(
                f"{observations} observations in {shards} shards, {size / 1e6:.0f} MB compressed", flush=True
            )
        for name in asked.steps.split(","):
            try:
                seconds, peak = measured(name, [*files, merged])
            except ChildProcessError as error:
                print(f"{name:9} did not finish: {error}", flush=True)
                continue
            print(
                f"{name:9} {seconds:8.1f} s {peak / 1e6:7.0f} MB at the peak, {peak / observations:6.0f} bytes per observation",
                flush=True,
            )
            if name == "merge" and not asked.folder:
                for path in files:
                    path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
