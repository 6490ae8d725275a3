"""Sees to it that nothing of a worker outlives it, or the scan: ``python guardian.py COMMAND...``.

It is the parent of the worker, and on Linux of whatever loses its parent below, processes included that ops put into
sessions of their own. When the worker ends, or standard input does since the scan is gone or wants no more of it, all of
them are ended, and then it ends as the worker did. It is a script that needs the standard library alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import select
import signal
import sys
from itertools import pairwise
from pathlib import Path
from typing import NoReturn

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_CANNOT_START = 126
# Descriptors that are closed where their number has no limit.
_MANY = 1 << 20


def main() -> NoReturn:
    """Start the command, wait for its end or for that of standard input, and end as it did."""
    guardian = os.getpid()
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakes)
    worker = os.fork()
    if worker == 0:
        _become(sys.argv[1:], guardian)
    # The pipes of the worker end when it does.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    kept = (0, *sorted((woken, wakes)), most if 0 < most < _MANY else _MANY)
    for low, high in pairwise(kept):
        os.closerange(low + 1, high)
    status = _reaped(worker)
    while status is None:
        if 0 in select.select([0, woken], [], [])[0]:
            os.kill(worker, signal.SIGKILL)
            break
        os.read(woken, 4096)
        status = _reaped(worker)
    while children := _children():
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        os.waitpid(-1, 0)
    _end_as(status or 0)


def _become(command: list[str], guardian: int) -> NoReturn:
    """Execute the command: killed with its parent from now on, and the first to go when memory runs out."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != guardian:
        os._exit(_CANNOT_START)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    # Python ignores these, and what is ignored stays so.
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)  # noqa: S606 - the interpreter that the user names
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode())
        os._exit(_CANNOT_START)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value)


def _reaped(worker: int) -> int | None:
    """Take leave of the children that have ended; return the exit status of the worker if it is among them."""
    status = None
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == worker:
                status = ended[1]
    return status


def _children() -> list[int]:
    """Return the ids of the processes that are children now; none where nobody tells."""
    try:
        text = Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii")
    except OSError:
        return []
    return [int(child) for child in text.split()]


def _end_as(status: int) -> NoReturn:
    """End with the exit code of the worker, or killed by the same signal; one core file is enough."""
    if os.WIFSIGNALED(status):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(OSError):  # SIGKILL has no handler
            signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.WEXITSTATUS(status))


if __name__ == "__main__":
    main()
