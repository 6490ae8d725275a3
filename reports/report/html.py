"""The matrix as one web page: self-contained, offline, complete without JavaScript.

The matrix and every reason are in the page itself. What a row's panel shows is kept beside it as JSON, in which
repeated values stand once, so that ten thousand rows stay a few megabytes; the page's script draws a panel
when it is opened. jinja2 escapes all of it, and a content security policy lets no other script run.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Sequence
from itertools import count

import msgspec
from msgspec.structs import replace

from reports.builds.words import link_words
from reports.coverage import claims as coverage_claims
from reports.coverage import model as coverage
from reports.matrix import cost, database_rows, perturbations, trust, words
from reports.matrix.chart import chart
from reports.matrix.expected import EXPECTED_MEANING, ExpectedRows, about_words, device_words
from reports.matrix.model import (
    COMPARED,
    Matrix,
    alerts_of,
    bound_of,
    cell_of_mode,
    constant_of,
    is_seeded,
    outputs_of,
)
from reports.render.page import Pool, generate
from scanner.observations.records import MODES, WORKER_MODES, Mode, Observation, Provoked
from scanner.verdicts.findings import FINDING_MEANING, VERDICT_MEANING, MatrixRow

# More than this no browser filters at once; ten thousand rows are a page of some megabytes.
MOST_ROWS = 20_000

# What could expose a difference where no spec has said it.
_UNPROVOKED: dict[Provoked, str] = {
    "": "Nothing: these inputs leave the op no choice of order.",
    "samples": "Hardly anything: a sample of PyTorch's database, too small for kernels to run in parallel.",
    "enlarged": "Its size.",
}

Rows = list[tuple[int, MatrixRow]]  # number of the run, row
Families = dict[str, dict[str, Rows]]  # family -> spec -> rows


def render(matrices: Sequence[Matrix]) -> Iterator[str]:
    """Yield the page in pieces."""
    every, matrices = matrices, _most(matrices)
    families = _families(matrices)
    pool = Pool()
    yield from generate(
        "report",
        words,
        matrices=matrices,
        total=sum(len(one.rows) for one in matrices),
        counts={finding: sum(one.counts[finding] for one in matrices) for finding in FINDING_MEANING},
        devices=sorted({row.row.device for one in matrices for row in one.rows}),
        families=families,
        slug=_slugs(families),
        notes=_notes(matrices),
        facts=_facts(matrices, families, pool),
        pool=pool,
        evidence=trust,
        perturbations=perturbations,
        sampled=database_rows,
        cost=cost,
        coverage=coverage,
        documented_lines=coverage_claims.documented_lines,
        documented_heads=[head.capitalize() for head in coverage_claims.HEADS],
        coverages=coverage.coverages(every),
        limit=_limit_words(every, matrices),
        charts=[chart(one.rows) for one in matrices],
        alerts=alerts_of,
        reasons=[{reason: place for place, reason in enumerate(one.weak)} for one in matrices],
        finding_meaning=FINDING_MEANING,
        verdict_meaning=VERDICT_MEANING,
        compared=COMPARED,
        modes=MODES,
        expected_meaning=EXPECTED_MEANING if any(one.expected for one in matrices) else {},
        about_words=about_words,
        device_words=device_words,
        styles=("expected",) if any(one.expected for one in matrices) else (),
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


def _limit_words(every: Sequence[Matrix], shown: Sequence[Matrix]) -> str | None:
    """Say that rows were left out because there are too many."""
    rows, most = (sum(len(one.rows) for one in some) for some in (every, shown))
    if rows == most:
        return None
    return (
        f"A page holds {most} rows at most: these are {most} of {rows}, those with the worst findings. Choose others "
        f"with --only and --rows; the reports in Markdown, CSV and JSON have all of them."
    )


def _families(matrices: Sequence[Matrix]) -> Families:
    """Group rows by family and op in order of first appearance; what several runs share stands together."""
    families: Families = {}
    for number, one in enumerate(matrices):
        for row in one.rows:
            families.setdefault(row.row.family, {}).setdefault(row.row.spec, []).append((number, row))
    if len(matrices) > 1:
        for specs in families.values():
            for spec, rows in specs.items():
                order = {
                    key: place for place, key in enumerate(dict.fromkeys(row.row.key for _, row in rows))
                }
                specs[spec] = sorted(rows, key=lambda pair: (order[pair[1].row.key], pair[0]))
    return families


def _notes(matrices: Sequence[Matrix]) -> dict[str, list[Matrix]]:
    """Return what is said of n and of the rows left out, with the runs it is said of."""
    notes: dict[str, list[Matrix]] = {}
    for one in matrices:
        shown = words.shown_words(one)
        more = f" {shown} The counts above are those of the whole scan." if shown else ""
        notes.setdefault(words.n_words(one) + more, []).append(one)
    return notes


def _slugs(families: Families) -> dict[str, str]:
    """Return an anchor per family; numbered, since two names may have one slug."""
    return {
        family: f"family-{number}-{re.sub('[^a-z0-9]+', '-', family.lower()).strip('-')}"
        for number, family in enumerate(families)
    }


def _facts(matrices: Sequence[Matrix], families: Families, pool: Pool) -> Iterator[list[object]]:
    """Yield what the script knows of each row, in the page's order: report.js names the fields."""
    for specs in families.values():
        for rows in specs.values():
            for number, row in rows:
                expected = matrices[number].expected
                yield [*_fact(number, row, pool), *([_expected(row, expected, pool)] if expected else [])]


