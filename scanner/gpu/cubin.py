"""Fat binaries: the machine code of each kernel, its parameters, constants and sizes, and the variables of a module.

The formats are those that NVIDIA documents in *CUDA Binary Utilities*, and what nvcc's own output shows: a fat binary is
a list of ELF files (cubins), one for each architecture, compressed or not. Of relocations exactly those are applied that
PyTorch's builds and nvcc's whole programs hold, 64-bit addresses in constants and initial values; any other is an error.
"""

from __future__ import annotations

import math
import mmap
import re
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

import lz4.block
import zstandard

from detmatrix.scanner.elf import MAGIC, Section, sections, text
from detmatrix.scanner.errors import BuildError, one_line

EXTERNALS = 0x790000000000  # Functions of the driver have addresses from here on, where no memory is.
_STEP = 16  # bytes of one instruction, so that no two such addresses are the same instruction

_MAGIC = b"\x50\xed\x55\xba"
_HEADER = 16  # bytes that a header has at least
_CUBIN = 2  # Kind of an entry; the others are PTX and objects of the linker.
_LZ4, _ZSTD, _SPECIFIC, _FAMILY = 0x2000, 0x8000, 0x100000, 0x200000  # flags of an entry
_NEW_FLAGS = 8  # version of the ABI
_LARGEST = 1 << 28  # bytes that a cubin, or a part of one, may have: a damaged size is not allocated

_NOBITS, _REL, _RELA = 8, 9, 4  # types of sections
_FUNCTION, _ENTRY = 2, 0x10  # type of a symbol, and its flag if it is a kernel
_ADDRESSES = {2, 4}  # R_CUDA_64 and R_CUDA_G64: eight bytes hold the address of a symbol
_VARIABLES = (".nv.global.init", ".nv.global", ".nv.constant3")

# Attributes in .nv.info, as nvdisasm names them (EIATTR_...).
_MAX_THREADS, _REQUIRED_THREADS, _PARAM_CBANK, _FRAME_SIZE, _MIN_STACK_SIZE = 0x05, 0x10, 0x0A, 0x11, 0x12
_KPARAM_INFO, _REGCOUNT, _KPARAM_INFO_V2, _NUM_BARRIERS = 0x17, 0x2F, 0x45, 0x4C
_UNKNOWN_STACK, _DEFAULT_STACK = 0xFFFFFFFF, 1024  # With recursion it is cudaLimitStackSize, at first 1 KiB.
_RESERVES, _RESERVED = 90, 1024  # From sm_90 on shared memory begins with so many bytes of the driver.


class CubinError(BuildError):
    """A fat binary that is damaged, or holds what nobody has seen in one."""

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


class _Symbol(NamedTuple):
    name: str
    type: int
    other: int
    section: int
    value: int
    size: int


@dataclass(frozen=True, slots=True)
class CubinKernel:
    """One kernel, as a launch needs it."""

    name: str  # the mangled name
    architecture: int  # what the code is for
    code: bytes  # its instructions, with those of the functions it calls
    parameters: tuple[tuple[int, int], ...]  # offset, from the start of the parameters, and size of each
    parameter_base: int  # where the parameters start in constant bank 0
    shared: int  # bytes of shared memory that it declares
    shared_base: int  # address of the first of them; what is dynamic follows the last
    local: int  # bytes of local memory of a thread
    registers: int  # of a thread
    max_threads: int  # of a block
    barriers: int  # that it uses
    banks: Mapping[int, bytes]  # constant banks other than 0, relocated
    # Banks whose bytes lie in memory, by address and size: ``cudaMemcpyToSymbol`` writes there, so that a launch has to
    # read them anew.
    placed: Mapping[int, tuple[int, int]]
    # Functions of the driver that the module calls, by the address that stands for each.
    externals: Mapping[int, str]
    source: str = ""  # the file that the module was compiled from, as far as its names tell

    @property
    def constant(self) -> int:
        """Bytes of constant memory that the program declares."""
        return sum(size for _, size in self.placed.values())


