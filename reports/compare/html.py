"""The comparison as one web page: a timeline with a column for each run, and what every step rests on.

Every row of the runs is in the page, in which the filters at first show those that changed. What a row's panel shows
stands beside it as JSON, as in the page of the matrix.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import chain

from reports.compare.excerpt import STEP
from reports.compare.rows.judged import CLASS_MEANING, Kind
from reports.compare.runs import Comparison
from reports.compare.timeline import Moment, Table, TimelineLine
from reports.compare.view import view_of
from reports.compare.words import NOT_PLANNED, class_words
from reports.matrix import cost, words
from reports.matrix.model import Matrix, cell_of_mode
from reports.render.json import View
from reports.render.markdown import NONE
from reports.render.page import Pool, generate
from scanner.modes import DEFAULT_MODES

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
    "documented": "Rows of which the documented lists of two releases that follow one another say different things; steps count bullets.",
    "all": "Every row, also those that are the same in all runs.",
}
_WIDE = 3  # runs that leave room for the cells of both modes


def render(comparison: Comparison) -> Iterator[str]:
    """Yield the page in pieces."""
    report = view_of(comparison)
    lines = [line for table in report.tables for line in table.lines]
    anchors = _anchors(lines)
    counts = Counter(chain.from_iterable(line.choices for line in lines))
    pool = Pool()
    return generate(
        "compare",
        words,
        styles=("ops",),
        report=report,
        page=View(
            {},
            matrices=comparison.matrices,
            rows=len(lines),
            anchors=anchors,
            anchor_of={
                (line.of.row.row.key, line.of.row.row.device): anchor
                for line, anchor in zip(lines, anchors, strict=True)
            },
            choices=[(choice, meaning, counts[choice]) for choice, meaning in _CHOICES.items()],
            families=sorted({line.of.row.row.family for line in lines}),
            facts=_facts(report.tables, pool),
            pool=pool,
            wide=_WIDE,
            step_heads=STEP,
            class_sign=CLASS_SIGN,
            circumstances=_circumstances(comparison.matrices),
            not_planned=NOT_PLANNED,
            TIMES=cost.TIMES,
        ),
    )


def _anchors(lines: Iterable[TimelineLine]) -> list[str]:
    """Return what an address names each row by: its id, numbered where several kinds of device have it."""
    known = Counter[str]()
    anchors = []
    for line in lines:
        name = re.sub(r"\s+", "_", line.of.row.row.id)
        known[name] += 1
        anchors.append(name if known[name] == 1 else f"{name}@{known[name]}")
    return anchors


def _facts(tables: Iterable[Table], pool: Pool) -> Iterator[list[object]]:
    """Yield what the script knows of each row, in the page's order: compare.js names the fields."""
    for number, table in enumerate(tables):
        for line in table.lines:
            row = line.of.row.row
            yield [
                number,
                line.of.changed,
                line.of.differed,
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
        verdicts = tuple(cell_of_mode(one.row, mode).verdict for mode in DEFAULT_MODES)
        shown = (
            one.row.finding,
            one.note,
            *one.cells,
            verdicts,
            one.documented,
            one.row.reason,
            one.row.weak,
            words.serial_word(one.row.serial),
        )
    text: Hashable = None
    if one.change is not None:
        judged = one.change.judged
        classes = (judged.kind, class_words(one.change), judged.apparent)
        text = (*classes, judged.detail, judged.reason, one.change.bits_words, one.redocumented)
    price = None if one.row is None else (cost.cost_words(one.row), cost.ratio_of(one.row.cost))
    return [pool.place(shown), pool.place(price), pool.place(text)]


def _circumstances(matrices: Sequence[Matrix]) -> list[tuple[str, list[str], bool]]:
    """Return environment and settings of all runs side by side: label, a text per run, whether they differ."""
    phrases = [dict([*words.environment_words(one), *words.settings_words(one)]) for one in matrices]
    names = dict.fromkeys(name for one in phrases for name in one)
    lines = [(name, [one.get(name, NONE) for one in phrases]) for name in names if name != "run file"]
    return [(name, texts, len(set(texts)) > 1) for name, texts in lines]
