"""What determinism costs: ratios of median times with the flag on and off, told with their spread.

A ratio whose two times lie within each other's quartiles is not told apart from 1: it is marked, not hidden. A row
that could not be timed has a word in its place.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable

from msgspec import Struct

from scanner.observations.records import Cost, Timing
from scanner.verdicts.findings import MatrixRow

TIMES = "×"  # noqa: RUF001 - the sign for "times"
NOT_MEASURED = "not measured"
SLOW = 2.0  # the ratio from which a row is listed
FIELDS = (
    "ratio",
    "unfilled_ratio",
    "off_median",
    "on_median",
    "unfilled_median",
    "off_memory",
    "on_memory",
)
# Outcomes that verdicts call otherwise.
_UNTIMED: dict[str, str] = {"raised": "error", "invalid": "error"}
_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_SIZES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
# Matters to CUDA alone: both times are taken in one process, whose environment is that of the mode on.
_WORKSPACE = (
    ' "off" was timed in a process that has CUBLAS_WORKSPACE_CONFIG set, as "on" needs it: against a process without '
    "it the flag may cost more or less."
)
_ROUNDED, _WHOLE = 10, 100  # ratios from which one and no decimal are told


class Timed(Struct, frozen=True):
    """A row that was timed."""

    row: MatrixRow
    cost: Cost
    off: Timing
    on: Timing
    ratio: float
    unfilled: float | None  # the ratio with fill_uninitialized_memory off

    @property
    def told_apart(self) -> bool:
        """Whether the two times differ by more than their spread."""
        return _apart(self.off, self.on)

    @property
    def filling(self) -> float | None:
        """The ratio with fill_uninitialized_memory off, if filling makes a difference of more than the spread."""
        unfilled = self.cost.unfilled
        return self.unfilled if unfilled is not None and _apart(self.on, unfilled) else None

    @property
    def spread(self) -> tuple[float, float]:
        """The ratios that the quartiles of both times leave plausible."""
        high = self.on.high / self.off.low if self.off.low else math.inf
        return self.on.low / self.off.high, high


def timed(row: MatrixRow) -> Timed | None:
    """Return a row's timings; ``None`` if it has none."""
    cost = row.cost
    ratio = ratio_of(cost)
    if cost is None or cost.off is None or cost.on is None or ratio is None:
        return None
    return Timed(row, cost, cost.off, cost.on, ratio, _over(cost.unfilled, cost.off))


def ratio_of(cost: Cost | None) -> float | None:
    """Return the median time with the flag on over that with it off; ``None`` without timings."""
    return _over(cost.on, cost.off) if cost is not None else None


def all_timed(rows: Iterable[MatrixRow]) -> list[Timed]:
    """Return the rows that were timed, the slowest with the flag on first."""
    found = [one for one in map(timed, rows) if one is not None]
    return sorted(found, key=lambda one: (-one.ratio, one.row.row.id))


def slow(rows: Iterable[Timed]) -> list[Timed]:
    """Return those that take at least twice as long with the flag on."""
    return [one for one in rows if one.ratio >= SLOW]


def cost_words(row: MatrixRow) -> str:
    """Return the cost of a row as a table shows it."""
    one = timed(row)
    if one is None:
        return untimed_words(row)
    text = ratio_words(one)
    return text if one.filling is None else f"{text} (fill off: {times(one.filling)})"


def untimed_words(row: MatrixRow) -> str:
    """Say in a word why a row has no cost."""
    if row.on.verdict == "raises":
        return "none: raises"
    if row.cost is None or row.cost.outcome == "ran":
        return NOT_MEASURED
    return f"none: {_UNTIMED.get(row.cost.outcome, row.cost.outcome)}"


def ratio_words(one: Timed) -> str:
    """Return a ratio, marked where the spread of the times could make it 1."""
    return f"{'' if one.told_apart else '≈'}{times(one.ratio)}"


def times(ratio: float) -> str:
    """Return a ratio with as many digits as it deserves."""
    digits = 2 if ratio < _ROUNDED else 1 if ratio < _WHOLE else 0
    return f"{ratio:.{digits}f}{TIMES}"


def unfilled_words(one: Timed) -> str:
    """Return the ratio with fill_uninitialized_memory off."""
    return NOT_MEASURED if one.unfilled is None else times(one.unfilled)


def spread_words(one: Timed) -> str:
    """Return the ratios that the quartiles of both times leave plausible."""
    low, high = one.spread
    return f"{times(low)} to {times(high)}" if math.isfinite(high) else f"{times(low)} and more"


def duration(timing: Timing | None) -> str:
    """Return a median with its quartiles, "12.3 µs (12.1 to 12.9)"."""
    if timing is None:
        return NOT_MEASURED
    unit, name = next(((unit, name) for unit, name in _UNITS if timing.median >= unit), _UNITS[-1])
    median, low, high = (f"{value / unit:.3g}" for value in (timing.median, timing.low, timing.high))
    return f"{median} {name} ({low} to {high})"


def memory(count: int | None) -> str:
    """Return bytes in the largest unit that fits."""
    if count is None:
        return NOT_MEASURED
    unit, name = next(((unit, name) for unit, name in _SIZES if count >= unit), (1, "bytes"))
    return f"{count / unit:.3g} {name}" if unit > 1 else f"{count} {name}"


def summary(rows: Iterable[MatrixRow]) -> str:
    """Say how many rows were timed, how many are slow, and why the others were not timed."""
    rows = list(rows)
    found = all_timed(rows)
    untimed = Counter(untimed_words(row) for row in rows if timed(row) is None)
    rest = ", ".join(f"{count} {word.removeprefix('none: ')}" for word, count in untimed.most_common())
    if not found:
        return f"The cost of the flag was not measured in any of these rows{f' ({rest})' if rest else ''}."
    ratios = [one.ratio for one in found]
    number = len(slow(found))
    take = "takes" if number == 1 else "take"
    return (
        f"{number} of {len(found)} timed rows shown here {take} at least twice as long with the flag on; the "
        f"median ratio is {times(statistics.median(ratios))}, the highest {times(ratios[0])}."
        f"{f' Without a cost: {rest}.' if rest else ''}"
        f"{_WORKSPACE if any(one.row.row.device.startswith('cuda') for one in found) else ''}"
    )


def fields(cost: Cost | None) -> dict[str, float | None]:
    """Return a row's cost for the flat table, as ``FIELDS``."""
    if cost is None:
        return dict.fromkeys(FIELDS)
    medians = {
        f"{name}_median": timing.median if timing else None
        for name, timing in (("off", cost.off), ("on", cost.on), ("unfilled", cost.unfilled))
    }
    return {
        "ratio": ratio_of(cost),
        "unfilled_ratio": _over(cost.unfilled, cost.off),
        **medians,
        "off_memory": cost.off_memory,
        "on_memory": cost.on_memory,
    }


def _over(one: Timing | None, other: Timing | None) -> float | None:
    return one.median / other.median if one and other and other.median else None


def _apart(one: Timing, other: Timing) -> bool:
    return one.high < other.low or other.high < one.low
