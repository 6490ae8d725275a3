"""Which ops of two runs belong together, each known by a key, and where the runs part."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

# So many ops in a row must agree before two runs are said to go on together.
_TOGETHER = 8
# Ops that are looked through for that; most are near.
_WINDOW, _NEAR = 20_000, 256
Gap = tuple[int, int, int, int]  # from and to in the first, from and to in the second


@dataclass
class Alignment:
    """Which ops of two runs belong together, and where the runs part."""

    pairs: list[tuple[int, int]]
    gaps: list[Gap]


def align(first: Sequence[Hashable], second: Sequence[Hashable]) -> Alignment:
    """Pair the ops of two runs, each known by a key."""
    numbers: dict[Hashable, int] = {}
    one = [numbers.setdefault(key, len(numbers)) for key in first]
    other = [numbers.setdefault(key, len(numbers)) for key in second]
    pairs: list[tuple[int, int]] = []
    gaps: list[Gap] = []
    i = j = 0
    while i < len(one) and j < len(other):
        if one[i] == other[j]:
            pairs.append((i, j))
            i, j = i + 1, j + 1
            continue
        found = _together(one, i, other, j)
        if found is None:
            break
        gaps.append((i, found[0], j, found[1]))
        i, j = found
    if i < len(one) or j < len(other):
        gaps.append((i, len(one), j, len(other)))
    return Alignment(pairs, gaps)


def _together(one: Sequence[int], i: int, other: Sequence[int], j: int) -> tuple[int, int] | None:
    """Return the nearest places behind *i* and *j* from which the next ops agree, down to the end if that is near."""
    for length, window in ((_TOGETHER, _NEAR), (_TOGETHER, _WINDOW), (1, _WINDOW)):
        starts: dict[tuple[int, ...], int] = {}
        for place in range(j, min(j + window, len(other) - length + 1)):
            starts.setdefault(tuple(other[place : place + length]), place)
        best = None
        for place in range(i, min(i + window, len(one) - length + 1)):
            if best is not None and place - i >= best[0] - i + best[1] - j:
                break
            there = starts.get(tuple(one[place : place + length]))
            if there is not None and (best is None or place + there < sum(best)):
                best = place, there
        if window == _NEAR and best is not None and sum(best) - i - j > _NEAR:
            continue  # beyond what was looked through there may be nearer ones
        # Fewer ops than that agree by chance, but for the last ones of both runs.
        if best is not None and (length == _TOGETHER or list(one[best[0] :]) == list(other[best[1] :])):
            return best
    return None
