"""What the page draws of measured rows: how often each differed and how far, by family, and what the flag costs each op."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from detmatrix.reports.matrix.model import Matrix
from detmatrix.reports.matrix.rows import times
from detmatrix.reports.render import View
from detmatrix.scanner.plurals import several

_WIDTH, _HEIGHT = 720, 220
_DECADES = 7  # of ULPs; those beyond stand at the upper edge
_BELOW = 40  # below the axis: where rows stand that differ by no ULP that is known
_SIZE = 14  # of a point
_COLOURS = 7  # of families; their letters tell them apart without
_BARS, _DEAR = 15, 1.1  # ops, and the ratio from which one is drawn


def rates(matrices: Sequence[Matrix]) -> View | None:
    """Return points of the rows that differed on a real device, by mode, and the letters of families; ``None`` if none did.

    Rows of a family in one place are one point, which leads to the first. A simulated GPU says nothing of how often.
    """
    found = [
        (number, row, mode, cell)
        for number, one in enumerate(matrices)
        for row in (() if one.simulated else one.rows)
        for mode, cell in row.shown.items()
        if cell.differing
    ]
    if not found:
        return None
    families = Counter(row.row.family for _, row, _, _ in found)
    letters = {name: _letter(place) for place, (name, _) in enumerate(families.most_common())}
    points = dict[tuple[int, int, str], dict[str, object]]()
    there, hidden = dict[tuple[int, int], dict[str, None]](), Counter[tuple[int, int, str]]()
    for number, row, mode, cell in found:
        ulp = max((it.severity.max_ulp or 0 for it in cell.outputs if it.severity), default=0)
        level = _HEIGHT * (1 - min(math.log10(ulp), _DECADES) / _DECADES) if ulp else _HEIGHT + _BELOW
        anchor = f"@{number + 1}" if len(matrices) > 1 else ""
        far = f"up to {ulp} ULP" if ulp else "by no number of ULP"
        x, y = round(_WIDTH * cell.differing / cell.runs), round(level)
        place = (x // _SIZE, y // _SIZE)
        if (*place, row.row.family) in points:
            hidden[(*place, row.row.family)] += 1
            continue
        # Families that meet in one place stand beside one another.
        beside = there.setdefault(place, {})
        beside.setdefault(row.row.family)
        points[(*place, row.row.family)] = {
            "x": x - _SIZE * [*beside].index(row.row.family),
            "y": y,
            "letter": letters[row.row.family],
            "colour": [*letters].index(row.row.family) % _COLOURS,
            "address": f"#{row.row.id}{anchor}",
            "text": f"{row.row.id}, {mode}: {cell.differing} of {cell.runs}, {far} ({row.row.family}, {row.finding})",
        }
    for point, more in hidden.items():
        points[point]["text"] = f"{points[point]['text']}, and {several(more, 'row')} more of its family"
    key = [(letters[name], place % _COLOURS, name, families[name]) for place, name in enumerate(letters)]
    size = {"width": _WIDTH, "height": _HEIGHT, "below": _BELOW}
    return View({"points": [*points.values()], "key": key}, **size, decades=range(_DECADES + 1))


def _letter(place: int) -> str:
    """Return A to Z, and from there on AA, AB."""
    first, last = divmod(place, 26)
    return f"{_letter(first - 1) if first else ''}{chr(ord('A') + last)}"


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
