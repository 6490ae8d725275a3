"""The comparison as one web page: a timeline with a column for each run, and what every step rests on.

Every row of the runs is in the page, in which the filters at first show those that changed. What a row's panel shows
stands beside it as JSON, as in the page of the matrix.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import chain

from msgspec import Struct

from reports.builds.changes_render import tables as census_tables
from reports.compare import cost as compare_cost
from reports.compare.builds import HEADS, NOTE, BuildTimeline, counts_words
from reports.compare.claims import CLAIM_MEANING, MEASURED_MEANING, SECTION_WORDS, documented
from reports.compare.comparable import REASON_MEANING
from reports.compare.excerpt import STEP, step_counts
from reports.compare.groups import MOST, doubts_of, found
from reports.compare.judge import CHANGES, CLASS_MEANING, CONFIRMED_MEANING, Change, Kind
from reports.compare.rates import CAVEAT
from reports.compare.runs import Comparison, Pair, Timeline, TimelineRow, timelines
from reports.compare.words import (
    NOT_PLANNED,
    again_words,
    arrow,
    cell_words,
    class_words,
    finding_notes,
    finding_words,
    labels,
    machine_words,
    measured_again,
    notes,
    title,
)
from reports.matrix import cost, words
from reports.matrix.expected import device_words
from reports.matrix.model import Matrix, cell_of_mode
from reports.render.markdown import NONE
from reports.render.page import Pool, generate
from scanner.observations.records import MODES, WORKER_MODES
from scanner.verdicts.findings import FINDING_MEANING, VERDICT_MEANING, MatrixRow

CLASS_SIGN: dict[Kind, str] = {
    "regressed": "↓",
    "improved": "↑",
    "changed": "↔",
    "added": "+",
    "removed": "−",  # noqa: RUF001
    "not_comparable": "?",
    "same": "=",
}
# What a reader chooses among: the first is what the page shows at first.
_CHOICES: dict[str, str] = {
    "": "Rows that changed from one run to the next, or seem to have. Choose classes to see others.",
    **{str(kind): meaning for kind, meaning in CLASS_MEANING.items()},
    "other_bits": "Deterministic before and after, and the later run gives other bits. No change of determinism.",
    "documented": "The documented lists of two releases that follow one another say different things of it.",
    "all": "Every row, also those that are the same in all runs.",
}
NO_LISTS = "no lists"
_WIDE = 3  # runs that leave room for the cells of both modes


class Moment(Struct, frozen=True):
    """One row in one run."""

    row: MatrixRow | None  # None: not planned
    change: Change | None  # from the run before
    words: str  # the finding's note, such as its n
    documented: str
    redocumented: bool  # whether the lists of the run before say something else


class Line(Struct, frozen=True):
    """One row in every run of one kind of device."""

    anchor: str
    row: MatrixRow
    changed: int
    differed: int
    moments: tuple[Moment, ...]

    @property
    def choices(self) -> set[str]:
        """What the row is found under."""
        chosen: set[str] = {one.change.kind for one in self.moments if one.change is not None}
        if chosen != {"same"}:
            chosen.discard("same")
        if any(one.change is not None and one.change.other_bits for one in self.moments):
            chosen.add("other_bits")
        if any(one.redocumented for one in self.moments):
            chosen.add("documented")
        if self.differed:
            chosen.add("")
        return chosen | {"all"}


class Table(Struct, frozen=True):
    """A timeline as it is shown."""

    device: str
    labels: tuple[str, ...]
    timeline: Timeline
    lines: tuple[Line, ...]


def render(comparison: Comparison, builds: Sequence[BuildTimeline] = ()) -> Iterator[str]:
    """Yield the page in pieces."""
    anchors = Counter[str]()
    tables = [_table(timeline, anchors) for timeline in timelines(comparison)]
    lines = [line for one in tables for line in one.lines]
    counts = Counter(chain.from_iterable(line.choices for line in lines))
    pool = Pool()
    yield from generate(
        "compare",
        words,
        title=title(comparison),
        comparison=comparison,
        matrices=comparison.matrices,
        tables=tables,
        lines=lines,
        counts=counts,
        choices=_CHOICES,
        notes=list(notes(comparison)),
        families=list(dict.fromkeys(line.row.row.family for line in lines)),
        facts=_facts(tables, pool),
        pool=pool,
        wide=_WIDE,
        step_heads=STEP,
        step_counts=step_counts,
        again_words=again_words,
        measured_again=measured_again,
        changes=CHANGES,
        circumstances=_circumstances(comparison.matrices),
        class_meaning=CLASS_MEANING,
        class_sign=CLASS_SIGN,
        class_words=class_words,
        confirmed_meaning=CONFIRMED_MEANING,
        finding_meaning=FINDING_MEANING,
        verdict_meaning=VERDICT_MEANING,
        modes=MODES,
        reason_meaning=REASON_MEANING,
        claim_meaning=CLAIM_MEANING,
        measured_meaning=MEASURED_MEANING,
        rates_meaning=CAVEAT,
        cost_meaning=compare_cost.MEANING,
        not_planned=NOT_PLANNED,
        machine=machine_words,
        evidence=_evidence,
        apart=_apart,
        doubts=doubts_of,
        most=MOST,
        bullets=_bullets,
        bullet_words=words.bullet_words,
        table_labels=[one.labels for one in tables],
        TIMES=cost.TIMES,
        costs=_costs,
        times=cost.times,
        builds=builds,
        build_heads=HEADS,
        build_note=NOTE,
        build_counts=counts_words,
        census_tables=census_tables,
        device_words=device_words,
    )


def _table(timeline: Timeline, anchors: Counter[str]) -> Table:
    """Join what the runs show of each row with what their releases document."""
    lines = []
    for one in timeline.rows:
        listed = [
            documented(one.row.row, lists.claims) if lists.claims else NO_LISTS for lists in timeline.lists
        ]
        moments = tuple(
            Moment(cell, change, _note(cell, matrix), text, NO_LISTS not in {before, text} and before != text)
            for matrix, cell, change, text, before in zip(
                timeline.matrices, one.cells, one.changes, listed, [listed[0], *listed[:-1]], strict=True
            )
        )
        lines.append(Line(_anchor(one, anchors), one.row, one.changed, one.differed, moments))
    device = timeline.matrices[-1].run.header.settings.device
    return Table(device, tuple(labels(timeline.matrices)), timeline, tuple(lines))


def _anchor(one: TimelineRow, anchors: Counter[str]) -> str:
    """Return what an address names a row by: its id, numbered where several kinds of device have it."""
    name = re.sub(r"\s+", "_", one.row.row.id)
    anchors[name] += 1
    return name if anchors[name] == 1 else f"{name}@{anchors[name]}"


def _note(cell: MatrixRow | None, one: Matrix) -> str:
    """Return what must not be read apart from a finding: its n, low power, a scan that is not trustworthy."""
    if cell is None:
        return ""
    rests, marks = finding_notes(cell, one)
    return ", ".join(filter(None, [rests, *marks]))


def _facts(tables: Iterable[Table], pool: Pool) -> Iterator[list[object]]:
    """Yield what the script knows of each row, in the page's order: compare.js names the fields."""
    for number, table in enumerate(tables):
        for line in table.lines:
            row = line.row.row
            yield [
                number,
                line.changed,
                line.differed,
                *map(
                    pool.place,
                    (row.family, row.spec, row.op, row.case, row.direction, row.dtype, row.device),
                ),
                *map(pool.place, (row.provokes, row.why)),
                [_moment(moment, pool) for moment in line.moments],
            ]


