"""What each stage of the CUDA campaign (.ci/cuda) is expected to take, on 16 cores and one H100, computed and not measured.

python -m tests.benchmarks.cuda_campaign [STEP], or .ci/cuda --plan: host seconds per row are measured on this machine
(tests/benchmarks/host_time.py, of every STEP-th case); all that only a GPU could tell is assumed, and said so.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

from tabulate import tabulate

from opspecs.registry import SPECS
from tests.benchmarks.host_time import HostTime, draw, parts

STEP = 24
WORKERS = 8  # what a scan starts on 16 cores
# Assumed, for want of a GPU.
LAUNCHES = 15  # of an execution and its comparison
LAUNCH_SECONDS = 10e-6
GPU_SECONDS = 1e-3  # of an execution and its comparison, one after the other for all workers
START_SECONDS = 12.0  # of the workers of one process number: torch and CUDA loaded, eight at once
TO_DEVICE = 5e9  # bytes a second that are moved there
RAISING = 0.15  # rows that are observed with warn_only too
DATABASE_SHARE = 0.25  # of what a row of the catalog is drawn of
ASSUMED = {
    "launches of an execution": LAUNCHES,
    "seconds of a launch": LAUNCH_SECONDS,
    "seconds of an execution on the GPU": GPU_SECONDS,
    "seconds until workers answer": START_SECONDS,
    "bytes a second to the GPU": TO_DEVICE,
    "rows that raise": RAISING,
    "bytes of a database's row, over one of the catalog": DATABASE_SHARE,
}


# Asked in a process of its own, beside no scan: that long, and as long to be asked about.
ENGINES, ENGINES_SECONDS = "engines", 45.0 + 20.0


class Stage(NamedTuple):
    """A stage of the campaign, as .ci/cuda has it."""

    name: str
    rows: int
    assumed_rows: bool
    runs: int
    processes: int
    size: float = 1.0  # of its inputs, over those of the catalog
    seconds: float = 0.0  # of a row, where they are bounded and not computed


def stages() -> list[Stage]:
    """Return the stages in order; those of the databases have the rows that recorded runs on a CPU have."""
    catalog = sum(1 for spec in SPECS for _ in spec.rows("cuda"))
    return [
        Stage("quiet", catalog, False, 20, 1),
        Stage("documented", catalog, False, 50, 2),
        Stage(ENGINES, 0, False, 20, 1),
        Stage("databases", 5600, True, 20, 1, DATABASE_SHARE),
        Stage("cost", catalog, False, 2, 1, seconds=0.15 * 2),
        Stage("dtypes", 5600, True, 20, 1, DATABASE_SHARE),
    ]


def expected(stage: Stage, host: HostTime, rest: float) -> tuple[float, float, float]:
    """Return the seconds of the host (of all workers side by side), of the GPU, and of all with the start of workers.

    Args:
        stage: What is scanned.
        host: What drawing took.
        rest: Seconds of a row beside drawing and executing.
    """
    if stage.name == ENGINES:
        return 0.0, ENGINES_SECONDS, ENGINES_SECONDS
    observed = stage.rows * stage.processes * (2 + RAISING)
    drawing = (host.kept + host.gigabytes * 1e9 / TO_DEVICE) / host.rows * stage.size
    hosts = observed * (drawing + rest + stage.runs * LAUNCHES * LAUNCH_SECONDS) / WORKERS
    gpu = observed * stage.runs * GPU_SECONDS + stage.rows * stage.seconds
    starts = START_SECONDS * stage.processes
    return hosts, gpu, starts + max(hosts, gpu)


def main() -> None:
    """Print the timetable with its sums."""
    step = int(sys.argv[1]) if sys.argv[1:] else STEP
    host = draw(step)
    count, took = parts(step)
    rest = took["rest"] / count
    lines, total = [], 0.0
    for stage in stages():
        hosts, gpu, whole = expected(stage, host, rest)
        total += whole
        rows = f"{stage.rows} (assumed)" if stage.assumed_rows else str(stage.rows)
        lines.append(
            [
                stage.name,
                rows,
                stage.processes,
                stage.runs,
                *(f"{one:.0f}" for one in (hosts, gpu, whole, total)),
            ]
        )
    heads = ["stage", "rows", "processes", "n", "host s", "GPU s", "stage s", "sum s"]
    print("Computed, not measured on a GPU: 16 cores, one H100, eight workers.\n")
    print(tabulate(lines, headers=heads, tablefmt="simple", disable_numparse=True))
    print(f"\nMeasured here: {host.kept / host.rows:.4f} s to draw a row ({host.gigabytes / host.rows * 1e3:.0f} MB), "
          f"{rest:.4f} s for what else it takes but digests, comparisons and severity, which a GPU does.")  # fmt: skip
    print("Assumed: " + "; ".join(f"{name} {value:g}" for name, value in ASSUMED.items()) + ".")
    print("Host and GPU work at once, so that a stage takes the longer of both, and its workers' start.")


if __name__ == "__main__":
    main()
