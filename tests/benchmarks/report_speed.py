"""Time and memory of every report of 50 000 observations, over what pandas needs to read the same rows.

Run ``python -m tests.benchmarks.report_speed``; targets: at most 10 times pandas, memory below 500 MB. The
ratios are taken in one process, on the best of three rounds each; memory is the peak of a process of its own.
"""

from __future__ import annotations

import io
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd

from reports.cli.report import RENDERERS
from reports.matrix.model import load
from reports.render.output import write_report
from scanner.observations.records import Observation, Row
from tests.runs import ended, raised, ran, row, write_run

OBSERVATIONS = 50_000
_PER_ROW = 4  # two modes, two processes
_PER_SPEC = 25
_PER_FAMILY = 1_250
_ROUNDS = 3
RATIO_LIMIT, MEMORY_LIMIT_MB = 10.0, 500.0


def planned(observations: int = OBSERVATIONS) -> list[tuple[Row, list[Observation]]]:
    """Return rows of every finding, in families and ops of the catalog's proportions."""
    return [_planned(number) for number in range(observations // _PER_ROW)]


def _planned(number: int) -> tuple[Row, list[Observation]]:
    one = row(
        f"torch.nn.functional.operation_{number // _PER_SPEC}",
        f"case_{number % _PER_SPEC}",
        "backward" if number % 2 else "forward",
        ("float32", "bfloat16", "float64")[number % 3],
        family=f"family {number // _PER_FAMILY}",
    )
    same, others = f"{number:032x}", {f"{number:024x}{other:08x}": 1 for other in range(1, 8)}
    stable, drifting = {same: 50}, {same: 43, **others}
    off = ran(one, "off", stable, drifting if number % 3 else stable)
    match number % 5:
        case 0:
            return one, [*off, *raised(one, "on", f"operation_{number}_backward")]
        case 1:
            return one, [*off, *ended(one, "on", "crash", f"worker {number} was killed by signal 11")]
        case 2:
            return one, [*off, *ran(one, "on", drifting, stable)]
        case _:
            return one, [*off, *ran(one, "on", stable, stable)]


def best(call: Callable[[], object], rounds: int = _ROUNDS) -> float:
    """Return the shortest of several wall times, in seconds."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def write(run: Path, form: str, output: Path) -> None:
    """Make one report, as the command does."""
    write_report(output, RENDERERS[form](load([str(run)])), [str(run)])


def peak_megabytes(run: Path, form: str, output: Path) -> float:
    """Return the peak memory of a process that makes one report."""
    command = [sys.executable, "-m", "tests.benchmarks.report_speed", str(run), form, str(output)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(done.stdout)


def _own_peak_megabytes() -> float:
    """Return this process's peak; on Linux not from getrusage, where a child starts at its parent's peak."""
    status = Path("/proc/self/status")
    if status.exists():
        return int(re.findall(r"VmHWM:\s+(\d+) kB", status.read_text())[0]) * 1024 / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6  # bytes on macOS


def main() -> int:
    """Print ratios and memory; return 1 where a target is missed."""
    if len(sys.argv) > 1:  # In the process whose memory is measured.
        write(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
        print(_own_peak_megabytes())
        return 0
    with tempfile.TemporaryDirectory() as folder:
        run = write_run(Path(folder, "run.jsonl"), planned())
        rows = run.read_bytes().split(b"\n", 1)[1].rsplit(b"\n", 2)[0]  # without header and closing line
        pandas = best(lambda: pd.read_json(io.BytesIO(rows), lines=True))
        print(
            f"{OBSERVATIONS} observations, {run.stat().st_size / 1e6:.1f} MB; pandas reads them in {pandas:.2f} s"
        )
        missed = False
        for form in RENDERERS:
            output = Path(folder, f"report.{form}")
            ratio = best(lambda: write(run, form, output)) / pandas  # noqa: B023
            memory = peak_megabytes(run, form, output)
            missed |= ratio > RATIO_LIMIT or memory > MEMORY_LIMIT_MB
            size = output.stat().st_size / 1e6
            print(f"{form:>4}: {ratio:.2f} times pandas, {memory:.0f} MB at the peak, {size:.1f} MB written")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
