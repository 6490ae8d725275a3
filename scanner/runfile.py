"""Read and write run files: JSON Lines, one scan per file, valid up to the last whole line.

Lines are written whole and at once, so a scan killed at any moment loses the line in flight and no other.
"""

from __future__ import annotations

import fcntl
import gzip
import os
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from scanner.errors import RunFileError, UsageError
from scanner.records import FORMAT, Closing, Header, Observation

_DECODER: msgspec.json.Decoder[Header | Observation | Closing] = msgspec.json.Decoder(
    Header | Observation | Closing
)
_ENCODER = msgspec.json.Encoder()


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """What a run file holds."""

    path: str
    header: Header
    observations: tuple[Observation, ...]
    closing: Closing | None  # None: the scan did not finish
    end: int  # bytes up to the end of the last whole line


class _Opening(msgspec.Struct):
    """Just enough of the first line to tell what wrote the file."""

    kind: str = ""
    format: int = 0


def read_run(path: str | Path) -> Run:
    """Read a run file; a torn last line is left out, as is everything a crash did not get to write.

    Raises:
        RunFileError: The file cannot be read, is not a run file, is damaged, or has a newer format. The
            message names the line and the path of the field.
    """
    data = _read_bytes(Path(path))
    end = data.rfind(b"\n") + 1
    lines = data[:end].split(b"\n")[:-1]
    if not lines:
        raise RunFileError(
            f"{path}: not a detmatrix run file (no whole line in it); give a file that scan wrote"
        )
    _check_format(str(path), lines[0])
    header = _decode(str(path), 1, lines[0])
    if not isinstance(header, Header):
        raise RunFileError(f"{path}, line 1: a run file starts with its header; give a file that scan wrote")
    observations: list[Observation] = []
    closing: Closing | None = None
    seen: dict[tuple[object, ...], int] = {}
    planned = {row.key for row in header.planned}
    for number, line in enumerate(lines[1:], start=2):
        record = _decode(str(path), number, line)
        if closing is not None or isinstance(record, Header):
            raise RunFileError(
                f"{path}, line {number}: a {_kind(record)} after the "
                f"{'closing line' if closing else 'header'}; two runs in one file? Split it at this line"
            )
        if isinstance(record, Closing):
            closing = record
            continue
        _check_place(str(path), number, record, header, planned, seen)
        observations.append(record)
    return Run(path=str(path), header=header, observations=tuple(observations), closing=closing, end=end)


def _read_bytes(path: Path) -> bytes:
    """Return the file's bytes, decompressed if its name ends in ``.gz``."""
    try:
        if path.suffix == ".gz":
            with gzip.open(path) as file:
                return file.read()
        return path.read_bytes()
    except (OSError, EOFError) as error:
        told = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise RunFileError(f"{path}: cannot be read ({told}); give a file that scan wrote") from error


def _kind(record: object) -> str:
    return type(record).__name__.lower()


def _check_format(path: str, line: bytes) -> None:
    """Refuse files that are not ours, and those of a newer format, each with its advice."""
    try:
        opening = msgspec.json.decode(line, type=_Opening)
    except (msgspec.DecodeError, UnicodeDecodeError):
        opening = _Opening()
    if opening.kind != "header":
        raise RunFileError(f"{path}: not a detmatrix run file (no header line); give a file that scan wrote")
    if opening.format > FORMAT:
        raise RunFileError(
            f"{path}: written in run file format {opening.format}, this detmatrix reads up to {FORMAT}; "
            f"upgrade detmatrix to read it"
        )
    if opening.format < 1:
        raise RunFileError(f"{path}, line 1: no such run file format: {opening.format} - at `$.format`")


def _decode(path: str, number: int, line: bytes) -> Header | Observation | Closing:
    try:
        return _DECODER.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RunFileError(
            f"{path}, line {number}: {error}; restore the file, or cut it before this line and scan --resume"
        ) from error


def _check_place(
    path: str,
    number: int,
    observation: Observation,
    header: Header,
    planned: set[tuple[str, str, str, str]],
    seen: dict[tuple[object, ...], int],
) -> None:
    """Refuse an observation that the header did not plan or that stands in the file twice."""
    told = f"{path}, line {number}: the observation of {':'.join(observation.key)}"
    if observation.key not in planned or observation.process >= header.settings.processes:
        raise RunFileError(f"{told} (process {observation.process}) was never planned; restore the file")
    if observation.outcome == "ran" and (
        not observation.digests or sum(observation.digests.values()) != observation.executions
    ):
        raise RunFileError(
            f"{told} counts {observation.executions} executions but {sum(observation.digests.values())} digests "
            f"- at `$.digests`; restore the file"
        )
    place = (observation.key, observation.mode, observation.process)
    if place in seen:
        raise RunFileError(f"{told} stands twice (first in line {seen[place]}); remove one of them")
    seen[place] = number


class RunWriter:
    """Appends whole lines to a run file; a line that could not be written whole is taken back."""

    def __init__(self, path: Path) -> None:
        """Open *path*, creating it if need be; nothing in it changes before ``begin``.

        Raises:
            UsageError: The file cannot be written.
        """
        self._path = path
        self._created = not path.exists()
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise cannot_write(path, error) from error
        self._end: int | None = None

    def begin(self, keep: int) -> None:
        """Drop all but the first *keep* bytes; what follows is appended there.

        Raises:
            UsageError: Another scan is writing this file, or the file cannot be written.
        """
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                f"{self._path}: another scan is writing it; wait for it, or choose another place with -o"
            ) from None
        try:
            os.ftruncate(self._file, keep)
            os.lseek(self._file, 0, os.SEEK_END)
        except OSError as error:
            raise cannot_write(self._path, error) from error
        self._end = keep

    def write(self, record: Header | Observation | Closing) -> None:
        """Append one record.

        Raises:
            UsageError: The disk is full or gone; the file is valid up to its last whole line.
        """
        line = _ENCODER.encode(record) + b"\n"
        end = self._end or 0
        try:
            written = 0
            while written < len(line):
                written += os.write(self._file, line[written:])
        except OSError as error:
            os.ftruncate(self._file, end)
            raise UsageError(
                f"{self._path}: cannot be written any further ({error.strerror}); what was observed so far is "
                f"kept, make room and go on with scan --resume"
            ) from error
        self._end = end + len(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._file)
        if self._created and not self._end:
            # A scan that never began leaves no empty file behind.
            self._path.unlink(missing_ok=True)


def cannot_write(path: Path, error: OSError) -> UsageError:
    """Return the one line said of an output that cannot be written."""
    return UsageError(f"{path}: cannot be written ({error.strerror}); choose another place with -o")
