"""Censuses and traces put beside the runs of the builds they are of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath

from msgspec.structs import replace

from reports.builds.expectations import Reader
from reports.builds.files import Source, fits, git_of, paired, version
from reports.builds.links import Link
from reports.builds.words import linked
from reports.compare.claims import documented, lists_of
from reports.matrix.expected import ExpectedRows, ExpectedText, Key
from reports.matrix.model import Matrix
from scanner.census.record import Census, read_census
from scanner.errors import UsageError
from scanner.observations.records import Claim, Row
from scanner.observations.trace_file import read_trace
from scanner.observations.trace_records import TracedRow, TraceFile

# All that a rule reads of a row that was not traced.
LinkKey = tuple[tuple[str, ...], str, str, tuple[tuple[str, str], ...]]


def with_builds(matrices: Sequence[Matrix], censuses: Sequence[str], traces: Sequence[str]) -> list[Matrix]:
    """Return the matrices with what the files say of the shown rows; each file goes to the runs of its build.

    Raises:
        BuildError: A census cannot be read.
        RunFileError: A trace cannot be read.
        UsageError: A file is of another build than every run, or is there twice.
    """
    named: list[tuple[str, str, Source]] = [
        *((path, PurePath(path).name, read_census(path)) for path in censuses),
        *((path, PurePath(path).name, read_trace(path)) for path in traces),
    ]
    for place, (path, _, one) in enumerate(named):
        if any(one == other for _, _, other in named[:place]):
            raise UsageError(f"{path}: is there twice; give each file once")
        if not any(_fits(one, matrix) for matrix in matrices):
            environments = [matrix.run.header.environment for matrix in matrices]
            runs = dict.fromkeys(f"torch {it.torch} (git {it.torch_git or 'unknown'})" for it in environments)
            raise UsageError(
                f"{path}: is of torch {version(one)} (git {git_of(one) or 'unknown'}), and no run is: they are of "
                f"{', '.join(runs)}; give files of the builds that were scanned"
            )
    # What is about the device that ran stands first.
    return [
        replace(
            one,
            expected=tuple(
                sorted(
                    _expected(one, [(name, it) for _, name, it in named if _fits(it, one)]),
                    key=lambda build: not build.same_device,
                )
            ),
        )
        for one in matrices
    ]


def _fits(one: Source, matrix: Matrix) -> bool:
    environment = matrix.run.header.environment
    gits = set() if environment.torch_git is None else {environment.torch_git}
    return fits(one, environment.torch.partition("+")[0], gits)


def _expected(matrix: Matrix, named: Sequence[tuple[str, Source]]) -> Iterator[ExpectedRows]:
    """Yield what each build says of a run's shown rows."""
    environment = matrix.run.header.environment
    claims = lists_of(matrix).claims
    for census, trace, kind in paired(named):
        source: Source | None = census[1] if census is not None else trace[1] if trace is not None else None
        assert source is not None
        yield ExpectedRows(
            device=kind,
            torch=version(source),
            census=census[0] if census is not None else None,
            trace=trace[0] if trace is not None else None,
            run_torch=environment.torch,
            run_device=matrix.run.header.settings.device,
            rows=_Judge(
                census[1] if census is not None else None,
                trace[1] if trace is not None else None,
                kind,
                claims,
            ).rows(matrix),
        )


class _Judge:
    """Says of rows what one build says."""

    def __init__(
        self, census: Census | None, trace: TraceFile | None, device: str, claims: Sequence[Claim]
    ) -> None:
        self._reader = Reader(census, trace, device)
        self._has_census = census is not None
        self._has_trace = trace is not None
        self._traced = {one.row.key: one for one in (trace.rows if trace else ())}
        self._device = device
        self._claims = claims
        self._worded: dict[LinkKey, list[Link]] = {}

    def rows(self, matrix: Matrix) -> dict[Key, ExpectedText]:
        """Return what is said of the rows that a matrix shows."""
        return {one.row.key: self._said(one.row) for one in matrix.rows}

    def _said(self, row: Row) -> ExpectedText:
        traced = self._traced.get(row.key)
        way, text, links = self._trace(traced)
        # As with bullets: only where no overload leads anywhere are words asked.
        links = links or self._words(row)
        alerts, flags = (
            tuple(dict.fromkeys(link for link in links if link.place.kind == kind))
            for kind in ("alert", "flag")
        )
        return ExpectedText(
            documented=documented(replace(row, device=self._device), self._claims),
            binary=linked(alerts, flags) if self._has_census else "no census",
            trace=text,
            way=way,
            alerts=alerts,
            flags=flags,
        )

    def _trace(self, traced: TracedRow | None) -> tuple[str | None, str, list[Link]]:
        if traced is None:
            return None, "not in the trace" if self._has_trace else "no trace", []
        said = self._reader.trace(traced, "any")
        return said.way, said.text, [*said.alerts, *said.flags]

    def _words(self, row: Row) -> list[Link]:
        """Return what the words of a row lead to; the many rows of one op share them."""
        key = (row.documented, row.spec, row.direction, tuple(sorted(row.traits.items())))
        if key not in self._worded:
            self._worded[key] = self._reader.worded(row)
        return self._worded[key]
