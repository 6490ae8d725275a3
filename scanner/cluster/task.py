"""What runs on a node, in a process of Ray's: one shard, scanned by the command line that scans it anywhere.

Ray sends the function by value, so that a node finds nothing of ours but the detmatrix that is installed there; it needs
the standard library alone. Run files go back in pieces of whole lines, as they grow.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path

# What a task tells: the node it runs on; lines for a file of the shard, by its number; the exit code and the last words.
Told = tuple[str, int, bytes]
BEGAN, LINES, ENDED = "began", "lines", "ended"

_PREFIX = "detmatrix-shard-"
_POLL_SECONDS = 0.5
_LAST_WORDS = 4096


def scan_shard(
    words: Sequence[str], name: str, held: Sequence[bytes], variables: dict[str, str | None]
) -> Generator[Told, None, None]:
    """Scan one shard to its end, or go on with it, and yield what its files hold beyond what was held already.

    Args:
        words: Of the command line behind ``scan``, but for the output.
        name: Of the first file of the shard, which ends in ``.jsonl``; those of further machines are numbered.
        held: What was seen of these files before, by another task.
        variables: Of the environment of the scan, where it is not that of the node; ``None`` is one that must not be set.
    """
    yield BEGAN, 0, platform.node().encode()
    installed = importlib.util.find_spec("detmatrix")
    if installed is None or installed.origin is None:
        yield ENDED, 2, b"detmatrix is not installed there"
        return
    with _folder() as folder:
        sent = [len(data) for data in held]
        for number, data in enumerate(held, start=1):
            _file(folder, name, number).write_bytes(data)
        said = folder / "said"
        with _started(
            ["scan", "-o", name, *words], Path(installed.origin).parent, variables, said
        ) as process:
            ended = False
            while not ended:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_POLL_SECONDS)
                    ended = True
                while _file(folder, name, len(sent) + 1).exists():
                    sent.append(0)
                for number, start in enumerate(sent, start=1):
                    if lines := _whole_lines(_file(folder, name, number), start):
                        yield LINES, number, lines
                        sent[number - 1] += len(lines)
        yield ENDED, process.returncode, said.read_bytes()[-_LAST_WORDS:]


def _file(folder: Path, name: str, number: int) -> Path:
    """Return where the scan of a shard keeps what it observes, on the first machine and on others after it."""
    return folder / (name if number == 1 else f"{name.removesuffix('.jsonl')}.{number}.jsonl")


def _whole_lines(path: Path, start: int) -> bytes:
    """Return what a file holds from *start* on, up to the end of its last whole line."""
    try:
        with path.open("rb") as file:
            file.seek(start)
            data = file.read()
    except FileNotFoundError:
        return b""  # a scan that never began leaves no empty file behind
    return data[: data.rfind(b"\n") + 1]


@contextlib.contextmanager
def _started(
    words: Sequence[str], root: Path, variables: dict[str, str | None], said: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """Start detmatrix beside the file that gets what it says; whatever ends this process ends all that it started."""
    guardian = root / "scanner" / "processes" / "guardian.py"
    with said.open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-ISB", str(guardian), sys.executable, "-m", "detmatrix", *words],
            cwd=said.parent,
            env={key: value for key, value in {**os.environ, **variables}.items() if value is not None},
            # The guardian ends, and all below it, when this pipe does.
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
        )
    with process:
        yield process


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """Make a folder that is removed in the end; that of a task that was killed is removed by the next one."""
    _remove_left_behind()
    # Locked while this process lives, and by its name found by others only once it is.
    made = Path(tempfile.mkdtemp(prefix=f"making-{_PREFIX}"))
    lock = os.open(made, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    folder = made.rename(made.with_name(made.name.removeprefix("making-")))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _remove_left_behind() -> None:
    """Remove the folders of tasks that were killed: those of this user that nobody has locked."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if os.fstat(lock).st_uid == os.geteuid():
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(path)
            finally:
                os.close(lock)
