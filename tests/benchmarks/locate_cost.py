"""What ``detmatrix locate`` costs over the bare step of a small transformer, beside PyTorch's DebugMode, in one process.

python -m tests.benchmarks.locate_cost [cpu|cuda]

Each way of observing is timed in turn, round by round, and compared with the bare steps of the same rounds. A mode of ours lives
through all rounds, as it does in a program of many steps; that of *first step* is a new one each time, to which each call site is new.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_PROC_BIND", "true")

import torch

from detmatrix.scanner.locate.mode import LocateMode, LocateSettings
from tests.programs.transformer import Training

DIGESTS_AIM, REPLAY_AIM = 6.0, 2.5
REPLAYS, ROUNDS = 4, 7


def main() -> None:
    """Print how many times the bare step each takes."""
    device = (*sys.argv[1:], "cpu")[0]
    if device != "cpu":
        # Slows every call down, so that it is not done for nothing.
        torch.set_default_device(device)
    training = Training(width=128, layers=4, batch=4, length=128, words=512)
    with tempfile.TemporaryDirectory() as folder:
        times = _times(training, _ways(Path(folder)), device)
    bare = times.pop("bare")
    aims = {"digests of two runs": DIGESTS_AIM, f"replay {REPLAYS}": REPLAY_AIM + REPLAYS}
    print(f"one step of a transformer on {device}, {torch.get_num_threads()} threads, over the bare step:")
    for name, seconds in times.items():
        ratio = statistics.median(one / of for one, of in zip(seconds, bare, strict=True))
        aim = f" (aim: {aims[name]:g})" if name in aims else ""
        print(f"  {name:<34} {ratio:6.2f}{aim}")


def _ways(folder: Path) -> dict[str, Callable[[], AbstractContextManager[Any]]]:
    """Return the ways of observing a step, each a block around it."""
    record = str(folder / "run.jsonl")
    mode, replay, digests = _mode(), _mode(replays=REPLAYS), _mode(record=record)
    ways: dict[str, Callable[[], AbstractContextManager[Any]]] = {
        "bare": nullcontext,
        "the mode, nothing replayed": lambda: _observed(mode),
        f"replay {REPLAYS}": lambda: _observed(replay),
        f"replay {REPLAYS}, first step": lambda: _observed(_mode(replays=REPLAYS)),
        "digests of two runs": lambda: _observed(digests),
        "digests of two runs, first step": lambda: _observed(_mode(record=f"{record}.first")),
    }
    try:
        from torch.utils._debug_mode import DebugMode  # noqa: PLC0415 - an older torch has none
    except ImportError:
        return ways

    def debug(**options: Any) -> AbstractContextManager[Any]:
        stack = ExitStack()
        stack.enter_context(DebugMode(record_stack_trace=True, record_nn_module=True))
        stack.enter_context(DebugMode.log_tensor_hashes(**options))
        return stack

    ways["DebugMode, norms"] = lambda: debug(hash_inputs=True)
    ways["DebugMode, XOR"] = lambda: debug(hash_fn="hash_tensor", hash_inputs=True)
    return ways


def _mode(*, replays: int = 0, record: str | None = None) -> LocateMode:
    return LocateMode(LocateSettings(replays=replays, record=record))


@contextmanager
def _observed(mode: LocateMode) -> Iterator[None]:
    """Let a mode follow modules, as a session has it."""
    mode.places.start()
    with mode:
        yield
    mode.places.stop()
    if mode.recorder is not None:
        mode.recorder.flush()


def _times(
    training: Training, ways: dict[str, Callable[[], AbstractContextManager[Any]]], device: str
) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in ways}
    # The first round loads what is loaded when it is first needed.
    for number in range(ROUNDS + 1):
        for name, way in ways.items():
            began = time.perf_counter()
            with way():
                training.step()
            if device != "cpu":
                torch.cuda.synchronize()
            if number:
                times[name].append(time.perf_counter() - began)
    return times


if __name__ == "__main__":
    main()
