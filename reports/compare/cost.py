"""What the flag costs in two runs: ratios within each run, held against one another; times never are."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from msgspec import Struct

from reports.compare.rows.judged import Change
from reports.matrix.cost import Timed, timed

# A ratio that grew or shrank by less is not listed.
FACTOR = 1.5
MEANING = (
    f"Cost is the median time with the flag on over that with it off, in one process of one run; times of two runs are "
    f"never compared. Listed are the rows whose ratio grew or shrank by more than {FACTOR:g} times "
    f"while the ratios that the quartiles leave plausible do not overlap. Each row was timed once in each run and is "
    f"never timed again, so that all of these changes are unconfirmed."
)


class CostChange(Struct, frozen=True):
    """A row that was timed in both runs."""

    change: Change
    old: Timed
    new: Timed

    @property
    def factor(self) -> float:
        """The later ratio over the earlier one."""
        return self.new.ratio / self.old.ratio

    @property
    def told_apart(self) -> bool:
        """Whether the ratios differ by more than the factor and by more than their spread."""
        (low, high), (later_low, later_high) = self.old.spread, self.new.spread
        return max(self.factor, 1 / self.factor) > FACTOR and (high < later_low or later_high < low)


class CostComparison(Struct, frozen=True):
    """The cost of the flag over all rows that both runs timed."""

    rows: int
    old_median: float | None  # of the ratios of those rows; None: there are none
    new_median: float | None
    listed: tuple[CostChange, ...]  # whose ratio changed, that which changed most first


def compare_costs(changes: Iterable[Change]) -> CostComparison:
    """Compare the ratios of the rows that compute the same in both runs."""
    both = []
    for change in changes:
        if change.old is None or change.new is None:
            continue
        old, new = timed(change.old), timed(change.new)
        if old is not None and new is not None and old.ratio and new.ratio:
            both.append(CostChange(change, old, new))
    listed = [one for one in both if one.told_apart]
    listed.sort(key=lambda one: (-max(one.factor, 1 / one.factor), one.change.row.row.id))
    return CostComparison(
        len(both),
        statistics.median(one.old.ratio for one in both) if both else None,
        statistics.median(one.new.ratio for one in both) if both else None,
        tuple(listed),
    )
