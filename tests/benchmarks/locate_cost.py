"""What ``detmatrix locate`` costs over the bare step of a small transformer, in one process.

python -m tests.benchmarks.locate_cost [cpu|cuda]

Each way of observing is timed in turn, round by round, and compared with the bare steps of the same rounds. A mode lives through all
rounds, as it does in a program of many steps.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

os.environ.setdefault("OMP_PROC_BIND", "true")

import torch

from detmatrix.scanner.locate.mode import LocateMode, LocateSettings
from tests.programs.transformer import Training

REPLAYS, ROUNDS = 4, 7
# How many times the bare step each may take.
AIMS = {"the mode, nothing replayed": None, f"replay {REPLAYS}": 2.5 + REPLAYS, "digests of two runs": 6.0}


def main() -> None:
    """Print how many times the bare step each takes."""
    device = (*sys.argv[1:], "cpu")[0]
    if device != "cpu":
        # Slows every call down, so that it is not done for nothing.
        torch.set_default_device(device)
    training = Training(width=128, layers=4, batch=4, length=128, words=512)
    with tempfile.TemporaryDirectory() as folder:
        settings = ({"replays": 0}, {"replays": REPLAYS}, {"replays": 0, "record": str(Path(folder, "run"))})
        modes = [None, *(LocateMode(LocateSettings(**one)) for one in settings)]
        # The first round loads what is loaded when it is first needed.
        bare, *times = zip(
            *([_seconds(training, mode, device) for mode in modes] for _ in range(ROUNDS + 1)), strict=True
        )
    print(f"one step of a transformer on {device}, {torch.get_num_threads()} threads, over the bare step:")
    for (name, aim), seconds in zip(AIMS.items(), times, strict=True):
        ratio = statistics.median(one / of for one, of in zip(seconds[1:], bare[1:], strict=True))
        print(f"  {name:<34} {ratio:6.2f}{f' (aim: {aim:g})' if aim else ''}")


def _seconds(training: Training, mode: LocateMode | None, device: str) -> float:
    began = time.perf_counter()
    with _observed(mode):
        training.step()
    if device != "cpu":
        torch.cuda.synchronize()
    return time.perf_counter() - began


@contextmanager
def _observed(mode: LocateMode | None) -> Iterator[None]:
    """Let a mode follow modules, as a session has it."""
    if mode is None:
        yield
        return
    mode.call_sites.start()
    with mode:
        yield
    mode.call_sites.stop()
    if mode.recorder is not None:
        mode.recorder.flush()


if __name__ == "__main__":
    main()
