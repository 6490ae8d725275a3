"""Read a wheel of untrusted origin: nothing is installed, and no name in it is ever used as a place to write to."""

from __future__ import annotations

import io
import itertools
import os
import shutil
import stat
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

from scanner.errors import BuildError

MAX_WHEEL = 4 << 30  # bytes
MAX_MEMBERS = 100_000
MAX_LIBRARY = 4 << 30
MAX_DIRECTORY = 64 << 20  # bytes of one read; the list of members is read as a whole
_PIECE = 1 << 20
_DAMAGED = (
    *(zipfile.BadZipFile, zlib.error, EOFError, struct.error, NotImplementedError, RuntimeError),
    *(OSError, ValueError, OverflowError),
)


class _Bounded(io.FileIO):
    """A file that does not give more at once than the list of members of a wheel may need."""

    def read(self, size: int | None = -1, /) -> bytes:
        """Read; what asks for too much has been told so by a damaged file."""
        if size is None or size < 0:
            size = os.fstat(self.fileno()).st_size - self.tell()
        if size > MAX_DIRECTORY:
            raise zipfile.BadZipFile("its list of members is longer than that of any wheel")
        return super().read(size) or b""


class Wheel:
    """A wheel, opened and checked."""

    def __init__(self, path: Path) -> None:
        """Open a wheel and check the list of its members.

        Raises:
            BuildError: It is no wheel, or damaged, or made to do harm.
        """
        self.path = path
        self._shown = path.name
        try:
            # The mode tells a pipe from a file before it is opened, which could wait for ever.
            mode = path.stat()
            if not stat.S_ISREG(mode.st_mode):
                raise BuildError(f"{self._shown}: not a file; give a wheel")
            if mode.st_size > MAX_WHEEL:
                raise BuildError(f"{self._shown}: larger than any wheel of torch; give a wheel")
            self._file = _Bounded(path)
        except OSError as error:
            raise BuildError(f"{self._shown}: cannot be read ({error.strerror}); give a wheel") from error
        try:
            self._zip = zipfile.ZipFile(self._file)
            self._members = self._checked(self._zip.infolist())
        except _DAMAGED as error:
            self._file.close()
            raise BuildError(
                f"{self._shown}: not a whole wheel ({_described(error)}); download it again"
            ) from error
        except BuildError:
            self._file.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._zip.close()
        self._file.close()

    def _checked(self, members: list[zipfile.ZipInfo]) -> dict[str, zipfile.ZipInfo]:
        """Refuse lists of members that no tool which builds wheels writes."""
        if len(members) > MAX_MEMBERS:
            raise BuildError(f"{self._shown}: more members than any wheel of torch has")
        known: dict[str, zipfile.ZipInfo] = {}
        for one in members:
            place = PurePosixPath(one.filename)
            if place.is_absolute() or ".." in place.parts or "\\" in one.filename or ":" in one.filename[:2]:
                raise BuildError(
                    f"{self._shown}: a member would lie outside of it: {one.filename!r}; do not use it"
                )
            if one.filename in known:
                raise BuildError(f"{self._shown}: two members are called {one.filename!r}; do not use it")
            known[one.filename] = one
        ordered = sorted(members, key=lambda one: one.header_offset)
        for one, following in itertools.pairwise(ordered):
            if one.header_offset + one.compress_size > following.header_offset:
                raise BuildError(
                    f"{self._shown}: members {one.filename!r} and {following.filename!r} overlap; do not use it"
                )
        return known

    @property
    def names(self) -> list[str]:
        """The names of all members, sorted."""
        return sorted(self._members)

    def __contains__(self, name: str) -> bool:
        return name in self._members

    def read(self, name: str, limit: int) -> bytes | None:
        """Return a member of at most *limit* bytes; ``None`` if it has more.

        Raises:
            BuildError: It is damaged.
        """
        if self._members[name].file_size > limit:
            return None
        return b"".join(self._pieces(name))

    def _pieces(self, name: str) -> Iterator[bytes]:
        """Yield a member's bytes: as many as the list says that it has, and with its checksum."""
        left = self._members[name].file_size
        try:
            with self._zip.open(self._members[name]) as file:
                for piece in _pieces_of(file):
                    left -= len(piece)
                    yield piece
            if left:
                raise zipfile.BadZipFile(f"{left} bytes are missing")
        except _DAMAGED as error:
            raise BuildError(
                f"{self._shown}: member {name!r} is damaged ({_described(error)}); download it again"
            ) from error

    @contextmanager
    def unpacked(self, name: str) -> Iterator[Path]:
        """Write a member to a temporary file, as a memory map needs, while the context lasts.

        Raises:
            BuildError: It is damaged, or larger than any library of torch, or the disk has no room for it.
        """
        size = self._members[name].file_size
        if size > MAX_LIBRARY:
            raise BuildError(f"{self._shown}: member {name!r} is larger than any library of torch")
        with tempfile.TemporaryDirectory(prefix="detmatrix-") as folder:
            if shutil.disk_usage(folder).free < size:
                raise BuildError(
                    f"{self._shown}: unpacking member {name!r} takes {size >> 20} MiB of temporary space; make room, "
                    f"or name another place in TMPDIR"
                )
            path = Path(folder) / "member"
            with path.open("wb") as target:
                for piece in self._pieces(name):
                    try:
                        target.write(piece)
                    except OSError as error:
                        raise BuildError(
                            f"{self._shown}: member {name!r} cannot be unpacked ({error.strerror}); make room"
                        ) from error
            yield path


def _pieces_of(file: IO[bytes]) -> Iterator[bytes]:
    while piece := file.read(_PIECE):
        yield piece


def _described(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
