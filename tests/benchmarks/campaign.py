"""What a campaign costs, computed from what recorded runs took: nothing is measured here.

python -m tests.benchmarks.campaign: prints the lines of scanner/README.md, "What a campaign costs". The recorded runs are of
two CPU cores; there are none of CUDA.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

from scanner.cases.shards import divided
from scanner.observations.runfile import Run, read_run

RECORDED = Path(__file__).parents[2] / "reports" / "runs"
DTYPES, KINDS, RELEASES, EXECUTIONS = 6, 3, 8, 100
SHARDS = (8, 50, 200, 800)


def seconds_per_row(run: Run) -> tuple[float, float]:
    """Return what a row took: in its executions, and in all else (processes, enumeration, controls, overloads)."""
    rows = len(run.header.planned)
    executing = sum(one.seconds for one in run.observations) / rows
    assert run.closing is not None
    return executing, run.closing.seconds / rows - executing


def speedup(run: Run, shards: int) -> float:
    """Return how many times faster so many shards observe the rows, if nothing but rows takes time."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for one in run.observations:
        seconds[one.spec] += one.seconds + one.setup_seconds
    busy: defaultdict[int, float] = defaultdict(float)
    for group, shard in divided([*seconds], shards, seconds).items():
        busy[shard] += seconds[group]
    return sum(seconds.values()) / max(busy.values())


def main() -> None:
    """Print the computation for the fastest and the slowest of the recorded runs of all databases."""
    for path in sorted(RECORDED.glob("torch-*-all.jsonl.gz")):
        run = read_run(path)
        settings = run.header.settings
        sources = Counter(row.source for row in run.header.planned)
        own = sources.pop("documented")
        rows = own + DTYPES * sources.total()
        executed = settings.runs * settings.processes
        executing, rest = seconds_per_row(run)
        further = sum(one.mode not in {"off", "on"} for one in run.observations) / len(run.observations)
        print(f"{path.name}: {own} rows of the catalog and {sources.total()} of databases in one dtype each")
        print(
            f"  {rows} rows in {DTYPES} dtypes; {100 * further:.1f} % of the observations in modes beside off and on"
        )
        for n in (executed, EXECUTIONS):
            # What is no execution is done once for each process.
            row = executing * n / executed + rest * (1 if n == executed else 2 / settings.processes)
            hours = rows * row / 3600
            plans = KINDS * RELEASES
            print(
                f"  n = {n}: {row:.2f} s a row, {hours:.1f} hours a plan, {plans * hours:.0f} machine hours for "
                f"{KINDS} × {RELEASES} plans"  # noqa: RUF001
            )
        print("  rows alone:", ", ".join(f"{n} shards {speedup(run, n):.0f} times faster" for n in SHARDS))


if __name__ == "__main__":
    main()