class Cubin:
    """The code of one module for one architecture."""

    def __init__(self, data: bytes, architecture: int, suffix: str = "") -> None:
        self.architecture, self.suffix, self._data = architecture, suffix, data
        self.variables: dict[str, tuple[int, int]] = {}  # address and size of each, once they are placed
        self._addresses: dict[int, int] = {}  # of sections that are placed, by number
        self._externals: dict[int, str] = {}
        self._placed: dict[int, tuple[int, int]] = {}  # by number of the constant bank
        self._constants: bytes | None = None  # of bank 4, which all kernels share
        with _reading(str(self)):
            self._sections = sections(data)
            self._number = {one.name: number for number, one in enumerate(self._sections)}
            self._relocations: dict[str, list[Section]] = {}  # by the name of the section that they change
            for one in self._sections:
                if one.type in {_REL, _RELA}:
                    self._relocations.setdefault(self._sections[one.info].name, []).append(one)
            names, symbols = self._content(".strtab"), struct.iter_unpack("<IBBHQQ", self._content(".symtab"))
            self._symbols = [_Symbol(text(names, at), info & 15, *rest) for at, info, *rest in symbols]
            self.kernels = {one.name: at for at, one in enumerate(self._symbols) if one.other & _ENTRY}
            self._sizes = {
                (attribute, *struct.unpack("<I", value[:4])): int.from_bytes(value[4:], "little")
                for attribute, value in self._attributes(".nv.info")
                if attribute in {_REGCOUNT, _FRAME_SIZE, _MIN_STACK_SIZE}
            }

    def __str__(self) -> str:
        return f"cubin for sm_{self.architecture}{self.suffix}"

    def place(self, base: int) -> bytes:
        """Give the variables of the module addresses from ``base`` on; return what memory holds there at first."""
        with _reading(str(self)):
            end = base
            for name in filter(self._number.__contains__, _VARIABLES):
                section = self._sections[self._number[name]]
                end += -end % max(section.align, 1)
                self._addresses[self._number[name]] = end
                end += section.size
            self.variables = {
                one.name: (self._addresses[one.section] + one.value, one.size)
                for one in self._symbols
                if one.section in self._addresses and one.name and one.size
            }
            if end - base > _LARGEST:
                raise ValueError(f"variables of {end - base} bytes")
            image = bytearray(end - base)
            for number, address in self._addresses.items():
                content = self._relocated(self._sections[number].name)
                image[address - base : address - base + len(content)] = content
            if (bank := self._number.get(".nv.constant3")) is not None:
                self._placed[3] = (self._addresses[bank], self._sections[bank].size)
            self._constants = self._relocated(".nv.constant4")
        return bytes(image)

    def kernel(self, name: str) -> CubinKernel:
        """Return a kernel of a module that is placed.

        Raises:
            CubinError: There is no such kernel, or it is damaged.
        """
        if name not in self.kernels or f".text.{name}" not in self._number:
            raise CubinError(f"{self} has no kernel {name}")
        if self._constants is None:
            raise CubinError(f"{self}: its variables have no place yet")
        with _reading(f"{self}, kernel {name}"):
            base = len(self._content(f".nv.constant0.{name}"))
            threads, barriers, parameters = 1024, 0, {}
            for attribute, value in self._attributes(f".nv.info.{name}"):
                if attribute == _KPARAM_INFO:
                    _, ordinal, offset, word = struct.unpack("<IHHI", value)
                    parameters[ordinal] = (offset, word >> 18)
                elif attribute == _KPARAM_INFO_V2:
                    _, ordinal, offset, size = struct.unpack("<IHHI", value)
                    parameters[ordinal] = (offset, size)
                elif attribute == _PARAM_CBANK:
                    (base,) = struct.unpack_from("<H", value, 4)
                elif attribute in {_MAX_THREADS, _REQUIRED_THREADS}:
                    threads = math.prod(struct.unpack("<III", value))
                elif attribute == _NUM_BARRIERS:
                    barriers = value[0]
            number = self.kernels[name]
            frame, stack = (self._sizes.get((one, number), 0) for one in (_FRAME_SIZE, _MIN_STACK_SIZE))
            reserved = _RESERVED if self.architecture >= _RESERVES else 0
            return CubinKernel(
                name=name,
                architecture=self.architecture,
                code=self._relocated(f".text.{name}"),
                parameters=tuple(parameters[ordinal] for ordinal in range(len(parameters))),
                parameter_base=base,
                shared=max(len(self._content(f".nv.shared.{name}")) - reserved, 0),
                shared_base=reserved,
                local=max(frame, _DEFAULT_STACK if stack == _UNKNOWN_STACK else stack),
                registers=self._sizes[_REGCOUNT, number],
                max_threads=threads,
                barriers=barriers,
                banks={2: self._relocated(f".nv.constant2.{name}"), 4: self._constants},
                placed=self._placed,
                externals=self._externals,
                source=source_of(self._content(".strtab").decode()),
            )

    def _content(self, name: str) -> bytes:
        if name not in self._number:
            return b""
        one = self._sections[self._number[name]]
        if one.size > _LARGEST:
            raise ValueError(f"{name} of {one.size} bytes")
        return bytes(one.size) if one.type == _NOBITS else _cut(self._data, one.offset, one.size)

    def _attributes(self, name: str) -> Iterator[tuple[int, bytes]]:
        content = self._content(name)
        at = 0
        while at < len(content):
            form, attribute, value = struct.unpack_from("<BB2s", content, at)
            at += 4
            if form == 4:  # noqa: PLR2004 - the form of those that have a length
                size = int.from_bytes(value, "little")
                value = _cut(content, at, size)
                at += size
            yield attribute, value

    def _relocated(self, name: str) -> bytes:
        content = bytearray(self._content(name))
        for section in self._relocations.get(name, ()):
            form, explicit = ("<QII", False) if section.type == _REL else ("<QIIq", True)
            for offset, kind, number, *addend in struct.iter_unpack(form, self._content(section.name)):
                if kind not in _ADDRESSES:
                    against = self._symbols[number].name
                    raise CubinError(f"{self}: {name} has unknown relocation {kind} against {against}")
                more = addend[0] if explicit else struct.unpack_from("<Q", content, offset)[0]
                struct.pack_into("<Q", content, offset, self._address(number) + more)
        return bytes(content)

    def _address(self, number: int) -> int:
        symbol = self._symbols[number]
        if symbol.section in self._addresses:
            return self._addresses[symbol.section] + symbol.value
        if symbol.section == 0 and symbol.type == _FUNCTION:
            self._externals[EXTERNALS + _STEP * number] = symbol.name
            return EXTERNALS + _STEP * number
        raise CubinError(f"{self}: the address of {symbol.name}, neither variable nor driver's function")


