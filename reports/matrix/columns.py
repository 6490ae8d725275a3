"""The columns that reports have beside off and on, where a scan was asked for them: one list, which every format reads.

A column says of a row one of its findings, or nothing, and of an op the worst that any of its rows has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from reports.matrix.invariance import CUDNN_WORDS, short
from reports.matrix.invariance import words as dependence_words
from reports.matrix.model import WORST_FIRST, Matrix
from reports.matrix.view import RowView, doubts
from scanner.invariance import HEADS, PROPERTIES, Property
from scanner.modes import CHOSEN_MODES, MODE_TABLE, Mode, unconcerned
from scanner.observations.records import Row
from scanner.verdicts.chosen import MODE_FINDING_MEANING
from scanner.verdicts.findings import Finding, MatrixRow
from scanner.verdicts.invariance import DEPENDENCE_FOUND

NOTHING = "not_run"  # what a cell says of a row that the column says nothing of
# Findings that are no result.
UNSETTLED = ("not_compiled", "inconclusive", "error")
# Findings of all columns, the worst first: what a mode does before what bits depend on.
_SEVERITY: tuple[str | None, ...] = (*MODE_FINDING_MEANING, *DEPENDENCE_FOUND)
# What a column finds, and the first of WORST_FIRST that it is worse than; other results are worse than deterministic alone.
_WORSE_THAN: dict[str | None, Finding] = {
    "silent": "raises",
    "raises": "order_dependent",
    "differs": "mode_dependent",
}
# What is other than for the finding of the row, as a sentence goes on with it.
_OTHER: dict[Property, str] = {
    "threads": "with other threads",
    "batch": "with another batch",
    "layout": "with another layout",
}


class Said(NamedTuple):
    """What a column says of a row."""

    finding: str | None  # None: nothing
    text: str  # the finding with all that must not be read without it
    reason: str | None  # why there is no result, where there is none and it is known


class Column(Struct, frozen=True, kw_only=True):
    """One of them."""

    name: str  # as JSON, CSV and filters have it
    head: str  # three letters, where there is room for no more
    meaning: str  # without a full stop
    findings: Mapping[
        str, str
    ]  # its findings and what they mean, the worst first, and last what needs no attention

    @property
    def told(self) -> tuple[str, str]:
        """What the script of a page is told of it."""
        return self.name, self.meaning

    @property
    def where(self) -> str:
        """Where a row has what it finds, as a sentence goes on with it."""
        return f"under {self.name}"

    def asked(self, row: MatrixRow) -> bool:
        """Tell whether the scan of a row was asked for it."""
        raise NotImplementedError

    def finding(self, row: MatrixRow) -> str | None:
        """Return what it finds of a row; ``None`` if it says nothing of it."""
        raise NotImplementedError

    def why_not(self, row: Row) -> str | None:
        """Return why it can say nothing of a row; ``None`` if it may say something."""
        raise NotImplementedError

    def compiled(self, rows: Iterable[MatrixRow]) -> int | None:  # noqa: ARG002 - most columns say nothing of compiled code
        """Return in how many rows something was compiled; ``None`` of a column that says nothing of compiled code."""
        return None

    def said(self, row: RowView) -> Said:
        """Return what it says of a row."""
        raise NotImplementedError

    def words(self, row: RowView) -> str:
        """Return the same in a line, with what it rests on."""
        raise NotImplementedError

    def flat(self, row: RowView | None) -> dict[str, object]:
        """Return the columns of a flat table; without a row, those of a run that was not asked for it."""
        raise NotImplementedError


# Of a mode's cell, and what was found of it.
_FLAT = ("finding", "verdict", "runs", "differing", "distinct", "alert", "reason")
_FLAT_DOUBTS = ("finding_reason", "low_power")


class ModeColumn(Column, frozen=True, kw_only=True):
    """A mode that ``--modes`` chose."""

    mode: Mode

    def asked(self, row: MatrixRow) -> bool:
        """Tell whether the mode was among those of the scan."""
        return self.mode in row.chosen

    def finding(self, row: MatrixRow) -> str | None:
        """Return what differs in the mode from the flag off."""
        seen = row.chosen.get(self.mode)
        return seen.finding if seen else None

    def why_not(self, row: Row) -> str | None:
        """Return why the mode has nothing to say of a row."""
        return unconcerned(self.mode, row)

    def compiled(self, rows: Iterable[MatrixRow]) -> int | None:
        """Return in how many rows a process says that torch.compile compiled something, whatever came of it."""
        if not MODE_TABLE[self.mode].compiles:
            return None
        return sum(
            any(one.mode == self.mode and one.compiled and one.compiled.graphs for one in row.observations)
            for row in rows
        )

    def said(self, row: RowView) -> Said:
        """Return the finding, or why there is none."""
        seen = row.chosen.get(self.mode)
        if seen is None:
            return Said(None, NOTHING, unconcerned(self.mode, row))
        if seen.finding is None:
            return Said(None, seen.verdict, seen.cause)
        text = ", ".join([seen.finding, *seen.remarks, *doubts(seen.low_power, serial=False)])
        return Said(seen.finding, text, seen.finding_reason)

    def words(self, row: RowView) -> str:
        """Return the finding, and the cell that it rests on."""
        seen, said = row.chosen.get(self.mode), self.said(row)
        if seen is None:
            return NOTHING
        if said.finding is None:
            return f"{said.text}: {said.reason}"
        alert = f"{seen.verdict} {seen.alert}" if seen.alert else seen.words
        return f"{said.text}; {said.reason or alert}"

    def flat(self, row: RowView | None) -> dict[str, object]:
        """Return the finding and the cell that it rests on; of a row that the mode says nothing of, why."""
        seen = row.chosen.get(self.mode) if row else None
        fields = {name: getattr(seen, name, None) for name in (*_FLAT, *_FLAT_DOUBTS)}
        fields["remarks"] = "; ".join(seen.remarks) or None if seen else None
        if row is not None and seen is None:
            fields |= {"verdict": NOTHING, "reason": self.said(row).reason}
        return {f"{self.mode}_{name}": value for name, value in fields.items()}


# The values of a property, beside those at which bits are others.
_VALUES = ("tried", "raised", "left_out")


class PropertyColumn(Column, frozen=True, kw_only=True):
    """A property that ``--invariance`` chose."""

    what: Property

    @property
    def where(self) -> str:
        """With what a row has what it finds."""
        return _OTHER[self.what]

    def asked(self, row: MatrixRow) -> bool:
        """Tell whether the property was among those of the scan."""
        return self.what in row.invariance

    def finding(self, row: MatrixRow) -> str | None:
        """Return whether the bits of a row depend on it; ``None`` of one that was not asked."""
        seen = row.invariance.get(self.what)
        return seen.verdict if seen and seen.verdict in DEPENDENCE_FOUND else None

    def why_not(self, row: Row) -> str | None:  # noqa: ARG002 - what declares a batch is known to the worker alone
        """Return why it can say nothing of a row: a worker tells."""
        return None

    def said(self, row: RowView) -> Said:
        """Return the verdict and the values that it rests on, or why it was not asked."""
        seen = row.dependences.get(self.what)
        if seen is None or seen.verdict not in DEPENDENCE_FOUND:
            return Said(None, "not asked", seen.reason if seen else None)
        if seen.verdict == "error":
            return Said(seen.verdict, seen.verdict, seen.reason)
        return Said(seen.verdict, short(seen), seen.reason if seen.verdict == "not_repeatable" else None)

    def words(self, row: RowView) -> str:
        """Return the verdict, the values that it rests on, and how far the bits are apart."""
        seen = row.dependences.get(self.what)
        return dependence_words(seen) if seen else NOTHING

    def flat(self, row: RowView | None) -> dict[str, object]:
        """Return the verdict and what it rests on; of batch also in the words of NVIDIA's table."""
        seen = row.dependences.get(self.what) if row else None
        far = seen.severity if seen else None
        values: dict[str, object] = {
            "verdict": seen.verdict if seen else None,
            "baseline": seen.baseline if seen else None,
            "at": ", ".join(seen.at) or None if seen else None,
            "max_ulp": far.max_ulp if far else None,
            "share": far.differing_elements / far.elements if far else None,
            "reason": seen.reason if seen else None,
            **{name: ", ".join(getattr(seen, name)) or None if seen else None for name in _VALUES},
        }
        if self.what == "batch":
            values["in_cudnn_words"] = CUDNN_WORDS[seen.verdict] if seen else None
        return {f"{self.what}_{name}": value for name, value in values.items()}


