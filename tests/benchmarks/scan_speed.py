"""What a scan costs: start-up, overhead over bare calls, and a whole scan. Prints ratios from this one run.

python tests/benchmarks/scan_speed.py [--device cpu|cuda] [--runs N] [PATTERN...]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from opspecs.registry import select
from scanner.execution import Execution
from scanner.observe import observe
from scanner.runfile import read_run

# A case's bare calls and its observation are timed in turns, and the faster turn of each counts.
TURNS = 2


def main() -> None:
    """Run the three measurements."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("patterns", nargs="*")
    options = parser.parse_args()
    start_up()
    overhead(options.patterns, options.device, options.runs)
    whole_scan(options.patterns, options.device, options.runs)


def start_up() -> None:
    """Compare the commands that need no worker with an interpreter that does nothing."""
    bare = _fastest([sys.executable, "-c", "pass"])
    print("start-up, over `python -c pass` (aim: 6 at most)")
    for arguments in (["--help"], ["list"]):
        ratio = _fastest([sys.executable, "-m", "scanner", *arguments]) / bare
        print(f"  detmatrix {arguments[0]:8} {ratio:.1f}")


def _fastest(command: list[str], times: int = 15) -> float:
    """Return the seconds of the fastest of several runs."""
    fastest = float("inf")
    for _ in range(times):
        started = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        fastest = min(fastest, time.perf_counter() - started)
    return fastest


def overhead(patterns: list[str], device: str, runs: int) -> None:
    """Compare observing every case with the same number of bare calls."""
    kind = device.partition(":")[0]
    device = f"{kind}:0" if device == "cuda" else device
    ratios: list[tuple[float, float, str]] = []
    for spec, row in select(patterns, kind):
        case = {"direction": row.direction, "dtype": row.dtype, "device": device, "seed": 0}
        bare = observed = float("inf")
        for _ in range(TURNS):
            bare = min(bare, _bare(Execution(spec, row.case, **case), runs, device))  # type: ignore[arg-type]
            seen = observe(spec, row.case, runs=runs, **case)  # type: ignore[arg-type]
            if seen["outcome"] == "ran":
                observed = min(observed, seen["seconds"])
        if observed < float("inf"):
            ratios.append((observed / bare, bare, row.id))
    total = sum(ratio * bare for ratio, bare, _ in ratios) / sum(bare for _, bare, _ in ratios)
    print(f"observing {len(ratios)} cases {runs} times each, over the bare calls")
    print(f"  catalog {total:.3f} (aim: 1.25 on the CPU, 1.15 on CUDA)")
    for ratio, bare, name in sorted(ratios, reverse=True)[:5]:
        print(f"  {ratio:.2f} {name} ({bare / runs * 1e6:.0f} us a call)")


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


def whole_scan(patterns: list[str], device: str, runs: int) -> None:
    """Time a scan as a user starts it, and say where its time goes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.jsonl"
        command = [sys.executable, "-m", "scanner", "scan", *patterns, "--device", device]
        command += ["--runs", str(runs), "-o", str(path)]
        started = time.perf_counter()
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
        wall = time.perf_counter() - started
        observations = read_run(path).observations
    executing = sum(observation.seconds for observation in observations)
    drawing = sum(observation.setup_seconds for observation in observations)
    print(f"a scan of {len(observations)} observations: {wall:.0f} s (aim on two cores: 120 s)")
    print(f"  executing and comparing {executing / wall:.0%}, drawing inputs {drawing / wall:.0%}, the rest")
    print(f"  (starting workers, checking state and inputs) {1 - (executing + drawing) / wall:.0%}")


if __name__ == "__main__":
    main()
