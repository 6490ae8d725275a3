"""The memory that merging and reporting take: that of a merge is bounded by the plan, that of a report by the observations.

python tests/benchmarks/merging.py [OBSERVATIONS [SHARDS]]: write the shards of a run of so many observations (100 000 by
default, in 50 shards), merge them, and report the merged file in each format. Each figure is of a process of its own.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from reports.cli.report import RENDERERS
from reports.matrix.model import load
from reports.render.output import write_report
from scanner.cli.merge import write_merged
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
        write_report(merged.with_suffix(f".{name}"), RENDERERS[name](load([str(merged)])))


def measured(name: str, files: list[Path]) -> tuple[float, int]:
    """Return the seconds and the peak memory of one step in a process of its own."""
    command = [sys.executable, "-m", "tests.benchmarks.merging", "--step", name, *map(str, files)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        return float("nan"), 0
    seconds, peak = done.stdout.split()
    return float(seconds), int(peak)


def main() -> int:
    """Print seconds and peak memory of each step."""
    if sys.argv[1:2] == ["--step"]:  # in the process that is measured
        started = time.perf_counter()
        step(sys.argv[2], [Path(path) for path in sys.argv[3:]])
        peak = re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[0]
        print(time.perf_counter() - started, int(peak) * 1024)
        return 0
    observations, shards = [*map(int, sys.argv[1:]), *(100_000, SHARDS)[len(sys.argv) - 1 :]]
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, f"shard-{number}.jsonl") for number in range(1, shards + 1)]
        for number, path in enumerate(files, start=1):
            write_shard(path, observations, number, shards)
        size = sum(path.stat().st_size for path in files)
        print(f"{observations} observations in {shards} shards, {size / 1e6:.0f} MB", flush=True)
        for name in STEPS:
            seconds, peak = measured(name, [*files, Path(folder, "merged.jsonl")])
            print(
                f"{name:9} {seconds:8.1f} s {peak / 1e6:7.0f} MB at the peak, {peak / observations:6.0f} bytes per observation",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
