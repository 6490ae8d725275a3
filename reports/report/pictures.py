"""What the page draws of measured rows: how often each differed and how far, and what the flag costs each op."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from detmatrix.reports.matrix.model import Matrix
from detmatrix.reports.matrix.rows import times
from detmatrix.reports.render.json import View
from detmatrix.scanner.plurals import several

_WIDTH, _HEIGHT = 720, 220
_DECADES = 7  # of ULPs; those beyond stand at the upper edge
_BARS, _DEAR = 15, 1.1  # ops, and the ratio from which one is drawn


def rates(matrices: Sequence[Matrix]) -> View | None:
    """Return a point for each row and mode that differed in executions on a real device; ``None`` if none did.

    A simulated GPU says nothing of how often. What is left out for want of a distance is counted.
    """
    points, unknown = [], 0
    for number, one in enumerate(matrices):
        for row in () if one.simulated else one.rows:
            for mode, cell in row.shown.items():
                if not cell.within:
                    continue
                known = [it.severity.max_ulp for it in cell.outputs if it.severity]
                ulps = [ulp for ulp in known if ulp]
                if not ulps:
                    unknown += 1
                    continue
                ulp, anchor = max(ulps), f"@{number + 1}" if len(matrices) > 1 else ""
                points.append(
                    {
                        "x": round(_WIDTH * cell.differing / cell.runs),
                        "y": round(_HEIGHT * (1 - min(math.log10(ulp), _DECADES) / _DECADES)),
                        "finding": row.finding,
                        "address": f"#{row.row.id}{anchor}",
                        "text": f"{row.row.id}, {mode}: {cell.differing} of {cell.runs}, up to {ulp} ULP",
                    }
                )
    if not points:
        return None
    more = f" {several(unknown, 'further row')} of integers or of no distance." if unknown else ""
    return View({"points": points, "more": more}, width=_WIDTH, height=_HEIGHT, decades=range(_DECADES + 1))


def costs(ops: Iterable[View]) -> list[tuple[str, str, int]]:
    """Return the ops whose dearest row takes longer with the flag on, each with its ratio and a width in percent, on a log scale."""
    dear = sorted(
        ((op["cost"]["high"], op["name"]) for op in ops if op["cost"] and op["cost"]["high"] >= _DEAR),
        reverse=True,
    )[:_BARS]
    return [
        (name, times(ratio), max(round(100 * math.log(ratio) / math.log(dear[0][0])), 1))
        for ratio, name in dear
    ]
