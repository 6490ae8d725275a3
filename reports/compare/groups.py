"""Rows of a comparison gathered under what is told of them, for every format that is made for people."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from reports.compare.claims import ClaimChange
from reports.compare.comparable import REASON_MEANING, Reason
from reports.compare.judge import CLASS_MEANING, MOVES, Change
from reports.compare.runs import Pair
from reports.render.markdown import NONE

MOST = 10  # rows that one reason or bullet names


class SameDetail(Struct, frozen=True):
    """Rows that are not comparable and would be no change, of which the same is told."""

    detail: str
    rows: tuple[str, ...]  # ids
    of_all: bool  # whether it stands against every row


class Doubt(Struct, frozen=True):
    """What one reason keeps from being compared."""

    reason: Reason
    rows: int
    seeming: tuple[Change, ...]  # whose findings are a change, the worst first
    others: tuple[SameDetail, ...]


def doubts_of(pair: Pair) -> Iterator[Doubt]:
    """Yield the reasons why rows of two runs are not comparable, each with its rows."""
    changes = pair.of("not_comparable")
    for reason in REASON_MEANING:
        of_reason = [change for change in changes if change.judged.reason == reason]
        if not of_reason:
            continue
        details: dict[str, list[str]] = {}
        for change in of_reason:
            if change.judged.apparent is None:
                details.setdefault(change.judged.detail, []).append(change.row.row.id)
        of_all = {obstacle.detail for obstacle in pair.obstacles}
        yield Doubt(
            reason=reason,
            rows=len(of_reason),
            seeming=tuple(change for kind in MOVES for change in of_reason if change.judged.apparent == kind),
            others=tuple(SameDetail(detail, tuple(ids), detail in of_all) for detail, ids in details.items()),
        )


def found(one: ClaimChange) -> tuple[str, list[str], list[str]]:
    """Return of the rows that speak to a changed claim how many are of each class, which changed, and what others show.

    Returns:
        The counts in words; the ids of the first rows that changed; the findings of those that are the same.
    """
    kinds = [change.kind for change in one.rows]
    counts = ", ".join(f"{kinds.count(kind)} {kind}" for kind in CLASS_MEANING if kind in kinds)
    moved = [change.row.row.id for change in one.rows if change.kind in MOVES]
    same = dict.fromkeys(str(change.row.finding) for change in one.rows if change.kind == "same")
    return counts or NONE, moved[:MOST], list(same)
