"""The chart of the HTML page: what the flag costs each timed row, sorted, on a logarithmic scale.

The drawing is a handful of SVG paths, however many rows there are, stretched to the page's width; its labels are
text of the page, which does not stretch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct

from reports.matrix import cost
from reports.matrix.cost import Timed
from scanner.verdicts.findings import MatrixRow

SIDE = 1000  # of the drawing, in its own units
_LOWEST, _HIGHEST = -1, 2  # powers of 2 that are always on the scale
_LABELS = 8  # at most, roughly


class Tick(Struct, frozen=True):
    """A line across the chart."""

    ratio: str
    top: float  # from the top, in percent
    strong: bool  # 1 and 2: as fast, and half as fast


class Bar(Struct, frozen=True):
    """A row that takes at least twice as long."""

    id: str
    ratio: str
    width: float  # in percent, on the chart's scale from 1 on
    off: str
    on: str
    spread: str
    unfilled: str
    memory: str


class Chart(Struct, frozen=True):
    """What the page draws of one run."""

    dots: str  # path: one point per row
    spreads: str  # path: one line per row, from quartile to quartile
    unfilled: str  # path: one dash per row in which filling makes a difference
    ticks: tuple[Tick, ...]
    bars: tuple[Bar, ...]
    memory: bool  # whether any memory was measured


def chart(rows: Sequence[MatrixRow]) -> Chart | None:
    """Return the chart of the timed rows, the slowest at the left; ``None`` if there are none."""
    found = cost.all_timed(rows)
    if not found:
        return None
    drawn = [ratio for it in found for ratio in (it.ratio, it.filling) if ratio]
    low = min(_LOWEST, *(math.floor(math.log2(ratio)) for ratio in drawn))
    high = max(_HIGHEST, *(math.ceil(math.log2(ratio)) for ratio in drawn))

    def y(ratio: float) -> float:
        power = math.log2(ratio) if ratio > 0 else low
        return round(SIDE * (high - min(max(power, low), high)) / (high - low), 1)

    xs = [round(SIDE * (place + 0.5) / len(found), 1) for place in range(len(found))]
    placed = list(zip(xs, found, strict=True))
    half = round(min(SIDE / len(found) / 2, 8), 1)
    step = max(1, round((high - low) / _LABELS))
    return Chart(
        dots="".join(f"M{x:g} {y(it.ratio):g}h.1" for x, it in placed),
        spreads="".join(f"M{x:g} {y(it.spread[0]):g}V{y(it.spread[1]):g}" for x, it in placed),
        unfilled="".join(f"M{x - half:g} {y(it.filling):g}h{2 * half:g}" for x, it in placed if it.filling),
        ticks=tuple(
            Tick(_label(power), round(y(2.0**power) * 100 / SIDE, 1), power in {0, 1})
            for power in range(high, low - 1, -1)
            if power in {0, 1} or power % step == 0
        ),
        bars=tuple(_bar(it, high) for it in cost.slow(found)),
        memory=any(it.cost.on_memory is not None for it in found),
    )


def _label(power: int) -> str:
    """Return a power of 2 as the scale shows it: a fraction stays short however small it is."""
    return f"{2**power if power >= 0 else f'1/{2**-power}'}{cost.TIMES}"


def _bar(one: Timed, high: int) -> Bar:
    off, on = one.cost.off_memory, one.cost.on_memory
    return Bar(
        id=one.row.row.id,
        ratio=cost.ratio_words(one),
        width=round(100 * math.log2(one.ratio) / high, 1),
        off=cost.duration(one.off),
        on=cost.duration(one.on),
        spread=cost.spread_words(one),
        unfilled=cost.unfilled_words(one),
        memory="not measured" if off is None or on is None else f"{cost.memory(off)}, {cost.memory(on)}",
    )
