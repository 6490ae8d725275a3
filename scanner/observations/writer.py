"""Write run files, a whole line at a time: a scan killed at any moment loses the line in flight and no other."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from detmatrix.scanner.errors import UsageError
from detmatrix.scanner.observations.runfile import Line

_ENCODER = msgspec.json.Encoder()


def encode(record: Line) -> bytes:
    """Return the line of a record, without its end."""
    try:
        return _ENCODER.encode(record)
    except UnicodeEncodeError:
        # An environment variable or an exception's text need not be UTF-8.
        plain = json.dumps(msgspec.to_builtins(record), ensure_ascii=False, separators=(",", ":"))
        return plain.encode(errors="replace")


class RunWriter:
    """Appends whole lines to a run file; a line that could not be written whole is taken back."""

    def __init__(self, path: Path) -> None:
        """Open and lock *path*, creating it if need be; nothing in it changes before ``begin``. Refuse what another scan is writing."""
        if path.suffix == ".gz":
            raise UsageError(
                f"{path}: a scan writes plain run files; choose a name without .gz, compress it later"
            )
        self._path = path
        self._file, self._created = _open(path)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._file)
            if isinstance(error, BlockingIOError):
                raise UsageError(
                    f"{path}: another scan is writing it; wait for it, or choose another place with -o"
                ) from None
            raise cannot_write(path, error) from error
        self._end: int | None = None
        self._lost = False  # whether what has its name now is another's

    def set_aside(self) -> Path:
        """Keep what the file holds under another name, that with the next free number, and go on with an empty file."""
        # Not the link that leads to it.
        target = Path(os.path.realpath(self._path))
        named = (target.with_name(f"{target.name}.{number}") for number in itertools.count(1))
        kept = next(path for path in named if not os.path.lexists(path))
        try:
            target.rename(kept)
        except OSError as error:
            raise cannot_write(kept, error) from error
        os.close(self._file)
        self._file, self._created = _open(target)
        fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return kept

    def begin(self, keep: int) -> None:
        """Drop all but the first *keep* bytes; what follows is appended there."""
        try:
            os.ftruncate(self._file, keep)
            os.lseek(self._file, 0, os.SEEK_END)
        except OSError as error:
            raise cannot_write(self._path, error) from error
        self._end = keep

    def replace(self, path: Path) -> None:
        """Put another file in the place of this one, which is locked until the end."""
        path.replace(os.path.realpath(self._path))
        self._lost = True

    def write(self, record: Line) -> None:
        """Append one record; where the disk is full or gone, the file is valid up to its last whole line."""
        line = encode(record) + b"\n"
        end = self._end or 0
        self.check()
        try:
            written = 0
            while written < len(line):
                written += os.write(self._file, line[written:])
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, end)
            if not end:
                raise cannot_write(self._path, error) from error
            raise UsageError(
                f"{self._path}: cannot be written any further ({error.strerror}); what was observed so far is "
                f"kept, make room and go on with scan --resume -o {self._path}"
            ) from error
        self._end = end + len(line)

    def check(self) -> None:
        """Refuse to go on if the file is another one by now, or holds other than what was written: what this scan saw would be lost."""
        mine = os.fstat(self._file)
        try:
            there = self._path.stat()
            same = (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino)
            text = "" if same else "replaced by another file"
        except OSError:
            text = "removed"
        if not text and self._end is not None and mine.st_size != self._end:
            text = "cut" if mine.st_size < self._end else "written to by someone else"
        if text:
            self._lost = True
            raise UsageError(
                f"{self._path}: was {text} while the scan wrote it; start over, with -o elsewhere"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._created and not self._end and not self._lost:
            # A scan that never began leaves no empty file behind. Still locked: nobody else has written to it.
            self._path.unlink(missing_ok=True)
        os.close(self._file)


def _open(path: Path) -> tuple[int, bool]:
    """Open a file to write, and tell whether it had to be created."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    try:
        try:
            return os.open(path, flags | os.O_EXCL, 0o666), True
        except FileExistsError:
            return os.open(path, flags, 0o666), False
    except OSError as error:
        raise cannot_write(path, error) from error


def cannot_write(path: Path, error: OSError, option: str = "-o") -> UsageError:
    """Return the one line said of an output that cannot be written."""
    return UsageError(f"{path}: cannot be written ({error.strerror}); choose another place with {option}")
