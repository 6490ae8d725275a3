"""What a user waits for: commands that answer at once, and a whole scan. Prints ratios from this one run.

python tests/benchmarks/scan_speed.py [--device auto|cpu|cuda] [PATTERN...]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from scanner.observations.runfile import read_run


def main() -> None:
    """Run both measurements."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="auto")
    parser.add_argument("patterns", nargs="*")
    options = parser.parse_args()
    start_up()
    whole_scan(options.patterns, options.device)


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


def whole_scan(patterns: list[str], device: str) -> None:
    """Time a scan as a user starts it, and say where its time goes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.jsonl"
        command = [sys.executable, "-m", "scanner", "scan", *patterns, "--device", device, "-o", str(path)]
        started = time.perf_counter()
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
        wall = time.perf_counter() - started
        run = read_run(path)
    executing = sum(observation.seconds for observation in run.observations) / wall
    drawing = sum(observation.setup_seconds for observation in run.observations) / wall
    settings = run.header.settings
    print(
        f"a scan of {len(run.header.planned)} rows on {settings.device}, {settings.runs} executions in each of"
    )
    print(f"{settings.processes} processes for both modes: {wall:.0f} s")
    print(
        f"  executing and comparing {executing:.0%}, drawing inputs {drawing:.0%}, starting workers and checking"
    )
    print(f"  inputs and state {1 - executing - drawing:.0%}")


if __name__ == "__main__":
    main()
