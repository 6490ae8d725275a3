"""The sections of ELF files of 64 bits: shared libraries of a build, and machine code of a GPU."""

from __future__ import annotations

import mmap
from struct import unpack_from
from typing import NamedTuple

MAGIC = b"\x7fELF\x02"


class Section(NamedTuple):
    """One entry of the table of sections."""

    name: str
    type: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    align: int


def sections(data: bytes | mmap.mmap) -> list[Section]:
    """Return the sections of a file, by their numbers.

    Raises:
        ValueError: It is no ELF file of 64 bits, or damaged.
        struct.error: It is cut off.
        LookupError: Likewise.
    """
    if data[: len(MAGIC)] != MAGIC:
        raise ValueError("no ELF file of 64 bits")
    (start,) = unpack_from("<Q", data, 0x28)
    size, count, names = unpack_from("<HHH", data, 0x3A)
    heads = [unpack_from("<IIQQQQIIQ", data, start + size * number) for number in range(count)]
    strings = heads[names][4] if heads else 0
    return [
        Section(text(data, strings + name), kind, address, offset, length, link, info, align)
        for name, kind, _, address, offset, length, link, info, align in heads
    ]


def text(data: bytes | mmap.mmap, at: int) -> str:
    """Return the text that begins at a place.

    Raises:
        ValueError: It does not end.
    """
    end = data.find(b"\0", at)
    if not 0 <= at <= end:
        raise ValueError("a name does not end")
    return data[at:end].decode()
