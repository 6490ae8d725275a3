"""Have the engines of a table executed again and again, and write into it what they came to."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec
from msgspec.structs import replace

from scanner.cudnn.gpus import PRESENT
from scanner.cudnn.processes import ask
from scanner.cudnn.record import (
    EngineTable,
    ExecutedEngine,
    ExecuteRequest,
    Executions,
    Measurement,
    Place,
    Ready,
)
from scanner.errors import UsageError

RUNS = 20
_GRACE = 120.0  # seconds for what is under way when the time is over
_LONGEST = 24 * 3600.0
_Work = tuple[tuple[Place, tuple[int, ...]], ...]


def measure(
    table: EngineTable,
    library: str,
    runs: int,
    seconds: float | None,
    progress: Callable[[str], None],
    device: str = "cuda",
) -> EngineTable:
    """Execute the engines that were accepted on the GPU that is there.

    Cells with an engine that is noted nondeterministic come first, so that a short time says most.

    Args:
        table: What cuDNN said of its engines.
        library: Its path.
        runs: Executions of each engine.
        seconds: After which no further engine is tried; those are left as never executed.
        progress: Called with what is being done.
        device: Where torch has its memory.

    Raises:
        UsageError: Nothing can be executed here.
    """
    cells = sorted(
        (cell for cell in table.cells if cell.gpu == PRESENT and cell.engines),
        key=lambda cell: not any(one.nondeterministic for one in cell.engines),
    )
    asked: _Work = tuple((cell.place, tuple(one.number for one in cell.engines)) for cell in cells)
    progress(
        f"executing {sum(len(numbers) for _, numbers in asked)} engines of {len(asked)} cells, {runs} times each"
    )
    end = None if seconds is None else time.monotonic() + seconds
    found: dict[tuple[Place, int], Executions] = {}
    ready = Ready()
    while rest := _rest(asked, found):
        left = None if end is None else end - time.monotonic()
        if left is not None and left <= 0:
            break
        request = ExecuteRequest(library, device, table.problems, rest, runs, left)
        answer = ask("execute", request, _LONGEST if left is None else left + _GRACE)
        if not answer.lines:
            ready = Ready(
                failed=f"the process that loads cuDNN ended ({answer.ending}) {answer.said}".strip()
            )
        else:
            ready = msgspec.json.decode(answer.lines[0], type=Ready)
        if ready.failed is not None:
            raise UsageError(f"cudnn: --measure cannot execute engines: {ready.failed}")
        before = len(found)
        ended = Executions(failed=f"ended the process ({answer.ending})")
        for one in _answered(answer.lines[1:]):
            found[one.place, one.number] = one.executions or ended
        if answer.ending is None or len(found) == before:
            break
    progress(f"executed {len(found)} of them")
    return replace(
        table,
        measured=Measurement(ready.gpu, ready.torch, runs),
        cells=tuple(
            replace(cell, engines=tuple(
                replace(one, executed=found.get((cell.place, one.number))) for one in cell.engines))
            for cell in table.cells
        ),
    )  # fmt: skip


def _rest(asked: _Work, found: dict[tuple[Place, int], Executions]) -> _Work:
    left = ((place, tuple(one for one in numbers if (place, one) not in found)) for place, numbers in asked)
    return tuple((place, numbers) for place, numbers in left if numbers)


def _answered(lines: Sequence[bytes]) -> list[ExecutedEngine]:
    answered = []
    for line in lines:
        with suppress(msgspec.DecodeError):
            answered.append(msgspec.json.decode(line, type=ExecutedEngine))
    return answered
