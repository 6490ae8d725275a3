"""What the further columns of runs say of one op: in words, as advice, and in which rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from reports.matrix.columns import NOTHING, Column, ColumnCell, PropertyColumn, Said, all_columns
from reports.matrix.model import Matrix
from reports.matrix.ops import OpRow, OpView
from reports.matrix.view import RowView
from scanner.plurals import several
from scanner.verdicts.findings import MatrixRow

# What a column finds, as a sentence goes on with it.
PHRASES = {
    "silent": "it differs though the flag is on",
    "raises": "it raises",
    "differs": "it differs, and does not with the flag off",
    "also_differs": "it differs, as with the flag off",
    "fixed_by_mode": "it did not differ, and does with the flag off",
    "mode_dependent": "it gives other bits than with the flag off, the same every time",
    "refused": "PyTorch refuses to run its backward phase",
    "not_compiled": "nothing of it is compiled",
    "inconclusive": "it is not settled",
    "as_off": "it is as with the flag off",
    "varies": "its bits vary",
    "not_repeatable": "its bits are not repeatable",
    "error": "it could not be tried",
    "invariant": "its bits stay the same",
}

# The key of the compiler's cache holds the flag of the forward phase alone.
_CACHED_ADVICE = (
    "With torch.compile set the flag, and take no code from a cache that a process with the flag off in its backward "
    "phase has filled: use a fresh folder (TORCHINDUCTOR_CACHE_DIR), or set the flag throughout in every process that fills it."
)


def further_words(one: Matrix, rows: Sequence[RowView]) -> dict[str, str]:
    """Return what the further columns of a run say of its rows, the worst first, each with its cases and the reason."""
    return {column.name: _words(column, one.rows, rows) for column in all_columns([one])}


def _words(column: Column, records: Sequence[MatrixRow], rows: Sequence[RowView]) -> str:
    about = [
        (row, column.said(row))
        for record, row in zip(records, rows, strict=True)
        if column.why_not(record.row) is None
    ]
    if not about:
        return f"{NOTHING}, {column.why_not(records[0].row)}"
    order = [*column.findings, None]
    found: dict[Said, list[RowView]] = {}
    for row, said in sorted(about, key=lambda pair: order.index(pair[1].finding)):
        found.setdefault(said, []).append(row)
    told = [row for row, said in about if said.finding is not None]
    texts = []
    for said, some in found.items():
        # Of what a column says nothing of, the reason tells which rows that is.
        where = ", ".join(_named(some, told)) if said.finding else several(len(some), "row")
        texts.append(f"{said.text}: {where}" + (f" ({said.reason})" if said.reason else ""))
    return "; ".join(texts)


def _named(rows: Sequence[RowView], told: Sequence[RowView]) -> list[str]:
    """Return the names of cases, with direction and dtype where another of these shows, or may show, another thing."""
    names = []
    for row in rows:
        of_case = [one for one in told if one.case == row.case]
        parts = [
            name
            for name, others in (
                (row.direction, {one.direction for one in of_case}),
                (row.dtype, {one.dtype for one in of_case}),
            )
            if len(others) > 1
        ]
        names.append(" ".join([row.case, *parts]))
    return list(dict.fromkeys(names))


def further_advice(columns: Sequence[Column], cells: Sequence[ColumnCell]) -> list[str]:
    """Return sentences on what further columns show of an op, first what needs attention."""
    told: dict[str, list[str]] = {}
    for column, cell in sorted(zip(columns, cells, strict=True), key=lambda pair: not pair[1].notable):
        if cell.finding is not None:
            part = "" if cell.rows == cell.of else f" (in {cell.rows} of {cell.of} rows)"
            told.setdefault(f"{PHRASES[cell.finding]}{part}", []).append(column.where)
    if not told:
        return []
    text = "; ".join(f"{_listed(places)} {phrase}" for phrase, places in told.items())
    found = {column.name: cell.finding for column, cell in zip(columns, cells, strict=True)}
    return [f"{text[0].upper()}{text[1:]}.", *_compiled_advice(found)]


def _compiled_advice(found: Mapping[str, str | None]) -> Iterator[str]:
    """Yield what to do under torch.compile, where the flag is seen to help compiled code."""
    if found.get("compile_on") not in {"as_off", "fixed_by_mode", "mode_dependent"}:
        return
    if found.get("compile_on_cached") == "silent":
        yield _CACHED_ADVICE
    elif found.get("compile_off") in {"differs", "also_differs"}:
        yield "With torch.compile set the flag."


def _listed(places: Sequence[str]) -> str:
    """Return "under a, b and c" of "under a", "under b" and "under c"."""
    first, *others = (place.partition(" ") for place in places)
    *names, last = [first[2], *(other[2] for other in others)]
    return f"{first[0]} {', '.join(names)} and {last}" if names else f"{first[0]} {last}"


def joined(columns: Sequence[Column], ops: Sequence[OpView]) -> list[ColumnCell]:
    """Return what each column says of all specs of an op: the worst that it finds of any."""
    return [_joined(column, [op.further[place] for op in ops]) for place, column in enumerate(columns)]


def _joined(column: Column, cells: Sequence[ColumnCell]) -> ColumnCell:
    order = [*column.findings, None]
    worst = min(cells, key=lambda cell: order.index(cell.finding))
    rows = sum(cell.rows for cell in cells if cell.finding == worst.finding)
    return replace(worst, rows=rows, of=sum(cell.of for cell in cells))


def showing(ops: Sequence[OpView], column: Column, cell: ColumnCell) -> tuple[list[OpRow], list[str]]:
    """Return the rows that show what a column finds of all specs of an op, and the options that a script of them takes."""
    rows = [one for op in ops for one in op.rows if column.finding(one.record) == cell.finding]
    return rows, ["--invariance", column.name] if isinstance(column, PropertyColumn) else []
