"""A comparison in two small tables, for a page that is about something else: each step, and what changed in it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from msgspec import Struct

from reports.compare.claims import documented
from reports.compare.judge import MOVES, Change
from reports.compare.runs import Comparison, Pair, Timeline, timelines
from reports.compare.words import arrow, caveats, class_words, labels, machine_words
from reports.render.markdown import code, plain, table

STEP = (
    "from → to",
    "rows compared",
    "regressed",
    "improved",
    "changed",
    "not comparable",
    "with other bits",
    "documented changes",
)
_CHANGED = ("from → to", "op", "rows", "class", "finding", "documented")
_IDS = 3  # rows of an op that are named


class OpChange(Struct, frozen=True):
    """Rows of one op that changed in the same way."""

    op: str
    rows: tuple[str, ...]  # what tells them from the op's other rows
    kind: str
    finding: str
    documented: str


def render(comparison: Comparison) -> Iterator[str]:
    """Yield what a block of a Markdown file holds."""
    yield from (f"**{plain(text)}**\n\n" for text in caveats(comparison))
    for timeline in timelines(comparison):
        names = labels(timeline.matrices)
        steps = [f"{plain(old)} → {plain(new)}" for old, new in pairwise(names)]
        yield f"{plain(_scanned(timeline))}\n\n"
        counts = (map(str, step_counts(pair)) for pair in timeline.pairs)
        yield table(STEP, [(step, *text) for step, text in zip(steps, counts, strict=True)])
        yield "\n"
        lines = [
            (step, code(one.op), _rows(one), plain(one.kind), plain(one.finding), plain(one.documented))
            for step, pair in zip(steps, timeline.pairs, strict=True)
            for one in by_op(pair)
        ]
        yield table(_CHANGED, lines) if lines else "No row regressed, improved or changed.\n"
        yield "\n"


def step_counts(pair: Pair) -> tuple[int | str, ...]:
    """Return what the table of the steps tells of one, in the order of its columns."""
    counts = pair.counts
    seeming = sum(change.judged.apparent is not None for change in pair.changes)
    blocked = f"{counts['not_comparable']}, {seeming} of them seem to have changed" if seeming else ""
    return (
        pair.compared,
        *(counts[kind] for kind in MOVES),
        blocked or counts["not_comparable"],
        sum(bool(change.other_bits) for change in pair.changes),
        claims_words(pair),
    )


def claims_words(pair: Pair) -> int | str:
    """Return how many changes of the documented lists there are, and how many of them were not measured."""
    unmeasured = sum(one.unmeasured for one in pair.claims)
    claims = f"{len(pair.claims)}, {unmeasured} without a measured one" if unmeasured else ""
    return claims or len(pair.claims)


def by_op(pair: Pair) -> list[OpChange]:
    """Return what changed, the worst first, and then what only seems to have; ten rows of one op once."""
    rows: dict[tuple[str, ...], list[str]] = {}
    for kind in (*MOVES, "not_comparable"):
        for change in pair.of(kind):
            if kind not in MOVES and change.judged.apparent is None:
                continue
            row = change.row.row
            listed = arrow(*(documented(row, lists.claims) for lists in pair.lists))
            key = (row.spec, class_words(change), _finding(change), listed)
            rows.setdefault(key, []).append(row.id.removeprefix(f"{row.spec}:"))
    return [OpChange(key[0], tuple(ids), *key[1:]) for key, ids in rows.items()]


def _finding(change: Change) -> str:
    """Return a row's finding in both runs; of one that has the same in both, what else changed."""
    assert change.old is not None
    assert change.new is not None
    text = arrow(change.old.finding, change.new.finding)
    if change.old.finding == change.new.finding or change.judged.apparent is not None:
        return f"{text}: {change.judged.detail}"
    return text


def _rows(one: OpChange) -> str:
    more = f" and {len(one.rows) - _IDS} more" if len(one.rows) > _IDS else ""
    return ", ".join(map(code, one.rows[:_IDS])) + more


def _scanned(timeline: Timeline) -> str:
    """Say what was compared: on which machines, with which n."""
    machines = dict.fromkeys(map(machine_words, timeline.matrices))
    executions = sorted({one.executions for one in timeline.matrices})
    return (
        f"{len(timeline.matrices)} runs on {' and '.join(machines)}, {len(timeline.rows)} rows, n = "
        f"{' or '.join(map(str, executions))} per cell."
    )
