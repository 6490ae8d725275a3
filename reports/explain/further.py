"""What the further columns of runs say of one op: in words, as advice, and in which rows."""

from __future__ import annotations

from collections.abc import Sequence

from reports.matrix.columns import NOTHING, Column, ColumnCell, PropertyColumn, Said, all_columns
from reports.matrix.model import Matrix
from reports.matrix.ops import OpRow, OpView
from reports.matrix.view import RowView
from scanner.verdicts.findings import MatrixRow

# What a column finds, as a sentence goes on with it.
PHRASES = {
    "silent": "it differs though the flag is on",
    "raises": "it raises",
    "differs": "it differs, and does not with the flag off",
    "also_differs": "it differs, as with the flag off",
    "fixed_by_mode": "it did not differ, and does with the flag off",
    "mode_dependent": "it gives other bits than with the flag off, the same every time",
    "refused": "PyTorch refuses to run its backward part",
    "not_compiled": "nothing of it is compiled",
    "inconclusive": "it is not settled",
    "as_off": "it is as with the flag off",
    "varies": "its bits vary",
    "not_repeatable": "its bits are not repeatable",
    "error": "it could not be tried",
    "invariant": "its bits stay the same",
}


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
    # One case may show another thing in each direction.
    both = len({row.direction for row, _ in about}) > 1
    order = [*column.findings, None]
    found: dict[Said, list[str]] = {}
    for row, said in sorted(about, key=lambda pair: order.index(pair[1].finding)):
        found.setdefault(said, []).append(f"{row.case} {row.direction}" if both else row.case)
    return "; ".join(
        f"{said.text}: {', '.join(dict.fromkeys(cases))}" + (f" ({said.reason})" if said.reason else "")
        for said, cases in found.items()
    )


def further_advice(columns: Sequence[Column], cells: Sequence[ColumnCell]) -> list[str]:
    """Return sentences on what further columns show of an op, first what needs attention."""
    told: dict[str, list[str]] = {}
    for column, cell in sorted(zip(columns, cells, strict=True), key=lambda pair: not pair[1].notable):
        if cell.finding is not None:
            part = "" if cell.rows == cell.of else f" (in {cell.rows} of {cell.of} rows)"
            told.setdefault(f"{PHRASES[cell.finding]}{part}", []).append(column.where)
    if not told:
        return []
    text = "; ".join(f"{' and '.join(places)} {phrase}" for phrase, places in told.items())
    found = {column.name: cell.finding for column, cell in zip(columns, cells, strict=True)}
    cured = found.get("compile_on") in {"as_off", "fixed_by_mode", "mode_dependent"}
    compiled = cured and found.get("compile_off") in {"differs", "also_differs"}
    return [f"{text[0].upper()}{text[1:]}.", *["With torch.compile set the flag."] * compiled]


def showing(op: OpView, columns: Sequence[Column]) -> tuple[list[OpRow], list[str]]:
    """Return the rows of an op that show a result of a further column, and the options that a script of them takes."""
    for column, cell in zip(columns, op.further, strict=True):
        rows = [one for one in op.rows if column.finding(one.record) == cell.finding]
        if cell.notable and cell.settled and rows:
            return rows, ["--invariance", column.name] if isinstance(column, PropertyColumn) else []
    return [], []
