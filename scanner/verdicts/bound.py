"""What 0 of n leaves possible, where executions in one process depend on each other.

How often a row differs varies from process to process: one that hardly races in this process may race freely in the next.
The rates of processes are taken to be spread as a beta distribution, so that each further execution of a process says less
than the one before; with a correlation of 0 all would count the same, with 1 a process would count as one execution.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

# The intra-class correlation of executions in one process: `tests/benchmarks/dependence.py` estimates it from the recorded
# runs, of rows and sentinels that do race. This is that of CPUs; on an H100 it was 0.14.
CORRELATION = 0.3
# The chance that is left to a row of a larger rate to be seen as it was.
_CHANCE = 0.05
# The parameters of the beta distribution add up to this.
_WEIGHT = (1 - CORRELATION) / CORRELATION
_STEPS = 50


def chance_unseen(rate: float, executions: Sequence[int]) -> float:
    """Return the probability that nothing differs although a row does, in *rate* (below 1) of its executions on average.

    The very first of the executions of the first process is what the others are compared with.
    """
    rest = (1 - rate) * _WEIGHT
    return math.exp(
        sum(
            processes
            * (
                math.lgamma(rest + count)
                - math.lgamma(rest)
                - math.lgamma(_WEIGHT + count)
                + math.lgamma(_WEIGHT)
            )
            for count, processes in Counter(_compared(executions)).items()
        )
    )


@lru_cache(maxsize=1 << 12)
def upper_bound(executions: tuple[int, ...]) -> float:
    """Return the largest rate of differing that 0 of the *executions* of each process leaves plausible at 95 %."""
    if not any(_compared(executions)):
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(_STEPS):
        rate = (low + high) / 2
        low, high = (rate, high) if chance_unseen(rate, executions) > _CHANCE else (low, rate)
    return low


def effective(executions: tuple[int, ...]) -> float:
    """Return how many independent executions would give the bound: it is ``1 - 0.05 ** (1 / n)`` of this n."""
    bound = upper_bound(executions)
    return math.log(_CHANCE) / math.log1p(-bound) if bound < 1 else 0.0


def executed_words(executions: Sequence[int]) -> str:
    """Return n and how many processes share it, in words."""
    count = len(executions)
    return f"n = {sum(executions)} in {'one process' if count == 1 else f'{count} processes'}"


def _compared(executions: Sequence[int]) -> list[int]:
    """Return how many executions of each process were compared with the very first."""
    first, *others = executions
    return [first - 1, *others]
