"""What the rows of the catalog launch and return: on a GPU, as its profiler saw it, or simulated; given the same inputs.

    python -m tests.launched record FILE      # on a machine with a GPU: write which kernels its rows launch
    python -m tests.launched hold PYTHON [sm_80]   # simulated, with the torch of an interpreter: is it what an H100 did?

Neither is a test: what was recorded is of torch 2.11.0, whose build for CUDA has more than a gigabyte.
"""

from __future__ import annotations

import ctypes
import gzip
import json
import os
import re
import subprocess
import sys
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RECORDED = ROOT / "tests" / "data" / "gpu" / "launched-2.11.0-h100.json.gz"
RUNS = ("cuda-as-simulated", "simulated-sm_90")
# What the driver does, and no kernel.
_COPIES = ("Memset", "Memcpy")
_SECONDS = 200
_TEMPLATED = re.compile("[<(].*")

Seen = dict[str, Any]


def main() -> None:
    """Record what a GPU launches, or hold a simulated one against it."""
    what, where = sys.argv[1:3]
    if what == "record":
        record(Path(where))
    elif what == "hold":
        hold(where, *sys.argv[3:])
    else:  # a process of `hold`
        from detmatrix.scanner.worker import simulated  # noqa: PLC0415

        simulated.load(where, *map(int, sys.argv[3].split(",")))
        for row, flag, seen in rows_seen(simulated_once):
            print(json.dumps([row, flag, seen]), flush=True)


def record(path: Path) -> None:
    """Write of each row and flag the numbers of the kernels' names, in the order of their start, or what was raised."""
    names: dict[str, int] = {}
    rows: defaultdict[str, Seen] = defaultdict(dict)
    for row, flag, seen in rows_seen(profiled):
        kernels = seen.get("kernels")
        rows[row][flag] = (
            seen["raised"] if kernels is None else [names.setdefault(one, len(names)) for one in kernels]
        )
    path.write_bytes(gzip.compress(json.dumps({"names": list(names), "rows": rows}).encode(), mtime=0))


def hold(python: str, architecture: str = "sm_90") -> None:
    """Print how many rows and flags do simulated what they did on an H100, and those that do not."""
    from detmatrix.scanner.gpu.process import GpuProcess, prepare  # noqa: PLC0415

    known = json.loads(gzip.decompress(RECORDED.read_bytes()))
    # Where orders give other bits, that of an H100 need not be ours; nor are those of another GPU's code.
    digests, orders = map(_digests, RUNS) if architecture == "sm_90" else ({}, {})
    simulation = prepare(python, architecture)
    gpu = GpuProcess(simulation)
    command = [python, "-m", "tests.launched", "simulated", str(simulation.folder)]
    command.append(",".join(map(str, gpu.descriptors)))
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    counts: Counter[str] = Counter()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, env=environment, pass_fds=gpu.descriptors, text=True
    ) as process:
        for row, flag, seen in map(json.loads, process.stdout or ()):
            there = known["rows"].get(row, {}).get(flag)
            if isinstance(there, list):
                there = [known["names"][number] for number in there]
            kind = _likeness(seen, there)
            counts[kind] += 1
            if kind == "differ":
                print(f"{row}, flag {flag}: {seen}, an H100: {there}")
            found = digests.get((row, flag), ())
            if kind.startswith("launch") and len(found) == len(orders.get((row, flag), ())) == 1:
                use, same = ("use" if seen["approximates"] else "do not use"), found == {seen["digest"]}
                bits = "the same" if same else "other"
                counts[f"have one digest in both, {use} MUFU, and have {bits} bits"] += 1
    gpu.stop()
    print("\n".join(f"{count} {kind}" for kind, count in counts.items()))