def _moment(one: Moment, pool: Pool) -> list[object]:
    """Return one row in one run: what it shows, what it costs, what became of it."""
    shown: Hashable = None
    if one.row is not None:
        cells = words.cell_words(one.row, "off"), words.on_words(one.row)
        verdicts = tuple(cell_of_mode(one.row, mode).verdict for mode in WORKER_MODES)
        shown = (one.row.finding, one.words, *cells, verdicts, one.documented, one.row.reason, one.row.weak)
        shown += ("serial" if one.row.serial else None,)
    text: Hashable = None
    if one.change is not None:
        judged = one.change.judged
        classes = (judged.kind, class_words(one.change), judged.apparent)
        text = (*classes, judged.detail, judged.reason, ", ".join(one.change.other_bits), one.redocumented)
    price = None if one.row is None else (cost.cost_words(one.row), cost.ratio_of(one.row.cost))
    return [pool.place(shown), pool.place(price), pool.place(text)]


def _evidence(pair: Pair, changes: Iterable[Change]) -> list[tuple[Change, list[str]]]:
    """Return changes, each with its finding, its cells, what is documented and what it rests on, in words."""
    lines = []
    for change in changes:
        rows = [row for row in (change.old, change.new) if row is not None]
        modes = [[cell_words(cell) for cell in (row.off, row.on)] for row in rows]
        listed = (documented(change.row.row, lists.claims) for lists in pair.lists)
        cells = [
            arrow(finding_words(change.old, pair.old), finding_words(change.new, pair.new)),
            *(arrow(before, after) for before, after in zip(modes[0], modes[-1], strict=True)),
            arrow(*listed),
            change.judged.detail or NONE,
        ]
        lines.append((change, cells))
    return lines


def _apart(pair: Pair) -> list[tuple[str, str]]:
    """Return the rows that are the same although their rates are told apart, each with the test."""
    return [
        (change.row.row.id, str(test))
        for change in pair.of("same")
        for test in change.judged.tests
        if test.differ
    ]


def _bullets(pair: Pair) -> Iterator[tuple[list[str], str, str, str, list[str]]]:
    """Yield each changed bullet: its words, lists, device, measured word, and its rows in words."""
    for one in pair.claims:
        claims = [claim for claim in (one.old, one.new) if claim is not None]
        sections = (SECTION_WORDS[claim.section] if claim else NONE for claim in (one.old, one.new))
        texts = list(dict.fromkeys(words.bullet_words(claim) for claim in claims))
        counts, moved, same = found(one)
        shown = ", ".join(moved or same)
        rows = f"{counts}: {shown}" if shown else counts
        yield texts, one.kind, arrow(*sections), one.claim.device, [one.measured, rows]


def _costs(pair: Pair) -> list[tuple[str, ...]]:
    """Return the rows whose cost changed: both ratios with their spread, and by how much."""
    return [
        (
            one.change.row.row.id,
            *(text(side) for side in (one.old, one.new) for text in (cost.ratio_words, cost.spread_words)),
            cost.times(one.factor),
        )
        for one in (pair.cost.listed if pair.cost else ())
    ]


def _circumstances(matrices: Sequence[Matrix]) -> list[tuple[str, list[str], bool]]:
    """Return environment and settings of all runs side by side: label, a text per run, whether they differ."""
    phrases = [dict([*words.environment_words(one), *words.settings_words(one)]) for one in matrices]
    names = dict.fromkeys(name for one in phrases for name in one)
    lines = [(name, [one.get(name, NONE) for one in phrases]) for name in names if name != "run file"]
    return [(name, texts, len(set(texts)) > 1) for name, texts in lines]
