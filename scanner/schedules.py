"""The classes of freedom of a simulated GPU: which orders an execution may take, and how many executions get which.

Each class is free by itself; everything not of the class stays canonical. They stand weakest first, so that the first one
that gives other bits is the least that is needed for it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True)
class Freedom:
    """What is free in the executions of one class."""

    meaning: str
    # Whether GPUs are known to take such orders; else CUDA permits them, and no known GPU does.
    headline: bool = True


CANONICAL, MEMORY = "canonical", "memory"
FREEDOMS: dict[str, Freedom] = {
    CANONICAL: Freedom("blocks, warps and lanes ascend; memory that nobody wrote holds NaN"),
    MEMORY: Freedom("canonical order; memory that nobody wrote holds other bits each time"),
    "resident-blocks": Freedom("blocks that are resident at once run in any order and take turns"),
    "warps": Freedom("the warps of a block run in any order between barriers, block after block"),
    "both": Freedom("resident blocks and their warps run in any order"),
    "any-blocks": Freedom("blocks become resident in any order", headline=False),
    "lanes": Freedom("the lanes of one atomic operation or store take effect in any order", headline=False),
    "divergence": Freedom("the divergent paths of a warp run in any order", headline=False),
}
SCHEDULES = tuple(FREEDOMS)
# What a worker asks for to see whether one pair of accesses, in the other order, shows the difference by itself.
PAIR = "pair"
# All orders free at once among the scopes that stand behind a colon: those in which the conflict log found nothing.
EVERYTHING = "everything"
# So many executions of a class come before those that draw orders.
DIRECTED = 4
PERMITTED = "CUDA permits it, no known GPU does it"
# Two canonical executions, one with other memory, and one that may differ.
LEAST_RUNS = 4


# The classes that may change anything where two threads are in conflict: of two blocks, of two warps of a block, of one warp.
SCOPES = ("blocks", "warps", "lanes")
_CHANGED: dict[str, frozenset[str]] = {
    "resident-blocks": frozenset({"blocks"}),
    "warps": frozenset({"warps"}),
    "both": frozenset({"blocks", "warps"}),
    "any-blocks": frozenset({"blocks"}),
    "lanes": frozenset({"lanes"}),
    "divergence": frozenset({"lanes"}),
}


def split(runs: int, scopes: Collection[str] = SCOPES) -> dict[str, int]:
    """Return how many of *runs* executions each class gets: canonical two, memory one, the others in turns.

    A class that can change nothing in the *scopes* in which threads are in conflict gets none.
    """
    counts = dict.fromkeys(SCHEDULES, 0)
    counts[CANONICAL] = min(runs, 2)
    counts[MEMORY] = int(runs > 2)  # noqa: PLR2004
    orders = [name for name in SCHEDULES[2:] if _CHANGED[name] <= set(scopes)]
    for number in range(runs - 3 if orders else 0):
        counts[orders[number % len(orders)]] += 1
    return counts


def phrase(schedule: str) -> str:
    """Name a class to readers: "resident blocks"."""
    return "blocks and warps" if schedule == "both" else schedule.replace("-", " ")


def shown_in(schedule: str, scope: str) -> bool:
    """Tell whether a class may show a conflict of this scope."""
    return scope in _CHANGED.get(schedule, ())
