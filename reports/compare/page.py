"""A comparison in every format: Markdown, JSON, a block of a Markdown file, and the page with a timeline of all runs.

Every row of the runs is in the page, in which the filters at first show those that changed. What a row's panel shows
stands beside it as JSON, as in the page of the matrix.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain, pairwise

from msgspec import Struct

from reports.compare.comparable import kind_of
from reports.compare.judge import CHANGES, CLASS_MEANING, Change, Kind
from reports.compare.runs import Comparison, Pair
from reports.compare.view import (
    NOT_PLANNED,
    STEP,
    by_op,
    caveats,
    finding_notes,
    finding_words,
    labels,
    step_counts,
    view_of,
)
from reports.matrix import cost, words
from reports.matrix.listed import RunLists, documented
from reports.matrix.model import Matrix
from reports.matrix.ops import direction_of
from reports.render.json import View, object_pieces
from reports.render.markdown import NONE
from reports.render.markdown import generate as generate_markdown
from reports.render.page import Pool, generate
from scanner.modes import DEFAULT_MODES
from scanner.plurals import several
from scanner.verdicts.findings import MatrixRow

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
    "other_bits": "Deterministic in both runs, with other bits in the later one. Not a change of determinism.",
    "documented": "Rows whose documentation changed between two releases; the steps count bullets.",
    "all": "Every row, even if it is the same in all runs.",
}
_WIDE = 3  # runs that leave room for the cells of both modes
_NO_LISTS = "no lists"
_WORST: tuple[Kind, ...] = ("regressed", "changed", "removed", "added", "improved")


class TimelineRow(Struct, frozen=True, dict=True):
    """One row in every run of one kind of device."""

    matrices: Sequence[Matrix]
    lists: Sequence[RunLists]
    cells: Sequence[MatrixRow | None]  # by run; None: not planned
    changes: Sequence[Change | None]  # from the run before

    @property
    def row(self) -> MatrixRow:
        """The latest of its cells."""
        return [cell for cell in self.cells if cell is not None][-1]

    @property
    def changed(self) -> int:
        """How often it changed."""
        return sum(change is not None and change.kind in CHANGES for change in self.changes)

    @property
    def differed(self) -> int:
        """How often its finding was another than before, be that comparable or not."""
        return sum(change is not None and change.differs for change in self.changes)

    @cached_property
    def moments(self) -> list[View]:
        """What each run shows of it, and its release documents, beside what became of it since the run before."""
        row, found, before = self.row.row, list[View](), None
        for one, lists, seen, change in zip(self.matrices, self.lists, self.cells, self.changes, strict=True):
            listed = documented(row, lists.claims) if lists.claims else _NO_LISTS
            rests, marks = finding_notes(seen, one) if seen else ("", [])
            moment = View(
                {},
                place=len(found),  # among the runs
                row=seen,  # None: not planned
                change=change,  # None: in the first run, and where neither planned it
                documented=listed,
                redocumented=before not in {None, listed, _NO_LISTS} and listed != _NO_LISTS,
                finding=finding_words(seen, one),
                note=", ".join(filter(None, [rests, *marks])),
                cells=(seen.off.words, seen.on_words) if seen else ("", ""),
                became=change.words if change is not None and change.differs else None,
            )
            found, before = [*found, moment], listed
        return found

    @property
    def choices(self) -> set[str]:
        """What the page finds the row under."""
        changes = [change for change in self.changes if change is not None]
        chosen: set[str] = {change.kind for change in changes}
        if chosen != {"same"}:
            chosen.discard("same")
        also = {
            "other_bits": any(change.other_bits for change in changes),
            "documented": any(one.redocumented for one in self.moments),
            "": self.differed,
            "all": True,
        }
        return chosen | {choice for choice, is_so in also.items() if is_so}


def timelines(comparison: Comparison) -> list[View]:
    """Return the runs of each kind of device of which there are at least two, with their rows, what changed most first."""
    kinds = dict.fromkeys(kind_of(one) for one in comparison.matrices)
    of_kind = ([pair for pair in comparison.pairs if kind_of(pair.new) == kind] for kind in kinds)
    return [_timeline(pairs) for pairs in of_kind if pairs]


def _timeline(pairs: Sequence[Pair]) -> View:
    matrices = [pairs[0].old, *(pair.new for pair in pairs)]
    lists = [pairs[0].lists[0], *(pair.lists[1] for pair in pairs)]
    by_run = [{row.row.key: row for row in one.rows} for one in matrices]
    changes = [{change.key: change for change in pair.changes} for pair in pairs]
    # The latest run says in which order the rows stand.
    rows = [
        TimelineRow(
            matrices,
            lists,
            [found.get(key) for found in by_run],
            [None, *(found.get(key) for found in changes)],
        )
        for key in dict.fromkeys(key for found in reversed(by_run) for key in found)
    ]
    rows.sort(key=lambda row: (-row.changed, -row.differed))
    return View(
        {},
        matrices=matrices,
        pairs=pairs,
        rows=rows,
        differing=[row for row in rows if row.differed],
        device=matrices[-1].device,
        labels=labels(matrices),
    )


def _for_people(comparison: Comparison) -> View:
    """Return what is shown of a comparison, with its timelines."""
    report = view_of(comparison)
    runs = dict(zip(map(id, comparison.matrices), report["runs"], strict=True))
    pairs = dict(zip(map(id, comparison.pairs), report["pairs"], strict=True))
    tables = [
        View(
            {},
            **vars(table),
            runs=[runs[id(one)] for one in table.matrices],
            steps=[pairs[id(pair)] for pair in table.pairs],
        )
        for table in timelines(comparison)
    ]
    return View(report, **vars(report), tables=tables)


def markdown(comparison: Comparison) -> Iterator[str]:
    """Yield for people what is worse first, then what else changed, then what could not be told."""
    return generate_markdown("compare", _for_people(comparison))


def as_json(comparison: Comparison) -> Iterator[str]:
    """Yield one object; one row per line."""
    pieces = object_pieces(
        view_of(comparison), "pairs", each=lambda pair: object_pieces(pair, "rows", edge="")
    )
    return chain(pieces, ["\n"])


def block(comparison: Comparison) -> Iterator[str]:
    """Yield two small tables for a Markdown file that is about something else: each step, and what changed in it."""
    return generate_markdown(
        "compare_block",
        View({}, caveats=caveats(comparison), heads=STEP, timelines=map(_steps, timelines(comparison))),
    )


def _steps(table: View) -> View:
    """Return what was compared on a kind of device, on which machines, with which n, and what changed in each step."""
    names = [" → ".join(pair) for pair in pairwise(table.labels)]
    of_steps = list(zip(names, table.pairs, strict=True))
    machines = dict.fromkeys(map(words.machine_words, table.matrices))
    executions = sorted({one.executions for one in table.matrices})
    return View(
        {},
        scanned=f"{len(table.matrices)} runs on {' and '.join(machines)}, {several(len(table.rows), 'row')}, n = "
        f"{' or '.join(map(str, executions))} per cell.",
        steps=[(name, *step_counts(pair)) for name, pair in of_steps],
        changes=[(name, one) for name, pair in of_steps for one in by_op(pair)],
    )


def render(comparison: Comparison) -> Iterator[str]:
    """Yield the page in pieces."""
    report = _for_people(comparison)
    rows = [row for table in report.tables for row in table.rows]
    anchors = _anchors(rows)
    counts = Counter(chain.from_iterable(row.choices for row in rows))
    pool = Pool()
    return generate(
        "compare",
        words,
        styles=("ops",),
        report=report,
        page=View(
            {},
            matrices=comparison.matrices,
            rows=len(rows),
            anchors=anchors,
            ops=[_ops(table) for table in report.tables],
            anchor_of={
                (one.row.row.key, one.row.row.device): anchor
                for one, anchor in zip(rows, anchors, strict=True)
            },
            choices=[(choice, meaning, counts[choice]) for choice, meaning in _CHOICES.items()],
            families=sorted({one.row.row.family for one in rows}),
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


RENDERERS: dict[str, Callable[[Comparison], Iterator[str]]] = {
    "md": markdown,
    "html": render,
    "json": as_json,
}


def _ops(table: View) -> list[View]:
    """Return the ops that changed, the worst first, then those of which most rows did."""
    rows: dict[str, list[TimelineRow]] = {}
    for row in table.rows:
        rows.setdefault(row.row.row.spec, []).append(row)
    # The rows that changed stand first.
    ops = [_op(name, some) for name, some in rows.items() if some[0].differed]
    return sorted(ops, key=lambda op: (_rank(op.worst), -len(op.changed)))


def _op(name: str, rows: Sequence[TimelineRow]) -> View:
    """Join the rows of an op: what became of it worst, what each run shows of it, what releases document of it."""
    changed = [row for row in rows if row.differed]
    found = [(one.change, row) for row in changed for one in row.moments if one.change and one.change.differs]
    worst, row = min(found, key=lambda it: _rank(it[0]))
    listed = [one.documented for one in row.moments]
    # What a run did not plan is no row in it.
    seen = [[one for one in cells if one] for cells in zip(*(one.cells for one in rows), strict=True)]
    return View(
        {},
        name=name,
        rows=len(rows),
        changed=changed,
        worst=worst,
        cells=[
            [
                direction_of([one for one in cells if one.row.direction == way])
                for way in ("forward", "backward")
            ]
            for cells in seen
        ],
        documented=" → ".join(
            text for place, text in enumerate(listed) if not place or text != listed[place - 1]
        ),
    )


def _rank(change: Change) -> tuple[int, bool]:
    """Return how bad a change is; what only seems to be one stands behind those that are."""
    return _WORST.index(change.judged.apparent or change.kind), change.judged.apparent is not None


def _anchors(rows: Iterable[TimelineRow]) -> list[str]:
    """Return what an address names each row by: its id, numbered where several kinds of device have it."""
    known = Counter[str]()
    anchors = []
    for one in rows:
        name = re.sub(r"\s+", "_", one.row.row.id)
        known[name] += 1
        anchors.append(name if known[name] == 1 else f"{name}@{known[name]}")
    return anchors


def _facts(tables: Iterable[View], pool: Pool) -> Iterator[list[object]]:
    """Yield what the script knows of each row, in the page's order: compare.js names the fields."""
    for number, table in enumerate(tables):
        for one in table.rows:
            row = one.row.row
            told = (row.family, row.spec, row.op, row.case, row.direction, row.dtype, row.device)
            places = [*map(pool.place, (*told, row.provokes, row.why))]
            moments = [_moment(moment, pool) for moment in one.moments]
            yield [number, one.changed, one.differed, *places, moments]


