"""Run a program as Python would: a script, a module, or a function of a file."""

from __future__ import annotations

import builtins
import importlib
import io
import json
import os
import runpy
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from scanner.locate.session import LocateSettings, Session

_OURS = str(Path(__file__).parent) + os.sep
# Between our own frames and the user's when a module is run.
_RUNNERS = ("<frozen runpy>", runpy.__file__, "<frozen importlib")


_Program = Callable[[], object]


def run(request: dict[str, Any]) -> int:
    """Run the program of a request under observation, write what was found, and return the program's exit code."""
    session = Session(LocateSettings(**request["settings"]))
    prepare = _KINDS[request["kind"]]
    ended: str | None = None
    session.start()
    try:
        code = _exit_code(prepare(request, session))
    except BaseException as error:  # noqa: BLE001 - as Python ends a program
        ended = f"{type(error).__name__}: {error}".rstrip(": ")
        code = _told(error)
    finally:
        session.stop()
    if not session.forked:
        Path(request["located"]).write_text(json.dumps(asdict(session.located(ended))), encoding="utf-8")
    return code


def _exit_code(program: Callable[[], Any]) -> int:
    """Run it; return the code it asks to end with, as Python takes it."""
    try:
        program()
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
    kept = [one for one in _each(trace) if not one.tb_frame.f_code.co_filename.startswith((_OURS, *_RUNNERS))]
    following = None
    for one in reversed(kept):
        one.tb_next = following
        following = one
    return following


def _each(trace: TracebackType | None) -> Sequence[TracebackType]:
    found = []
    while trace is not None:
        found.append(trace)
        trace = trace.tb_next
    return found


def _script(request: dict[str, Any], _: Session) -> _Program:
    path, words = request["name"], request["arguments"]
    sys.argv = [path, *words]
    if Path(path).is_dir():
        return lambda: runpy.run_path(path, run_name="__main__")
    sys.path.insert(0, str(Path(path).resolve().parent))
    main = ModuleType("__main__")
    vars(main).update(__file__=path, __builtins__=builtins, __cached__=None)
    sys.modules["__main__"] = main

    def program() -> None:
        with io.open_code(os.path.abspath(path)) as file:  # noqa: PTH100 - as Python opens it
            code = compile(file.read(), path, "exec", dont_inherit=True)
        exec(code, vars(main))  # noqa: S102 - the program that is to be run

    return program


def _module(request: dict[str, Any], _: Session) -> _Program:
    sys.argv = [request["name"], *request["arguments"]]
    sys.path.insert(0, str(Path.cwd()))
    return lambda: runpy.run_module(request["name"], run_name="__main__", alter_sys=True)


def _function(request: dict[str, Any], session: Session) -> _Program:
    path = Path(request["name"])
    sys.argv = [str(path), *request["arguments"]]
    sys.path.insert(0, str(path.resolve().parent))

    def program() -> None:
        function = getattr(importlib.import_module(path.stem), request["function"])
        for _ in range(request["calls"]):
            before = session.steps
            function()
            # A call that steps an optimizer has been counted.
            if session.steps == before:
                session.step()

    return program


_KINDS: dict[str, Callable[[dict[str, Any], Session], _Program]] = {
    "script": _script,
    "module": _module,
    "function": _function,
}
