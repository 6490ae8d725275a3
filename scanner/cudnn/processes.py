"""The processes that load cuDNN: a request in, lines of JSON out, whatever ends them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from scanner.errors import signal_name

_ROOT = str(Path(__file__).parent.parent.parent)
_CHILD = "import sys; sys.path.insert(0, sys.argv[1]); from scanner.cudnn.{} import main; main()"


Asked = TypeVar("Asked")
Say = Callable[[object], None]


class ProcessAnswer(NamedTuple):
    """What a process said."""

    lines: list[bytes]  # of JSON, as far as they are whole
    ending: str | None  # "SIGABRT", "exit code 1"; None: it ended by itself
    said: str  # the last line of its errors
    late: bool  # it was ended because its time was over


def ask(module: str, request: object, seconds: float) -> ProcessAnswer:
    """Ask one process.

    Args:
        module: What answers, beside this one.
        request: What to ask.
        seconds: After which it is ended.
    """
    command = [sys.executable, "-P", "-c", _CHILD.format(module), _ROOT]
    try:
        done = subprocess.run(
            command, input=msgspec.json.encode(request), capture_output=True, check=False, timeout=seconds
        )
    except subprocess.TimeoutExpired as error:
        return ProcessAnswer(_lines(error.stdout or b""), "SIGKILL", "", late=True)
    ending = signal_name(-done.returncode) if done.returncode < 0 else f"exit code {done.returncode}"
    errors = done.stderr.decode(errors="replace").strip().splitlines()
    said = errors[-1] if errors else ""
    return ProcessAnswer(_lines(done.stdout), ending if done.returncode else None, said, late=False)


def serve(kind: type[Asked], answer: Callable[[Asked, Say], None]) -> None:
    """Answer the request on standard input, in the process that is asked.

    Args:
        kind: Of the request.
        answer: Is given it, and what says one thing as a line of JSON, at once.
    """
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=kind)
    # cuDNN prints what it misses in a driver on standard output, which is for the answer.
    out = os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "wb") as nowhere:  # noqa: PTH123 - a descriptor is all that is wanted
        os.dup2(nowhere.fileno(), 1)

    def say(one: object) -> None:
        out.write(msgspec.json.encode(one) + b"\n")
        out.flush()

    answer(request, say)


def _lines(out: bytes) -> list[bytes]:
    return [line for line in out.split(b"\n") if line.endswith(b"}")]