def _moment(one: View, pool: Pool) -> list[object]:
    """Return one row in one run: what it shows, what it costs, what became of it."""
    shown: Hashable = None
    price: Hashable = None
    text: Hashable = None
    if (row := one.row) is not None:
        verdicts = tuple(row.cell(mode).verdict for mode in DEFAULT_MODES)
        serial = words.serial_word(row.serial)
        shown = (row.finding, one.note, *one.cells, verdicts, one.documented, row.reason, row.weak, serial)
        price = (cost.cost_words(row), cost.ratio_of(row.cost))
    if one.change is not None:
        judged = one.change.judged
        classes = (judged.kind, one.change.words, judged.apparent)
        text = (*classes, judged.detail, judged.reason, one.change.bits_words, one.redocumented)
    return [pool.place(shown), pool.place(price), pool.place(text)]


def _circumstances(matrices: Sequence[Matrix]) -> list[tuple[str, list[str], bool]]:
    """Return environment and settings of all runs side by side: label, a text per run, whether they differ."""
    phrases = [dict([*words.environment_words(one), *words.settings_words(one)]) for one in matrices]
    names = dict.fromkeys(name for one in phrases for name in one)
    lines = [(name, [one.get(name, NONE) for one in phrases]) for name in names if name != "run file"]
    return [(name, texts, len(set(texts)) > 1) for name, texts in lines]
