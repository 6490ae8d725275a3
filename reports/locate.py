"""Which ops of a program are not reproducible, in every format: the roots, what is known of them, what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec

from reports.matrix.model import Matrix, load
from reports.matrix.words import bullet_words
from reports.render.json import View, json_of
from reports.render.markdown import generate
from reports.render.page import generate_still
from scanner.claims.matching import matches
from scanner.errors import one_line, safe_lines
from scanner.located import Located, Root, WithFlag
from scanner.located_words import (
    CAUSE_MEANING,
    advice,
    details,
    in_order,
    notes,
    summary,
    table,
    text,
)
from scanner.verdicts.findings import MatrixRow
from scanner.verdicts.vocabulary import FINDINGS, Finding

# What an op that differs and does this with the flag on is called in the matrix.
_FINDINGS: dict[WithFlag | None, Finding] = {
    "cured": "fixed_by_mode",
    "raises": "raises",
    "differs": "silent",
}
_RECORDED = Path(__file__).parent / "runs"


def view_of(located: Located, runs: Sequence[str] = ()) -> View:
    """Return the report of a program.

    Args:
        located: What its process found.
        runs: Run files in which its ops are looked up; none: the recorded one of its release, if there is one.
    """
    roots = in_order(located)
    heads, rows = table(located)
    index = index_of(runs, located.torch) if roots else None
    places = [index.place(root) if index else None for root in roots]
    shown = [
        View(
            {**asdict(root), "matrix": place, "to_do": advice(root)},
            name=one_line(root.site.op),
            cells=row,
            details="; ".join(details(root)),
            place=matrix_words(place) if place else None,
        )
        for root, place, row in zip(roots, places, rows, strict=True)
    ]
    return View(
        {**asdict(located), "roots": shown},
        summary=summary(located),
        heads=heads,
        notes=notes(located),
        causes={cause: CAUSE_MEANING[cause] for cause in dict.fromkeys(root.cause for root in roots)},
        text=text(located, {number: one.place for number, one in enumerate(shown) if one.place}),
    )


def matrix_words(place: dict[str, Any]) -> str:
    """Say what the matrix shows of an op."""
    where = "In the matrix, with other arguments" if place["other_case"] else "In the matrix"
    said = f"{where}: {place['finding']} ({place['row']})"
    if place["alerts"]:
        said += f", alert caller {', '.join(place['alerts'])}"
    said += f". {place['why']}"
    return said + (
        f" Documented: {'; '.join(place['documented'])}." if place["documented"] else " Not documented."
    )


class OverloadIndex:
    """Finds the rows that reach an overload."""

    def __init__(self, matrices: Sequence[Matrix]) -> None:
        self._rows: dict[str, list[tuple[int, int, int, Matrix, MatrixRow]]] = {}
        for matrix in matrices:
            rows = {row.row.key: row for row in matrix.rows}
            for dispatch in matrix.run.dispatches:
                row = rows.get(dispatch.key)
                if row is None:
                    continue
                names = {name for mode in dispatch.modes.values() for name in mode.overloads}
                for name in names:
                    places = self._rows.setdefault(name, [])
                    places.append((FINDINGS.index(row.finding), len(names), len(places), matrix, row))

    def place(self, root: Root) -> dict[str, Any] | None:
        """Return the row that says most of an op: of its direction, that does as it did, with the worst finding."""
        direction = "backward" if root.site.phase == "backward" else "forward"
        seen = _FINDINGS.get(root.flag)
        found = self._rows.get(root.site.op)
        if not found:
            return None
        *_, matrix, row = min(
            found,
            key=lambda one: (
                one[4].row.direction != direction,
                seen is not None and one[4].finding != seen,
                one[4].row.source != "documented",
                *one[:3],
            ),
        )
        claims = (bullet_words(claim) for claim in matrix.run.header.claims if matches(row.row, claim))
        return {
            "run": matrix.name,
            "row": row.row.id,
            "spec": row.row.spec,
            "finding": row.finding,
            "other_case": seen is not None and row.finding != seen,
            "why": row.row.why,
            "alerts": row.alerts,
            "documented": [*dict.fromkeys(claims)],  # bullets of the lists that speak of the row
        }


def recorded_run(torch: str) -> list[str]:
    """Return the recorded run of a release, if this is a checkout that has one; a GPU's rows are in none."""
    release = f"torch-{torch.partition('+')[0]}-cpu"
    # That of all databases of PyTorch reaches most overloads.
    paths = (_RECORDED / f"{release}{which}.jsonl.gz" for which in ("-all", ""))
    return [str(path) for path in paths if path.is_file()][:1]


def index_of(runs: Sequence[str], torch: str) -> OverloadIndex:
    """Read the named run files, or else the recorded one of the release.

    Raises:
        RunFileError: A file cannot be read.
    """
    return OverloadIndex(load(runs or recorded_run(torch)))


RENDERERS: dict[str, Callable[[View], Iterable[str]]] = {
    "text": lambda report: [safe_lines(report.text)],
    "md": lambda report: generate("locate", report),
    "html": lambda report: generate_still("locate", report=report),
    "json": lambda report: [msgspec.json.format(json_of(report), indent=1) + "\n"],
}
