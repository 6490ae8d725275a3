"""The columns that reports have beside off and on, where a scan was asked for them: one list, which every format reads.

A column says of a row one of its findings, or nothing, and of an op the worst that any of its rows has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Generic, Literal, NamedTuple, TypeVar

from msgspec import Struct

from detmatrix.reports.matrix.model import Matrix
from detmatrix.reports.matrix.rows import chosen_view
from detmatrix.reports.render import View, fields_of, grouped
from detmatrix.scanner.invariance import HEADS, POSITIONS, PROPERTIES, Property
from detmatrix.scanner.modes import CHOSEN_MODES, MODE_TABLE, Mode
from detmatrix.scanner.observations.records import Row
from detmatrix.scanner.verdicts.cells import Cell
from detmatrix.scanner.verdicts.findings import MatrixRow, runs_in
from detmatrix.scanner.verdicts.invariance import PropertyVerdict
from detmatrix.scanner.verdicts.vocabulary import DEPENDENCE_FOUND, FINDING, MODE_FINDING_MEANING, Finding

NOTHING = "not_run"  # what a cell says of a row that the column says nothing of
# Findings that are no result.
UNSETTLED = ("not_compiled", "inconclusive", "error")
# Findings of all columns, the worst first: what a mode does before what bits depend on.
_SEVERITY: tuple[str | None, ...] = (*MODE_FINDING_MEANING, *DEPENDENCE_FOUND)
# What a column finds, and the first of WORST_FIRST that it is worse than; other results are worse than deterministic alone.
_WORSE_THAN: dict[str | None, Finding] = {
    "silent": "raises",
    "raises": "fixed_by_mode",
    "differs": "mode_dependent",
}
# What is other than for the finding of the row, as a sentence goes on with it.
_OTHER: dict[Property, str] = {
    "threads": "with other threads",
    "batch": "with another batch",
    "layout": "with another layout",
}

_Name = TypeVar("_Name")


class Said(NamedTuple):
    """What a column says of a row."""

    finding: str | None  # None: nothing
    text: str  # the finding with all that must not be read without it
    reason: str | None  # why there is no result, where there is none and it is known


class _Column(Struct, Generic[_Name], frozen=True):
    name: _Name  # as JSON, CSV and filters have it
    head: str  # three letters, where there is room for no more
    meaning: str  # without a full stop
    where: str  # where, or with what, a row has what it finds, as a sentence goes on with it


class ModeColumn(_Column[Mode], frozen=True):
    """A mode that ``--modes`` chose."""

    # What it may find, and what that means, the worst first, and last what needs no attention.
    findings: ClassVar[Mapping[str, str]] = dict(MODE_FINDING_MEANING.items())
    fields: ClassVar = (
        *("finding", "verdict", "runs", "differing", "distinct", "alert", "reason"),
        *("finding_reason", "low_power", "remarks"),
    )

    def asked(self, row: MatrixRow) -> bool:
        """Tell whether the mode was among those of the scan."""
        return self.name in row.cells

    def finding(self, row: MatrixRow) -> str | None:
        """Return what differs in the mode from the flag off."""
        return row.cell(self.name).finding

    def why_not(self, row: Row) -> str | None:
        """Return why the mode has nothing to say of a row."""
        return runs_in(self.name, row)

    def compiled(self, rows: Iterable[MatrixRow]) -> int | None:
        """Return in how many rows a process compiled something, whatever came of it; ``None`` without torch.compile."""
        if not MODE_TABLE[self.name].compiles:
            return None
        return sum(
            any(one.mode == self.name and one.compiled and one.compiled.graphs for one in row.observations)
            for row in rows
        )

    def said(self, row: MatrixRow) -> Said:
        """Return the finding, or why there is none."""
        seen = self._seen(row)
        if seen is None:
            return Said(None, NOTHING, runs_in(self.name, row.row))
        if seen.finding is None:
            return Said(None, seen.verdict, seen.cause)
        text = ", ".join([seen.finding, *seen.remarks, *["low power"] * (seen.weak is not None)])
        return Said(seen.finding, text, seen.finding_reason)

    def _seen(self, row: MatrixRow) -> Cell | None:
        """Return the cell of the mode; ``None`` if it could say nothing of such a row."""
        cell = row.cells.get(self.name)
        return cell if cell and (cell.finding or runs_in(self.name, row.row) is None) else None

    def words(self, row: MatrixRow) -> str:
        """Return the finding, and the cell that it rests on."""
        seen, said = self._seen(row), self.said(row)
        if seen is None:
            return NOTHING
        if said.finding is None:
            return f"{said.text}: {said.reason}"
        alert = f"{seen.verdict} {seen.alert}" if seen.alert else seen.words
        return f"{said.text}; {said.reason or alert}"

    def flat(self, row: MatrixRow) -> dict[str, object]:
        """Return the finding and the cell that it rests on; of a row that the mode says nothing of, why."""
        if (seen := self._seen(row)) is None:
            return {"verdict": NOTHING, "reason": self.said(row).reason}
        return chosen_view(seen) | {"remarks": "; ".join(seen.remarks) or None}


class PropertyColumn(_Column[Property], frozen=True):
    """A property that ``--invariance`` chose."""

    findings: ClassVar[Mapping[str, str]] = DEPENDENCE_FOUND
    values: ClassVar = ("tried", "raised", "left_out")  # beside those at which bits are others
    fields: ClassVar = ("verdict", "baseline", "at", "max_ulp", "share", "reason", *values)

    def asked(self, row: MatrixRow) -> bool:
        """Tell whether the property was among those of the scan."""
        return self.name in row.invariance

    def finding(self, row: MatrixRow) -> str | None:
        """Return whether the bits of a row depend on it; ``None`` of one that was not asked."""
        seen = row.invariance.get(self.name)
        return seen.verdict if seen and seen.verdict in DEPENDENCE_FOUND else None

    def why_not(self, row: Row) -> str | None:  # noqa: ARG002 - what declares a batch is known to the worker alone
        """Return why it can say nothing of a row: a worker tells."""
        return None

    def compiled(self, rows: Iterable[MatrixRow]) -> None:
        """Return nothing: it says nothing of compiled code."""

    def said(self, row: MatrixRow) -> Said:
        """Return the verdict and the values that it rests on, or why it was not asked."""
        seen = row.invariance.get(self.name)
        if seen is None or seen.verdict not in DEPENDENCE_FOUND:
            return Said(None, "not asked", seen.reason if seen else None)
        if seen.verdict == "error":
            return Said(seen.verdict, seen.verdict, seen.reason)
        return Said(seen.verdict, _short(seen), seen.reason if seen.verdict == "not_repeatable" else None)

    def words(self, row: MatrixRow) -> str:
        """Return the verdict, the values that it rests on, and how far the bits are apart."""
        if (seen := row.invariance.get(self.name)) is None:
            return NOTHING
        said = self.said(row)
        open_ = said.finding in {None, "error"}
        parts = [f"{said.text}: {said.reason}"] if open_ else [said.text, *filter(None, [said.reason])]
        if it := seen.severity:  # where it is farthest from the baseline
            steps = f"{it.max_ulp} ULP" if it.max_ulp is not None else "not comparable"
            share = f"{100 * it.differing_elements / it.elements:.3g} %"
            parts.append(f"up to {steps}, in {share} of the elements")
        if seen.raised:
            why = f": {seen.reason}" if len(seen.raised) == 1 else f" at {', '.join(seen.raised)}"
            parts.append(f"not compared{why}")
        if seen.left_out:
            parts.append(f"left out: {', '.join(seen.left_out)}, summed over the batch")
        return "; ".join(parts)

    def flat(self, row: MatrixRow) -> dict[str, object]:
        """Return the verdict and what it rests on."""
        seen = row.invariance[self.name]
        far = (
            {"max_ulp": it.max_ulp, "share": it.differing_elements / it.elements}
            if (it := seen.severity)
            else {}
        )
        values = {name: ", ".join(getattr(seen, name)) or None for name in ("at", *self.values)}
        return fields_of(seen, "verdict", "baseline", "reason") | far | values


Column = ModeColumn | PropertyColumn
# What a column says of an op.
COLUMN_FIELDS = ("finding", "rows", "of", "notable", "compiled", "among")


def all_columns(matrices: Iterable[Matrix]) -> tuple[Column, ...]:
    """Return the columns that any of the runs was asked for."""
    scans = [one.run.header.settings for one in matrices]
    modes = [mode for mode in CHOSEN_MODES if any(mode in one.modes for one in scans)]
    properties = [it for it in PROPERTIES if any(it in one.invariance for one in scans)]
    return (
        *(ModeColumn(it, MODE_TABLE[it].head, MODE_TABLE[it].meaning, f"under {it}") for it in modes),
        *(PropertyColumn(it, HEADS[it], PROPERTIES[it], _OTHER[it]) for it in properties),
    )


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


def worst(columns: Sequence[Column], cells: Sequence[View]) -> tuple[Column, View] | None:
    """Return the column with the worst result of an op, or else one that was not settled; ``None`` if nothing needs attention."""
    notable = [(column, cell) for column, cell in zip(columns, cells, strict=True) if cell.notable]
    return min(notable, key=lambda it: (not it[1].settled, _SEVERITY.index(it[1].finding)), default=None)


def outranking(
    finding: Finding, columns: Sequence[Column], cells: Sequence[View]
) -> tuple[Column, View] | None:
    """Return the column with the worst result of an op, if that is worse than what off and on show."""
    if (found := worst(columns, cells)) is None or not found[1].settled:
        return None
    than = _WORSE_THAN.get(found[1].finding, "deterministic")
    return found if FINDING[finding].rank >= FINDING[than].rank else None


def pointer(columns: Sequence[Column], cells: Sequence[View]) -> str | None:
    """Return where to look for what off and on do not show of an op: at the worst result, or else at what was not settled."""
    if (found := worst(columns, cells)) is None:
        return None
    column, cell = found
    return f"see {column.name}" if cell.settled else f"not settled: {column.name}"


def cell_of(column: Column, rows: Iterable[MatrixRow]) -> View:
    """Return what a column says of the rows of an op.

    Its fields: the worst finding, or ``None`` where it says nothing of any; how many rows have it, of how many of which it says
    something; whether it needs attention; of a mode under torch.compile in how many something was compiled, among how many.
    """
    rows = [row for row in rows if column.asked(row) and column.why_not(row.row) is None]
    found = Counter(one for row in rows if (one := column.finding(row)) is not None)
    finding = next((one for one in column.findings if found[one]), None)
    count, of, compiled = found[finding] if finding else 0, found.total(), column.compiled(rows)
    parts = [f"in {count} of {of}"] * (count != of)
    if finding is not None and compiled is not None:
        # Which rows were compiled is a choice, and told.
        parts.append(f"{compiled} of {len(rows)} rows compiled")
    counts = "; ".join(parts)
    separator = "; " if count == of and counts else " "
    notable = finding not in {None, [*column.findings][-1]}
    return View(
        dict(zip(COLUMN_FIELDS, (finding, count, of, notable, compiled, len(rows)), strict=True)),
        settled=finding is not None and finding not in UNSETTLED,
        counts=counts,
        text=NOTHING if finding is None else f"{finding}{separator}{counts}".rstrip(),
    )


def _short(one: PropertyVerdict) -> str:
    """Return the verdict with the values that it rests on."""
    parts = [one.verdict.replace("_", " ")]
    if one.at:
        parts.append(f"at {values_words(one.at, one.tried)}")
    if one.verdict == "invariant":
        parts.append(f"at {values_words(one.tried, one.tried)}")
    if one.baseline:
        parts.append(f"against {one.baseline}")
    return " ".join(parts)


def values_words(values: Sequence[str], tried: Sequence[str]) -> str:
    """Return values in few words: "1, 2, 3 (anywhere), 16 (last)" of a batch, "transposed (args[0], args[1])" of layouts."""
    pairs = [value.partition(" ") for value in values]
    if not all(rest for _, _, rest in pairs):
        return ", ".join(values)
    by_first = grouped((first, rest) for first, _, rest in pairs)
    all_of = grouped((first, rest) for first, _, rest in (value.partition(" ") for value in tried))
    groups = grouped(
        (("anywhere",) if {*rests} == {*POSITIONS} == {*all_of.get(first, ())} else tuple(rests), first)
        for first, rests in by_first.items()
    )
    return ", ".join(f"{', '.join(firsts)} ({', '.join(rests)})" for rests, firsts in groups.items())


def dependence_change(
    old: MatrixRow, new: MatrixRow
) -> tuple[Literal["improved", "regressed", "changed"], list[str]]:
    """Return what the properties of a row in two runs are together, and a text for each that changed.

    Those alone are held against each other that were tried at the same values, against the same baseline.
    """
    texts: list[str] = []
    verdicts: set[tuple[str, str]] = set()
    for what, after in new.invariance.items():
        before = old.invariance.get(what)
        if before is None or {before.verdict, after.verdict} - {"invariant", "varies"}:
            continue
        if (before.baseline, before.tried) != (after.baseline, after.tried) or before.at == after.at:
            continue
        sides = (
            f"varies at {values_words(one.at, one.tried)}" if one.at else one.verdict
            for one in (before, after)
        )
        texts.append(f"{what}: {' → '.join(sides)}")
        verdicts.add((before.verdict, after.verdict))
    if verdicts == {("varies", "invariant")}:
        return "improved", texts
    return ("regressed" if verdicts == {("invariant", "varies")} else "changed"), texts
