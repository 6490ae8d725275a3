"""A long run over rows that cannot differ: every difference it finds is detmatrix's own fault.

python tests/benchmarks/false_differences.py [--device cpu|cuda] [--runs N] [--limit MICROSECONDS] [PATTERN...]

Three kinds of rows are serial or integer by construction: sums of integers, which no order changes; innocent cases,
whose inputs leave no order to choose; and, with torch.set_num_threads(1), all others on the CPU.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from typing import Any

# As a worker's threads are; to be set before torch starts them.
os.environ.setdefault("OMP_PROC_BIND", "true")

import torch

from opspecs.model import MissingError, OpSpec, Planned
from opspecs.registry import select
from scanner.execution import Execution, InvalidCaseError, NotRunnableError
from scanner.observe import observe

# Of the limit, for sums of integers.
SUMS = 4
# Calls by which it is told whether a case is cheap enough.
CALLS = 9
# On a busy machine a case may take longer than it then did; by this factor at most, or fewer executions are made.
PATIENCE = 4


def main() -> int:
    """Print how often each kind of rows differed; return 1 if any did, or if there was nothing to observe."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--runs", type=int, default=10_000, help="executions of each case (default 10000)")
    parser.add_argument(
        "--limit", type=float, default=100.0, help="microseconds a call may take (default 100)"
    )
    parser.add_argument("patterns", nargs="*")
    options = parser.parse_args()
    device = "cuda:0" if options.device == "cuda" else options.device
    if device != "cpu":
        torch.cuda.set_device(device)
    sums, innocent, others = _kinds(options.patterns, device)
    runs, limit = options.runs, options.limit * 1e-6
    print(
        f"{runs} executions of each case whose call takes at most {options.limit:g} us; for sums of integers,"
    )
    print(f"which are few and the only rows whose addends race, at most {SUMS * options.limit:g} us")
    print(f"{'rows':<26} {'observed':>8} {'executions':>11} {'differing':>10}  left out")
    totals = [
        _observe("sums of integers", sums, device, runs, SUMS * limit),
        _observe("innocent", innocent, device, runs, limit),
    ]
    if device == "cpu":
        torch.set_num_threads(1)
        totals.append(_observe("all others, one thread", others, device, runs, limit))
    return int(any(differing for _, differing in totals) or not any(executions for executions, _ in totals))


_Rows = list[tuple[OpSpec, Planned]]


def _kinds(patterns: list[str], device: str) -> tuple[_Rows, _Rows, _Rows]:
    """Return the rows by kind; none of those whose output is memory that nothing wrote."""
    sums: _Rows = []
    innocent: _Rows = []
    others: _Rows = []
    for spec, row in select(patterns, device.partition(":")[0]):
        if spec.family == "memory":
            continue
        provokes = spec.cases[row.case].provokes
        integer = not getattr(torch, row.dtype).is_floating_point and not getattr(torch, row.dtype).is_complex
        if not provokes:
            innocent.append((spec, row))
        # "16 additions into each slot", but not "16 different values written to each slot", which may race.
        elif integer and row.direction == "forward" and " into each " in provokes:
            sums.append((spec, row))
        else:
            others.append((spec, row))
    return sums, innocent, others


def _observe(title: str, rows: _Rows, device: str, runs: int, limit: float) -> tuple[int, int]:
    """Observe those of *rows* that take at most *limit* seconds a call, and print what was seen.

    Returns:
        Executions, and how many of them differed.
    """
    observed = executions = differing = slow = failed = 0
    told = []
    for spec, row in rows:
        case = {"direction": row.direction, "dtype": row.dtype, "device": device, "seed": 0}
        seconds = _seconds_a_call(spec, row.case, case)
        if seconds is None:
            failed += 1
            continue
        if seconds > limit:
            slow += 1
            continue
        seen = observe(spec, row.case, runs=runs, max_time=PATIENCE * runs * limit, **case)  # type: ignore[arg-type]
        if seen["outcome"] != "ran":
            failed += 1
            told.append(f"  {row.id}: {seen['outcome']}, {seen.get('message')}")
            continue
        count = max(output["differing"] for output in seen["outputs"])
        observed += 1
        executions += seen["executions"]
        differing += count
        if count:
            told.append(f"  {row.id}: {count} of {seen['executions']} differed")
    print(
        f"{title:<26} {observed:>8} {executions:>11} {differing:>10}  {slow} too slow, {failed} that do not run"
    )
    print("".join(f"{line}\n" for line in told), end="", flush=True)
    return executions, differing


def _seconds_a_call(spec: OpSpec, name: str, case: dict[str, Any]) -> float | None:
    """Return the median time of a bare call; None if there is no calling it."""
    try:
        execution = Execution(spec, name, **case)
        times = [_seconds(execution) for _ in range(CALLS)]
    except (InvalidCaseError, NotRunnableError, MissingError, RuntimeError):
        return None
    return statistics.median(times)


def _seconds(execution: Execution) -> float:
    started = time.perf_counter()
    execution()
    if execution.device != "cpu":
        torch.cuda.synchronize()
    return time.perf_counter() - started


if __name__ == "__main__":
    sys.exit(main())
