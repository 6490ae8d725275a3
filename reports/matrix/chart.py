"""What the flag costs the rows of a run: in a sentence, the slow ones, and drawn on a logarithmic scale.

The drawing is a handful of SVG paths, however many rows there are, stretched to the page's width; its labels are
text of the page, which does not stretch.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence

from msgspec import Struct

from reports.matrix.cost import SLOW, TIMES, Timed, duration, memory, ratio_words, spread_words, times
from reports.matrix.trust import TableSection
from reports.matrix.view import RowView

SIDE = 1000  # of the drawing, in its own units
_LOWEST, _HIGHEST = -1, 2  # powers of 2 that are always on the scale
_LABELS = 8  # at most, roughly
# Matters to CUDA alone: both times are taken in one process, whose environment is that of the mode on.
_WORKSPACE = (
    ' "off" was timed in a process that has CUBLAS_WORKSPACE_CONFIG set, as "on" needs it: against a process without '
    "it the flag may cost more or less."
)


class Tick(Struct, frozen=True):
    """A line across the chart."""

    ratio: str
    top: float  # from the top, in percent
    strong: bool  # 1 and 2: as fast, and half as fast


class Chart(Struct, frozen=True):
    """What the page draws of one run."""

    dots: str  # path: one point per row
    spreads: str  # path: one line per row, from quartile to quartile
    unfilled: str  # path: one dash per row in which filling makes a difference
    ticks: list[Tick]
    widths: list[float]  # of the bars of the slow rows: in percent, on the chart's scale from 1 on
    memory: bool  # whether any memory was measured


def timed(rows: Sequence[RowView]) -> list[tuple[str, Timed]]:
    """Return the rows that were timed, by their ids, the slowest with the flag on first."""
    found = [(row.id, row.cost) for row in rows if isinstance(row.cost, Timed)]
    return sorted(found, key=lambda one: (-one[1].ratio, one[0]))


def costs(rows: Sequence[RowView]) -> TableSection:
    """Say how many rows were timed and why others were not, and table those that take at least twice as long."""
    found = timed(rows)
    untimed = Counter(row.cost_words for row in rows if not isinstance(row.cost, Timed))
    rest = ", ".join(f"{count} {word.removeprefix('none: ')}" for word, count in untimed.most_common())
    heads = (
        "row",
        "off",
        "on",
        "ratio",
        "between quartiles",
        "fill off",
        "peak memory off",
        "peak memory on",
    )
    if not found:
        rest = f" ({rest})" if rest else ""
        return TableSection(f"The cost of the flag was not measured in any of these rows{rest}.", heads, [])
    ratios = [one.ratio for _, one in found]
    slow = [(row, one) for row, one in found if one.is_slow]
    filled = sum(one.flag < SLOW for _, one in slow)
    text = (
        f"{len(slow)} of {len(found)} timed rows shown here {'takes' if len(slow) == 1 else 'take'} at least twice as "
        f"long with the flag on{f', {filled} of them through the fill of uninitialized memory' if filled else ''}; the "
        f"median ratio is {times(statistics.median(ratios))}, the highest {times(ratios[0])}."
        f"{f' Without a cost: {rest}.' if rest else ''}"
        f"{_WORKSPACE if any(row.device.startswith('cuda') and isinstance(row.cost, Timed) for row in rows) else ''}"
    )
    return TableSection(text, heads, [_line(*one) for one in slow])


def _line(row: str, one: Timed) -> tuple[str, ...]:
    ratios = (ratio_words(one), spread_words(one), times(one.unfilled_ratio))
    return row, duration(one.off), duration(one.on), *ratios, memory(one.off_memory), memory(one.on_memory)


def chart(rows: Sequence[RowView]) -> Chart | None:
    """Return the chart of the timed rows, the slowest at the left; ``None`` if there are none."""
    found = [one for _, one in timed(rows)]
    if not found:
        return None
    drawn = [ratio for it in found for ratio in (it.ratio, it.filling) if ratio]
    low = min(_LOWEST, *(math.floor(math.log2(ratio)) for ratio in drawn))
    high = max(_HIGHEST, *(math.ceil(math.log2(ratio)) for ratio in drawn))

    def y(ratio: float) -> float:
        power = math.log2(ratio) if ratio > 0 else low
        return round(SIDE * (high - min(max(power, low), high)) / (high - low), 1)

    placed = [(round(SIDE * (place + 0.5) / len(found), 1), it) for place, it in enumerate(found)]
    half = round(min(SIDE / len(found) / 2, 8), 1)
    step = max(1, round((high - low) / _LABELS))
    return Chart(
        dots="".join(f"M{x:g} {y(it.ratio):g}h.1" for x, it in placed),
        spreads="".join(f"M{x:g} {y(it.spread[0]):g}V{y(it.spread[1]):g}" for x, it in placed),
        unfilled="".join(f"M{x - half:g} {y(it.filling):g}h{2 * half:g}" for x, it in placed if it.filling),
        ticks=[
            # A fraction stays short however small it is.
            Tick(
                f"{2**power if power >= 0 else f'1/{2**-power}'}{TIMES}",
                round(y(2.0**power) * 100 / SIDE, 1),
                power in {0, 1},
            )
            for power in range(high, low - 1, -1)
            if power in {0, 1} or power % step == 0
        ],
        widths=[round(100 * math.log2(it.ratio) / high, 1) for it in found if it.is_slow],
        memory=any(it.on_memory is not None for it in found),
    )
