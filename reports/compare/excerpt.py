"""A comparison in two small tables, for a page that is about something else: each step, and what changed in it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from msgspec import Struct

from reports.compare.rows.judged import MOVES, Change
from reports.compare.runs import Comparison, Pair, Timeline, timelines
from reports.compare.words import arrow, caveats, class_words, labels
from reports.matrix.listed import documented
from reports.matrix.words import machine_words
from reports.render.json import View
from reports.render.markdown import generate
from scanner.plurals import several

STEP = (
    "from → to",
    "rows compared",
    "regressed",
    "improved",
    "changed",
    "not comparable",
    "with other bits",
    "changed bullets",
)


class OpChange(Struct, frozen=True):
    """Rows of one op that changed in the same way."""

    op: str
    rows: tuple[str, ...]  # what tells them from the op's other rows
    kind: str
    finding: str
    documented: str


def render(comparison: Comparison) -> Iterator[str]:
    """Yield what a block of a Markdown file holds."""
    return generate(
        "compare_block", View({}, caveats=caveats(comparison), heads=STEP, timelines=_timelines(comparison))
    )


def _timelines(comparison: Comparison) -> Iterator[View]:
    for timeline in timelines(comparison):
        steps = [" → ".join(names) for names in pairwise(labels(timeline.matrices))]
        of_steps = list(zip(steps, timeline.pairs, strict=True))
        yield View(
            {},
            scanned=_scanned(timeline),
            steps=[(step, *step_counts(pair)) for step, pair in of_steps],
            changes=[(step, one) for step, pair in of_steps for one in by_op(pair)],
        )


def step_counts(pair: Pair) -> tuple[int | str, ...]:
    """Return what the table of the steps tells of one, in the order of its columns."""
    counts = pair.counts
    seeming = sum(change.judged.apparent is not None for change in pair.changes)
    blocked = (
        f"{counts['not_comparable']} ({seeming} possible change{'s' if seeming > 1 else ''})"
        if seeming
        else ""
    )
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


def _scanned(timeline: Timeline) -> str:
    """Say what was compared: on which machines, with which n."""
    machines = dict.fromkeys(map(machine_words, timeline.matrices))
    executions = sorted({one.executions for one in timeline.matrices})
    return (
        f"{len(timeline.matrices)} runs on {' and '.join(machines)}, {several(len(timeline.rows), 'row')}, n = "
        f"{' or '.join(map(str, executions))} per cell."
    )
