"""A long run over rows that cannot differ: every difference it finds is detmatrix's own fault.

python tests/benchmarks/false_differences.py [--device cpu|cuda] [--runs N] [--seconds S] [PATTERN...]

Three kinds of rows are serial or integer by construction: sums of integers, which no order changes; innocent cases,
whose inputs leave no order to choose; and, with torch.set_num_threads(1), all others on the CPU. Each is observed
under every perturbation that a scan uses unasked.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from typing import Any

# Before torch, as in a worker: it asks for the cores, to one of which OpenMP then binds this thread.
from scanner.perturbations import DEFAULT

# As a worker's threads are; to be set before torch starts them.
os.environ.setdefault("OMP_PROC_BIND", "true")

import torch

from opspecs.model import OpSpec, Planned
from opspecs.registry import select
from scanner.worker.observe import observe

# Sums of integers are few, and the only rows whose addends race: they get so many times the seconds.
SUMS = 4
# Executions that the slowest row gets, shared by the perturbations, however long they take.
FEWEST = 100


def main() -> int:
    """Print how often each kind of rows differed; return 1 if any did, or if there was nothing to observe."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument(
        "--runs", type=int, default=10_000, help="executions of a row at most (default 10000)"
    )
    parser.add_argument(
        "--seconds", type=float, default=0.4, help="that the executions of a row take (default 0.4)"
    )
    parser.add_argument("patterns", nargs="*")
    options = parser.parse_args()
    device = "cuda:0" if options.device == "cuda" else options.device
    if device != "cpu":
        torch.cuda.set_device(device)
    sums, innocent, others = _kinds(options.patterns, device)
    runs, seconds = options.runs, options.seconds
    print(
        f"each row {min(FEWEST, runs)} times, then for {seconds:g} s ({SUMS * seconds:g} s for sums of integers), {runs} times "
        "at most"
    )
    print(f"{'rows':<26} {'observed':>8} {'executions':>11} {'differing':>10}  left out")
    totals = [
        _observe("sums of integers", sums, device, runs, SUMS * seconds),
        _observe("innocent", innocent, device, runs, seconds),
    ]
    if device == "cpu":
        torch.set_num_threads(1)
        totals.append(_observe("all others, one thread", others, device, runs, seconds))
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


def _observe(title: str, rows: _Rows, device: str, runs: int, seconds: float) -> tuple[int, int]:
    """Observe *rows* for so many seconds each, and print what was seen.

    Returns:
        Executions, and how many of them differed.
    """
    counts: list[int] = []
    differing = failed = 0
    perturbed: Counter[str] = Counter()
    lines = []
    for spec, row in rows:
        case = {"direction": row.direction, "dtype": row.dtype, "device": device, "seed": 0}
        seen = _long_enough(spec, row.case, case, runs, seconds)
        if seen["outcome"] != "ran":
            failed += 1
            lines.append(f"  {row.id}: {seen['outcome']}, {seen.get('message')}")
            continue
        count = _differing(seen)
        counts.append(seen["executions"])
        differing += count
        perturbed.update({group["perturbation"]: group["executions"] for group in seen["groups"]})
        if count:
            under = ", ".join(f"{group['perturbation']} {group['differing']}" for group in seen["groups"])
            lines.append(f"  {row.id}: {count} of {seen['executions']} differed ({under})")
    executions = sum(counts)
    print(f"{title:<26} {len(counts):>8} {executions:>11} {differing:>10}  {failed} that do not run")
    if counts:
        print(f"  executions by perturbation: {', '.join(f'{name} {n}' for name, n in perturbed.items())}")
        print(f"  executions of a row: {min(counts)} to {max(counts)}")
    print("".join(f"{line}\n" for line in lines), end="", flush=True)
    return executions, differing


def _long_enough(spec: OpSpec, name: str, case: dict[str, Any], runs: int, seconds: float) -> dict[str, Any]:
    """Observe a case for so many seconds, and before that in the fewest executions, however long they take."""
    options = {"perturbations": list(DEFAULT), **case}
    first = observe(spec, name, runs=min(FEWEST, runs), **options)
    if first["outcome"] != "ran" or _differing(first):
        return first
    return observe(spec, name, runs=runs, max_time=seconds, **options)


def _differing(seen: dict[str, Any]) -> int:
    """Return how many executions differed from the first, in a gradient or in the forward output before it."""
    differing: int = seen["executions"] - next(iter(seen["digests"].values()))
    forward: int = seen.get("forward_differing", 0)
    return max(differing, forward)


if __name__ == "__main__":
    sys.exit(main())
