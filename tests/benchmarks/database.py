"""The whole of PyTorch's databases: how long a scan takes, and what observing costs over the bare calls.

python -m tests.benchmarks.database [PATTERN...]: scans both databases on the CPU, ten executions of each row in both modes,
and then compares observing every row with as many bare calls. Takes about a quarter of an hour on two cores.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# As a worker's threads are, and the order of its samples; to be set before torch starts them.
if os.environ.get("PYTHONHASHSEED") != "0":
    os.environ |= {"OMP_PROC_BIND": "true", "PYTHONHASHSEED": "0"}
    os.execv(sys.executable, [sys.executable, "-m", "tests.benchmarks.database", *sys.argv[1:]])

from opspecs.pytorch import database
from scanner.observations.records import Row
from scanner.observations.runfile import read_run
from tests.benchmarks.overhead import Ratio, ratio_of

RUNS = 10
SECONDS_AIM, RATIO_AIM = 300, 1.5


def main() -> None:
    """Print both figures."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "run.jsonl")
        options = ["--source", "opinfo,modules", "--device", "cpu", "--runs", str(RUNS), "--processes", "1"]
        command = [
            sys.executable,
            "-m",
            "scanner",
            "scan",
            *options,
            "--no-cost",
            "-o",
            str(path),
            *sys.argv[1:],
        ]
        started = time.perf_counter()
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
        wall = time.perf_counter() - started
        run = read_run(path)
    rows = run.header.planned
    executing = sum(one.seconds for one in run.observations)
    drawing = sum(one.setup_seconds for one in run.observations)
    print(
        f"a scan of {len(rows)} rows of PyTorch's databases, {RUNS} executions in both modes: {wall:.0f} s",
        end=" ",
    )
    print(f"(aim: {SECONDS_AIM})")
    print(
        f"  executing and comparing {executing / wall:.0%}, drawing inputs {drawing / wall:.0%}, the rest (trying"
    )
    print(
        f"  samples, starting workers, recording overloads) {1 - (executing + drawing) / wall:.0%}",
        flush=True,
    )
    ran = {one.key for one in run.observations if one.outcome == "ran" and one.mode == "off"}
    ratios = [found for row in rows if row.key in ran and (found := _ratio(row)) is not None]
    total = sum(one.observed for one in ratios) / sum(one.bare for one in ratios)
    print(
        f"observing {len(ratios)} of them {RUNS} times, over the bare calls: {total:.3f} (aim: {RATIO_AIM})"
    )


def _ratio(row: Row) -> Ratio | None:
    spec = database.find(row.spec, seed=0, enlargement=row.enlargement)
    return ratio_of(spec, row.case, row.direction, row.dtype, "cpu", RUNS)


if __name__ == "__main__":
    main()
