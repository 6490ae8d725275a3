"""Censuses and traces put beside the runs of the builds they are of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath

from msgspec.structs import replace

from reports.builds.files import Source, fits, git_of, outdated, paired, version
from reports.builds.links import Link
from reports.builds.traced import Reader
from reports.builds.words import linked
from reports.cudnn.rows import RowEngines, expected_engines
from reports.matrix.expected import ExpectedRows, ExpectedText, Key
from reports.matrix.listed import documented, lists_of
from reports.matrix.model import Matrix
from scanner.census.record import Census, read_census
from scanner.errors import UsageError
from scanner.observations import versions
from scanner.observations.trace.files import read_trace
from scanner.observations.trace.records import TraceFile

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
    found = (
        list(_expected(one, [(name, it) for _, name, it in named if _fits(it, one)])) for one in matrices
    )
    return [
        replace(one, expected=tuple(sorted(builds, key=lambda build: not build.same_device)))
        for one, builds in zip(matrices, found, strict=True)
    ]


def fits_run(path: str, matrix: Matrix) -> bool:
    """Tell whether a recorded census or trace is of the build that a run is of."""
    return _fits(read_trace(path) if "traces" in PurePath(path).parts else read_census(path), matrix)


def _fits(one: Source, matrix: Matrix) -> bool:
    environment = matrix.run.header.environment
    gits = set() if environment.torch_git is None else {environment.torch_git}
    return fits(one, versions.release(environment.torch), gits)


def _expected(matrix: Matrix, named: Sequence[tuple[str, Source]]) -> Iterator[ExpectedRows]:
    """Yield what each build says of a run's shown rows."""
    header = matrix.run.header
    for census, trace, kind in paired(named):
        files = (census[1] if census else None, trace[1] if trace else None)
        yield ExpectedRows(
            device=kind,
            torch=next(version(file) for file in files if file is not None),
            census=census[0] if census else None,
            trace=trace[0] if trace else None,
            run_torch=header.environment.torch,
            run_device=header.settings.device,
            outdated=tuple(
                text
                for file in (census, trace)
                if file is not None and (text := outdated(file[1], file[0])) is not None
            ),
            rows=_rows(matrix, *files, kind),
        )


def _rows(
    matrix: Matrix, census: Census | None, trace: TraceFile | None, device: str
) -> dict[Key, ExpectedText]:
    """Return what one build says of the rows that a matrix shows."""
    reader, claims = Reader(census, trace, device), lists_of(matrix).claims
    build = next(version(file) for file in (census, trace) if file is not None)
    traced = {one.row.key: one for one in (trace.rows if trace else ())}
    worded: dict[LinkKey, list[Link]] = {}
    rows = {}
    for row in (one.row for one in matrix.rows):
        way, text = None, "not in the trace" if trace else "no trace"
        links: list[Link] = []
        if row.key in traced:
            said = reader.trace(traced[row.key], "any")
            way, text, links = said.way, said.text, [*said.alerts, *said.flags]
        # As with bullets: only where no overload leads anywhere are words asked, which the many rows of one op share. Memory
        # is filled wherever an op makes some, which is no reason not to ask for the alert of what the trace did not enter.
        if all(link.place.kind == "fill" for link in links):
            key = (row.documented, row.spec, row.direction, tuple(sorted(row.traits.items())))
            if key not in worded:
                worded[key] = reader.worded(row)
            more = (it for it in worded[key] if it.place.kind == "alert" and it.place not in reader.owned)
            links = [*more, *links] if links else worded[key]
        links = list(dict.fromkeys(links))
        engines = expected_engines(row, build) if device == "cuda" else RowEngines()
        alerts = tuple(link for link in links if link.place.kind == "alert")
        flags = tuple(link for link in links if link.place.kind != "alert")
        rows[row.key] = ExpectedText(
            documented=documented(replace(row, device=device), claims),
            binary=linked(alerts, flags) if census else "no census",
            trace=text,
            engines=engines.text,
            nondeterministic_engines=engines.nondeterministic,
            way=way,
            alerts=alerts,
            flags=flags,
        )
    return rows
