"""Find every reference to a few functions in hundreds of megabytes of machine code.

A reference is four bytes that say how far away its target is, so that within 64 KiB of code the upper two of them
take one or two values for each target: a regular expression finds the candidates without a loop in Python. What
stands at each is then settled by disassembling the function around it.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from scanner.census.elf import ElfSection, Image
from scanner.errors import BuildError

BLOCK = 1 << 16
MAX_REFERENCES = 100_000
# The byte before the distance: call, jmp, the second byte of a conditional jump, or the operand byte of an
# instruction that names memory by its distance (call, jmp, mov, lea).
_BEFORE = rb"[\xe8\xe9\x80-\x8f\x05\x0d\x15\x1d\x25\x2d\x35\x3d]"


class Reference(NamedTuple):
    """Four bytes that lead to a target, if an instruction ends behind them."""

    end: int  # the address behind them
    target: int


def references(image: Image, section: ElfSection, targets: Mapping[int, str]) -> Iterator[Reference]:
    """Yield what may be a reference from a section of code to one of the targets."""
    for start in range(0, section.size, BLOCK):
        low = section.address + start
        uppers = {
            upper & 0xFFFF
            for target in targets
            for upper in range((target - low - BLOCK) >> 16, ((target - low) >> 16) + 1)
        }
        # Two sets of bytes let a few more through than a list of pairs, and are found many times faster. The last
        # byte comes first, since in most of a large library it is the rarest.
        third = re.escape(bytes(sorted({upper & 0xFF for upper in uppers})))
        fourth = re.escape(bytes(sorted({upper >> 8 for upper in uppers})))
        pattern = re.compile(rb"[" + fourth + rb"](?<=" + _BEFORE + rb"..[" + third + rb"].)", re.DOTALL)
        first = section.offset + start
        last = min(first + BLOCK, section.offset + section.size)
        for found in pattern.finditer(image.data, max(first, section.offset + 4), last):
            at = found.end()
            end = section.address + at - section.offset
            target = end + struct.unpack_from("<i", image.data, at - 4)[0]
            if target in targets:
                yield Reference(end, target)


def call_targets(image: Image, wanted: Mapping[str, set[int]]) -> dict[int, str]:
    """Return every address that leads to a wanted function: itself, its slots, and the stubs that jump there."""
    targets = {address: symbol for symbol, addresses in wanted.items() for address in addresses}
    stubs = {}
    for section in image.executable:
        if section.name.startswith(".plt") and targets:
            size = section.entry or 16
            for one in references(image, section, targets):
                start = section.address + (one.end - 1 - section.address) // size * size
                stubs[start] = targets[one.target]
    return targets | stubs


def all_references(image: Image, targets: Mapping[int, str]) -> list[Reference]:
    """Return what may be a reference to a target, in all code but the stubs.

    Raises:
        BuildError: There are more than any build of torch has.
    """
    found: list[Reference] = []
    if not targets:
        return found
    for section in image.executable:
        if section.name.startswith(".plt"):
            continue
        for one in references(image, section, targets):
            found.append(one)
            if len(found) > MAX_REFERENCES:
                raise BuildError(f"{image.shown}: more calls to one function than any build of torch has")
    return found
