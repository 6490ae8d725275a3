"""How executions in one process depend on each other, as the recorded runs show it.

python -m tests.benchmarks.dependence [RUN...]

Only what races tells: rows that differed in some process with the flag off or under warn_only, without those that read
memory that nothing wrote; and the sentinels. Of a simulated GPU nothing is asked: its orders are drawn. Each row has a mean rate, from which the rates of its processes are spread as a
beta distribution; the correlation common to all rows is the one of the largest likelihood, over a spread of mean rates that all
rows share. (With a mean rate for each row, that of its own largest likelihood, a row of one or two processes would always fit
a correlation near 0.) A perturbation ends after ten differences, but k differences of n then have the likelihood they always
have, p^k (1 - p)^(n - k), so that this distorts nothing. Rows that always differed say nothing of the correlation, and are left
out like those that never did; the likelihood is that of the others.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from operator import attrgetter
from pathlib import Path

import numpy as np

from detmatrix.reports.render import grouped
from detmatrix.scanner.observations.records import Observation, Row
from detmatrix.scanner.observations.runfile import Run, read_run
from detmatrix.scanner.verdicts.bound import CORRELATION

RUNS = sorted(Path("reports/runs").glob("torch-*.jsonl.gz"))
_MACHINE = attrgetter("cpu", "gpu", "torch")
# Modes in which an op does what it does with the flag off.
_RACING = {"off", "warn_only"}
_GRID = tuple(number / 50 for number in range(1, 45))
# Mean rates, the closer to each other the nearer to 0 and 1 they are.
_RATES = tuple(1 / (1 + math.exp(-number / 10)) for number in range(-90, 121, 4))
# In which their shares are found.
_ROUNDS = 100
# A correlation is in the interval of 95 % if its likelihood, in logarithms, is so near to the largest.
_DROP = 1.92

# Differences, and executions that were compared with the first.
Count = tuple[int, int]
Clusters = list[list[Count]]


def main(arguments: Sequence[str]) -> int:
    """Print the estimates; return 1 if the correlation that the bound takes is below an interval, or above all of them."""
    runs = [run for run in map(read_run, arguments or RUNS) if not run.header.settings.simulate]
    devices = grouped((run.header.settings.device.partition(":")[0], run) for run in runs)
    kinds = {f"rows on {device}, by process": by_process(of_it) for device, of_it in devices.items()}
    kinds["sentinels, by check"] = [
        [(it.differing, it.executions - 1) for it in run.sentinels if it.executions > 1] for run in runs
    ]
    print(f"{len(runs)} runs; the bound takes a correlation of {CORRELATION:g}")
    estimates = {title: correlation(clusters) for title, clusters in kinds.items()}
    for title, (best, low, high) in estimates.items():
        print(
            f"{title}: {sum(map(bool, kinds[title]))} clusters, correlation {best:.2f} (95 %: {low:.2f} to {high:.2f})"
        )
    _, lows, highs = zip(*estimates.values(), strict=True)
    return int(not max(lows) <= CORRELATION <= max(highs))


def by_process(runs: Iterable[Run]) -> Clusters:
    """Return the counts of each process, for each row that differed in any.

    The CPU, the GPU, the build and n have rates of their own each: what depends on them is no dependence of executions.
    """
    clusters = grouped(
        ((*_MACHINE(run.header.environment), run.header.settings.runs, row.key), _count(seen))
        for run in runs
        for row, seen in _ran(run)
    )
    return [counts for counts in clusters.values() if any(differing for differing, _ in counts)]


def correlation(clusters: Clusters) -> tuple[float, float, float]:
    """Return the correlation of the largest likelihood, and the ends of its interval of 95 %."""
    mixed = Counter(tuple(sorted(counts)) for counts in clusters if any(k < n for k, n in counts))
    if not mixed:
        return 0.0, 0.0, 1.0
    times = np.array([*mixed.values()], dtype=float)
    likelihood = {one: float(times @ _mixed_likelihoods(_likelihoods([*mixed], one), times)) for one in _GRID}
    best = max(likelihood, key=lambda one: likelihood[one])
    near = [one for one, value in likelihood.items() if value >= likelihood[best] - _DROP]
    return best, near[0], near[-1]


def _likelihoods(clusters: Sequence[tuple[Count, ...]], one: float) -> np.ndarray:
    """Return the logarithm of the likelihood of what the processes of each row showed, at each mean rate.

    Of a row that never differed, or always, nothing would be known here: what is likely is so among the others.
    """
    weight = (1 - one) / one
    found = np.empty((len(clusters), len(_RATES)))
    for place, rate in enumerate(_RATES):
        a, b = rate * weight, (1 - rate) * weight
        start = _log_beta(a, b)
        of = cache(lambda k, n, a=a, b=b, start=start: _log_beta(a + k, b + n - k) - start)
        for number, counts in enumerate(clusters):
            never, always = (math.exp(sum(of(k * n, n) for _, n in counts)) for k in (0, 1))
            known = math.log(max(1 - never - always, sys.float_info.epsilon))
            found[number, place] = sum(of(k, n) for k, n in counts) - known
    return found


def _mixed_likelihoods(likelihoods: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Return the logarithm of the likelihood of each row over the spread of mean rates that makes all together likeliest."""
    largest = likelihoods.max(axis=1, keepdims=True)
    given = np.exp(likelihoods - largest)
    shares = np.full(len(_RATES), 1 / len(_RATES))
    for _ in range(_ROUNDS):
        found = given * shares
        shares = times @ (found / found.sum(axis=1, keepdims=True)) / times.sum()
    mixed: np.ndarray = largest[:, 0] + np.log(given @ shares)
    return mixed


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def _ran(run: Run) -> Iterator[tuple[Row, Observation]]:
    rows = {row.key: row for row in run.header.planned}
    for seen in run.observations:
        row = rows[seen.key]
        # What nobody wrote differs by no race.
        unwritten = row.family == "memory" or "empty" in row.op
        if seen.executions > 1 and seen.outcome == "ran" and seen.mode in _RACING and not unwritten:
            yield row, seen


def _count(seen: Observation) -> Count:
    return seen.executions - next(iter(seen.digests.values())), seen.executions - 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
