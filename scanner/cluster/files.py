"""Run files of shards on this machine, as they come from nodes."""

from __future__ import annotations

import contextlib
import fcntl
import glob
import os
import re
from collections.abc import Iterator
from pathlib import Path

from scanner.errors import UsageError

_NAMED = re.compile(r"(?:.+-)?[0-9]+-of-([0-9]+)(?:\.[0-9]+)?\.jsonl")


class ShardFiles:
    """The run file of a shard, and those beside it in which further machines went on."""

    def __init__(self, folder: Path, run: str, number: int, count: int) -> None:
        """Name them after the *run*, the *number* of the shard and their *count*."""
        self.name = f"{run}-{number}-of-{count}.jsonl"
        self._folder = folder

    @property
    def paths(self) -> list[Path]:
        """Those that are there."""
        found: list[Path] = []
        while (path := self._path(len(found) + 1)).exists():
            found.append(path)
        return found

    def held(self) -> list[bytes]:
        """Return what they hold, and drop a line that was not written whole."""
        found = []
        for path in self.paths:
            data = path.read_bytes()
            whole = data[: data.rfind(b"\n") + 1]
            os.truncate(path, len(whole))
            found.append(whole)
        return found

    def append(self, number: int, lines: bytes) -> None:
        """Add lines to the file of a number."""
        with self._path(number).open("ab") as file:
            file.write(lines)

    def _path(self, number: int) -> Path:
        beside = f"{self.name.removesuffix('.jsonl')}.{number}.jsonl"
        return self._folder / (self.name if number == 1 else beside)


def folder_for(output: Path) -> Path:
    """Return where the shards of a run file are kept until it is written."""
    return output.with_suffix(".shards")


@contextlib.contextmanager
def shards_folder(output: Path, *, resume: bool, force: bool) -> Iterator[Path]:
    """Have a folder for the shards of a run file, and nobody else have it; it goes when it is empty.

    Raises:
        UsageError: It cannot be had, or holds shards, and nothing was said of them.
    """
    folder = folder_for(output)
    try:
        folder.mkdir(exist_ok=True)
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise UsageError(
            f"{folder}: cannot be written ({error.strerror}); choose another place with -o"
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        there = shards_in(folder)
        if there and not resume and not force:
            raise UsageError(
                f"{folder}: holds the shards of an unfinished scan; go on with --resume, or start over with --force"
            )
        for path in there if force else ():
            path.unlink()
        yield folder
    except BlockingIOError:
        raise UsageError(
            f"{folder}: another scan is writing it; wait for it, or choose another place with -o"
        ) from None
    finally:
        with contextlib.suppress(OSError):
            folder.rmdir()
        os.close(lock)


def shards_in(folder: Path) -> list[Path]:
    """Return the files of shards that a folder holds."""
    return [path for path in folder.iterdir() if _NAMED.fullmatch(path.name)]


def count_in(folder: Path, run: str) -> int | None:
    """Return how many shards a run has of which a folder holds some; ``None`` if it holds none."""
    names = (path.name.removeprefix(f"{run}-") for path in folder.glob(f"{glob.escape(run)}-*"))
    return next((int(found[1]) for name in names if (found := _NAMED.fullmatch(name))), None)
