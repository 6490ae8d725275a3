"""What is certain at one point of a function: values of registers, of vector registers and of words of memory."""

from __future__ import annotations

from typing import Any, NamedTuple

WORD = 8
MASK = (1 << 64) - 1
MAX_SLOTS = 1024


class Stack(NamedTuple):
    """An address *offset* bytes from a place that the function does not know as a number."""

    base: int
    offset: int


Value = int | Stack
# A vector register holds two words.
Pair = tuple[Value | None, Value | None]


class State:
    """What is certain at one point."""

    def __init__(
        self, registers: dict[str, Value], pairs: dict[str, Pair], slots: dict[Value, Value]
    ) -> None:
        """Take what is known.

        Args:
            registers: By the name of the 64-bit register.
            pairs: By the name of the 128-bit vector register.
            slots: Words of memory, by address.
        """
        self.registers = registers
        self.pairs = pairs
        self.slots = slots

    @classmethod
    def fresh(cls, base: int) -> State:
        """Return what is known where nothing is: the stack and the frame are somewhere."""
        return cls({"rsp": Stack(base, 0), "rbp": Stack(base + 1, 0)}, {}, {})

    def copy(self) -> State:
        """Return a state that changes by itself."""
        return State(dict(self.registers), dict(self.pairs), dict(self.slots))

    def meet(self, other: State) -> bool:
        """Keep what both say; tell whether anything went."""
        mine: tuple[dict[Any, Any], ...] = (self.registers, self.pairs, self.slots)
        theirs: tuple[dict[Any, Any], ...] = (other.registers, other.pairs, other.slots)
        changed = False
        for kept, others in zip(mine, theirs, strict=True):
            for key in [key for key, value in kept.items() if others.get(key) != value]:
                del kept[key]
                changed = True
        return changed


def shift(value: Value, by: int) -> Value:
    """Return the address so many bytes on."""
    return Stack(value.base, value.offset + by) if isinstance(value, Stack) else (value + by) & MASK


def write(state: State, place: Value, value: Value | None) -> None:
    """Write a word; what it overlaps is forgotten."""
    for by in range(1 - WORD, WORD):
        state.slots.pop(shift(place, by), None)
    if value is not None and len(state.slots) < MAX_SLOTS:
        state.slots[place] = value


def assign(state: State, name: str, value: Value | None) -> None:
    """Write a register; a value that is not certain is forgotten."""
    name = whole(name)
    if value is None:
        state.registers.pop(name, None)
    else:
        state.registers[name] = value


_LEGACY = {
    **{part: f"r{one}x" for one in "abcd" for part in (f"{one}l", f"{one}h", f"{one}x", f"e{one}x")},
    **{
        part: f"r{one}"
        for one in ("si", "di", "bp", "sp")
        for part in (f"{one}l", one, f"e{one}")
    },
}  # fmt: skip


def whole(name: str) -> str:
    """Return the 64-bit register that a register is part of."""
    if name in _LEGACY:
        return _LEGACY[name]
    return name.rstrip("bwd") if name[0] == "r" and name[1:2].isdigit() else name


def vector(name: str) -> str:
    """Return the 128-bit register that is part of a vector register."""
    return "x" + name[1:] if name[1:3] == "mm" else name
