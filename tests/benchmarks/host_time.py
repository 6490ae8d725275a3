"""What a pass costs the host of a GPU, by part, without one. Prints ratios from this one run.

python tests/benchmarks/host_time.py [STEP]: of every STEP-th case of the catalog (2 unless told) all rows on CUDA

* are drawn in the sizes of CUDA, anew on the host and as a worker draws them, and their bits hashed with SHA-256 as once they
  were; a few that ask what they have drawn need a device that has memory, and are left out;
* are observed by a worker whose device is a stand-in, in the sizes of a CPU: drawing, digests, comparisons, severity and the
  rest, as shares of what is no execution. On a GPU digests, comparisons and severity are queued there.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from opspecs.draws import KeptDraws, Pools
from opspecs.inputs import Inputs
from opspecs.model import OpSpec, Planned
from opspecs.registry import SPECS
from scanner.processes.sandbox import ImportSandbox
from scanner.processes.supervisor import WorkerSupervisor

STEP = 2
_PATIENCE = 300.0
_DIGESTED = 2  # once inputs were hashed before and after the executions


class HostTime(NamedTuple):
    """Seconds that rows took the host of a GPU before their first execution."""

    rows: int
    anew: float
    kept: float
    hashed: float  # once
    gigabytes: float


def sample(step: int) -> list[tuple[OpSpec, list[Planned]]]:
    """Return every step-th case with its rows on CUDA."""
    cases: dict[tuple[str, str], tuple[OpSpec, list[Planned]]] = {}
    for spec in SPECS:
        for row in spec.rows("cuda"):
            cases.setdefault((row.spec, row.case), (spec, []))[1].append(row)
    return list(cases.values())[::step]


def draw(step: int) -> HostTime:
    """Draw rows as a worker does, in the sizes of CUDA."""
    size, Inputs.size = Inputs.size, lambda _, **sizes: sizes["cuda"]  # type: ignore[method-assign]
    found, kept = HostTime(0, 0.0, 0.0, 0.0, 0.0), KeptDraws()
    try:
        for spec, rows in sample(step):
            for row in rows:
                found = _sum(found, _draw_row(spec, row, kept))
    finally:
        Inputs.size = size  # type: ignore[method-assign]
    return found


def _draw_row(spec: OpSpec, row: Planned, kept: KeptDraws) -> HostTime:
    from scanner.worker.execution import Execution, InvalidCaseError  # noqa: PLC0415 - needs torch

    options: dict[str, Any] = {"direction": row.direction, "dtype": row.dtype, "seed": 0}
    try:
        # Numbers are drawn on the CPU, and nothing is moved to a device that has no memory.
        again, _ = _seconds(lambda: Execution(spec, row.case, device="meta", kept=kept, **options))
    except InvalidCaseError:
        return HostTime(0, 0.0, 0.0, 0.0, 0.0)
    # First in memory that a later one finds touched.
    execution = Execution(spec, row.case, device="cpu", **options)
    with mock.patch.object(Pools, "window", return_value=None):
        anew, _ = _seconds(lambda: Execution(spec, row.case, device="meta", **options))
    tensors = [tensor.contiguous() for _, tensor in execution.inputs() if tensor.numel()]
    hashed, _ = _seconds(lambda: [_sha(one) for one in tensors])
    return HostTime(1, anew, again, hashed, sum(one.numel() * one.element_size() for one in tensors) / 1e9)


def _sum(one: HostTime, other: HostTime) -> HostTime:
    rows, *floats = (left + right for left, right in zip(one, other, strict=True))
    return HostTime(int(rows), *floats)


def _seconds(do: Any) -> tuple[float, Any]:
    started = time.perf_counter()
    result = do()
    return time.perf_counter() - started, result


def _sha(tensor: Any) -> bytes:
    import ctypes  # noqa: PLC0415

    size = tensor.numel() * tensor.element_size()
    return hashlib.sha256((ctypes.c_char * size).from_address(tensor.data_ptr())).digest()


def parts(step: int) -> tuple[int, dict[str, float]]:
    """Return how many rows a worker observed on the stand-in, and the seconds of each part."""
    timed = Path(__file__).with_name("_timed_cuda.py")
    rows = [row for _, some in sample(step) for row in some]
    with ImportSandbox() as sandbox:
        workers = WorkerSupervisor(sys.executable, sandbox.path, (str(timed),), "cuda:0")
        asked = {"device": "cuda:0", "seed": 0, "runs": 20, "perturbations": ["quiet"]}
        for row in rows:
            workers.ask("off", {"do": "observe", **row._asdict(), **asked}, _PATIENCE)
        told = Planned(spec="timed.tells", case="one", direction="forward", dtype="float32")
        answer = workers.ask("off", {"do": "observe", **told._asdict(), **asked}, _PATIENCE)
        workers.retire()
    found, _ = json.JSONDecoder().raw_decode(answer["message"][answer["message"].index("{") :])
    return len(rows), {name: float(seconds) for name, seconds in found.items()}


def main() -> None:
    """Print both."""
    step = int(sys.argv[1]) if sys.argv[1:] else STEP
    drawn = draw(step)
    before = drawn.anew + _DIGESTED * drawn.hashed
    print(f"{drawn.rows} rows in the sizes of CUDA, {drawn.gigabytes:.1f} GB: drawn as a worker draws them")
    print(f"  over drawing each anew {drawn.kept / drawn.anew:.2f}")
    print(
        f"  over drawing each anew and hashing it twice {drawn.kept / before:.2f} ({before / drawn.kept:.1f} times less)"
    )
    count, seconds = parts(step)
    host = sum(took for name, took in seconds.items() if name != "execute")
    print(
        f"{count} rows of 20 executions on the stand-in, in the sizes of a CPU: shares of what is no execution"
    )
    for name, took in sorted(seconds.items(), key=lambda one: -one[1]):
        if name != "execute":
            print(f"  {name:9}{took / host:6.0%}")


if __name__ == "__main__":
    main()
