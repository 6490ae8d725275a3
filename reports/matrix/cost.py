"""What determinism costs a row: the ratio of median times with the flag on and off, told with its spread.

A ratio whose two times lie within each other's quartiles is not told apart from 1: it is marked, not hidden. A row
that could not be timed has a word in its place.
"""

from __future__ import annotations

import math

from msgspec import Struct
from msgspec.structs import asdict

from scanner.observations.records import Cost, Outcome, Timing
from scanner.verdicts.cells import Verdict
from scanner.verdicts.findings import MatrixRow

TIMES = "×"  # noqa: RUF001 - the sign for "times"
APPROXIMATELY = "≈"  # stands before a ratio that is not told apart from 1
NOT_MEASURED = "not measured"
SLOW = 2.0  # the ratio from which a row is listed
# Outcomes that verdicts call otherwise.
_UNTIMED: dict[str, str] = {"raised": "error", "invalid": "error"}
_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_SIZES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_ROUNDED, _WHOLE = 10, 100  # ratios from which one and no decimal are told


class CostView(Struct, frozen=True, kw_only=True):
    """A row's timings with the ratios derived from them, as JSON has them."""

    ratio: float | None  # the median time with the flag on over that with it off; None without timings
    unfilled_ratio: float | None  # the same with fill_uninitialized_memory off
    outcome: Outcome
    message: str | None
    samples: int
    calls: int
    off: Timing | None
    on: Timing | None
    unfilled: Timing | None
    off_memory: int | None
    on_memory: int | None


class Timed(CostView, frozen=True, kw_only=True):
    """The cost of a row that was timed."""

    ratio: float
    off: Timing
    on: Timing

    @property
    def told_apart(self) -> bool:
        """Whether the two times differ by more than their spread."""
        return _apart(self.off, self.on)

    @property
    def is_slow(self) -> bool:
        """Whether the row takes at least twice as long with the flag on, by more than the spread."""
        return self.ratio >= SLOW and self.told_apart

    @property
    def filling(self) -> float | None:
        """The ratio with fill_uninitialized_memory off, if filling makes a difference of more than the spread."""
        unfilled = self.unfilled
        return self.unfilled_ratio if unfilled is not None and _apart(self.on, unfilled) else None

    @property
    def flag(self) -> float:
        """The ratio without what filling takes, and 1 where the times are not told apart: that is no difference."""
        timing = self.on if self.filling is None else self.unfilled
        return (timing.median / self.off.median) if timing and _apart(self.off, timing) else 1.0

    @property
    def spread(self) -> tuple[float, float]:
        """The ratios that the quartiles of both times leave plausible."""
        high = self.on.high / self.off.low if self.off.low else math.inf
        return self.on.low / self.off.high, high


def cost_view(cost: Cost | None) -> CostView | None:
    """Return a row's timings with their ratios; ``None`` if it has no record of any."""
    if cost is None:
        return None
    recorded = {name: getattr(cost, name) for name in CostView.__struct_fields__[2:]}
    view = CostView(ratio=ratio_of(cost), unfilled_ratio=_over(cost.unfilled, cost.off), **recorded)
    return view if view.ratio is None else Timed(**asdict(view))


def timed(row: MatrixRow) -> Timed | None:
    """Return a row's timings; ``None`` if it has none."""
    view = cost_view(row.cost)
    return view if isinstance(view, Timed) else None


def ratio_of(cost: Cost | None) -> float | None:
    """Return the median time with the flag on over that with it off; ``None`` without timings."""
    return _over(cost.on, cost.off) if cost is not None else None


def cost_words(row: MatrixRow) -> str:
    """Return the cost of a row as a table shows it."""
    return cost_text(cost_view(row.cost), row.on.verdict)


def cost_text(cost: CostView | None, on: Verdict) -> str:
    """Return a cost as a table shows it, or in a word why there is none of a row with this verdict."""
    if isinstance(cost, Timed):
        return ratio_words(cost) + (f" (fill off: {times(cost.filling)})" if cost.filling is not None else "")
    if on == "raises":
        return "none: raises"
    if cost is None or cost.outcome == "ran":
        return NOT_MEASURED
    return f"none: {_UNTIMED.get(cost.outcome, cost.outcome)}"


def ratio_words(one: Timed) -> str:
    """Return a ratio, marked where the spread of the times could make it 1."""
    return f"{'' if one.told_apart else APPROXIMATELY}{times(one.ratio)}"


def times(ratio: float | None) -> str:
    """Return a ratio with as many digits as it deserves."""
    if ratio is None:
        return NOT_MEASURED
    digits = 2 if ratio < _ROUNDED else 1 if ratio < _WHOLE else 0
    return f"{ratio:.{digits}f}{TIMES}"


def spread_words(one: Timed) -> str:
    """Return the ratios that the quartiles of both times leave plausible."""
    low, high = one.spread
    return f"{times(low)} to {times(high)}" if math.isfinite(high) else f"{times(low)} and more"


def duration(timing: Timing) -> str:
    """Return a median with its quartiles, "12.3 µs (12.1 to 12.9)"."""
    unit, name = next(((unit, name) for unit, name in _UNITS if timing.median >= unit), _UNITS[-1])
    median, low, high = (f"{value / unit:.3g}" for value in (timing.median, timing.low, timing.high))
    return f"{median} {name} ({low} to {high})"


def memory(count: int | None) -> str:
    """Return bytes in the largest unit that fits."""
    if count is None:
        return NOT_MEASURED
    unit, name = next(((unit, name) for unit, name in _SIZES if count >= unit), (1, "bytes"))
    return f"{count / unit:.3g} {name}" if unit > 1 else f"{count} {name}"


def _over(one: Timing | None, other: Timing | None) -> float | None:
    return one.median / other.median if one and other and other.median else None


def _apart(one: Timing, other: Timing) -> bool:
    return one.high < other.low or other.high < one.low
