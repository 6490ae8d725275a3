"""How time and memory grow with the number of observations: everything is to be linear, up to a million of them.

python tests/benchmarks/scaling.py [OBSERVATIONS]: plan, write, read, join and report a run of half as many
observations and one of all of them (100 000 by default); prints time(2n) / time(n), which is 2 where a step is linear, and
the bytes that each further observation takes at the peak. Each figure is of a process of its own.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from reports.cli.report import RENDERERS
from reports.coverage import RENDERERS as COVERAGES
from reports.coverage import coverages
from reports.matrix.model import load
from reports.render.output import write_report
from scanner.cases.rows import planned_rows
from scanner.observations.runfile import read_run
from tests.large import SETTINGS, catalog, write_large

RATIO_LIMIT = 2.5  # of a step that takes long enough to be timed
_TIMED = 0.5  # seconds
STEPS = ("plan", "write", "read", "verdicts", *RENDERERS, "coverage")


def step(name: str, observations: int, run: Path) -> None:
    """Do one step."""
    output = run.with_suffix(f".{name}")
    if name == "plan":
        planned_rows(SETTINGS, catalog(observations))
    elif name == "write":
        write_large(run, observations)
    elif name == "read":
        read_run(run)
    elif name == "verdicts":
        load([str(run)])
    elif name == "coverage":
        write_report(output, COVERAGES["md"](coverages(load([str(run)]))))
    else:
        write_report(output, RENDERERS[name](load([str(run)])))


def peak_bytes() -> int:
    """Return this process's peak memory, on Linux."""
    return int(re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[0]) * 1024


def measured(name: str, observations: int, run: Path) -> tuple[float, int]:
    """Return the seconds and the peak memory of one step in a process of its own."""
    command = [sys.executable, "-m", "tests.benchmarks.scaling", name, str(observations), str(run)]
    seconds, peak = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return float(seconds), int(peak)


def main() -> int:
    """Print the ratios; return 1 where one is not that of a linear step."""
    if len(sys.argv) > 2:  # in the process that is measured
        started = time.perf_counter()
        step(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
        print(time.perf_counter() - started, peak_bytes())
        return 0
    most = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    missed = False
    with tempfile.TemporaryDirectory() as folder:
        print(f"{'':9} {most // 2:>9} {most:>9} observations")
        for name in STEPS:
            (half, low), (whole, high) = (
                measured(name, count, Path(folder, f"run{count}.jsonl")) for count in (most // 2, most)
            )
            ratio = whole / half
            missed |= ratio > RATIO_LIMIT and half > _TIMED
            print(
                f"{name:9} {half:7.2f} s {whole:7.2f} s, ratio {ratio:.2f}, {high / 1e6:5.0f} MB at the peak, "
                f"{(high - low) / (most - most // 2):5.0f} bytes per observation",
                flush=True,
            )
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
