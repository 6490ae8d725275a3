"""The worker process: ``python -m scanner.worker``, one mode for its whole life.

It imports the standard library, torch and the op specs, nothing else, so that it starts inside any
environment that has a torch. Requests come and replies go as JSON lines over pipes of their own; standard
output and standard error belong to the ops.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import platform
import signal
import sys
from pathlib import Path
from typing import Any

from opspecs.controls import SENTINELS
from opspecs.controls import SPECS as CONTROLS
from opspecs.model import OpSpec
from opspecs.pytorch import database
from opspecs.registry import SPECS
from opspecs.user import SpecFileError, load_specs
from scanner.worker import perturb  # noqa: F401 - asks for the cores before torch binds threads to them

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Say hello, then answer requests until the pipe closes."""
    parser = argparse.ArgumentParser(prog="python -m scanner.worker", allow_abbrev=False)
    parser.add_argument("--requests", type=int, required=True, help="file descriptor to read requests from")
    parser.add_argument("--replies", type=int, required=True, help="file descriptor to write replies to")
    parser.add_argument("--mode", choices=("off", "on", "warn_only", "unfilled"), required=True)
    parser.add_argument("--specs", action="append", default=[], help="a file of further specs")
    options = parser.parse_args()
    _die_with_parent()
    for descriptor in (options.requests, options.replies):
        os.set_inheritable(descriptor, False)
    with os.fdopen(options.requests, "r") as requests, os.fdopen(options.replies, "w") as replies:
        hello = _start(options.mode, options.specs)
        specs = hello.pop("specs", {})
        _send(replies, hello)
        if "failed" not in hello:
            _serve(requests, replies, specs)


