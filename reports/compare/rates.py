"""Whether two rates of differing are told apart, and how far bits moved.

Rates: Fisher's exact test, two-sided, on k of n against k of n. Counted are executions that do not give the most frequent
output of their own process, one of which cannot differ from itself: which output came first is chance. A row that differs
only between processes is counted in processes: fifty executions of a process that chose another algorithm are one event.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Literal

from msgspec import Struct

from detmatrix.scanner.observations.records import Mode, Observation
from detmatrix.scanner.plurals import several
from detmatrix.scanner.verdicts.findings import MatrixRow

Unit = Literal["executions", "processes"]

LEVEL = 0.01
# Above this a difference is taken for chance; between the two a row may well have changed.
CHANCE = 0.05
# Printed wherever a p-value is.
CAVEAT = (
    f"Two rates differ if Fisher's exact test says so, two-sided, at a level of {LEVEL:g} for each row: of a hundred rows with "
    f"equal rates, one may seem to differ. The test counts executions whose output is not the most frequent of their process "
    f"or, where nothing differs within a process, processes; it leaves out one of each set, which cannot differ from itself. "
    f"p is a guide: executions of one process are not independent, and a process goes on to the next perturbation after ten "
    f"differences. Rates that differ are no change of class by themselves. A difference with p above {CHANCE:g} fails no check."
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


class RateTest(Struct, frozen=True, dict=True):
    """The rates of one row in one mode of two runs."""

    mode: Mode
    unit: Unit
    old: Rate
    new: Rate

    @cached_property
    def p(self) -> float:
        """How likely such a difference is, or a larger one, if the rates are equal."""
        return fisher(self.old, self.new)

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
    """Compare what two runs saw of one row in one mode: observations that all ran, by process."""
    unit: Unit = "executions"
    before, after = _within(old), _within(new)
    if not before.differing and not after.differing:
        unit = "processes"
        before, after = _between(old), _between(new)
    return RateTest(mode, unit, before, after)


def together(tests: Sequence[RateTest]) -> RateTest | None:
    """Compare the rates of several rows of one op in one mode together; ``None`` where no test counts executions."""
    counted = [test for test in tests if test.unit == "executions"]
    if not counted:
        return None
    sides = (
        Rate(sum(one.differing for one in side), sum(one.compared for one in side))
        for side in zip(*((test.old, test.new) for test in counted), strict=True)
    )
    return RateTest(counted[0].mode, "executions", *sides)


def process_test(mode: Mode, old: Sequence[Observation], new: Sequence[Observation]) -> RateTest:
    """Compare in how many processes anything differed; where it did within none, how many gave another output.

    Executions of one process are not independent: what befell it befell them all.
    """
    test = rate_test(mode, old, new)
    if test.unit == "processes":
        return test
    sides = (Rate(sum(_within([one]).differing > 0 for one in run), len(run)) for run in (old, new))
    return RateTest(mode, "processes", *sides)


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


# dtype -> the bits of infinity, of one of its components: below lie the finite numbers, in their order, as IEEE 754 and
# bfloat16 (the upper half of a float32) have it. The bit above is the sign.
_INFINITY = {
    "float16": 0x7C00,
    "complex32": 0x7C00,
    "bfloat16": 0x7F80,
    "float32": 0x7F800000,
    "complex64": 0x7F800000,
    "float64": 0x7FF0000000000000,
    "complex128": 0x7FF0000000000000,
}


class Moved(Struct, frozen=True, kw_only=True):
    """What the samples of a row in a mode tell; the numbers that were not sampled may have moved further."""

    sampled: int  # numbers
    moved: int  # of those have other bits
    at_least_ulp: int | None  # the farthest; None: no pair of finite floating-point numbers is among them

    @property
    def words(self) -> str:
        """Say it."""
        among = several(self.sampled, "sampled number")
        if self.at_least_ulp:
            return f"at least {self.at_least_ulp} ULP in {among}"
        return f"{self.moved} of {among} moved"


def moved(old: MatrixRow, new: MatrixRow, mode: Mode) -> Moved | None:
    """Return how far the bits of a row moved; ``None`` where the runs hold no samples of the same outputs of the same inputs."""
    before, after = (_sampled(one for one in row.observations if one.mode == mode) for row in (old, new))
    if before is None or after is None or before.inputs_digest != after.inputs_digest:
        return None
    known = {(one.name, one.shape, one.dtype): one.sample.split() for one in before.outputs}
    pairs = [
        (one.dtype, int(left, 16), int(right, 16))
        for one in after.outputs
        if len(sample := known.get((one.name, one.shape, one.dtype), [])) == len(one.sample.split())
        for left, right in zip(sample, one.sample.split(), strict=True)
    ]
    steps = [ulp for dtype, left, right in pairs if (ulp := _steps(dtype, left, right)) is not None]
    unequal = sum(left != right for _, left, right in pairs)
    return Moved(sampled=len(pairs), moved=unequal, at_least_ulp=max(steps, default=None)) if pairs else None


def _sampled(observations: Iterable[Observation]) -> Observation | None:
    """Return the observation that holds samples, of known inputs."""
    of = (one for one in observations if one.inputs_digest and any(it.sample for it in one.outputs))
    return next(of, None)


def _steps(dtype: str, left: int, right: int) -> int | None:
    """Return how many numbers a dtype has from one to the other; ``None`` of integers, infinities and NaN."""
    infinity = _INFINITY.get(dtype)
    if infinity is None:
        return None
    sign = 1 << infinity.bit_length()
    sizes = [bits & (sign - 1) for bits in (left, right)]
    if max(sizes) >= infinity or max(left, right) >= 2 * sign:
        return None
    one, other = (-size if bits & sign else size for bits, size in zip((left, right), sizes, strict=True))
    return abs(one - other)
