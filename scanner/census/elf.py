"""Read an ELF shared library by memory map: sections, symbols, relocations.

pyelftools reads the headers. Symbol and relocation tables have hundreds of thousands of entries, of which a census
needs a few: they are unpacked at once by ``struct``, and names are looked up in the string table instead of one by
one. Whatever a damaged or hostile file says is held against the file's size first.
"""

from __future__ import annotations

import bisect
import itertools
import mmap
import re
import struct
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from elftools.common.utils import struct_parse
from elftools.elf.elffile import ELFFile

from scanner.errors import BuildError

MAX_SECTIONS = 4096
MAX_ENTRIES = 8_000_000  # of one table; the largest that a build of torch has holds 600 000
MAX_NAME = 1 << 16
MAX_SECTION_NAME = 1 << 10  # the longest in builds from 2.0 to 2.15 has 22 bytes
_WRITE, _ALLOC, _EXECUTABLE = 1, 2, 4
_JUMP_SLOT, _GLOB_DAT, _ADDRESS, _RELATIVE = 7, 6, 1, 8
_FUNCTION_TYPES = {2, 10}  # STT_FUNC, STT_GNU_IFUNC
_RESERVED = 0xFF00  # section numbers from here on are no sections


class ElfSection(NamedTuple):
    """A section's header; addresses, offsets and sizes in bytes."""

    name: str
    kind: str  # "SHT_PROGBITS"
    flags: int
    address: int
    offset: int
    size: int
    link: int
    entry: int


class Function(NamedTuple):
    """A function's place and its symbol."""

    start: int
    size: int
    symbol: str

    @property
    def end(self) -> int:
        """The address behind it."""
        return self.start + self.size


