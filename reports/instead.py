"""What may be written instead of an op: the code of each spelling, and what runs of it showed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import cache
from typing import Any

from detmatrix.opspecs.spellings import SPELLINGS, code_of
from detmatrix.reports.matrix.model import Matrix, narrowed, recorded
from detmatrix.reports.matrix.rows import times
from detmatrix.reports.render.json import View
from detmatrix.scanner.observations.runfile import read_run
from detmatrix.scanner.plurals import several
from detmatrix.scanner.verdicts.findings import MatrixRow
from detmatrix.scanner.verdicts.vocabulary import WORST_FIRST

NOT_RUN = "It was not run."


def instead_of(specs: Collection[str], runs: Sequence[tuple[str, Matrix]] = ()) -> list[View]:
    """Return what may be written instead of the op of these specs.

    Args:
        specs: Their names.
        runs: Those that have rows of spellings, each with the path of its file; they are told before the recorded ones.
    """
    return [
        View(
            {"code": code.lines, "note": code.note, "cases": list(spelling.cases), "runs": seen},
            words=[run.words for run in seen] or [NOT_RUN],
        )
        for spelling in SPELLINGS
        if spelling.instead_of and spelling.instead_of.name in specs
        for code in (code_of(spelling.op_name.rpartition(".")[2]),)
        for seen in ([*_seen(spelling.name, [*runs, *recorded_runs()])],)
    ]


@cache
def recorded_runs() -> tuple[tuple[str, Matrix], ...]:
    """Return the recorded runs of spellings, each with its path."""
    paths = recorded(of="instead")
    read = [read_run(path) for path in paths]
    return tuple(zip(paths, narrowed(paths, read, lambda row: row.source == "instead"), strict=True))


def _seen(spec: str, runs: Sequence[tuple[str, Matrix]]) -> Iterator[View]:
    """Yield what each run showed of a spelling."""
    for path, one in runs:
        if rows := [row for row in one.rows if row.row.spec == spec]:
            fields: dict[str, Any] = {
                "run": path,
                "torch": one.run.header.environment.torch,
                "device": one.device,
            }
            finding = min((row.finding for row in rows), key=WORST_FIRST.index)
            fields |= {
                "finding": finding,
                "rows": [row.row.id for row in rows],
                **_compared(rows),
                **_cost(rows),
            }
            head = one.device if one.simulated else f"{one.device}, measured"
            told = [
                f"{finding} in {several(len(rows), 'row')}",
                _distance(fields),
                _cost_words(fields["cost"]),
            ]
            yield View(fields, words=f"{head}, torch {fields['torch']}: {'; '.join(filter(None, told))}")


def _compared(rows: Sequence[MatrixRow]) -> dict[str, Any]:
    """Return how far the rows are from the op."""
    seen = [it.instead for row in rows for it in row.observations if it.instead is not None]
    wrong = next((it.words for it in seen if it.agrees is not True), None)
    largest = [it.largest for it in seen if it.largest is not None]
    return {"agrees": bool(seen) and wrong is None, "disagrees": wrong, "largest": max(largest, default=None)}


def _distance(fields: dict[str, Any]) -> str:
    if not fields["agrees"]:
        return f"values not those of the op: {fields['disagrees'] or 'not compared'}"
    largest = fields["largest"]
    return f"values of the op, to {largest:.1e} of its largest" if largest else "values of the op"


def _cost(rows: Sequence[MatrixRow]) -> dict[str, Any]:
    """Return the least and the most that a row takes of the op's time with the flag off."""
    costs = [row.cost for row in rows if row.cost is not None]
    ratios = [it.off.median / it.op.median for it in costs if it.off and it.op and it.op.median]
    return {"cost": [min(ratios), max(ratios)] if ratios else None}


def _cost_words(cost: list[float] | None) -> str:
    if cost is None:
        return ""
    span = " to ".join(dict.fromkeys(map(times, cost)))
    return f"takes {span} the op's time with the flag off"
