"""The worker process: ``python -m detmatrix.scanner.worker``, which lives under one mode at a time.

It imports the standard library, torch and the op specs, nothing else, so that it starts inside any
environment that has a torch. Requests come and replies go as JSON lines over pipes of their own; standard
output and standard error belong to the ops.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import platform
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from detmatrix.opspecs.controls import INVARIANCE_CONTROLS, SENTINELS, SIMULATED_CONTROLS
from detmatrix.opspecs.controls import SPECS as CONTROLS
from detmatrix.opspecs.model import OpSpec
from detmatrix.opspecs.pytorch import database
from detmatrix.opspecs.registry import SPECS
from detmatrix.opspecs.spellings import SPELLINGS
from detmatrix.opspecs.user import SpecFileError, load_specs, seeded
from detmatrix.scanner.accelerators import SIMULATED
from detmatrix.scanner.modes import MODE_TABLE, WorkerMode
from detmatrix.scanner.worker import (
    perturb,  # noqa: F401 - asks for the cores before torch binds threads to them
    simulated,
)

_PROCESS = os.getpid()
_CONTROLS = frozenset(spec.name for spec in (*CONTROLS, *SIMULATED_CONTROLS))

Specs = dict[str, OpSpec]
Request = dict[str, Any]
Handler = Callable[[Specs, Request], Request]


def main() -> None:
    """Say hello, then answer requests until the pipe closes."""
    parser = argparse.ArgumentParser(prog="python -m detmatrix.scanner.worker", allow_abbrev=False)
    parser.add_argument("--requests", type=int, required=True, help="file descriptor to read requests from")
    parser.add_argument("--replies", type=int, required=True, help="file descriptor to write replies to")
    parser.add_argument("--mode", choices=tuple(MODE_TABLE), required=True)
    parser.add_argument("--specs", action="append", default=[], help="a file of further specs")
    parser.add_argument("--as-simulated", action="store_true", help="draw the inputs of a simulated GPU")
    parser.add_argument("--simulate", metavar="FOLDER", help="of stand-ins for NVIDIA's libraries")
    parser.add_argument("--gpu", metavar="SOCKET,MEMORY", help="file descriptors of the simulated GPU")
    options = parser.parse_args()
    for descriptor in (options.requests, options.replies):
        os.set_inheritable(descriptor, False)
    with os.fdopen(options.requests, "r") as requests, os.fdopen(options.replies, "w") as replies:
        # The first line asks for the hello; nobody who has not read it can say it.
        identity = json.loads(requests.readline())["id"]
        # What is imported stays, and looking through it for garbage again and again takes a quarter of the time.
        gc.disable()
        simulated.draw_alike(asked=options.as_simulated)
        if options.simulate is not None:
            simulated.load(options.simulate, *map(int, options.gpu.split(",")))
        hello = _start(MODE_TABLE[options.mode], options.specs)
        gc.freeze()
        gc.enable()
        specs = hello.pop("specs", {})
        _send(replies, {"id": identity, **hello})
        if "failed" not in hello:
            _serve(requests, replies, specs, MODE_TABLE[options.mode])


def _start(mode: WorkerMode, spec_files: list[str]) -> dict[str, Any]:
    """Import torch, set the mode before anything else happens, and describe the build."""
    try:
        import torch  # noqa: PLC0415, F401 - its absence is an answer, not a traceback
    except Exception as error:  # noqa: BLE001 - a broken build fails in any way it likes
        return {"failed": f"{type(error).__name__}: {error}".split("\n", 1)[0]}
    _set(mode)
    if mode.compiles:
        from detmatrix.scanner.worker.execution import failure  # noqa: PLC0415 - needs torch

        # The first compilation takes as long as many others, and no row shall pay for it.
        if (why := failure("cuda" if simulated.active() else "cpu")) is not None:
            return {"failed": f"torch.compile does not work there: {why}"}
    specs = [*SPECS, *SPELLINGS, *CONTROLS, *SIMULATED_CONTROLS, *INVARIANCE_CONTROLS, *SENTINELS.values()]
    try:
        # Weights that a file draws where it begins are the same in every process.
        with seeded(0) if spec_files else nullcontext():
            for path in spec_files:
                specs += load_specs(path)
    except SpecFileError as error:
        return {"failed": str(error)}
    # A program of the user's sets the flag where it begins.
    _set(mode)
    return {"specs": {spec.name: spec for spec in specs}, "build": _build()}


def _set(mode: WorkerMode) -> None:
    """Set what a mode sets for the whole process."""
    import torch  # noqa: PLC0415

    # Setting the flag loads PyTorch's compiler, which takes as long as torch itself. Off is how torch starts, unless
    # something in this environment turns the flag on.
    if mode.deterministic or torch.are_deterministic_algorithms_enabled():
        torch.use_deterministic_algorithms(mode.deterministic, warn_only=mode.warn_only)
    # A torch before 2.1 fills nothing in any mode.
    if hasattr(torch.utils, "deterministic"):
        torch.utils.deterministic.fill_uninitialized_memory = mode.fill
    for switch in mode.cudnn:
        setattr(torch.backends.cudnn, switch, True)


def _build() -> dict[str, Any]:
    """Describe the scanned torch and what it sees of the machine."""
    import torch  # noqa: PLC0415

    from detmatrix.scanner.worker import accelerator  # noqa: PLC0415

    return {
        "torch": torch.__version__,
        "torch_git": torch.version.git_version,
        "cuda": torch.version.cuda,
        "rocm": getattr(torch.version, "hip", None),
        "cudnn": torch.backends.cudnn.version(),
        "tf32": accelerator.tf32(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "devices": accelerator.present(),
        "docstring": torch.use_deterministic_algorithms.__doc__ or "",
    }


def _serve(requests: Any, replies: Any, specs: Specs, mode: WorkerMode) -> None:
    """Answer each request with what was asked for: ``{"id": number, "do": what, "spec": name, "case": name, …}``."""
    for line in requests:
        request = json.loads(line)
        identity, do = request.pop("id"), request.pop("do")
        if request.get("device") == SIMULATED:
            request["device"] = "cuda:0"  # for torch it is one like any other
        if do == "turn":
            mode = MODE_TABLE[request["mode"]]
            _set(mode)
            _send(replies, {"id": identity, "answer": {}})
            continue
        if do == "observe":
            # Controls ask whether this process sees what there is; compiled code is what is asked of rows alone.
            control = mode.compiles and request["spec"] in _CONTROLS
            request["execution"] = "eager" if control else mode.execution
        _send(replies, {"id": identity, **_HANDLERS[do](specs, request)})


def _on_device(request: Request) -> None:
    """Let what follows happen on the device that a request names."""
    from detmatrix.scanner.worker import accelerator  # noqa: PLC0415 - needs torch

    accelerator.select(request.get("device", "cpu"), request.pop("share", 1.0))


def _row(module: str, function: str) -> Handler:
    """Return a handler that has a row executed: the function of a module, which needs torch, is given its spec and its case."""

    def handle(specs: Specs, request: Request) -> Request:
        _on_device(request)
        name, case, enlargement = request.pop("spec"), request.pop("case"), request.pop("enlargement", "")
        # Found anew for each row, it holds no inputs; an import that fails here failed when it was enumerated.
        spec = (
            specs[name]
            if name in specs
            else database.find(name, seed=request["seed"], enlargement=enlargement)
        )
        execute = getattr(importlib.import_module(f"{__package__}.{module}"), function)
        answer = execute(spec, case, **request)
        return {"answer": answer, "tainted": _tainted(request["device"], answer)}

    return handle


def _sentinel(specs: Specs, request: Request) -> Request:
    """Observe with the flag off, whatever this worker's mode: a sentinel asks what the machine lets race."""
    from detmatrix.scanner.worker import global_state  # noqa: PLC0415 - needs torch

    with global_state.flag_set(False):
        return _HANDLERS["observe"](specs, request)


