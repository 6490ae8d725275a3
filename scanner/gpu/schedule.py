"""Classes of freedom: which orders CUDA leaves open, each alone, and how one is drawn.

Everything that is not of a class stays canonical: blocks, warps and lanes ascending, the highest lane winning a store, the path
at the lowest address first. A row reports the first class that shows other bits.
"""

from __future__ import annotations

from hashlib import sha256

from detmatrix.scanner.schedules import DIRECTED, EVERYTHING, SCOPES

_ASCENDING, _DESCENDING, _ODD_FIRST, _FIRST_LAST, _DRAWN, _INTERLEAVED = range(6)
# Of the first executions of a class; those after them draw. The third does, too: a lost update shows in turns alone.
_DIRECTED = (_DESCENDING, _ODD_FIRST, _INTERLEAVED, _FIRST_LAST)
# What memory, registers and shared memory hold that nobody wrote: NaN in every format of floats.
UNWRITTEN = 0x7FFA7FFA

# Pairs of accesses in conflict that are kept of each scope and sort, to be tried alone.
MOST_PAIRS = 8


def orders_of(name: str, number: int, seed: int, ordinal: int) -> tuple[int, int, int, int, int, int, int]:
    """Return how blocks, warps, lanes and paths are ordered in one launch, as ``engine.Orders``.

    The first execution of a class takes the order that is the reverse of the canonical one, which swaps all pairs; the second
    lets odd blocks, warps or lanes come before even ones, the third switches between blocks or warps at drawn instructions, the
    fourth holds up the first of them until all others have ended. Those after them draw orders, and every other one switches, too.
    The *number* is that of the execution within the class, *ordinal* that of the launch within the execution.
    """
    drawn = int.from_bytes(sha256(f"{name}|{number}|{seed}|{ordinal}".encode()).digest()[:8], "little")
    how = _DIRECTED[number] if number < DIRECTED else _INTERLEAVED if number % 2 else _DRAWN
    # Of two paths there are two orders, and which block comes first is no matter of who is resident.
    fewer = how if how in (_DESCENDING, _INTERLEAVED) else _DRAWN
    free = {
        "resident-blocks": (how, 0, 0, 0, 0),
        "warps": (0, how, 0, 0, 0),
        "both": (how, how, 0, 0, 0),
        "any-blocks": (fewer, 0, 0, 0, 1),
        "lanes": (0, 0, how, 0, 0),
        "divergence": (0, 0, 0, fewer, 0),
    }
    if name.startswith(EVERYTHING):
        scopes = name.partition(":")[2].split(",")
        blocks, warps, lanes = (how * (scope in scopes) for scope in SCOPES)
        free[name] = (blocks, warps, lanes, fewer * (lanes > 0), int(blocks > 0))
    filled = drawn & 0xFFFFFFFF if name == "memory" else UNWRITTEN
    return (*free.get(name, (0, 0, 0, 0, 0)), filled, drawn)
