"""How often a difference of a known rate is seen, over how often it must be by the binomial distribution.

python tests/benchmarks/detection.py [--device cpu|cuda] [--observations N]

The control that differs in a tenth of its executions is observed again and again, each time by another schedule.
The schedules are seeded, so the figures are the same in every run of this file: what they test is the counting.
"""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import replace

from opspecs.controls import RARE_RATE, SPECS, schedule
from opspecs.model import Case, call
from scanner.worker.observe import observe

(RARE,) = (spec for spec in SPECS if spec.name == "control.rare")
RUNS = (5, 10, 20, 50)
# Standard errors: beyond the first a figure is remarked upon, beyond the second something is wrong.
REMARKABLE, WRONG = 3.0, 4.0


def main() -> int:
    """Print both tables; return 1 if a figure is too far from its prediction."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N (default cpu)")
    parser.add_argument("--observations", type=int, default=400, help="of each number of runs (default 400)")
    options = parser.parse_args()
    device = "cuda:0" if options.device == "cuda" else options.device
    print(
        f"{options.observations} observations of a control that differs in {RARE_RATE:.0%} of its executions on "
        f"{device}"
    )
    print(f"{'runs':>6} {'figure':<24} {'measured':>8} {'predicted':>10} {'error':>8} {'distance':>9}")
    return max(_row(runs, options.observations, device) for runs in RUNS)


def _row(runs: int, observations: int, device: str) -> int:
    """Print what so many runs show; return 1 if it is too far from the prediction."""
    seen = differing = later = 0
    for number in range(observations):
        observed = _observe(runs, runs * 1_000_000 + number, device)
        seen += bool(observed[0])
        differing += observed[0]
        later += observed[1]
    # The first execution is what the others are compared with, so it never differs.
    detection = 1 - (1 - RARE_RATE) ** (runs - 1)
    return max(
        _compared(runs, "observations that see it", seen, observations, detection),
        _compared(runs, "executions that differ", differing, later, RARE_RATE),
    )


def _observe(runs: int, seed: int, device: str) -> tuple[int, int]:
    """Return how many executions differed, and how many there were behind the first."""
    # Another schedule each time, of which the catalog's control has one.
    spec = replace(RARE, cases={"known_rate": Case(inputs=lambda t: call(t.normal(64), schedule(seed)))})
    observed = observe(
        spec, "known_rate", direction="forward", dtype="float32", device=device, seed=0, runs=runs
    )
    (output,) = observed["outputs"]
    # An observation may end early once it has seen enough; the rate is then that of what it did execute.
    return output["differing"], observed["executions"] - 1


def _compared(runs: int, figure: str, count: int, trials: int, predicted: float) -> int:
    measured = count / trials
    error = math.sqrt(predicted * (1 - predicted) / trials)
    distance = (measured - predicted) / error
    remark = "" if abs(distance) <= REMARKABLE else f"  beyond {REMARKABLE:.0f}"
    print(
        f"{runs:>6} {figure:<24} {measured:>8.4f} {predicted:>10.4f} {error:>8.4f} {distance:>+9.2f}{remark}"
    )
    return int(abs(distance) > WRONG)


if __name__ == "__main__":
    sys.exit(main())