def _kernels(_: Specs, request: Request) -> Request:
    """Return the overloads that the build has kernels for, if asked, and the alerts that are compiled into it."""
    from detmatrix.scanner.worker.overloads import compiled_alerts, kernels  # noqa: PLC0415

    _on_device(request)
    groups = kernels(request["device"]) if request["overloads"] else []
    return {"answer": {"groups": groups, "alerts": compiled_alerts(request["device"])}}


def _entries(_: Specs, request: Request) -> Request:
    try:
        return {"answer": {"entries": list(database.entries(request["source"]))}}
    except database.DatabaseError as error:
        return {"answer": {"failed": str(error)}}


def _enumerate(_: Specs, request: Request) -> Request:
    from detmatrix.scanner.worker import accelerator  # noqa: PLC0415
    from detmatrix.scanner.worker.databases import entry_rows  # noqa: PLC0415

    _on_device(request)
    try:
        answer = entry_rows(**request)
    except database.DatabaseError as error:
        return {"answer": {"failed": str(error)}}
    except Exception:
        if accelerator.works(request["device"]):
            raise
    if not accelerator.works(request["device"]):
        # Whatever was tried behind the call that broke the device has failed, and says nothing of the entry.
        return {"answer": {"failed": "the device no longer answers"}, "tainted": True}
    return {"answer": answer}


def _source(specs: Specs, request: Request) -> Request:
    """Return how the inputs of a row are made, as source that needs torch alone."""
    from detmatrix.scanner.worker.repro import InputSourceError, input_source  # noqa: PLC0415

    try:
        return {"answer": input_source(specs, **request)}
    except InputSourceError as error:
        return {"answer": {"failed": str(error)}}


def _tainted(device: str, answer: dict[str, Any]) -> bool:
    """Tell whether what a case left behind would speak in every later one: a changed flag, a device that is broken."""
    from detmatrix.scanner.worker import accelerator  # noqa: PLC0415

    if str(answer.get("message", "")).startswith("changed global state"):
        return True
    if device == "cpu":
        return False
    # The overloads of a row are recorded whatever it raises in a mode; and an error may come up behind the last answer.
    said = [answer, *answer.get("modes", {}).values()]
    texts = [answer.get("exception"), *(str(one.get("message")).partition(":")[0] for one in said)]
    # What ran out of memory leaves the next case a cache in pieces.
    return "OutOfMemoryError" in texts or not accelerator.works(device)


# By the "do" of a request.
_HANDLERS: dict[str, Handler] = {
    "observe": _row("observe", "observe"),
    "sentinel": _sentinel,
    "cost": _row("cost", "measure"),
    "dispatch": _row("overloads", "record"),
    "invariance": _row("invariance", "measure"),
    "kernels": _kernels,
    "entries": _entries,
    "enumerate": _enumerate,
    "describe": _row("execution", "describe"),
    "source": _source,
}


def _send(replies: Any, message: dict[str, Any]) -> None:
    if os.getpid() != _PROCESS:
        # An op has forked, and returned in the child too: the parent answers for it.
        os._exit(0)
    replies.write(json.dumps(message) + "\n")
    replies.flush()


if __name__ == "__main__":
    main()