def _fact(number: int, row: MatrixRow, pool: Pool) -> list[object]:
    planned = row.row
    inputs = next((observation.inputs for observation in row.observations if observation.inputs), ())
    modes = WORKER_MODES if row.on.verdict == "raises" else MODES
    return [
        number,
        *(
            pool.place(text)
            for text in (
                planned.family,
                planned.spec,
                planned.op,
                planned.case,
                planned.direction,
                planned.dtype,
                planned.device,
                planned.provokes or _UNPROVOKED[planned.provoked],
                planned.why,
                row.finding,
                row.reason,
                inputs,
                _outputs(row, modes),
                row.weak,
                "serial" if row.serial else None,
                constant_of(row),
                _groups(row, modes),
                _differences(row),
            )
        ),
        [_cell(row, mode, pool) for mode in modes],
        [_process(observation, pool) for observation in row.observations],
        _cost(row, pool),
    ]


def _expected(row: MatrixRow, expected: Sequence[ExpectedRows], pool: Pool) -> int:
    """Return for each build what it is, what its files say of a row, and the places that the row leads to."""
    lines: list[Hashable] = []
    for one in expected:
        said = one.of(row.row)
        links = tuple(link_words(link) for link in dict.fromkeys((*said.alerts, *said.flags)))
        title = f"{device_words(one.device)}, torch {one.torch}"
        measured = one.measured(row.finding)
        lines.append((title, one.about, said.documented, said.binary, said.trace, measured, links))
    return pool.place(tuple(lines))


def _cell(row: MatrixRow, mode: Mode, pool: Pool) -> list[object]:
    cell = cell_of_mode(row, mode)
    bound = bound_of(cell)
    return [
        pool.place(cell.verdict),
        pool.place(words.cell_words(row, mode)),
        pool.place(words.percent(bound) if bound else None),
        pool.place(cell.reason),
        pool.place(cell.alert),
        int(is_seeded(row, mode)),
        pool.place(cell.where),
        pool.place(cell.alerts),
    ]


def _cost(row: MatrixRow, pool: Pool) -> list[object]:
    """Return the words of a row's cost, its ratio, and a line for each variant that was timed."""
    one, ratio = row.cost, cost.ratio_of(row.cost)
    texts: list[object] = [
        pool.place(cost.cost_words(row)),
        float(f"{ratio:.4g}") if ratio is not None else None,
        pool.place(one.message if one else None),
    ]
    if one is None or one.off is None:
        return texts
    variants = (
        ("off", one.off, one.off_memory),
        ("on", one.on, one.on_memory),
        ("on, fill off", one.unfilled, None),
    )
    lines = [
        [name, cost.duration(timing), cost.memory(memory)] for name, timing, memory in variants if timing
    ]
    return [*texts, lines, one.samples, one.calls]


def _process(observation: Observation, pool: Pool) -> list[object]:
    text = observation.message
    if observation.exception:
        text = f"{observation.exception}: {text}" if text else observation.exception
    return [
        pool.place(observation.mode),
        observation.process,
        pool.place(observation.outcome),
        observation.executions,
        len(observation.digests),
        observation.first_differing,
        observation.forward_differing,
        float(f"{observation.seconds:.3g}"),
        float(f"{observation.setup_seconds:.3g}"),
        pool.place(text),
    ]


def _outputs(row: MatrixRow, modes: Sequence[Mode]) -> tuple[tuple[Hashable, ...], ...]:
    """Return (name, shape, dtype, executions that differed in each mode) of every compared tensor."""
    fields: dict[str, list[Hashable]] = {}
    for place, mode in enumerate(modes):
        for output in outputs_of(o for o in row.observations if o.mode == mode):
            blank: list[Hashable] = [output.name, output.shape, output.dtype, *[None] * len(modes)]
            fields.setdefault(output.name, blank)[3 + place] = output.differing
    return tuple(map(tuple, fields.values()))


def _groups(row: MatrixRow, modes: Sequence[Mode]) -> tuple[tuple[Hashable, ...], ...]:
    """Return (perturbation, "k of n" in each mode) of every perturbation."""
    fields: dict[str, list[Hashable]] = {}
    for place, mode in enumerate(modes):
        for group in cell_of_mode(row, mode).groups:
            blank: list[Hashable] = [group.perturbation, *[None] * len(modes)]
            fields.setdefault(group.perturbation, blank)[1 + place] = (
                f"{group.differing} of {group.executions}"
            )
    return tuple(map(tuple, fields.values()))


def _differences(row: MatrixRow) -> tuple[tuple[Hashable, ...], ...]:
    """Return (mode, output, first differing execution, how many were examined, distances) of all that differed."""
    return tuple(
        (it.mode, it.output, it.first, *msgspec.structs.astuple(it.distance)) for it in trust.differences(row)
    )
