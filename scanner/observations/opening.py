"""Reading files that detmatrix wrote, run files and tables of engines, and refusing those it cannot read."""

from __future__ import annotations

import contextlib
import gzip
import os
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple, TypeVar, cast

import msgspec

from detmatrix.scanner.errors import DetmatrixError

UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
Recorded = TypeVar("Recorded", bound=msgspec.Struct)

# Bytes of a file, and of what a compressed one holds: whoever sends a file of a few megabytes must not fill a memory.
# A million observations have a gigabyte, and a report of ten million takes what a large machine has.
MOST_BYTES = 16 << 30
MOST_UNPACKED = 64 << 20
# Beyond that a compressed file holds at most so many times its own bytes; recorded runs hold 9 to 16 times.
MOST_PACKED = 64


@contextlib.contextmanager
def readable(
    path: Path, writer: str, failure: type[DetmatrixError], *, cut: bool = False
) -> Iterator[IO[bytes]]:
    """Open a file, decompressed if it is gzip's by its first bytes; what goes wrong until it is closed is told.

    With *cut* a compressed file may end early: what then stands in it can be read, and ends in an ``EOFError``. Whatever else
    fails is raised as *failure*.
    """
    try:
        with open(path, "rb", opener=_at_once) as plain:
            packed = plain.peek(2).startswith(b"\x1f\x8b")
            file = cast("IO[bytes]", gzip.GzipFile(fileobj=plain)) if packed else plain
            with contextlib.suppress(EOFError) if cut else contextlib.nullcontext():
                _check_size(path, file, writer, failure, packed=packed)
            if packed:
                file.seek(0)
            yield file
    except (OSError, EOFError, zlib.error) as error:
        text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise failure(f"{path}: cannot be read ({text}); give a file that {writer} wrote") from error


def _at_once(path: str, flags: int) -> int:
    """Open a file; a FIFO that nobody writes to is empty, and is not waited for."""
    number = os.open(path, flags | os.O_NONBLOCK)
    os.set_blocking(number, True)
    return number


def _check_size(
    path: Path, file: IO[bytes], writer: str, failure: type[DetmatrixError], *, packed: bool
) -> None:
    """Refuse a file that holds more than any that detmatrix wrote; of a compressed one, read all of it once.

    What was damaged is known at the end only, and is not to be read as lines before.
    """
    stored = path.stat().st_size
    if not packed:
        if stored > MOST_BYTES:
            raise failure(f"{path}: is larger than {MOST_BYTES >> 30} GB; give a file that {writer} wrote")
        return
    size, most = 0, min(max(MOST_UNPACKED, MOST_PACKED * stored), MOST_BYTES)
    while data := file.read(1 << 20):
        size += len(data)
        if size > most:
            raise failure(
                f"{path}: holds more than {most >> 20} MB; unpack it with gunzip if you trust it, and give what "
                f"comes out"
            )


def refuse_newer(
    path: str | Path, what: str, written: object, newest: int, failure: type[DetmatrixError]
) -> None:
    """Refuse a file of a format or rule set above the newest that is known; what is no number is not judged here."""
    if isinstance(written, int) and written > newest:
        raise failure(
            f"{path}: written in {what} {written}, this detmatrix reads up to {newest}; "
            f"upgrade detmatrix to read it"
        )


class Opening(msgspec.Struct):
    """Just enough of what detmatrix wrote to tell what it is."""

    kind: object = None
    format: object = None


# Of files that are given in the place of others: what each kind is, and what reads it.
_KINDS = {
    "header": "a run file; detmatrix report reads it",
    "cudnn": "a table of cuDNN's engines; detmatrix cudnn --read reads it",
    "ops": "a record of a program; detmatrix locate --diff reads it",
}
# Of files that detmatrix does not read, by their first bytes.
_OTHERS = {
    b"PK": "an archive, as torch.save writes",
    b"<": "a web page",
    b"{": "JSON of another kind",
}


def what_it_is(data: bytes) -> str:
    """Return, in brackets, what a file of another kind is by its first bytes; nothing of one that has no sign."""
    said = re.match(rb'\s*\{\s*"kind":\s*"(\w+)"', data)
    others = (name for start, name in _OTHERS.items() if data.lstrip().startswith(start))
    name = _KINDS.get(said[1].decode()) if said else next(others, None)
    return f" (it is {name})" if name else ""


def opening_of(data: bytes) -> Opening:
    """Return what a JSON object says of itself; of anything else, nothing."""
    try:
        return msgspec.json.decode(data, type=Opening)
    except UNDECODABLE:
        return Opening()


class RecordKind(NamedTuple):
    """A kind of file that is one JSON object: what tells it apart, and what is said of one that is not it."""

    kind: str  # as the file says
    name: str  # as a reader knows it: "table of engines"
    writer: str  # the command that writes such files
    format: int
    most: int  # bytes
    again: str  # what to do about a damaged one
    failure: type[DetmatrixError]


def read_record(path: str | Path, type_: type[Recorded], about: RecordKind) -> Recorded:
    """Read a file that is one JSON object, plain or compressed; what is none of its kind, damaged or newer is an *about.failure*."""
    failure, theirs = about.failure, f"give a file that {about.writer} wrote"
    with readable(Path(path), about.writer, failure) as file:
        data = file.read(about.most + 1)
    if len(data) > about.most:
        raise failure(f"{path}: larger than any {about.name}; {theirs}")
    opening = opening_of(data)
    if opening.kind != about.kind:
        raise failure(f"{path}: not a {about.name}{what_it_is(data)}; {theirs}")
    refuse_newer(path, f"{about.name} format", opening.format, about.format, failure)
    if isinstance(opening.format, int) and opening.format < 1:
        raise failure(f"{path}: no such {about.name} format: {opening.format} - at `$.format`")
    try:
        return msgspec.json.decode(data, type=type_)
    except UNDECODABLE as error:
        raise failure(f"{path}: {error}; {about.again}") from error
