"""Whether two rates of differing are told apart: Fisher's exact test, two-sided, on k of n against k of n.

Counted are executions that do not give the most frequent output of their own process, one of which cannot differ from
itself: which output came first is chance. A row that differs only between processes is counted in processes: fifty
executions of a process that chose another algorithm are one event, not fifty.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal

from msgspec import Struct

from scanner.observations.records import Mode, Observation

Unit = Literal["executions", "processes"]

LEVEL = 0.01
# Above this a difference is taken for chance; between the two a row may well have changed.
CHANCE = 0.05
# Printed wherever a p-value is.
CAVEAT = (
    f"Whether two rates differ is decided by Fisher's exact test, two-sided, at a level of "
    f"{LEVEL:g} for each row: of a hundred rows whose rates are equal, one may seem to differ. Counted are the "
    f"executions that do not give the most frequent output of their process, or processes where nothing differs within "
    f"one; of each set one is left out, which cannot differ from itself. Executions of one "
    f"process are not independent, and a process goes on to the next perturbation once ten executions have differed "
    f"under one, so that p is a guide: rates that differ are no change of class by themselves. What differs with p above "
    f"{CHANCE:g} fails no check."
)
# Stands in a run file for outputs that differed and were gone before they were digested; they need not be equal.
_OVERWRITTEN = "overwritten"
# Larger counts are scaled down to this, since a file may hold any number; fewer executions prove less, never more.
_MOST = 10_000


class Rate(Struct, frozen=True):
    """How many of those that could differ did."""

    differing: int
    compared: int

    def __str__(self) -> str:
        return f"{self.differing} of {self.compared}"


class RateTest(Struct, frozen=True):
    """The rates of one row in one mode of two runs, and how likely such a difference is if they are equal."""

    mode: Mode
    unit: Unit
    old: Rate
    new: Rate
    p: float

    @property
    def chance(self) -> bool:
        """Whether equal rates would often give such a difference."""
        return self.p > CHANCE

    @property
    def differ(self) -> bool:
        """Whether the rates are told apart."""
        return self.p < LEVEL

    def __str__(self) -> str:
        return f"{self.mode}: {self.old} → {self.new} further {self.unit} differed, p = {self.p:.2g}"


def rate_test(mode: Mode, old: Sequence[Observation], new: Sequence[Observation]) -> RateTest:
    """Compare what two runs saw of one row in one mode.

    Args:
        mode: The mode.
        old: The observations of the run before, all of which ran, by process.
        new: Those of the run after.
    """
    unit: Unit = "executions"
    before, after = _within(old), _within(new)
    if not before.differing and not after.differing:
        unit = "processes"
        before, after = _between(old), _between(new)
    return RateTest(mode, unit, before, after, fisher(before, after))


def together(tests: Sequence[RateTest]) -> RateTest | None:
    """Compare the rates of several rows of one op in one mode, all executions counted together.

    Args:
        tests: Those of the rows, all of one mode. Those that count processes are left out.

    Returns:
        The test; ``None`` if there are none that count executions.
    """
    counted = [test for test in tests if test.unit == "executions"]
    if not counted:
        return None
    before, after = (
        Rate(sum(side.differing for side in sides), sum(side.compared for side in sides))
        for sides in ([test.old for test in counted], [test.new for test in counted])
    )
    return RateTest(counted[0].mode, "executions", before, after, fisher(before, after))


def process_test(mode: Mode, old: Sequence[Observation], new: Sequence[Observation]) -> RateTest:
    """Compare in how many processes anything differed; where it did within none, how many gave another output.

    Executions of one process are not independent: what befell it befell them all.

    Args:
        mode: The mode.
        old: The observations of the run before, all of which ran, by process.
        new: Those of the run after.
    """
    test = rate_test(mode, old, new)
    if test.unit == "processes":
        return test
    before, after = (
        Rate(sum(_within([one]).differing > 0 for one in of_run), len(of_run)) for of_run in (old, new)
    )
    return RateTest(mode, "processes", before, after, fisher(before, after))


def fisher(one: Rate, other: Rate) -> float:
    """Return the two-sided p-value of Fisher's exact test.

    With the margins fixed, the p-value is the probability of all tables that are no more likely than this one. The
    weights are whole numbers, so that "no more likely" needs no tolerance.
    """
    one, other = _scaled(one), _scaled(other)
    total = one.differing + other.differing
    seen = math.comb(one.compared, one.differing) * math.comb(other.compared, other.differing)
    # Python divides whole numbers of any size correctly rounded.
    extreme = sum(weight for weight in _weights(one.compared, other.compared, total) if weight <= seen)
    return extreme / math.comb(one.compared + other.compared, total)


def _weights(one: int, other: int, total: int) -> Iterator[int]:
    """Yield in how many ways each split of *total* between samples of sizes *one* and *other* comes about."""
    low, high = max(0, total - other), min(one, total)
    weight = math.comb(one, low) * math.comb(other, total - low)
    for k in range(low, high + 1):
        yield weight
        weight = weight * (one - k) * (total - k) // ((k + 1) * (other - total + k + 1))


def _scaled(rate: Rate) -> Rate:
    if rate.compared <= _MOST:
        return rate
    return Rate(rate.differing * _MOST // rate.compared, _MOST)


def _within(observations: Sequence[Observation]) -> Rate:
    """Count the executions that did not give the most frequent output of their own process."""
    sets = [digests for one in observations for digests in one.sets.values() if digests]
    usual = (
        max((n for digest, n in digests.items() if digest != _OVERWRITTEN), default=1) for digests in sets
    )
    every = [sum(digests.values()) for digests in sets]
    return Rate(sum(every) - sum(usual), sum(every) - len(every))


def _between(observations: Sequence[Observation]) -> Rate:
    """Count the processes whose output is not the most frequent one, where nothing differs within any.

    A process that ended early lacks a set, and is held against the others by those it has.
    """
    outputs = [
        {name: next(iter(digests)) for name, digests in one.sets.items() if digests} for one in observations
    ]
    seen: dict[str, Counter[str]] = {}
    for one in outputs:
        for name, output in one.items():
            seen.setdefault(name, Counter())[output] += 1
    usual = {name: outputs_of.most_common(1)[0][0] for name, outputs_of in seen.items()}
    others = sum(any(usual[name] != output for name, output in one.items()) for one in outputs)
    # Where sets disagree about which process is the odd one, every process may be; one is the reference all the same.
    return Rate(min(others, len(outputs) - 1), len(outputs) - 1)
