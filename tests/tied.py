"""Helper processes of tests, tied to whoever started them: they end with it, also when it is killed."""

from __future__ import annotations

import ctypes
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

_PR_SET_PDEATHSIG = 1


def run(command: Sequence[object], **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command as ``subprocess.run`` does, tied to this process; its output is kept, as text."""
    options = {"capture_output": True, "text": True, **options}
    return subprocess.run([str(word) for word in command], check=False, **_tied(options))


def start(command: Sequence[object], **options: Any) -> subprocess.Popen[str]:
    """Start a command as ``subprocess.Popen`` does, tied to this process."""
    return subprocess.Popen([str(word) for word in command], **_tied({"text": True, **options}))


def wait_until(happened: Callable[[], object]) -> None:
    """Wait for something that another process does; two minutes are a failure."""
    deadline = time.monotonic() + 120
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def _tied(options: dict[str, Any]) -> dict[str, Any]:
    """Have the kernel end a child with the process that started it, which only Linux can, and have Ctrl-C reach it.

    A shell that starts its jobs in the background makes them ignore Ctrl-C, and a test suite's children inherit that.
    """
    before = options.pop("preexec_fn", None)
    prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None

    def prepare() -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if prctl is not None:
            prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if before is not None:
            before()

    return options | {"preexec_fn": prepare}