class ColumnCell(Struct, frozen=True, kw_only=True):
    """What a column says of an op."""

    finding: str | None  # the worst of its rows; None: it says nothing of any
    rows: int  # that have it
    of: int  # of which it says something
    notable: bool  # it is none that needs no attention
    compiled: int | None  # rows of which something was compiled, of a mode under torch.compile
    among: int  # of so many that it was asked of and could say something of

    @property
    def settled(self) -> bool:
        """Whether the finding is a result."""
        return self.finding is not None and self.finding not in UNSETTLED

    @property
    def text(self) -> str:
        """The finding, and how many of the rows have it if not all do; which rows were compiled is a choice, and told."""
        if self.finding is None:
            return NOTHING
        separator = "; " if self.rows == self.of and self.counts else " "
        return f"{self.finding}{separator}{self.counts}".rstrip()

    @property
    def counts(self) -> str:
        """The text behind the finding."""
        parts = [f"in {self.rows} of {self.of}"] * (self.rows != self.of)
        if self.finding is not None and self.compiled is not None:
            parts.append(f"{self.compiled} of {self.among} rows compiled")
        return "; ".join(parts)


def all_columns(matrices: Iterable[Matrix]) -> tuple[Column, ...]:
    """Return the columns that any of the runs was asked for."""
    scans = [one.run.header.settings for one in matrices]
    modes = tuple(
        ModeColumn(
            name=mode,
            head=MODE_TABLE[mode].head,
            meaning=MODE_TABLE[mode].meaning,
            findings=dict(MODE_FINDING_MEANING.items()),
            mode=mode,
        )
        for mode in CHOSEN_MODES
        if any(mode in one.modes for one in scans)
    )
    properties = tuple(
        PropertyColumn(name=what, head=HEADS[what], meaning=meaning, findings=DEPENDENCE_FOUND, what=what)
        for what, meaning in PROPERTIES.items()
        if any(what in one.invariance for one in scans)
    )
    return (*modes, *properties)