def cubins(data: bytes, architecture: int) -> list[Cubin]:
    """Return the cubins of a fat binary that a device can run, the best first; or the one cubin that it is given.

    Code for the device's own number is best, and code with its own features (``sm_90a``) before code without: PyTorch's
    builds hold both for four sources, with the same kernels, many of which are stubs in the code without. Else it is the
    code for the highest smaller minor number. What is specific to another number, or to a family, is not run.

    Raises:
        CubinError: It is damaged.
    """
    if data[: len(MAGIC)] == MAGIC:
        return [_alone(data, architecture)]
    usable = []
    with _reading("fat binary"):
        for entry in _entries(data, 0, len(data)):
            own = entry.architecture == architecture
            compatible = entry.architecture // 10 == architecture // 10 and entry.architecture <= architecture
            if compatible and (not entry.suffix or (own and entry.suffix == "a")):
                usable.append(entry)
        best = max((one.architecture for one in usable), default=0)
        chosen = sorted((one for one in usable if one.architecture == best), key=lambda one: not one.suffix)
        return [Cubin(_decompressed(data, one), one.architecture, one.suffix) for one in chosen]


def _alone(data: bytes, architecture: int) -> Cubin:
    """Return a cubin that lies in no fat binary; its flags say what it is for, elsewhere since CUDA 13."""
    with _reading("cubin"):
        (flags,) = struct.unpack_from("<I", data, 48)
        of = flags >> 8 & 0xFF if data[8] >= _NEW_FLAGS else flags & 0xFF
    if of // 10 != architecture // 10 or of > architecture:
        raise CubinError(f"a cubin for sm_{of}, which sm_{architecture} does not run")
    return Cubin(data, of)


def architectures(library: Path) -> set[str]:
    """Return for which architectures a shared library holds machine code, such as ``sm_80`` and ``sm_90a``.

    Raises:
        CubinError: The library, or a fat binary in it, is damaged.
    """
    found = set()
    with _reading(str(library)), library.open("rb") as file:
        data = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        for section in sections(data):
            at, end = section.offset, section.offset + section.size
            while section.name == ".nv_fatbin" and at < end:
                if data[at : at + 4] != _MAGIC:
                    at += 8  # between two of them there may be a gap
                    continue
                found |= {f"sm_{one.architecture}{one.suffix}" for one in _entries(data, at, end)}
                at += sum(struct.unpack_from("<HQ", data, at + 6))
    return found


