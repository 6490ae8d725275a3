"""``detmatrix`` as tests call it: within this process, or as a process of its own where that is what matters."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from detmatrix.scanner.cli.main import main
from detmatrix.scanner.errors import EXIT_INTERRUPTED
from detmatrix.scanner.observations.runfile import Run, read_run
from tests import tied

Command = Callable[..., subprocess.CompletedProcess[str]]


def command_in(folder: Path) -> Command:
    """Return a function that runs ``detmatrix`` in *folder*, within this process, and returns what it printed.

    Workers are processes all the same. What a scan leaves behind in a process that it expects to end with it is put
    back: the folder, the streams, the handler of SIGTERM.
    """

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        words = [str(argument) for argument in arguments]
        with _captured("stdout") as printed, _captured("stderr") as complained, contextlib.chdir(folder):
            handler = signal.getsignal(signal.SIGTERM)
            try:
                main(words)
            except SystemExit as ended:
                code = ended.code
            finally:
                signal.signal(signal.SIGTERM, handler)
            assert isinstance(code, int)
            if code == EXIT_INTERRUPTED:
                # Whoever runs the tests wants them to stop.
                raise KeyboardInterrupt
            return subprocess.CompletedProcess(words, code, _content(printed), _content(complained))

    return run


def scanned_in(folder: Path, *words: object, code: int = 0) -> Run:
    """Scan in *folder*, which ends with a code, and return the run that it wrote into ``run.jsonl``."""
    done = command_in(folder)("scan", *words, "-o", "run.jsonl")
    assert done.returncode == code, done.stderr
    return read_run(folder / "run.jsonl")


def process_in(folder: Path) -> Command:
    """Return a function that starts ``detmatrix`` in *folder* as a user does, and returns what it printed.

    It takes a second. Options go to ``subprocess.run``.
    """

    def run(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
        return tied.run([sys.executable, "-m", "detmatrix", *arguments], cwd=folder, timeout=600, **options)

    return run


@contextlib.contextmanager
def _captured(name: str) -> Iterator[IO[str]]:
    """Let a standard stream be a file, with a descriptor like that of a real one."""
    before = getattr(sys, name)
    with tempfile.TemporaryFile("w+", encoding="utf-8", newline="") as stream:
        setattr(sys, name, stream)
        try:
            yield stream
        finally:
            setattr(sys, name, before)


def _content(stream: IO[str]) -> str:
    """Return what was written, with line ends as a process opened as text has them."""
    stream.flush()
    stream.seek(0)
    return stream.read().replace("\r\n", "\n")
