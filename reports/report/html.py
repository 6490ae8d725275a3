"""The matrix as one web page: self-contained, offline, complete without JavaScript.

The matrix and every reason are in the page itself. What a row's panel shows is kept beside it as JSON, in which
repeated values stand once, so that ten thousand rows stay a few megabytes; the page's script draws a panel
when it is opened. jinja2 escapes all of it, and a content security policy lets no other script run.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import count

from msgspec.structs import replace

from reports.builds.words import link_words
from reports.coverage.claims import HEADS
from reports.coverage.model import coverages
from reports.matrix.cost import duration, memory
from reports.matrix.expected import ExpectedRows
from reports.matrix.model import Matrix
from reports.matrix.view import CellView, RowView
from reports.matrix.words import percent
from reports.render.page import Pool, generate
from reports.report.view import ReportView, report_view
from scanner.observations.records import Mode, Observation, Provoked
from scanner.verdicts.findings import FINDING_MEANING, MatrixRow

# More than this no browser filters at once; ten thousand rows are a page of some megabytes.
MOST_ROWS = 20_000

# What could expose a difference where no spec has said it.
_UNPROVOKED: dict[Provoked | None, str] = {
    None: "Nothing: these inputs leave the op no choice of order.",
    "samples": "Hardly anything: a sample of PyTorch's database, too small for kernels to run in parallel.",
    "enlarged": "Its size.",
}


def render(matrices: Sequence[Matrix]) -> Iterator[str]:
    """Yield the page in pieces."""
    report = report_view(_most(matrices))
    pool = Pool()
    yield from generate(
        "report",
        report=report,
        facts=_facts(report, pool),
        pool=pool,
        limit=_limit_words(matrices, report),
        coverages=coverages(matrices),
        documented_heads=[head.capitalize() for head in HEADS],
        styles=("expected",) if report.expected else (),
    )


def _most(matrices: Sequence[Matrix]) -> Sequence[Matrix]:
    """Leave out what a browser cannot hold: of all rows those stay whose findings are the worst, in their order."""
    findings = [row.finding for one in matrices for row in one.rows]
    if len(findings) <= MOST_ROWS:
        return matrices
    order = {finding: place for place, finding in enumerate(FINDING_MEANING)}
    kept = set(sorted(range(len(findings)), key=lambda place: order[findings[place]])[:MOST_ROWS])
    place = count()
    return [replace(one, rows=tuple(row for row in one.rows if next(place) in kept)) for one in matrices]


def _limit_words(matrices: Sequence[Matrix], report: ReportView) -> str | None:
    """Say that rows were left out because there are too many."""
    rows, most = sum(len(one.rows) for one in matrices), sum(len(run.rows) for run in report.runs)
    if rows == most:
        return None
    return (
        f"A page holds {most} rows at most: these are {most} of {rows}, those with the worst findings. Choose others "
        f"with --only and --rows; the reports in Markdown, CSV and JSON have all of them."
    )


def _facts(report: ReportView, pool: Pool) -> Iterator[list[object]]:
    """Yield what the script knows of each row, in the page's order: report.js names the fields."""
    for family in report.families:
        for run, row, record in family.lines:
            fields = _row(row, pool)  # In this order the pool is filled.
            fields += [[_process(it, pool) for it in record.observations], _cost(row, pool)]
            if run.matrix.expected:
                fields.append(_expected(record, run.matrix.expected, pool))
            yield [run.number, *fields]


def _row(row: RowView, pool: Pool) -> list[object]:
    names = ("family", "spec", "op", "case", "direction", "dtype", "device")
    cells = list(row.cells.values())
    texts: list[Hashable] = [
        *(getattr(row, name) for name in names),
        row.provokes or _UNPROVOKED[row.provoked],
        row.why or "",
        row.finding,
        row.reason,
        row.inputs or (),
        _by_mode([[(one.name, one.shape, one.dtype, one.differing) for one in it.outputs] for it in cells]),
        row.low_power,
        "serial" if row.serial else None,
        row.constant,
        _by_mode(
            [
                [(one.perturbation, f"{one.differing} of {one.executions}") for one in it.groups]
                for it in cells
            ]
        ),
        tuple((it.mode, it.output, it.first, *it.distance) for it in row.differences),
    ]
    return [*map(pool.place, texts), [_cell(mode, cell, pool) for mode, cell in row.cells.items()]]


def _by_mode(modes: Sequence[Sequence[tuple[Hashable, ...]]]) -> tuple[tuple[Hashable, ...], ...]:
    """Join the lines of several modes that begin alike: each ends in its last value in every mode."""
    lines: dict[Hashable, list[Hashable]] = {}
    for place, seen in enumerate(modes):
        for *start, value in seen:
            line = lines.setdefault(start[0], [*start, *[None] * len(modes)])
            line[len(start) + place] = value
    return tuple(map(tuple, lines.values()))


def _expected(record: MatrixRow, builds: Sequence[ExpectedRows], pool: Pool) -> int:
    """Return for each build what it is, what its files say of a row, and the places that the row leads to."""
    lines: list[Hashable] = []
    for one in builds:
        said = one.of(record.row)
        links = tuple(link_words(link) for link in dict.fromkeys((*said.alerts, *said.flags)))
        title, measured = f"{one.title}, torch {one.torch}", one.measured(record.finding)
        lines.append((title, one.about, said.documented, said.binary, said.trace, measured, links))
    return pool.place(tuple(lines))


def _cell(mode: Mode, cell: CellView, pool: Pool) -> list[object]:
    bound = percent(cell.upper_bound) if cell.upper_bound else None
    before = map(pool.place, (mode, cell.verdict, cell.words, bound, cell.reason, cell.alert))
    return [*before, int(cell.seeded), pool.place(cell.where), pool.place(cell.alerts)]


def _cost(row: RowView, pool: Pool) -> list[object]:
    """Return the words of a row's cost, its ratio, and a line for each variant that was timed."""
    one = row.cost
    ratio = float(f"{one.ratio:.4g}") if one and one.ratio is not None else None
    start: list[object] = [pool.place(row.cost_words), ratio, pool.place(one.message if one else None)]
    if one is None or one.off is None:
        return start
    variants = (
        ("off", one.off, one.off_memory),
        ("on", one.on, one.on_memory),
        ("on, fill off", one.unfilled, None),
    )
    lines = [[name, duration(timing), memory(peak)] for name, timing, peak in variants if timing]
    return [*start, lines, one.samples, one.calls]


def _process(one: Observation, pool: Pool) -> list[object]:
    return [
        pool.place(one.mode),
        one.process,
        pool.place(one.outcome),
        one.executions,
        len(one.digests),
        one.first_differing,
        one.forward_differing,
        float(f"{one.seconds:.3g}"),
        float(f"{one.setup_seconds:.3g}"),
        pool.place(": ".join(filter(None, (one.exception, one.message))) or one.message),
    ]
