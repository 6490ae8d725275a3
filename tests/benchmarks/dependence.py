"""How executions in one process depend on each other, as the recorded runs show it; what n is worth in view of that.

python tests/benchmarks/dependence.py [RUN...]

Only what races tells: rows that differed in some process with the flag off or under warn_only, without those that read
memory that nothing wrote; and the sentinels. Each row has a mean rate, from which the rates of its processes are spread as a
beta distribution; the correlation common to all rows is the one of the largest likelihood, over a spread of mean rates that all
rows share. (With a mean rate for each row, that of its own largest likelihood, a row of one or two processes would always fit
a correlation near 0.) A perturbation ends after ten differences, but k differences of n then have the likelihood they always
have, p^k (1 - p)^(n - k), so that this distorts nothing. Rows that always differed say nothing of the correlation, and are left
out like those that never did; the likelihood is that of the others.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from detmatrix.scanner.observations.records import Observation, Row
from detmatrix.scanner.observations.runfile import Run, read_run
from detmatrix.scanner.verdicts.bound import CORRELATION, effective, executed_words, upper_bound
from detmatrix.scanner.verdicts.findings import matrix

RUNS = sorted(Path("reports/runs").glob("torch-*.jsonl.gz"))
# Modes in which an op does what it does with the flag off.
_RACING = {"off", "warn_only"}
_GRID = tuple(number / 50 for number in range(1, 45))
# Mean rates, the closer to each other the nearer to 0 and 1 they are.
_RATES = tuple(1 / (1 + math.exp(-number / 10)) for number in range(-90, 121, 4))
# In which their shares are found.
_ROUNDS = 100
# A correlation is in the interval of 95 % if its likelihood, in logarithms, is so near to the largest.
_DROP = 1.92
# As many executions as a scan may have been asked for, of which the recorded ones are the first.
FEW = (2, 3, 5, 7, 10)

# Differences, and executions that were compared with the first.
Count = tuple[int, int]
Clusters = list[list[Count]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables; return 1 if the correlation that the bound takes is below an interval, or above all of them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="*", type=Path, default=RUNS)
    runs = [read_run(path) for path in parser.parse_args(arguments).runs]
    kinds = {
        "rows, by process": by_process(runs),
        "rows, by process and perturbation": by_perturbation(runs),
        "sentinels, by check": by_check(runs),
    }
    print(f"{len(runs)} runs; the bound takes a correlation of {CORRELATION:g}")
    print(f"{'what':<34} {'of them':>8} {'clusters':>8} {'0 differed':>10} {'correlation':>11}  95 %")
    estimates = []
    for title, clusters in kinds.items():
        flat = [count for cluster in clusters for count in cluster]
        print(f"{title:<34} {len(clusters):>8} {len(flat):>8} {sum(not k for k, _ in flat):>10}", end=" ")
        best, low, high = correlation(clusters)
        estimates.append((low, high))
        print(f"{best:>11.2f}  {low:.2f} to {high:.2f}")
    print("\nscans of one process and n executions, as the recorded processes of racing rows begin")
    print(
        f"{'n':>4} {'processes':>10} {'deterministic':>14} {'not low power':>14} {'rate above the bound':>21}"
    )
    for few in FEW:
        print("{:>4} {:>10} {:>14} {:>14} {:>21}".format(few, *false_comfort(runs, few)))
    print("\nwhat 0 of n bounds the rate at, and how many independent executions would")
    for counts in ((5,), (10,), (5, 5), (10, 10), (50,), (50, 50), (1000, 1000), (50,) * 20):
        print(f"{executed_words(counts):<25} {upper_bound(counts):>7.2%} {effective(counts):>7.1f}")
    return int(not max(low for low, _ in estimates) <= CORRELATION <= max(high for _, high in estimates))


def by_process(runs: Sequence[Run]) -> Clusters:
    """Return the counts of each process, for each row that differed in any."""
    found = defaultdict(list)
    for run in runs:
        for row, observation in _ran([run]):
            key = _place(run), row.key
            found[key].append((_differing(observation), observation.executions - 1))
    return _racing(found.values())


def _place(run: Run) -> tuple[str, str, int]:
    """Return the CPU, the build and n, each of which has rates of its own: what depends on them is no dependence of executions.

    Of another n other shares are executed under each perturbation.
    """
    return run.header.environment.cpu, run.header.environment.torch, run.header.settings.runs


def by_perturbation(runs: Iterable[Run]) -> Clusters:
    """Return the counts of each process, for each row that differed in any and each perturbation."""
    found = defaultdict(list)
    for run in runs:
        for row, observation in _ran([run]):
            for place, group in enumerate(observation.groups):
                key = _place(run), row.key, group.perturbation
                if group.digests is None:
                    found[key].append((group.differing, group.executions - (not place)))
    return _racing(found.values())


def by_check(runs: Iterable[Run]) -> Clusters:
    """Return the counts of each sentinel, for each run."""
    found = ([(it.differing, it.executions - 1) for it in run.sentinels if it.executions > 1] for run in runs)
    return [clusters for clusters in found if clusters]


def false_comfort(runs: Sequence[Run], few: int) -> tuple[int, int, int, int]:
    """Say what scans of one process would have made of racing rows, had they been executed only so often.

    Returns:
        How many pairs of a row and a process there are, in how many nothing had differed until then, how many of these
        a report would not call of low power, and how many are of rows that differ, on average over all their processes, more
        often than the bound says.
    """
    rates = _rates(runs)
    total = still = unmarked = beyond = 0
    for run in runs:
        settings = replace(run.header.settings, runs=few, processes=1)
        for row, seen in _ran([run]):
            total += row.key in rates
            if row.key not in rates or (seen.first_differing is not None and seen.first_differing < few):
                continue
            first = next(iter(seen.digests))
            cut = replace(
                seen, executions=few, digests={first: few}, first_differing=None, outputs=(), groups=()
            )
            header = replace(run.header, settings=settings, planned=(row,))
            # The sentinels beside it are as they were, at the place that its row now has.
            beside = [
                replace(it, before=int(it.before > run.header.planned.index(row))) for it in run.sentinels
            ]
            (found,) = matrix(header, [cut], closed=True, sentinels=beside)
            still += 1
            unmarked += found.weak is None
            beyond += rates[row.key] > upper_bound((few,))
    return total, still, unmarked, beyond


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


def _rates(runs: Sequence[Run]) -> dict[tuple[str, ...], float]:
    """Return how often the rows differed that did in any process, as an average over their processes."""
    shares = defaultdict(list)
    for row, seen in _ran(runs):
        shares[row.key].append(_differing(seen) / (seen.executions - 1))
    return {key: statistics.fmean(found) for key, found in shares.items() if any(found)}


def _ran(runs: Iterable[Run]) -> Iterator[tuple[Row, Observation]]:
    for run in runs:
        rows = {row.key: row for row in run.header.planned}
        for seen in run.observations:
            row = rows[seen.key]
            # What nobody wrote differs by no race.
            if (
                seen.executions > 1
                and seen.outcome == "ran"
                and seen.mode in _RACING
                and row.family != "memory"
                and "empty" not in row.op
            ):
                yield row, seen


def _racing(found: Iterable[list[Count]]) -> Clusters:
    """Leave out what never differed."""
    return [clusters for clusters in found if any(differing for differing, _ in clusters)]


def _differing(seen: Observation) -> int:
    """Return how many executions differed from the first of their process."""
    return seen.executions - next(iter(seen.digests.values()))


if __name__ == "__main__":
    sys.exit(main())
