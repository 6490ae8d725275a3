"""The alerts that are compiled into a build of torch: which callers its libraries hand to ``at::Context::alertNotDeterministic``.

An alert that no row meets belongs to a case that the catalog lacks, or to code that nothing reaches. The calls are found in the
bytes of the libraries: a call's target is an entry of the table of imported functions, and the caller's name is the last text
whose address the code loads before it.
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterator
from pathlib import Path
from struct import calcsize, iter_unpack, unpack_from

import torch

from detmatrix.scanner.accelerators import ACCELERATORS, kind_of
from detmatrix.scanner.elf import MAGIC, Section, sections

_ALERT = b"_ZN2at7Context21alertNotDeterministic"
_X86_64 = MAGIC + b"\x01"
# A call is 0xE8, a jump 0xE9; lea of an address relative to the instruction behind it.
_CALL, _LOADS = 0xE9, re.compile(rb"[\x48\x4c]\x8d[\x05\x0d\x15\x1d\x25\x2d\x35\x3d](?=(.{4}))", re.DOTALL)
_CALLER = re.compile(rb"[\w :.,()\[\]=<>'-]{3,100}")
# Bytes before a call in which the name is loaded, and bytes that are searched at once.
_BEFORE, _AT_ONCE = 160, 1 << 24


def compiled_alerts(device: str) -> list[str]:
    """Return the callers that alerts of this build may name, in alphabetic order.

    None where the libraries are not shared ones of Linux on x86-64.
    """
    kinds = ["cpu", *([] if device == "cpu" else [ACCELERATORS[kind_of(device)].key.lower()])]
    libraries = [Path(torch.__file__).parent / "lib" / f"libtorch_{kind}.so" for kind in kinds]
    return sorted({name for library in libraries if library.exists() for name in _callers(library)})


def _callers(library: Path) -> Iterator[str]:
    """Yield the names that a library hands to alerts."""
    with library.open("rb") as file:
        # Private and writable, as torch wants its buffers; nothing is written.
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    if data[:6] != _X86_64 or unpack_from("<H", data, 18) != (62,):
        return
    named = {one.name: one for one in sections(data)}
    if not {".text", ".rodata", ".plt", ".rela.plt", ".dynsym", ".dynstr"} <= named.keys():
        return
    code, constants = named[".text"], named[".rodata"]
    for call in _calls(data, code, _targets(data, named)):
        for load in reversed([*_LOADS.finditer(data[call - _BEFORE : call])]):
            behind = call - _BEFORE + load.end() + 4
            address = code.address - code.offset + behind + unpack_from("<i", load[1])[0]
            start = address - constants.address + constants.offset
            if constants.address <= address < constants.address + constants.size and (
                name := _CALLER.fullmatch(data[start : data.find(b"\0", start)])
            ):
                yield name[0].decode()
                break


def _targets(data: mmap.mmap, named: dict[str, Section]) -> list[int]:
    """Return where calls of the alert go: its entry in the table of imported functions, and itself where it is defined."""

    def table(name: str, form: str) -> list[tuple[int, ...]]:
        one = named[name]
        return list(iter_unpack(form, data[one.offset : one.offset + one.size - one.size % calcsize(form)]))

    strings = named[".dynstr"]
    name = data.find(_ALERT, strings.offset, strings.offset + strings.size) - strings.offset
    symbols = table(".dynsym", "<IBBHQQ")
    wanted = {k: symbol[4] for k, symbol in enumerate(symbols) if symbol[0] == name}
    entries = enumerate(table(".rela.plt", "<QQq"), 1)
    imported = [named[".plt"].address + 16 * k for k, (_, info, _) in entries if info >> 32 in wanted]
    return imported + [address for address in wanted.values() if address]


def _calls(data: mmap.mmap, code: Section, targets: list[int]) -> Iterator[int]:
    """Yield offsets of the calls that go to targets."""
    at, end = code.offset, code.offset + code.size
    for begin in range(at, end, _AT_ONCE):
        count = min(_AT_ONCE + 4, end - begin)
        part = torch.frombuffer(data, dtype=torch.uint8, count=count, offset=begin)
        places = ((part[:-4] | 1) == _CALL).nonzero()[:, 0]
        bytes_of = [part[places + k].to(torch.int64) << 8 * (k - 1) for k in range(1, 5)]
        distance = sum(bytes_of).to(torch.int32)  # with its sign
        goes_to = places + distance + (code.address - at + begin + 5)
        for place in places[torch.isin(goes_to, torch.tensor(targets))].tolist():
            yield begin + place
