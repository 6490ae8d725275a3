"""The place of an op in the matrix: the rows of a run file that reach it, what they showed, what is documented of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec import Struct

from reports.matrix.model import FINDINGS, Matrix, alerts_of, load
from reports.matrix.words import bullet_words
from scanner.claims.matching import matches
from scanner.located import OpSite
from scanner.verdicts.findings import Finding, MatrixRow

_RECORDED = Path(__file__).parents[1] / "runs"


class PlaceInMatrix(Struct, frozen=True, kw_only=True):
    """A row of a run file that reaches the same overload: of those with the worst finding the one that reaches fewest."""

    run: str
    row: str
    spec: str
    finding: Finding
    why: str
    alerts: tuple[str, ...]
    documented: tuple[str, ...]  # bullets of the documented lists that speak of the row


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

    def place(self, site: OpSite) -> PlaceInMatrix | None:
        """Return the row that says most of an op; rows of the same direction come first."""
        direction = "backward" if site.phase == "backward" else "forward"
        found = self._rows.get(site.op)
        if not found:
            return None
        *_, matrix, row = min(
            found,
            key=lambda one: (one[4].row.direction != direction, one[4].row.source != "documented", *one[:3]),
        )
        claims: Iterable[str] = (
            bullet_words(claim) for claim in matrix.run.header.claims if matches(row.row, claim)
        )
        return PlaceInMatrix(
            run=matrix.name,
            row=row.row.id,
            spec=row.row.spec,
            finding=row.finding,
            why=row.row.why,
            alerts=alerts_of(row),
            documented=tuple(dict.fromkeys(claims)),
        )


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