def _die_with_parent() -> None:
    """On Linux, end when the manager is killed, and be the first to go when memory runs out."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def _start(mode: str, spec_files: list[str]) -> dict[str, Any]:
    """Import torch, set the mode before anything else happens, and describe the build."""
    try:
        import torch  # noqa: PLC0415 - its absence is an answer, not a traceback
    except Exception as error:  # noqa: BLE001 - a broken build fails in any way it likes
        return {"failed": f"{type(error).__name__}: {error}".split("\n", 1)[0]}
    # Setting the flag loads PyTorch's compiler, which takes as long as torch itself. Off is how torch starts, unless
    # something in this environment turns the flag on.
    if mode != "off" or torch.are_deterministic_algorithms_enabled():
        torch.use_deterministic_algorithms(mode != "off", warn_only=mode == "warn_only")
    # A torch before 2.1 fills nothing in any mode.
    if mode == "unfilled" and hasattr(torch.utils, "deterministic"):
        torch.utils.deterministic.fill_uninitialized_memory = False
    specs: dict[str, OpSpec] = {spec.name: spec for spec in (*SPECS, *CONTROLS)}
    try:
        for path in spec_files:
            specs.update({spec.name: spec for spec in load_specs(path)})
    except SpecFileError as error:
        return {"failed": str(error)}
    return {"specs": specs, "build": _build()}


def _build() -> dict[str, Any]:
    """Describe the scanned torch and what it sees of the machine."""
    import torch  # noqa: PLC0415

    devices = []
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            major, minor = torch.cuda.get_device_capability(index)
            devices.append({"name": torch.cuda.get_device_name(index), "capability": f"{major}.{minor}"})
    return {
        "torch": torch.__version__,
        "torch_git": torch.version.git_version,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "devices": devices,
        "docstring": torch.use_deterministic_algorithms.__doc__ or "",
    }


def _serve(requests: Any, replies: Any, specs: dict[str, OpSpec]) -> None:
    """Answer each request with what was asked for: ``{"do": what, "spec": name, "case": name, …}``."""
    import torch  # noqa: PLC0415

    from scanner.worker.observe import observe  # noqa: PLC0415 - needs torch

    for line in requests:
        request = json.loads(line)
        do = request.pop("do")
        if do in {"trace", "functions"}:
            _send(replies, _expect(do, specs, request))
            continue
        if request.get("device", "cpu") != "cpu":
            torch.cuda.set_device(request["device"])
        if do in {"entries", "enumerate", "kernels"}:
            _send(replies, {"answer": _enumerated(do, request)})
            continue
        name, case, enlargement = request.pop("spec"), request.pop("case"), request.pop("enlargement", "")
        if do == "sentinel":
            spec = SENTINELS[request["device"].partition(":")[0]]
        elif name in specs:
            spec = specs[name]
        else:
            # Found anew for each row, it holds no inputs; an import that fails here failed when it was enumerated.
            spec = database.find(name, seed=request["seed"], enlargement=enlargement)
        if do == "cost":
            from scanner.worker.cost import measure  # noqa: PLC0415

            answer = measure(spec, case, **request)
        elif do == "dispatch":
            from scanner.worker.overloads import record  # noqa: PLC0415

            answer = record(spec, case, **request)
        elif do == "sentinel":
            answer = _sentinel(torch, spec, case, request)
        else:
            answer = observe(spec, case, **request)
        _send(replies, {"answer": answer, "tainted": _tainted(torch, request["device"], answer)})


def _tainted(torch: Any, device: str, answer: dict[str, Any]) -> bool:
    """Tell whether what a case left behind would speak in every later one: a changed flag, a broken CUDA context."""
    if str(answer.get("message", "")).startswith("changed global state"):
        return True
    if device == "cpu" or answer["outcome"] == "ran":
        return False
    # What ran out of memory leaves the next case a cache in pieces.
    text = (answer.get("exception"), str(answer.get("message")).partition(":")[0])
    return "OutOfMemoryError" in text or not _cuda_works(torch)


def _expect(do: str, specs: dict[str, OpSpec], request: dict[str, Any]) -> dict[str, Any]:
    """Answer what needs no device, and so says what is expected, not what happens."""
    if do == "functions":
        from scanner.worker.native_functions import kernels  # noqa: PLC0415 - needs torch

        return {"answer": {"overloads": kernels(**request)}}
    from scanner.worker.fake_trace import trace  # noqa: PLC0415

    modes = trace(specs[request.pop("spec")], request.pop("case"), **request)
    tainted = any(str(mode.get("message", "")).startswith("changed global state") for mode in modes)
    return {"answer": {"modes": modes}, "tainted": tainted}


def _enumerated(do: str, request: dict[str, Any]) -> dict[str, Any]:
    """Return the overloads that the build has kernels for, the names of a database's entries, or the rows of one of them."""
    if do == "kernels":
        from scanner.worker.overloads import kernels  # noqa: PLC0415 - needs torch

        return {"groups": kernels(**request)}
    try:
        if do == "entries":
            return {"entries": list(database.entries(request["source"]))}
        from scanner.worker.samples import entry_rows  # noqa: PLC0415

        return entry_rows(**request)
    except database.DatabaseError as error:
        return {"failed": str(error)}


def _sentinel(torch: Any, spec: OpSpec, case: str, request: dict[str, Any]) -> dict[str, Any]:
    """Observe a sentinel with the flag off, whatever this worker's mode: it asks what the machine lets race."""
    from scanner.worker.observe import observe  # noqa: PLC0415

    enabled = torch.are_deterministic_algorithms_enabled()
    if not enabled:
        return observe(spec, case, **request)
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(False)
    try:
        return observe(spec, case, **request)
    finally:
        torch.use_deterministic_algorithms(enabled, warn_only=warn_only)


def _cuda_works(torch: Any) -> bool:
    """Tell whether the device still answers; an illegal access or a failed assertion stays with a process."""
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return False
    return True


def _send(replies: Any, message: dict[str, Any]) -> None:
    replies.write(json.dumps(message) + "\n")
    replies.flush()


if __name__ == "__main__":
    main()
