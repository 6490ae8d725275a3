"""What observing costs over bare calls: each case of the catalog, executed the same number of times.

python tests/benchmarks/overhead.py [--device cpu|cuda] [--runs N] [PATTERN...]
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any, NamedTuple

# As a worker's threads are; to be set before torch starts them.
os.environ.setdefault("OMP_PROC_BIND", "true")

import torch

from opspecs.model import OpSpec
from opspecs.registry import select
from scanner.worker.execution import Execution, InvalidCaseError, NotRunnableError
from scanner.worker.observe import observe

# A case's bare calls and its observation are timed in turns, and the faster turn of each counts.
TURNS = 2


def main() -> None:
    """Compare observing every case with the same number of bare calls."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("patterns", nargs="*")
    options = parser.parse_args()
    kind = options.device.partition(":")[0]
    device = "cuda:0" if options.device == "cuda" else options.device
    ratios: list[tuple[float, float, str, str]] = []
    for spec, row in select(options.patterns, kind):
        one = ratio_of(spec, row.case, row.direction, row.dtype, device, options.runs)
        if one is not None:
            ratios.append((one.observed / one.bare, one.bare, row.id, spec.family))
    total = sum(ratio * bare for ratio, bare, *_ in ratios) / sum(bare for _, bare, *_ in ratios)
    print(f"observing {len(ratios)} cases {options.runs} times each, over the bare calls")
    print(f"  catalog {total:.3f} (aim: 1.25 at most on the CPU, 1.15 on CUDA)")
    for title, chosen in (
        ("worst cases (aim: 2.0 at most on the CPU)", [one for one in ratios if one[3] != "memory"]),
        ("worst cases that only allocate", [one for one in ratios if one[3] == "memory"]),
    ):
        print(f"  {title}")
        for ratio, bare, name, _ in sorted(chosen, reverse=True)[:8]:
            print(f"    {ratio:.2f} {name} ({bare / options.runs * 1e6:.0f} us a call)")


class Ratio(NamedTuple):
    """Seconds of a case's executions, bare and observed."""

    bare: float
    observed: float


def ratio_of(spec: OpSpec, case: str, direction: str, dtype: str, device: str, runs: int) -> Ratio | None:
    """Time a case, bare and observed; ``None`` if it does not run."""
    where: dict[str, Any] = {"direction": direction, "dtype": dtype, "device": device, "seed": 0}
    bare = observed = float("inf")
    for _ in range(TURNS):
        try:
            bare = min(bare, _bare(Execution(spec, case, **where), runs, device))
        except (InvalidCaseError, NotRunnableError):
            return None
        seen = observe(spec, case, runs=runs, **where)
        if seen["outcome"] != "ran":
            return None
        observed = min(observed, seen["seconds"])
    return Ratio(bare, observed)


def _bare(execution: Execution, runs: int, device: str) -> float:
    """Return the seconds of *runs* executions and nothing else."""
    execution()
    _synchronize(device)
    started = time.perf_counter()
    for _ in range(runs):
        execution()
    _synchronize(device)
    return time.perf_counter() - started


def _synchronize(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