def telling(columns: Iterable[Column], rows: Sequence[Row]) -> tuple[Column, ...]:
    """Return the columns that may say something of any of the rows."""
    return tuple(one for one in columns if any(one.why_not(row) is None for row in rows))


def idle_words(columns: Iterable[Column], rows: Sequence[Row]) -> list[str]:
    """Say why columns say nothing of any of the rows, a line for each reason."""
    reasons: dict[str, list[str]] = {}
    for one in columns:
        whys = [one.why_not(row) for row in rows]
        if whys and None not in whys:
            most, _ = Counter(whys).most_common(1)[0]
            reasons.setdefault(str(most), []).append(one.name)
    return [f"{', '.join(names)}: {NOTHING}, {why}." for why, names in reasons.items()]


def worst(columns: Sequence[Column], cells: Sequence[ColumnCell]) -> tuple[Column, ColumnCell] | None:
    """Return the column with the worst result of an op, or else one that was not settled; ``None`` if nothing needs attention."""
    notable = [(column, cell) for column, cell in zip(columns, cells, strict=True) if cell.notable]
    return min(
        notable, key=lambda pair: (not pair[1].settled, _SEVERITY.index(pair[1].finding)), default=None
    )


def outranking(
    finding: Finding, columns: Sequence[Column], cells: Sequence[ColumnCell]
) -> tuple[Column, ColumnCell] | None:
    """Return the column with the worst result of an op, if that is worse than what off and on show."""
    if (found := worst(columns, cells)) is None or not found[1].settled:
        return None
    than = _WORSE_THAN.get(found[1].finding, "deterministic")
    return found if WORST_FIRST.index(finding) >= WORST_FIRST.index(than) else None


def pointer(columns: Sequence[Column], cells: Sequence[ColumnCell]) -> str | None:
    """Return where to look for what off and on do not show of an op: at the worst result, or else at what was not settled."""
    if (found := worst(columns, cells)) is None:
        return None
    column, cell = found
    return f"see {column.name}" if cell.settled else f"not settled: {column.name}"


def cell_of(column: Column, rows: Iterable[MatrixRow]) -> ColumnCell:
    """Return what a column says of the rows of an op."""
    rows = [row for row in rows if column.asked(row) and column.why_not(row.row) is None]
    found = Counter(one for row in rows if (one := column.finding(row)) is not None)
    finding = next((one for one in column.findings if found[one]), None)
    return ColumnCell(
        finding=finding,
        rows=found[finding] if finding else 0,
        of=found.total(),
        notable=finding not in {None, [*column.findings][-1]},
        compiled=column.compiled(rows),
        among=len(rows),
    )
