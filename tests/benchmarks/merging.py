"""The memory that merging and reporting take: that of a merge is bounded by the plan, that of a report by the observations.

python -m tests.benchmarks.merging [OBSERVATIONS [SHARDS]]: write the shards of a run of so many observations (100 000 by
default, in 50 shards), merge them, and report the merged file in each format. Each figure is of a process of its own, which
ends where it would need more memory than is free. All files are compressed.
"""

from __future__ import annotations

import gzip
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from detmatrix.reports.cli.report import RENDERERS
from detmatrix.reports.matrix.model import load
from detmatrix.reports.render import write_whole
from detmatrix.scanner.observations.merge import write_merged
from tests.large import write_shard

STEPS = ("merge", "load", *RENDERERS)


def step(name: str, shards: list[Path], merged: Path) -> None:
    """Do one step, and print its seconds and its peak memory; in the process that is measured."""
    # What needs more ends by itself, and no other process with it.
    free = _kilobytes("/proc/meminfo", "MemAvailable") * 1024
    resource.setrlimit(resource.RLIMIT_DATA, (free, free))
    started = time.perf_counter()
    if name == "merge":
        write_merged(shards, merged)
    elif name == "load":
        load([str(merged)])
    else:
        write_whole(merged.with_name(f"report.{name}"), RENDERERS[name](load([str(merged)])))
    print(time.perf_counter() - started, _kilobytes("/proc/self/status", "VmHWM") * 1024)


def _kilobytes(path: str, name: str) -> int:
    return int(re.findall(rf"{name}:\s+(\d+) kB", Path(path).read_text())[0])


def _packed(path: Path, observations: int, shard: int, shards: int) -> Path:
    """Write a shard, compressed."""
    plain = write_shard(path.with_suffix(""), observations, shard, shards)
    with plain.open("rb") as lines, gzip.open(path, "wb", compresslevel=1) as packed:
        shutil.copyfileobj(lines, packed, 1 << 20)
    plain.unlink()
    return path


def main() -> None:
    """Print seconds and peak memory of each step."""
    if sys.argv[1:2] == ["--step"]:
        *shards, merged = map(Path, sys.argv[3:])
        return step(sys.argv[2], shards, merged)
    observations, count = (*map(int, sys.argv[1:]), *(100_000, 50)[len(sys.argv) - 1 :])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = [
            _packed(folder / f"{number}.jsonl.gz", observations, number, count)
            for number in range(1, count + 1)
        ]
        size = sum(path.stat().st_size for path in files)
        print(f"{observations} observations in {count} shards, {size / 1e6:.0f} MB compressed", flush=True)
        for what in STEPS:
            command = [
                sys.executable,
                "-m",
                "tests.benchmarks.merging",
                "--step",
                what,
                *map(str, files),
                str(folder / "merged.jsonl.gz"),
            ]
            done = subprocess.run(command, check=False, capture_output=True, text=True)
            if done.returncode:
                print(f"{what:9} did not finish: {done.stderr.strip().splitlines()[-1:]}", flush=True)
                continue
            seconds, peak = map(float, done.stdout.split())
            each = peak / observations
            print(
                f"{what:9} {seconds:8.1f} s {peak / 1e6:7.0f} MB at the peak, {each:6.0f} bytes per observation",
                flush=True,
            )
    return None


if __name__ == "__main__":
    main()