class Image:
    """One library, mapped read-only."""

    def __init__(self, path: Path, shown: str) -> None:
        """Map a file and check its headers.

        Args:
            path: The file.
            shown: What messages call it.

        Raises:
            BuildError: It is no x86-64 shared library with symbol tables, or damaged.
        """
        self.shown = shown
        try:
            with path.open("rb") as file:
                self.data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise BuildError(f"{shown}: cannot be read ({error}); give a whole build") from error
        try:
            self.sections = self._sections()
            self._symbols = self._table("SHT_SYMTAB")
            self._dynamic = self._table("SHT_DYNSYM")
        except BuildError:
            self.data.close()
            raise

    def close(self) -> None:
        """Unmap the file."""
        self.data.close()

    def _sections(self) -> tuple[ElfSection, ...]:
        """Read the section headers and hold them against the file's size."""
        if self.data[:4] != b"\x7fELF":
            raise self._refusal("not an ELF file; a census reads builds for Linux on x86-64")
        # On damaged headers pyelftools raises more than its own errors; whatever it is, they cannot be read.
        try:
            return self._checked(ELFFile(self.data))
        except BuildError:
            raise
        except Exception as error:
            raise self._refusal("its headers are damaged, or it is cut short") from error

    def _checked(self, elf: ELFFile) -> tuple[ElfSection, ...]:
        machine = elf.header["e_machine"]
        if machine != "EM_X86_64" or elf.elfclass != 64 or not elf.little_endian:  # noqa: PLR2004
            raise self._refusal(
                f"built for {str(machine).removeprefix('EM_')}; a census reads builds for Linux on x86-64"
            )
        count = elf.num_sections()
        if count > MAX_SECTIONS:
            raise self._refusal(f"damaged: {count} sections")
        # pyelftools would read the name of each section to its next zero, however far away that is.
        start, size = elf.header["e_shoff"], elf.header["e_shentsize"]
        headers = [
            struct_parse(elf.structs.Elf_Shdr, elf.stream, start + number * size) for number in range(count)
        ]
        sections = []
        for number, header in enumerate(headers):
            name = self._section_name(headers[elf.get_shstrndx()], header["sh_name"])
            if name is None:
                raise self._refusal(f"damaged: the name of section {number} has no end")
            fields = (
                header[f"sh_{field}"] for field in ("flags", "addr", "offset", "size", "link", "entsize")
            )
            sections.append(ElfSection(name, str(header["sh_type"]), *fields))
        filled = sorted(
            (one.offset, one.offset + one.size, one.name)
            for one in sections
            if one.size and one.kind not in {"SHT_NOBITS", "SHT_NULL"}
        )
        for (_, end, name), (start, _, following) in itertools.pairwise(filled):
            if end > start:
                raise self._refusal(f"damaged: sections {name!r} and {following!r} overlap")
        if filled and filled[-1][1] > len(self.data):
            raise self._refusal(f"cut short: section {filled[-1][2]!r} reaches past the end of the file")
        return tuple(sections)

    def _section_name(self, names: Mapping[str, int], offset: int) -> str | None:
        """Return the name at a place of the table with that header; ``None`` if it is none, or longer than any."""
        start = names["sh_offset"] + offset
        end = self.data.find(
            b"\0", start, min(start + MAX_SECTION_NAME, names["sh_offset"] + names["sh_size"])
        )
        return self.data[start:end].decode("ascii", "backslashreplace") if end >= 0 else None

    def _refusal(self, text: str) -> BuildError:
        return BuildError(f"{self.shown}: {text}")

    def _table(self, kind: str) -> tuple[ElfSection, ElfSection]:
        """Return a symbol table's section and that of its names."""
        for section in self.sections:
            if section.kind == kind and section.size:
                if section.link >= len(self.sections):
                    raise self._refusal(f"damaged: section {section.name!r} names no table of strings")
                self._entries(section, 24)
                return section, self.sections[section.link]
        raise self._refusal(
            "stripped: it has no symbol table, so its functions have no names; give a PyPI build"
        )

    def _entries(self, section: ElfSection, size: int) -> int:
        """Return how many entries a table has."""
        count, rest = divmod(section.size, size)
        if rest or count > MAX_ENTRIES or section.kind == "SHT_NOBITS":
            raise self._refusal(f"damaged: section {section.name!r} is no table of {size}-byte entries")
        return count

    def content(self, section: ElfSection) -> memoryview | bytes:
        """Return a section's bytes."""
        return self.data[section.offset : section.offset + section.size]

    @property
    def executable(self) -> tuple[ElfSection, ...]:
        """The sections of code."""
        return tuple(
            one
            for one in self.sections
            if one.flags & _EXECUTABLE and one.size and one.kind == "SHT_PROGBITS"
        )

    def at(self, address: int, size: int) -> bytes | None:
        """Return the bytes that the library has at an address from the file; ``None`` where it has fewer."""
        for one in self._loaded:
            if one.address <= address and address + size <= one.address + one.size:
                start = one.offset + address - one.address
                return self.data[start : start + size]
        return None

    def is_constant(self, address: int) -> bool:
        """Tell whether nothing changes what stands at an address once the library is loaded."""
        return any(
            one.address <= address < one.address + one.size
            and (not one.flags & _WRITE or one.name.startswith(".data.rel.ro"))
            for one in self._loaded
        )

    def text(self, address: int, size: int | None) -> bytes | None:
        """Return a string: *size* bytes, or up to its closing zero; ``None`` if it is none."""
        for one in self._loaded:
            if one.address <= address < one.address + one.size:
                if size is None:
                    start = one.offset + address - one.address
                    end = self.data.find(b"\0", start, min(start + MAX_NAME, one.offset + one.size))
                    return self.data[start:end] if end >= 0 else None
                return self.at(address, size)
        return None

    @cached_property
    def _loaded(self) -> tuple[ElfSection, ...]:
        return tuple(
            one for one in self.sections if one.flags & _ALLOC and one.kind not in {"SHT_NOBITS", "SHT_NULL"}
        )

    def _name(self, names: ElfSection, offset: int) -> str:
        start = names.offset + offset
        end = self.data.find(b"\0", start, min(start + MAX_NAME, names.offset + names.size))
        return self.data[start:end].decode("ascii", "backslashreplace") if offset >= 0 and end >= 0 else ""

    def _rows(self, table: tuple[ElfSection, ElfSection]) -> Iterator[tuple[int, int, int, int, int, int]]:
        """Iterate over a symbol table: name, info, other, section, value, size."""
        return struct.iter_unpack("<IBBHQQ", self.content(table[0]))

    @cached_property
    def _functions(self) -> tuple[list[int], list[tuple[int, int, ElfSection]]]:
        """All functions sorted by address, the longest first where several start together."""
        found = []
        for table in (self._symbols, self._dynamic):
            found += [
                (value, size, name, table[1])
                for name, info, _, section, value, size in self._rows(table)
                if info & 15 in _FUNCTION_TYPES and size and 0 < section < _RESERVED
            ]
        found.sort(key=lambda one: (one[0], -one[1], one[3].offset, one[2]))
        return [one[0] for one in found], [one[1:] for one in found]

    @property
    def function_count(self) -> int:
        """How many addresses start a function."""
        return len(set(self._functions[0]))

    def function_at(self, address: int) -> Function | None:
        """Return the function that covers an address, by the innermost symbol; ``None`` if no symbol does."""
        starts, rest = self._functions
        place = bisect.bisect_right(starts, address) - 1
        # Symbols may lie within one another, but not deeply.
        for at in range(place, max(-1, place - 32), -1):
            size, _, _ = rest[at]
            if address < starts[at] + size:
                first = bisect.bisect_left(starts, starts[at])
                size, name, names = rest[first]
                aliases = {
                    self._name(rest[n][2], rest[n][1])
                    for n in range(first, min(len(starts), first + 32))
                    if starts[n] == starts[at] and rest[n][0] == size
                }
                return Function(starts[at], size, min(aliases - {""}, default=self._name(names, name)))
        return None

    def symbols(self, pattern: re.Pattern[bytes], *, dynamic_only: bool = False) -> dict[str, set[int]]:
        """Return the symbols whose names match, each with the addresses where calls to it may lead.

        These are the function itself and the slots that the loader fills with its address. Of ``dynamic_only``
        names those are looked at that other libraries see: a tenth of all.
        """
        found: dict[str, set[int]] = {}
        for table in (self._dynamic,) if dynamic_only else (self._symbols, self._dynamic):
            names = self._names_matching(table[1], pattern)
            rows = enumerate(self._rows(table))
            numbers: dict[int, str] = {}
            for number, (name, _, _, section, value, _) in rows:
                if name in names:
                    numbers[number] = names[name]
                    found.setdefault(names[name], set())
                    if 0 < section < _RESERVED and value:
                        found[names[name]].add(value)
            if table is self._dynamic:
                for address, number in self._slots(set(numbers)):
                    found[numbers[number]].add(address)
        return found

    def _names_matching(self, names: ElfSection, pattern: re.Pattern[bytes]) -> dict[int, str]:
        """Return the places in a table of strings where a matching name starts, with the names."""
        end = names.offset + names.size
        return {
            found.start() - names.offset: found.group().decode("ascii", "backslashreplace")
            for found in re.compile(rb"(?:" + pattern.pattern + rb")(?=\0)").finditer(
                self.data, names.offset, end
            )
        }

    def _relocations(self) -> Iterator[tuple[int, int, int]]:
        for section in self.sections:
            if section.kind == "SHT_RELA" and section.size and section.flags & _ALLOC:
                self._entries(section, 24)
                yield from struct.iter_unpack("<QQq", self.content(section))

    def _slots(self, numbers: set[int]) -> Iterator[tuple[int, int]]:
        """Yield the slots that the loader fills with the address of a dynamic symbol, and its number."""
        for address, info, _ in self._relocations():
            if info >> 32 in numbers and info & 0xFFFFFFFF in {_JUMP_SLOT, _GLOB_DAT, _ADDRESS}:
                yield address, info >> 32

    @cached_property
    def relative(self) -> dict[int, int]:
        """Pointers into the library itself: where each stands, and where it points."""
        return {
            address: addend
            for address, info, addend in self._relocations()
            if info & 0xFFFFFFFF == _RELATIVE and addend >= 0
        }

    @property
    def build_id(self) -> str | None:
        """The linker's build id, in hexadecimal."""
        for one in self.sections:
            if one.name == ".note.gnu.build-id" and 16 < one.size <= 64:  # noqa: PLR2004 - a note's head and id
                return bytes(self.content(one)[16:]).hex()
        return None
