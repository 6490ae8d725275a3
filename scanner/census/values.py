"""What registers and stack slots hold at a call, as far as the code before it says: constants and addresses.

An abstract interpretation over a function's graph. A value is kept only while it is certain; where ways meet with
different values, nothing is known. One thing is taken on trust: a slot that holds a constant still holds it after a
call or a write through an unknown pointer, unless its own address was handed to that call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from capstone import x86

from scanner.census.code import Graph
from scanner.census.elf import Image
from scanner.census.registers import (
    MASK,
    WORD,
    Pair,
    Stack,
    State,
    Value,
    assign,
    shift,
    vector,
    whole,
    write,
)

MAX_STEPS = 200_000
_CLOBBERED = ("rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11")
_ARGUMENTS = ("rdi", "rsi", "rdx", "rcx", "r8", "r9")


class Interpreter:
    """Follows the ways through one function."""

    def __init__(self, image: Image, graph: Graph, sites: Iterable[int]) -> None:
        """Interpret a function.

        Args:
            image: The library, whose constants are read.
            graph: The function.
            sites: The instructions that ``before`` will be asked about.
        """
        self._image = image
        self._graph = graph
        self._followers: set[int] = set()
        self._kept = {graph.entry, *sites}
        for address, following in graph.successors.items():
            self._followers.update(following)
            self._kept.update(set(following) - {address + graph.instructions[address].size})
        self._states: dict[int, State] = {}
        self._elsewhere: dict[int, State] | None = None
        self._bases = 2
        self._realigned: dict[int, int] = {}
        self.complete = self._follow(graph.entry, State.fresh(0), self._states)

    def before(self, address: int) -> State:
        """Return what is certain right before an instruction.

        Where no known way from the start leads there (a computed jump does, or an exception), what follows from the
        code after the places that nothing known leads to. Those are kept apart: nothing is known at their start.
        """
        if address not in self._states:
            if self._elsewhere is None:
                self._elsewhere = {}
                for orphan in sorted(self._graph.instructions.keys() - self._followers - {self._graph.entry}):
                    self._bases += 2
                    self._follow(orphan, State.fresh(self._bases), self._elsewhere)
            return self._elsewhere.get(address) or State({}, {}, {})
        return self._states[address]

    def _follow(self, start: int, state: State, states: dict[int, State]) -> bool:
        """Interpret from an instruction on until no state changes; tell whether that ended in time.

        States are kept where ways meet: between two such places there is one way.
        """
        self._kept.add(start)
        waiting = [(start, state)]
        for _ in range(MAX_STEPS):
            if not waiting:
                return True
            address, state = waiting.pop()
            if address in self._kept:
                known = states.get(address)
                if known is None:
                    states[address] = state.copy()
                elif known.meet(state):
                    state = known.copy()
                else:
                    continue
            if address not in self._graph.instructions:
                continue  # the function starts with what is no instruction
            instruction = self._graph.instructions[address]
            self._step(instruction, state)
            following = self._graph.successors[address]
            waiting.extend((target, state.copy()) for target in following[1:])
            waiting.extend((target, state) for target in following[:1])
        return not waiting

    # What instructions do; each tells whether it is one that is understood.

    def _step(self, instruction: Any, state: State) -> None:
        if instruction.id == x86.X86_INS_CALL:
            self._call(state)
            return
        known = _STEPS.get(instruction.id)
        operands = instruction.operands
        if known is not None and known(self, instruction, operands, state):
            return
        self._forget(instruction, operands, state)

    def _call(self, state: State) -> None:
        """Forget what a call may change."""
        for name in _ARGUMENTS:
            handed = state.registers.get(name)
            if isinstance(handed, Stack):
                write(state, handed, None)
                write(state, Stack(handed.base, handed.offset + WORD), None)
        for name in _CLOBBERED:
            state.registers.pop(name, None)
        state.pairs.clear()

    def _forget(self, instruction: Any, operands: Any, state: State) -> None:
        """Forget whatever an instruction writes."""
        _, written = instruction.regs_access()
        for register in written:
            name = instruction.reg_name(register)
            state.registers.pop(whole(name), None)
            state.pairs.pop(vector(name), None)
        if operands and operands[0].type == x86.X86_OP_MEM:
            target = self._address(instruction, operands[0].mem, state)
            if target is not None:
                for at in range(0, max(operands[0].size, 1), WORD):
                    write(state, shift(target, at), None)
        if instruction.id in _STRING_WRITES:
            # They write as far as a register says.
            state.slots.clear()

    def _address(self, instruction: Any, memory: Any, state: State) -> Value | None:
        """Return the address of a memory operand; ``None`` if it is not certain."""
        if memory.segment or memory.index:
            return None
        if memory.base == x86.X86_REG_RIP:
            return int(instruction.address + instruction.size + memory.disp)
        if not memory.base:
            return int(memory.disp) & MASK
        base = state.registers.get(instruction.reg_name(memory.base))
        return None if base is None else shift(base, memory.disp)

    def _load(self, address: Value | None, state: State) -> Value | None:
        """Return the word at an address; ``None`` if it is not certain."""
        if address is None:
            return None
        if address in state.slots:
            return state.slots[address]
        if isinstance(address, Stack):
            return None
        if address in self._image.relative:
            return self._image.relative[address]
        if not self._image.is_constant(address):
            return None
        word = self._image.at(address, WORD)
        return None if word is None else int.from_bytes(word, "little")

    def _read(self, instruction: Any, operand: Any, state: State) -> Value | None:
        """Return a word that an operand gives; ``None`` if it is not certain."""
        if operand.type == x86.X86_OP_IMM:
            return int(operand.imm) & MASK
        if operand.type == x86.X86_OP_REG:
            return (
                state.registers.get(whole(instruction.reg_name(operand.reg)))
                if operand.size == WORD
                else None
            )
        return (
            self._load(self._address(instruction, operand.mem, state), state)
            if operand.size == WORD
            else None
        )

    def _pair(self, instruction: Any, operand: Any, state: State) -> Pair:
        """Return the two words that an operand gives."""
        if operand.type == x86.X86_OP_REG:
            return state.pairs.get(instruction.reg_name(operand.reg), (None, None))
        at = self._address(instruction, operand.mem, state)
        return self._load(at, state), self._load(None if at is None else shift(at, WORD), state)

    def move(self, instruction: Any, operands: Any, state: State) -> bool:
        """``mov``: a word, or a constant."""
        target, source = operands[0], operands[1]
        if target.type == x86.X86_OP_MEM:
            if target.size != WORD:
                return False
            place = self._address(instruction, target.mem, state)
            if place is not None:
                write(state, place, self._read(instruction, source, state))
            return True
        if source.type == x86.X86_OP_IMM and target.size in {4, WORD}:
            bits = MASK if target.size == WORD else 0xFFFFFFFF
            assign(state, instruction.reg_name(target.reg), int(source.imm) & bits)
            return True
        if target.size != WORD:
            return False
        assign(state, instruction.reg_name(target.reg), self._read(instruction, source, state))
        return True

    def lea(self, instruction: Any, operands: Any, state: State) -> bool:
        """``lea``: an address."""
        if operands[0].size != WORD:
            return False
        assign(
            state,
            instruction.reg_name(operands[0].reg),
            self._address(instruction, operands[1].mem, state),
        )
        return True

    def clear(self, instruction: Any, operands: Any, state: State) -> bool:
        """``xor`` of a register with itself."""
        if operands[0].type != x86.X86_OP_REG or operands[1].type != x86.X86_OP_REG:
            return False
        if operands[0].reg != operands[1].reg or operands[0].size not in {4, WORD}:
            return False
        assign(state, instruction.reg_name(operands[0].reg), 0)
        return True

    def add(self, instruction: Any, operands: Any, state: State) -> bool:
        """``add`` and ``sub`` of a constant."""
        if operands[0].type != x86.X86_OP_REG or operands[1].type != x86.X86_OP_IMM:
            return False
        name = instruction.reg_name(operands[0].reg)
        known = state.registers.get(name)
        sign = -1 if instruction.id == x86.X86_INS_SUB else 1
        assign(state, name, None if known is None else shift(known, sign * operands[1].imm))
        return True

    def align(self, instruction: Any, operands: Any, state: State) -> bool:
        """An aligned stack pointer is a new place that nobody knows as a number, the same each time."""
        if operands[0].type != x86.X86_OP_REG or instruction.reg_name(operands[0].reg) != "rsp":
            return False
        if instruction.address not in self._realigned:
            self._bases += 2
            self._realigned[instruction.address] = self._bases
        state.registers["rsp"] = Stack(self._realigned[instruction.address], 0)
        return True

    def push(self, instruction: Any, operands: Any, state: State) -> bool:
        """``push``."""
        value = self._read(instruction, operands[0], state)
        top = state.registers.get("rsp")
        if top is not None:
            state.registers["rsp"] = shift(top, -WORD)
            write(state, state.registers["rsp"], value)
        return True

    def pop(self, instruction: Any, operands: Any, state: State) -> bool:
        """``pop``."""
        top = state.registers.get("rsp")
        if operands[0].type == x86.X86_OP_REG:
            assign(state, instruction.reg_name(operands[0].reg), self._load(top, state))
        if top is not None:
            state.registers["rsp"] = shift(top, WORD)
        return True

    def move_pair(self, instruction: Any, operands: Any, state: State) -> bool:
        """Two words between vectors and memory."""
        pair = self._pair(instruction, operands[1], state)
        if operands[0].type == x86.X86_OP_REG:
            state.pairs[instruction.reg_name(operands[0].reg)] = pair
            return True
        place = self._address(instruction, operands[0].mem, state)
        if place is not None:
            write(state, place, pair[0])
            write(state, shift(place, WORD), pair[1])
        return True

    def move_low(self, instruction: Any, operands: Any, state: State) -> bool:
        """``movq``: a word into the lower half of a vector, or out of it."""
        target, source = operands
        if source.type == x86.X86_OP_REG and source.reg in _VECTORS:
            value = state.pairs.get(instruction.reg_name(source.reg), (None, None))[0]
        else:
            value = self._read(instruction, source, state)
        if target.type == x86.X86_OP_MEM:
            place = self._address(instruction, target.mem, state)
            if place is not None:
                write(state, place, value)
        elif target.reg in _VECTORS:
            state.pairs[instruction.reg_name(target.reg)] = (value, 0)
        else:
            assign(state, instruction.reg_name(target.reg), value)
        return True

    def join(self, instruction: Any, operands: Any, state: State) -> bool:
        """The lower word of one source under the lower word of another: ``punpcklqdq``, ``movhps``, ``pinsrq``."""
        if operands[0].type != x86.X86_OP_REG:
            return False
        second = operands[1]
        if second.type == x86.X86_OP_REG and second.reg in _VECTORS:
            upper = state.pairs.get(instruction.reg_name(second.reg), (None, None))[0]
        elif second.type == x86.X86_OP_MEM and second.size != WORD:
            upper = self._load(self._address(instruction, second.mem, state), state)
        else:
            upper = self._read(instruction, second, state)
        name = instruction.reg_name(operands[0].reg)
        lower = state.pairs.get(name, (None, None))
        if instruction.id == x86.X86_INS_PINSRQ and operands[2].imm == 0:
            state.pairs[name] = (upper, lower[1])
        else:
            state.pairs[name] = (lower[0], upper)
        return True

    def clear_pair(self, instruction: Any, operands: Any, state: State) -> bool:
        """``pxor`` of a vector with itself."""
        if operands[1].type != x86.X86_OP_REG or operands[0].reg != operands[1].reg:
            return False
        state.pairs[instruction.reg_name(operands[0].reg)] = (0, 0)
        return True


_Step = Callable[[Interpreter, Any, Any, State], bool]
_STRING_WRITES = {
    *(x86.X86_INS_STOSB, x86.X86_INS_STOSW, x86.X86_INS_STOSD, x86.X86_INS_STOSQ),
    *(x86.X86_INS_MOVSB, x86.X86_INS_MOVSW, x86.X86_INS_MOVSQ),
}
_VECTORS = {getattr(x86, f"X86_REG_XMM{number}") for number in range(16)}
_STEPS: dict[int, _Step] = {
    x86.X86_INS_MOV: Interpreter.move,
    x86.X86_INS_MOVABS: Interpreter.move,
    x86.X86_INS_LEA: Interpreter.lea,
    x86.X86_INS_XOR: Interpreter.clear,
    x86.X86_INS_ADD: Interpreter.add,
    x86.X86_INS_SUB: Interpreter.add,
    x86.X86_INS_AND: Interpreter.align,
    x86.X86_INS_PUSH: Interpreter.push,
    x86.X86_INS_POP: Interpreter.pop,
    x86.X86_INS_MOVQ: Interpreter.move_low,
    x86.X86_INS_PUNPCKLQDQ: Interpreter.join,
    x86.X86_INS_MOVHPS: Interpreter.join,
    x86.X86_INS_PINSRQ: Interpreter.join,
    x86.X86_INS_PXOR: Interpreter.clear_pair,
    x86.X86_INS_XORPS: Interpreter.clear_pair,
    **dict.fromkeys(
        (x86.X86_INS_MOVAPS, x86.X86_INS_MOVUPS, x86.X86_INS_MOVDQA, x86.X86_INS_MOVDQU, x86.X86_INS_MOVAPD),
        Interpreter.move_pair,
    ),
}
