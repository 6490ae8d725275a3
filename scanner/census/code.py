"""A function's machine code: its instructions, where control goes from each, and what every return must pass.

capstone disassembles. What this cannot see: computed jumps (a switch may be one) and the ways that exceptions take.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import capstone
from capstone import x86

from scanner.census.elf import Function, Image
from scanner.census.record import Path_

MAX_FUNCTION = 1 << 20  # bytes; the largest function with an alert in a build of torch has 20 kB


class Instruction(NamedTuple):
    """One instruction, as text."""

    address: int
    size: int
    mnemonic: str
    operands: str


@functools.cache
def _disassembler(*, detail: bool) -> Any:
    made = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    made.detail = detail
    return made


def listing(image: Image, function: Function) -> dict[int, Instruction] | None:
    """Return a function's instructions by the address behind each; ``None`` if not all of it is code."""
    code = image.at(function.start, function.size) if function.size <= MAX_FUNCTION else None
    if code is None:
        return None
    found = {}
    end = function.start
    for one in _disassembler(detail=False).disasm_lite(code, function.start):
        instruction = Instruction(*one)
        end = instruction.address + instruction.size
        found[end] = instruction
    return found if end == function.end else None


class Graph:
    """A function with the parts that the compiler moved away from it, and the ways through it."""

    def __init__(self, image: Image, function: Function, never_return: Callable[[int], bool]) -> None:
        """Disassemble a function, and whatever of ``function.cold`` it jumps to.

        Args:
            image: The library.
            function: The function; of a part that was moved away, its parent.
            never_return: Tells of a call's target that it does not come back.
        """
        self.entry = function.start
        self._never_return = never_return
        self.instructions: dict[int, Any] = {}
        parts = [function]
        for part in parts:
            code = image.at(part.start, part.size) if part.size <= MAX_FUNCTION else None
            for one in _disassembler(detail=True).disasm(code or b"", part.start):
                self.instructions[one.address] = one
                target = jump_target(one)
                if target is None or any(known.start <= target < known.end for known in parts):
                    continue
                other = image.function_at(target)
                if other is not None and other.symbol.startswith(f"{function.symbol}.cold"):
                    parts.append(other)
        self._parts = parts
        # Where control may go next within the function, from each instruction.
        self.successors = {address: tuple(self._next(one)) for address, one in self.instructions.items()}

    def _inside(self, address: int) -> bool:
        return any(part.start <= address < part.end for part in self._parts)

    def leaves(self, instruction: Any) -> bool:
        """Tell whether the function may return here: a return, or a jump to another function."""
        if instruction.group(x86.X86_GRP_RET):
            return True
        target = jump_target(instruction)
        if target is not None:
            return not self._inside(target) and not self._never_return(target)
        # A jump through the slot of another function; any other computed jump is none of ours to follow.
        return bool(instruction.id == x86.X86_INS_JMP and _slot(instruction) is not None)

    def is_computed(self, instruction: Any) -> bool:
        """Tell whether nobody can say where control goes from here."""
        return bool(
            instruction.id == x86.X86_INS_JMP
            and jump_target(instruction) is None
            and _slot(instruction) is None
        )

    def _next(self, instruction: Any) -> Iterator[int]:
        if instruction.group(x86.X86_GRP_RET) or instruction.id in _STOPS:
            return
        target = jump_target(instruction)
        if target is not None and target in self.instructions:
            yield target
        if instruction.id == x86.X86_INS_JMP:
            return
        if instruction.id == x86.X86_INS_CALL:
            called = _immediate(instruction)
            if called is not None and self._never_return(called):
                return
        following = instruction.address + instruction.size
        if following in self.instructions:
            yield following

    def passed(self, site: int) -> Path_:
        """Tell whether every way from the start to a return passes an instruction."""
        without = self._reached(avoiding=site)
        if any(self.leaves(self.instructions[one]) for one in without):
            return "conditional"
        computed = any(self.is_computed(self.instructions[one]) for one in without)
        return "always" if without and not computed else "unknown"

    def _reached(self, avoiding: int) -> set[int]:
        reached: set[int] = set()
        waiting = [self.entry]
        while waiting:
            one = waiting.pop()
            if one in reached or one == avoiding or one not in self.instructions:
                continue
            reached.add(one)
            waiting.extend(self.successors[one])
        return reached


_STOPS = {x86.X86_INS_UD2, x86.X86_INS_HLT, x86.X86_INS_INT3}


def _immediate(instruction: Any) -> int | None:
    operands = instruction.operands
    return operands[0].imm if len(operands) == 1 and operands[0].type == x86.X86_OP_IMM else None


def jump_target(instruction: Any) -> int | None:
    """Return where a jump with a fixed target leads, conditional or not; ``None`` for all else."""
    return _immediate(instruction) if instruction.group(x86.X86_GRP_JUMP) else None


def _slot(instruction: Any) -> int | None:
    """Return the address of the slot that an instruction goes through; ``None`` if it goes through none."""
    operand = instruction.operands[0] if instruction.operands else None
    if operand is None or operand.type != x86.X86_OP_MEM:
        return None
    memory = operand.mem
    if memory.base != x86.X86_REG_RIP or memory.index:
        return None
    return int(instruction.address + instruction.size + memory.disp)
