"""A timeline as people read it: each row in each run, what became of it and what that release documents."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from msgspec import Struct

from reports.compare.rows.judged import Change, Kind
from reports.compare.runs import Timeline, TimelineRow
from reports.compare.words import class_words, finding_notes, finding_words, labels
from reports.matrix import words
from reports.matrix.by_op import direction_of
from reports.matrix.listed import documented
from reports.matrix.model import Matrix
from reports.matrix.ops import OpDirection
from reports.render.json import View
from scanner.observations.records import Direction
from scanner.verdicts.findings import MatrixRow

NO_LISTS = "no lists"
_WORST: tuple[Kind, ...] = ("regressed", "changed", "removed", "added", "improved")


class Moment(Struct, frozen=True):
    """One row in one run."""

    row: MatrixRow | None  # None: not planned
    change: Change | None  # from the run before
    finding: str  # with what must not be read without it
    note: str  # the latter alone: its n, low power, a scan that is not trustworthy
    documented: str
    redocumented: bool  # whether the lists of the run before say something else

    @property
    def cells(self) -> tuple[str, str]:
        """What it shows with the flag off, and with it on."""
        return (words.cell_words(self.row, "off"), words.on_words(self.row)) if self.row else ("", "")

    @property
    def became(self) -> str | None:
        """What became of the row, if that is a change, be it comparable or not."""
        return class_words(self.change) if self.change is not None and self.change.differs else None


class TimelineLine(Struct, frozen=True):
    """One row in every run of one kind of device."""

    of: TimelineRow
    moments: tuple[Moment, ...]

    @property
    def choices(self) -> set[str]:
        """What the page finds the row under."""
        changes = [one.change for one in self.moments if one.change is not None]
        chosen: set[str] = {change.kind for change in changes}
        if chosen != {"same"}:
            chosen.discard("same")
        if any(change.other_bits for change in changes):
            chosen.add("other_bits")
        if any(one.redocumented for one in self.moments):
            chosen.add("documented")
        if self.of.differed:
            chosen.add("")
        return chosen | {"all"}


class ChangedOp(Struct, frozen=True):
    """One op with a row that changed from one run to the next, or seems to have."""

    name: str
    rows: int
    changed: tuple[TimelineLine, ...]  # its rows that did
    worst: Change  # what became of it
    cells: tuple[tuple[OpDirection, OpDirection], ...]  # forward and backward, by run
    documented: str  # by the releases of the runs, of the row that changed worst


class Table(Struct, frozen=True, dict=True):
    """A timeline as it is shown."""

    timeline: Timeline
    runs: Sequence[View]
    pairs: Sequence[View]

    @property
    def device(self) -> str:
        """What the latest run was made on."""
        return self.timeline.matrices[-1].device

    @cached_property
    def labels(self) -> list[str]:
        """What tells the runs apart."""
        return labels(self.timeline.matrices)

    @cached_property
    def lines(self) -> list[TimelineLine]:
        """Every row, what changed most first."""
        return list(map(self._line, self.timeline.rows))

    @cached_property
    def differing(self) -> list[TimelineLine]:
        """The rows that changed from one run to the next, or seem to have."""
        return list(map(self._line, self.timeline.differing))

    @cached_property
    def ops(self) -> list[ChangedOp]:
        """The ops that changed, the worst first, then those of which most rows did."""
        rows: dict[str, list[TimelineRow]] = {}
        for row in self.timeline.rows:
            rows.setdefault(row.row.row.spec, []).append(row)
        changed: dict[str, list[TimelineLine]] = {}
        for line in self.differing:
            changed.setdefault(line.of.row.row.spec, []).append(line)
        ops = [_op(name, rows[name], lines) for name, lines in changed.items()]
        return sorted(ops, key=lambda op: (_rank(op.worst), -len(op.changed)))

    def _line(self, one: TimelineRow) -> TimelineLine:
        """Join what the runs show of a row with what their releases document."""
        timeline = self.timeline
        listed = [
            documented(one.row.row, lists.claims) if lists.claims else NO_LISTS for lists in timeline.lists
        ]
        return TimelineLine(
            one,
            tuple(
                Moment(
                    row=cell,
                    change=change,
                    finding=finding_words(cell, matrix),
                    note=_note(cell, matrix),
                    documented=text,
                    redocumented=NO_LISTS not in {before, text} and before != text,
                )
                for matrix, cell, change, text, before in zip(
                    timeline.matrices, one.cells, one.changes, listed, [listed[0], *listed[:-1]], strict=True
                )
            ),
        )


def _op(name: str, rows: Sequence[TimelineRow], changed: Sequence[TimelineLine]) -> ChangedOp:
    """Join the rows of an op."""
    found = [
        (one.change, line) for line in changed for one in line.moments if one.change and one.change.differs
    ]
    worst, line = min(found, key=lambda it: _rank(it[0]))
    listed = [one.documented for one in line.moments]
    # What a run did not plan is no row in it.
    seen = [[one for one in cells if one] for cells in zip(*(row.cells for row in rows), strict=True)]
    return ChangedOp(
        name,
        len(rows),
        tuple(changed),
        worst,
        tuple((_way(cells, "forward"), _way(cells, "backward")) for cells in seen),
        " → ".join(text for place, text in enumerate(listed) if not place or text != listed[place - 1]),
    )


def _way(rows: Sequence[MatrixRow], direction: Direction) -> OpDirection:
    return direction_of([row for row in rows if row.row.direction == direction])


def _rank(change: Change) -> tuple[int, bool]:
    """Return how bad a change is; what only seems to be one stands behind those that are."""
    return _WORST.index(change.judged.apparent or change.kind), change.judged.apparent is not None


def _note(cell: MatrixRow | None, one: Matrix) -> str:
    """Return what must not be read apart from a finding: its n, low power, a scan that is not trustworthy."""
    if cell is None:
        return ""
    rests, marks = finding_notes(cell, one)
    return ", ".join(filter(None, [rests, *marks]))
