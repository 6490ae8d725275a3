"""The memory that merging and reporting take: that of a merge is bounded by the plan, that of a report by the observations.

python -m tests.benchmarks.merging [OBSERVATIONS [SHARDS]]: write the shards of a run of so many observations (100 000 by
default, in 50 shards), merge them, and report the merged file in each format. Each figure is of a process of its own, which
ends where it would need more memory than is free. All files are compressed.
"""

from __future__ import annotations

import gzip
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from detmatrix.reports.cli.report import RENDERERS
from tests.large import write_shard

LOAD = "import sys; from detmatrix.reports.matrix.model import load; load(sys.argv[1:])"


def _packed(path: Path, observations: int, shard: int, shards: int) -> Path:
    """Write a shard, compressed."""
    plain = write_shard(path.with_suffix(""), observations, shard, shards)
    path.write_bytes(gzip.compress(plain.read_bytes(), 1))
    plain.unlink()
    return path


def main() -> None:
    """Print seconds and peak memory of each step."""
    observations, count = (*map(int, sys.argv[1:]), *(100_000, 50)[len(sys.argv) - 1 :])
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = [
            _packed(folder / f"{number}.jsonl.gz", observations, number, count)
            for number in range(1, count + 1)
        ]
        size, merged = sum(path.stat().st_size for path in files), folder / "merged.jsonl.gz"
        print(f"{observations} observations in {count} shards, {size / 1e6:.0f} MB compressed", flush=True)
        report = ["-m", "detmatrix", "report", merged, "--format"]
        steps = {"merge": ["-m", "detmatrix", "merge", *files, "-o", merged], "load": ["-c", LOAD, merged]}
        for what, words in (
            steps | {form: [*report, form, "-o", folder / form] for form in RENDERERS}
        ).items():
            began = time.perf_counter()
            done = subprocess.Popen([sys.executable, *map(str, words)], stderr=subprocess.DEVNULL)
            resource.prlimit(done.pid, resource.RLIMIT_DATA, (free, free))
            _, status, used = os.wait4(done.pid, 0)
            seconds, peak = time.perf_counter() - began, used.ru_maxrss * 1024
            figures = f"{seconds:8.1f} s {peak / 1e6:7.0f} MB at the peak, {peak / observations:6.0f} bytes per observation"
            print(f"{what:9} {figures if status == 0 else 'did not finish'}", flush=True)


if __name__ == "__main__":
    main()
