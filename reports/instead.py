"""What may be written instead of an op: the code of each spelling, and what runs of it showed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import cache
from typing import Any

from detmatrix.reports.matrix.model import Matrix, narrowed, recorded
from detmatrix.reports.matrix.rows import times
from detmatrix.reports.matrix.words import proof_words
from detmatrix.reports.render import View
from detmatrix.scanner.accelerators import label_of
from detmatrix.scanner.cases.known import spellings_of
from detmatrix.scanner.claims.matching import claimed_kind
from detmatrix.scanner.observations.runfile import read_run
from detmatrix.scanner.plurals import several
from detmatrix.scanner.verdicts.findings import MatrixRow
from detmatrix.scanner.verdicts.vocabulary import WORST_FIRST

NOT_RUN = "It was not run."


def instead_of(specs: Collection[str], runs: Sequence[tuple[str, Matrix]] = ()) -> list[View]:
    """Return what may be written instead of the op of these specs.

    Args:
        specs: Their names.
        runs: Those that have rows of spellings, each with the path of its file; they stand for the recorded ones of their kinds
            of devices.
    """
    found = []
    for one in spellings_of(specs):
        seen = [*_seen(one.spec, runs)]
        covered = {claimed_kind(run["device"]) for run in seen}
        seen += (
            run for run in _seen(one.spec, recorded_runs()) if claimed_kind(run["device"]) not in covered
        )
        found.append(
            View(
                {"code": one.code, "note": one.note, "cases": list(one.cases), "runs": seen},
                words=[*_told(seen), *(run.words for run in seen)] or [NOT_RUN],
            )
        )
    return found


def recorded_runs() -> list[tuple[str, Matrix]]:
    """Return the recorded runs of spellings, each with its path from here."""
    return [*zip(recorded(of="instead"), _recorded_runs(), strict=True)]


@cache
def _recorded_runs() -> tuple[Matrix, ...]:
    paths = recorded(of="instead")
    return tuple(narrowed(paths, [read_run(path) for path in paths], lambda row: row.source == "instead"))


def _told(seen: Sequence[View]) -> Iterator[str]:
    """Say in which cases a spelling was executed, and whether it is for CUDA alone."""
    cases = dict.fromkeys(case for run in seen for case in run["cases"])
    if cases:
        yield f"executed in the cases {', '.join(cases)}"
    on_cpu = [run["finding"] for run in seen if run["device"] == "cpu"]
    if len(on_cpu) < len(seen) and any(finding != "deterministic" for finding in on_cpu):
        yield "for CUDA: on the CPU it differs"


def _seen(spec: str, runs: Sequence[tuple[str, Matrix]]) -> Iterator[View]:
    """Yield what each run showed of a spelling."""
    for path, one in runs:
        rows = [row for row in one.rows if row.row.spec == spec]
        if not rows:
            continue
        torch = one.torch
        finding = min((it.finding for it in rows), key=WORST_FIRST.index)
        compared, (cost, slowest) = _compared(rows), _cost(rows)
        head = one.device if one.simulated else f"{label_of(one.run.header.settings.device)}, measured"
        ratios = " to ".join(dict.fromkeys(map(times, cost)))
        took = [f"takes {ratios} ({slowest}) the op's time with the flag off"] if cost else []
        told = [f"{finding} in {several(len(rows), 'row')}", compared["values"], *took, *proof_words(rows)]
        yield View(
            {
                "run": path,
                "torch": torch,
                "device": one.run.header.settings.device,
                "finding": finding,
                "rows": [row.row.id for row in rows],
                "cases": list(dict.fromkeys(row.row.case for row in rows)),
                **compared,
                "cost": cost,
                "slowest": slowest,
            },
            words=f"{head}, torch {torch}: {'; '.join(told)}",
        )


def _compared(rows: Sequence[MatrixRow]) -> dict[str, Any]:
    """Return how far the rows are from the op."""
    seen = [it.instead for row in rows for it in row.observations if it.instead is not None]
    wrong = next((it.words for it in seen if not it.agrees), None if seen else "not compared with the op")
    largest = max((it.largest for it in seen if it.largest is not None), default=None)
    distance = f" to within {largest:.1e} of the largest" if largest else ""
    return {"agrees": wrong is None, "largest": largest, "values": wrong or f"the op's values{distance}"}


def _cost(rows: Sequence[MatrixRow]) -> tuple[list[float], str | None]:
    """Return the least and the most that a row takes of the op's time with the flag off, and the case that takes most."""
    timed = [(row.row.case, row.cost) for row in rows if row.cost is not None]
    ratios = [(it.off.median / it.op.median, case) for case, it in timed if it.off and it.op and it.op.median]
    return ([min(ratios)[0], max(ratios)[0]], max(ratios)[1]) if ratios else ([], None)