def _likeness(seen: Seen, there: Any) -> str:
    """Say how a simulated GPU did as an H100: another architecture has other widths of vectors, and other tiles."""
    if there is None:
        return "were not recorded"
    if "library" in seen:
        return "call a library"
    if "raised" in seen or isinstance(there, str):
        return "raise the same" if seen.get("raised") == there else "differ"
    here = [*map(_demangled, seen["kernels"])]
    if here == there:
        return "launch the same kernels in the same order"
    if [_TEMPLATED.sub("", one) for one in here] == [_TEMPLATED.sub("", one) for one in there]:
        return "launch the same kernels with other template arguments"
    return "differ"


def _digests(run: str) -> dict[tuple[str, str], set[str]]:
    """Return what each row and flag gave in a recorded run."""
    from detmatrix.scanner.observations.runfile import read_run  # noqa: PLC0415

    found: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for one in read_run(ROOT / "reports" / "runs" / f"torch-2.11.0-{run}.jsonl.gz").observations:
        found[":".join(one.key), one.mode] |= one.digests.keys()
    return found


def rows_seen(execute: Callable[[Any], Seen]) -> Iterator[tuple[str, str, Seen]]:
    """Yield of each row of the catalog on CUDA, with either flag, what came of executing it."""
    import torch  # noqa: PLC0415 - behind the stand-ins

    from detmatrix.opspecs.registry import SPECS  # noqa: PLC0415
    from detmatrix.scanner.worker import simulated  # noqa: PLC0415
    from detmatrix.scanner.worker.execution import Execution  # noqa: PLC0415

    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    simulated.draw_alike(asked=True)
    warnings.simplefilter("ignore")
    for spec in SPECS:
        for row in spec.rows("cuda"):
            for flag in ("off", "on"):
                torch.use_deterministic_algorithms(flag == "on")
                where: dict[str, Any] = {"direction": row.direction, "dtype": row.dtype, "device": "cuda:0"}
                try:
                    seen = execute(Execution(spec, row.case, **where, seed=0))
                except Exception as error:  # noqa: BLE001 - an op may raise anything
                    seen = {"raised": f"{type(error).__name__}: {error}".split(". You can")[0][:120]}
                yield ":".join(row), flag, seen


def profiled(execution: Any) -> Seen:
    """Execute on a GPU, and return which kernels ran."""
    import torch  # noqa: PLC0415
    from torch.profiler import ProfilerActivity, profile  # noqa: PLC0415

    execution()  # loads what is loaded once
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        execution.reseed()
        execution()
        torch.cuda.synchronize()
    events = profiler.profiler.kineto_results.events()
    there = [one for one in events if one.device_type() == torch.autograd.DeviceType.CUDA]
    there.sort(key=lambda one: one.start_ns())
    return {"kernels": [one.name() for one in there if not one.name().startswith(_COPIES)]}


def simulated_once(execution: Any) -> Seen:
    """Execute on a simulated GPU, and return which kernels ran, what they gave, and whether they approximate."""
    from detmatrix.scanner.schedules import CANONICAL  # noqa: PLC0415
    from detmatrix.scanner.worker import bits, simulated  # noqa: PLC0415
    from detmatrix.scanner.worker.execution import on_host  # noqa: PLC0415

    for _ in range(2):
        simulated.begin(CANONICAL, 0, 0, time.perf_counter() + _SECONDS)
        execution.reseed()
        output, gradients = execution()
        report = simulated.report()
        output, gradients = on_host(output), tuple(map(on_host, gradients))
    if called := [*report.libraries, *report.products]:
        return {"library": called[0]}
    _, judged = execution.parts(output, gradients)
    return {"kernels": report.launches, "digest": bits.digest(judged), "approximates": report.approximates}


def _demangled(name: str) -> str:
    """Return the name of a kernel as the profiler has it: both ask libstdc++."""
    library, status = ctypes.CDLL("libstdc++.so.6"), ctypes.c_int()
    library.__cxa_demangle.restype = ctypes.c_void_p
    found = library.__cxa_demangle(name.encode(), None, None, ctypes.byref(status))
    return ctypes.string_at(found).decode() if found else name


if __name__ == "__main__":
    main()
