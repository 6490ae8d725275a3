"""Reading files that detmatrix wrote, run files, traces and censuses, and refusing those it cannot read."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from scanner.errors import DetmatrixError

# Bytes of a file, and of what a compressed one holds: whoever sends a file of a few megabytes must not fill a memory.
# A million observations have a gigabyte, and a report of ten million takes what a large machine has.
MOST_BYTES = 16 << 30
MOST_UNPACKED = 64 << 20
# Beyond that a compressed file holds at most so many times its own bytes; recorded runs hold 9 to 16 times.
MOST_PACKED = 32


@contextmanager
def readable(path: Path, writer: str, failure: type[DetmatrixError]) -> Iterator[IO[bytes]]:
    """Open a file, decompressed if its name ends in ``.gz``; what goes wrong until it is closed is told.

    Args:
        path: The file.
        writer: What writes such files: ``"scan"``.
        failure: What to raise.

    Raises:
        DetmatrixError: As *failure*: the file cannot be opened or read.
    """
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            _check_size(path, file, writer, failure)  # type: ignore[arg-type]
            yield file  # type: ignore[misc] # typeshed knows gzip's files by another name
    except (OSError, EOFError, zlib.error) as error:
        text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise failure(f"{path}: cannot be read ({text}); give a file that {writer} wrote") from error


def _check_size(path: Path, file: IO[bytes], writer: str, failure: type[DetmatrixError]) -> None:
    """Refuse a file that holds more than any that detmatrix wrote; of a compressed one, read all of it once.

    What was damaged is known at the end only, and is not to be read as lines before.
    """
    packed = path.stat().st_size
    if path.suffix != ".gz":
        if packed > MOST_BYTES:
            raise failure(f"{path}: is larger than {MOST_BYTES >> 30} GB; give a file that {writer} wrote")
        return
    size, most = 0, min(max(MOST_UNPACKED, MOST_PACKED * packed), MOST_BYTES)
    while data := file.read(1 << 20):
        size += len(data)
        if size > most:
            raise failure(
                f"{path}: holds more than {most >> 20} MB; unpack it with gunzip if you trust it, and give what "
                f"comes out"
            )
    file.seek(0)


def refuse_newer(
    path: str | Path, what: str, written: object, newest: int, failure: type[DetmatrixError]
) -> None:
    """Refuse a file of a format or rule set above the newest that is known; what is no number is not judged here.

    Args:
        path: The file.
        what: What is numbered: ``"run file format"``, ``"trace rule set"``.
        written: The number that the file says it has.
        newest: The newest that this detmatrix reads.
        failure: What to raise.

    Raises:
        DetmatrixError: As *failure*: the number is above the newest.
    """
    if isinstance(written, int) and written > newest:
        raise failure(
            f"{path}: written in {what} {written}, this detmatrix reads up to {newest}; "
            f"upgrade detmatrix to read it"
        )
