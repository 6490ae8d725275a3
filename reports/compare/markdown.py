"""The comparison in Markdown: what is worse first, then what else changed, then what could not be told.

Everything that a run file says passes through ``code`` or ``plain``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reports.builds.changes_render import body
from reports.compare import cost as compare_cost
from reports.compare.builds import HEADS, NOTE, BuildStep, BuildTimeline
from reports.compare.claims import (
    CLAIM_MEANING,
    MEASURED_MEANING,
    SECTION_WORDS,
    ClaimChange,
    documented,
)
from reports.compare.comparable import REASON_MEANING
from reports.compare.cost import CostComparison
from reports.compare.groups import MOST, SameDetail, doubts_of, found
from reports.compare.judge import CHANGES, CLASS_MEANING, CONFIRMED_MEANING, Change, Kind
from reports.compare.rates import CAVEAT
from reports.compare.runs import Comparison, Pair, Timeline, TimelineRow, timelines
from reports.compare.words import (
    again_words,
    arrow,
    caveats,
    cell_words,
    class_words,
    finding_words,
    machine_words,
    measured_again,
    notes,
    title,
)
from reports.matrix import words
from reports.matrix.cost import ratio_words, spread_words, times
from reports.matrix.expected import device_words
from reports.render.markdown import NONE, code, plain, table
from scanner.verdicts.findings import FINDING_MEANING

_CHANGED = ("row", "class", "finding", "flag off", "flag on", "documented", "what it rests on")


def render(comparison: Comparison, builds: Sequence[BuildTimeline] = ()) -> Iterator[str]:
    """Yield the report in pieces."""
    yield f"# {plain(title(comparison))}: what changed\n\n"
    yield from (f"> [!CAUTION]\n> **{plain(text)}**\n\n" for text in caveats(comparison))
    yield from (f"> [!NOTE]\n> {plain(text)}\n\n" for text in notes(comparison))
    yield _runs(comparison)
    yield "\n"
    for timeline in timelines(comparison):
        # Two runs stand side by side below anyway.
        if len(timeline.pairs) > 1:
            yield from _timeline(timeline)
    yield from _builds(comparison, builds)
    for pair in comparison.pairs:
        yield from _pair(pair, builds)
    yield from _legend()


def _runs(comparison: Comparison) -> str:
    return table(
        ("run", "torch", "device", "machine", "n per cell", "rows", "executions were", "Python"),
        [
            (
                code(one.name),
                plain(one.run.header.environment.torch),
                plain(one.run.header.settings.device),
                plain(machine_words(one)),
                str(one.executions),
                str(one.planned),
                plain(", ".join(one.run.header.settings.perturb)),
                plain(one.run.header.environment.python),
            )
            for one in comparison.matrices
        ],
    )


def _timeline(timeline: Timeline) -> Iterator[str]:
    device = timeline.matrices[0].run.header.settings.device
    yield f"## Timeline on {plain(device)}\n\n"
    yield (
        f"{len(timeline.differing)} of {len(timeline.rows)} rows, those that changed from one run to the next, or seem to "
        f"have; what changed most often stands first. Behind each finding stands what that release documents.\n\n"
    )
    if timeline.differing:
        runs = [f"{plain(one.run.header.environment.torch)} ({code(one.name)})" for one in timeline.matrices]
        yield table(("row", "changes", *runs), [_moments(timeline, row) for row in timeline.differing])
        yield "\n"


def _moments(timeline: Timeline, row: TimelineRow) -> tuple[str, ...]:
    """Return a line of the timeline: in each run the class of the change, the finding, what is documented."""
    cells = []
    for one, lists, cell, change in zip(
        timeline.matrices, timeline.lists, row.cells, row.changes, strict=True
    ):
        became = f"**{plain(class_words(change))}**: " if change is not None and change.differs else ""
        listed = f"; documented: {plain(documented(cell.row, lists.claims))}" if cell is not None else ""
        cells.append(f"{became}{plain(finding_words(cell, one))}{listed}")
    return (code(row.row.row.id), str(row.changed), *cells)


def _builds(comparison: Comparison, builds: Sequence[BuildTimeline]) -> Iterator[str]:
    """Table by release what came and went in the builds, and list what stands with no two runs."""
    for one in builds:
        yield f"## Builds for {plain(device_words(one.device))}, expected\n\n{NOTE}\n\n"
        yield table(HEADS, [tuple(map(plain, line)) for line in one.lines])
        yield "\n"
        yield from _steps(one, one.beyond(comparison.pairs))


def _steps(one: BuildTimeline, steps: Sequence[BuildStep]) -> Iterator[str]:
    for step in steps:
        yield f"### Builds for {plain(device_words(one.device))}, expected: {plain(one.title(step))}\n\n"
        yield from body(step.step, "####")


def _pair(pair: Pair, builds: Sequence[BuildTimeline]) -> Iterator[str]:
    before, after = (one.run.header.environment.torch for one in (pair.old, pair.new))
    yield f"## {plain(before)} → {plain(after)}\n\n{code(pair.old.name)} → {code(pair.new.name)}\n\n"
    yield table(
        ("class", "rows"),
        [(kind, str(count)) for kind, count in pair.counts.items()],
    )
    yield "\n"
    if pair.unconfirmed:
        yield f"{pair.unconfirmed} of these changes are unconfirmed. {plain(CONFIRMED_MEANING)}\n\n"
    yield from _again(pair)
    for kind in CHANGES:
        yield from _changes(pair, kind)
    yield from _not_comparable(pair)
    yield from _same(pair)
    yield from _claims(pair)
    for one in builds:
        yield from _steps(one, one.of(pair))
        if (gap := one.gap(pair)) is not None:
            yield f"### Builds for {plain(device_words(one.device))}, expected\n\n{plain(gap)}\n\n"
    yield from _cost(pair)


def _again(pair: Pair) -> Iterator[str]:
    """Say what was measured again, and table it."""
    text = again_words(pair)
    if text is None or pair.again is None:
        return
    yield f"{plain(text)}\n\n"
    lines = [
        (code(name), plain(came_out), *map(plain, cells)) for name, came_out, cells in measured_again(pair)
    ]
    if lines:
        yield table(("measured again", "came out", "finding", "flag off", "flag on"), lines)
        yield "\n"


def _changes(pair: Pair, kind: Kind) -> Iterator[str]:
    """Table the rows of one class."""
    if changes := pair.of(kind):
        yield f"### {kind.capitalize()}\n\n"
        yield table(_CHANGED, [_cells(pair, change) for change in changes])
        yield "\n"


def _cells(pair: Pair, change: Change) -> tuple[str, ...]:
    rows = [row for row in (change.old, change.new) if row is not None]
    cells = [[plain(cell_words(cell)) for cell in (row.off, row.on)] for row in rows]
    return (
        code(change.row.row.id),
        plain(class_words(change)),
        plain(arrow(finding_words(change.old, pair.old), finding_words(change.new, pair.new))),
        *(arrow(before, after) for before, after in zip(cells[0], cells[-1], strict=True)),
        plain(_documented(pair, change)),
        plain(change.judged.detail or NONE),
    )


def _documented(pair: Pair, change: Change) -> str:
    return arrow(*(documented(change.row.row, lists.claims) for lists in pair.lists))


def _same(pair: Pair) -> Iterator[str]:
    """Tell what differs between the runs without being a change: rates, and bits."""
    tests = [(change, test) for change in pair.changes for test in change.judged.tests]
    bits = [change for change in pair.changes if change.other_bits]
    if tests or bits:
        yield "### No change of determinism\n\n"
    if tests:
        apart = [(change, test) for change, test in tests if test.differ and change.kind == "same"]
        yield (
            f"{sum(test.differ for _, test in tests)} of {len(tests)} pairs of rates are told apart, {len(apart)} of "
            f"them of rows that are the same.\n\n"
        )
        if apart:
            yield table(
                ("row", "rates"), [(code(change.row.row.id), plain(str(test))) for change, test in apart]
            )
            yield "\n"
    if bits:
        yield f"{len(bits)} rows were deterministic in both runs and give other bits in the later one:\n\n"
        yield from (f"* {code(change.row.row.id)}: {', '.join(change.other_bits)}\n" for change in bits)
        yield "\n"


def _not_comparable(pair: Pair) -> Iterator[str]:
    """List under each reason the rows whose findings differ, the worst first, and how many others there are."""
    doubts = list(doubts_of(pair))
    if doubts:
        yield "### Not comparable\n\n"
    for doubt in doubts:
        yield f"**{plain(doubt.reason)}**: {plain(REASON_MEANING[doubt.reason])} {doubt.rows} rows.\n\n"
        if doubt.seeming:
            yield table(_CHANGED, [_cells(pair, change) for change in doubt.seeming])
            yield "\n"
        yield from (_described(text) for text in doubt.others)
        if doubt.others:
            yield "\n"


def _described(text: SameDetail) -> str:
    """List rows that are not comparable and would be no change, by what is told of them."""
    # What stands against all rows needs no list of them.
    if text.of_all:
        return f"* {plain(text.detail)}: {len(text.rows)} rows with the same finding in both runs\n"
    more = f" and {len(text.rows) - MOST} more" if len(text.rows) > MOST else ""
    return f"* {plain(text.detail)}: {', '.join(map(code, text.rows[:MOST]))}{more}\n"


def _claims(pair: Pair) -> Iterator[str]:
    """Hold the changes of the documented lists against the measured ones."""
    yield "### Documentation\n\n"
    if not any(lists.claims for lists in pair.lists):
        yield "Neither run holds documented lists.\n\n"
        return
    if not pair.claims:
        yield "The documented lists are the same.\n\n"
    else:
        yield table(
            ("bullet", "change", "device", "list", "measured", "rows"), map(_claim_cells, pair.claims)
        )
        yield "\n"
    yield from _unmatched(
        "Documented changes without a measured one",
        [
            f"{plain(words.bullet_words(one.claim))} ({one.kind}): {_found(one)}"
            for one in pair.claims
            if one.unmeasured
        ],
    )
    yield from _unmatched(
        "Measured changes without a documented one",
        [
            f"{code(change.row.row.id)}: {plain(class_words(change))}; documented: {plain(_documented(pair, change))}"
            for change in pair.undocumented
        ],
    )


def _unmatched(heading: str, lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield f"{heading}:\n\n"
        yield from (f"* {line}\n" for line in lines)
        yield "\n"


def _claim_cells(one: ClaimChange) -> tuple[str, ...]:
    sections = [SECTION_WORDS[claim.section] if claim is not None else "none" for claim in (one.old, one.new)]
    texts = [plain(words.bullet_words(claim)) for claim in (one.old, one.new) if claim is not None]
    return (
        arrow(texts[0], texts[-1]),
        one.kind,
        plain(one.claim.device),
        plain(arrow(*sections)),
        one.measured,
        _found(one),
    )


def _found(one: ClaimChange) -> str:
    """Count the rows that speak to a claim by what became of them; name those that changed, or what they show."""
    counts, ids, findings = found(one)
    shown = [code(row) for row in ids] or findings
    return plain(counts) + (f": {', '.join(shown)}" if shown else "")


def _cost(pair: Pair) -> Iterator[str]:
    yield "### Cost of the flag\n\n"
    cost = pair.cost
    if cost is None:
        yield "Not compared: nothing of these runs can be.\n\n"
        return
    if not cost.rows:
        yield "No row was timed in both runs.\n\n"
        return
    yield _medians(cost)
    if cost.listed:
        yield table(
            ("row", "before", "between quartiles", "after", "between quartiles", "grew by"),
            [
                (
                    code(one.change.row.row.id),
                    *(ratio_words(one.old), spread_words(one.old)),
                    *(ratio_words(one.new), spread_words(one.new)),
                    times(one.factor),
                )
                for one in cost.listed
            ],
        )
        yield "\n"


def _medians(cost: CostComparison) -> str:
    assert cost.old_median is not None
    assert cost.new_median is not None
    return (
        f"{cost.rows} rows were timed in both runs; the median ratio is {times(cost.old_median)} → "
        f"{times(cost.new_median)}, and {len(cost.listed)} seem to have "
        f"changed, by one timing of each run (unconfirmed).\n\n"
    )


def _legend() -> Iterator[str]:
    """Explain every word that the tables use."""
    yield "## The words\n\n"
    for heading, meanings in (
        ("Classes", CLASS_MEANING),
        ("Findings", FINDING_MEANING),
        ("Changes of the documentation", CLAIM_MEANING),
        ("What was measured of them", MEASURED_MEANING),
    ):
        yield f"{heading}:\n\n"
        yield from (f"* **{plain(word)}**: {plain(meaning)}\n" for word, meaning in meanings.items())
        yield "\n"
    yield f"Rates: {plain(CAVEAT)}\n\nCost: {plain(compare_cost.MEANING)}\n"