class _Entry(NamedTuple):
    architecture: int
    suffix: str
    flags: int
    offset: int
    size: int
    decompressed: int


def _entries(data: bytes | mmap.mmap, at: int, limit: int) -> Iterator[_Entry]:
    magic, header, size = struct.unpack_from("<4s2xHQ", data, at)
    end = at + header + size
    if magic != _MAGIC or header < _HEADER or end > limit:
        raise ValueError("it is no whole fat binary")
    at += header
    while at < end:
        kind, header, size, compressed = struct.unpack_from("<H2xIQI", data, at)
        architecture, flags, decompressed = struct.unpack_from("<I8xQ8xQ", data, at + 28)
        if header < _HEADER or at + header + size > end:
            raise ValueError("an entry is not whole")
        suffix = "a" if flags & _SPECIFIC else "f" if flags & _FAMILY else ""
        if kind == _CUBIN:
            yield _Entry(architecture, suffix, flags, at + header, compressed or size, decompressed)
        at += header + size


def _decompressed(data: bytes, entry: _Entry) -> bytes:
    content = _cut(data, entry.offset, entry.size)
    if entry.decompressed > _LARGEST:
        raise ValueError(f"a cubin of {entry.decompressed} bytes")
    if entry.flags & _ZSTD:
        return bytes(zstandard.ZstdDecompressor().decompress(content, max_output_size=entry.decompressed))
    if entry.flags & _LZ4:
        return bytes(lz4.block.decompress(content, uncompressed_size=entry.decompressed))
    return content


def _cut(data: bytes, offset: int, size: int) -> bytes:
    if offset + size > len(data):
        raise ValueError(f"{size} bytes at {offset} of {len(data)}")
    return data[offset : offset + size]


@contextmanager
def _reading(what: str) -> Iterator[None]:
    try:
        yield
    except (
        struct.error,
        ValueError,
        LookupError,
        ArithmeticError,
        lz4.block.LZ4BlockError,
        zstandard.ZstdError,
    ) as error:
        raise CubinError(f"{what}: cut off or damaged ({error})") from error


_MOST = 160
# Of the names of what is local to a source file: nvcc writes the length of the file's name, and the name.
_LOCAL = re.compile(r"_GLOBAL__N__[0-9a-f]{8}_(\d+)_(\w+)")
_BRACKETS = re.compile(r"([<>(){}])")


def source_of(text: str) -> str:
    """Return the source file that names of a module tell of, such as ``RangeFactories.cu``; empty if they tell of none."""
    local = _LOCAL.search(text)
    return re.sub(r"_(cuh?|cpp)$", r".\1", local[2][: int(local[1])]) if local else ""


def _demangled(name: str) -> str:
    try:
        from cpp_demangle import demangle  # noqa: PLC0415 - has wheels for some systems alone
    except ImportError:
        return name
    try:
        return str(demangle(name))
    except ValueError:
        return name


@cache
def readable(name: str) -> str:
    """Return the name of a kernel as its source has it, without its parameters, namespaces, and what stands in the arguments of its template."""
    head, arguments, depth = "", "", 0
    for part in _BRACKETS.split(_demangled(name).replace("(anonymous namespace)::", "")):
        if part in ("<", "(", "{"):
            if depth == 0 and part == "(":
                break
            arguments = "" if depth == 0 else arguments
            depth += 1
        elif part in (">", ")", "}"):
            depth -= 1
        elif depth == 0:
            head += part
        elif depth == 1:
            arguments += part
    said = ", ".join(filter(None, map(_last, arguments.split(","))))
    return (_last(head.rpartition(" ")[2]) + (f"<{said}>" if said else ""))[:_MOST]


def _last(path: str) -> str:
    """Return what a path leads to; of a function that is local to another one, the outermost."""
    parts = path.strip().split("::")
    parts = parts[: parts.index("", 1)] if "" in parts[1:] else parts
    named = [part for part in parts if not part.startswith("operator")]
    return (named or parts)[-1]
