"""Run a program as Python would: a script, a module, or a function of a file."""

from __future__ import annotations

import builtins
import importlib.util
import io
import json
import os
import runpy
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, NoReturn

import torch

from detmatrix.scanner.errors import ending
from detmatrix.scanner.locate.mode import LocateSettings
from detmatrix.scanner.locate.session import Session

_OURS = str(Path(__file__).parent) + os.sep
# Between our own frames and the user's when a module is run.
_RUNNERS = ("<frozen runpy>", runpy.__file__, "<frozen importlib")
# What calls an op for us.
_CALLER = torch._ops.__file__  # noqa: SLF001 - its path


def run(request: dict[str, Any]) -> int:
    """Run the program of a request under observation, write what was found, and return the program's exit code."""
    session = Session(LocateSettings(**request["settings"]))
    ended: str | None = None

    def tell() -> None:
        located = session.stop(ended)
        if not session.forked:
            write_whole(request["located"], json.dumps(asdict(located)))

    at_once = os._exit

    def leave(status: int) -> NoReturn:
        nonlocal ended
        ended = ended or _failed(status)
        if not session.forked and threading.current_thread() is threading.main_thread():
            tell()
        at_once(status)

    session.start()
    # Some programs end so, and would take with them what was found.
    os._exit = leave
    try:
        code = _exit_code(request, session)
        ended = _failed(code)
    except BaseException as error:  # noqa: BLE001 - as Python ends a program
        ended = ending(error)
        code = _told(error)
    finally:
        os._exit = at_once
    tell()
    return code


def _failed(code: int) -> str | None:
    return f"exit code {code}" if code else None


def write_whole(place: str, text: str) -> None:
    """Write a file in the place of whatever the program has put there."""
    new = f"{place}.new"
    try:
        with Path(new).open("x", encoding="utf-8") as file:
            file.write(text)
        Path(new).replace(place)
    except OSError as error:
        sys.stderr.write(f"locate: what was found cannot be written ({error.strerror})\n")


def _exit_code(request: dict[str, Any], session: Session) -> int:
    """Run the program; return the code it asks to end with, as Python takes it."""
    sys.argv = [request["name"], *request["arguments"]]
    try:
        _KINDS[request["kind"]](request, session)
    except SystemExit as asked:
        if asked.code is None or isinstance(asked.code, int):
            return asked.code or 0
        sys.stderr.write(f"{asked.code}\n")
        return 1
    return 0


def _told(error: BaseException) -> int:
    """Show an exception of the program as Python would, without frames of ours."""
    error.__traceback__ = _users(error.__traceback__)
    sys.excepthook(type(error), error, error.__traceback__)
    return 130 if isinstance(error, KeyboardInterrupt) else 1


def _users(trace: TracebackType | None) -> TracebackType | None:
    """Leave out the frames of what runs the program and of what stands between it and its ops."""
    kept: list[TracebackType] = []
    ours = False
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        ours = name.startswith((_OURS, *_RUNNERS)) or (ours and name == _CALLER)
        kept += [] if ours else [trace]
        trace = trace.tb_next
    for one, following in zip(kept, [*kept[1:], None], strict=False):
        one.tb_next = following
    return kept[0] if kept else None


def _script(request: dict[str, Any], _: Session) -> None:
    path = request["name"]
    if Path(path).is_dir():
        runpy.run_path(path, run_name="__main__")
        return
    sys.path.insert(0, str(Path(path).resolve().parent))
    place = os.path.abspath(path)  # noqa: PTH100 - as Python names it, symbolic links and all
    main = sys.modules["__main__"] = ModuleType("__main__")
    vars(main).update(__file__=place, __builtins__=builtins, __cached__=None)
    with io.open_code(place) as file:
        code = compile(file.read(), place, "exec", dont_inherit=True)
    exec(code, vars(main))  # noqa: S102 - the program that is to be run


def _module(request: dict[str, Any], _: Session) -> None:
    sys.path.insert(0, str(Path.cwd()))
    runpy.run_module(request["name"], run_name="__main__", alter_sys=True)


def _imported(path: Path) -> ModuleType:
    """Return the module of a file, whose name may have dots, or be that of a module of Python."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        return importlib.import_module(path.stem)
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    spec.loader.exec_module(module)
    return module


def _function(request: dict[str, Any], session: Session) -> None:
    path = Path(request["name"])
    sys.path.insert(0, str(path.resolve().parent))
    # Processes that are spawned would run our own main module again.
    sys.modules["__main__"] = ModuleType("__main__")
    function = getattr(_imported(path), request["function"])
    for _ in range(request["calls"]):
        before = session.mode.seen.steps
        function()
        # A call that steps an optimizer has been counted.
        if session.mode.seen.steps == before:
            session.step()


_KINDS: dict[str, Callable[[dict[str, Any], Session], None]] = {
    "script": _script,
    "module": _module,
    "function": _function,
}
