"""The matrix in Markdown: tables as GitHub renders them, which are also what the terminal shows.

Everything a run file says passes through ``code`` or ``plain``: a cell can neither end a table row, nor
start markup, nor send control characters to a terminal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

import msgspec

from reports.matrix import cost, perturbations, trust, words
from reports.matrix.database_rows import sampled_words
from reports.matrix.expected import EXPECTED_MEANING, ExpectedRows, about_words, device_words
from reports.matrix.model import COMPARED, Matrix, alerts_of
from reports.render.markdown import NONE, code, plain, table
from reports.report.disagreements import DISAGREEMENTS, disagreements
from scanner.verdicts.findings import FINDING_MEANING, VERDICT_MEANING, MatrixRow

_COLUMNS = ("op", "case", "direction", "dtype", "off", "on", "finding", "alert caller", "cost")
_FAR = ("row", "mode", "differed", "under", "where", "first differing", "output", "examined")
_DISTANCE = ("elements differing", "largest absolute", "largest relative", "largest ULP", "V_ermv", "V_c")
_SLOW = ("row", "off", "on", "ratio", "between quartiles", "fill off", "peak memory off", "peak memory on")
_DISAGREES = ("row", "measured, and expected")
_EXPECTED = ("row", "documented", "binary (expected)", "trace (expected)", "measured")
_IDS = 10  # rows of low power that a reason names


def render(matrices: Sequence[Matrix]) -> Iterator[str]:
    """Yield the report in pieces, one document per run and the words once at the end."""
    for one in matrices:
        yield from _run(one)
    yield "## The words\n\nVerdicts, one per cell:\n\n"
    yield from (f"* **{verdict}**: {meaning}\n" for verdict, meaning in VERDICT_MEANING.items())
    yield "\nFindings, one per row:\n\n"
    yield from (f"* **{finding}**: {meaning}\n" for finding, meaning in FINDING_MEANING.items())
    yield "\nOther words:\n\n"
    yield from (f"* **{plain(word)}**: {plain(meaning)}\n" for word, meaning in words.GLOSSARY.items())
    if any(one.expected for one in matrices):
        yield "\nWhat files of builds say:\n\n"
        yield from (f"* **{word}**: {plain(meaning)}\n" for word, meaning in EXPECTED_MEANING.items())


def excerpt(matrices: Sequence[Matrix]) -> Iterator[str]:
    """Yield what a page that is about something else shows: what was scanned, the counts, the rows asked for."""
    for one in matrices:
        environment = one.run.header.environment
        where = environment.gpu or f"{environment.cpu}, {environment.threads} threads"
        counts = ", ".join(f"{count} {finding}" for finding, count in one.counts.items() if count)
        yield from (f"**{plain(text)}**\n\n" for text in words.state_words(one))
        yield (
            f"torch {plain(environment.torch)} on {plain(where)}, n = {one.executions} per cell, "
            f"{one.planned} rows{'' if not one.distrust else ', found by a scan that is not trustworthy'}: {counts}. "
            f"{plain(words.shown_words(one) or '')}\n\n"
        )
        yield _matrix(one, one.rows)
        yield "\n"
        for build in one.expected:
            yield from _expected(one, build)


def _run(one: Matrix) -> Iterator[str]:
    header = one.run.header
    yield f"# Nondeterminism matrix of torch {plain(header.environment.torch)} on {plain(header.settings.device)}\n\n"
    yield from (f"> [!CAUTION]\n> **{plain(message)}**\n\n" for message in words.state_words(one))
    yield f"Run file {code(one.name)}. {plain(words.n_words(one))}\n\n"
    yield table(
        ("finding", "rows", "meaning"),
        [(finding, str(count), FINDING_MEANING[finding]) for finding, count in one.counts.items()],
    )
    yield "\n"
    if (message := sampled_words(one.sampled)) is not None:
        yield f"{plain(message)}\n\n"
    if (message := trust.serial_words(one)) is not None:
        yield f"{plain(message)}\n\n"
    if (shown := words.shown_words(one)) is not None:
        yield f"{plain(shown)}\n\n"
    if not one.planned:
        yield "No row was planned.\n\n"
    for family, rows in _families(one.rows):
        yield f"## {plain(family)}\n\n"
        yield _matrix(one, rows)
        yield "\n"
    for build in one.expected:
        yield f"## Expected of {plain(device_words(build.device))}, not measured\n\n"
        yield from _expected(one, build)
    yield from _far(one)
    yield from _revealed(one)
    yield from _slow(one)
    yield from _weak(one)
    yield from _reasons(one)
    yield from _controls(one)
    yield "## Environment\n\n"
    yield from (f"* {plain(label)}: {plain(text)}\n" for label, text in words.environment_words(one))
    yield "\n## Scan\n\n"
    yield from (f"* {plain(label)}: {plain(text)}\n" for label, text in words.settings_words(one))
    yield "\n"


def _families(rows: Iterable[MatrixRow]) -> Iterator[tuple[str, list[MatrixRow]]]:
    """Yield the families in order of first appearance, each with all of its rows."""
    families: dict[str, list[MatrixRow]] = {}
    for family, group in groupby(rows, key=lambda row: row.row.family):
        families.setdefault(family, []).extend(group)
    yield from families.items()


def _matrix(one: Matrix, rows: Iterable[MatrixRow]) -> str:
    trusted = not one.distrust
    return table(_COLUMNS, (_cells(row, trusted=trusted) for row in rows))


def _cells(row: MatrixRow, *, trusted: bool) -> tuple[str, ...]:
    alerts = alerts_of(row)
    return (
        code(row.row.spec),
        plain(row.row.case),
        row.row.direction,
        plain(row.row.dtype),
        plain(words.cell_words(row, "off")),
        plain(words.on_words(row)),
        plain(words.finding_words(row, trusted=trusted)),
        ", ".join(map(code, alerts)) or NONE,
        cost.cost_words(row),
    )


def _expected(one: Matrix, build: ExpectedRows) -> Iterator[str]:
    """Table what the files of a build say of each shown row, beside what was measured on that device, if anything was."""
    header = one.run.header
    yield (
        f"From {' and '.join(map(code, build.files))}, of torch {plain(build.torch)}, about "
        f"{plain(device_words(build.device))}. "
        f"{plain(about_words(build, header.environment.torch, header.settings.device))}\n\n"
    )
    lines = []
    for row in one.rows:
        said = build.of(row.row)
        measured = build.measured(words.finding_words(row, trusted=not one.distrust))
        lines.append((code(row.row.id), *map(plain, (said.documented, said.binary, said.trace, measured))))
    yield table(_EXPECTED, lines)
    yield "\n"
    if found := disagreements(build, one.rows):
        yield f"{DISAGREEMENTS}\n\n"
        yield table(_DISAGREES, [(code(row.row.id), plain(text)) for row, text in found])
        yield "\n"
    elif build.same_device:
        yield "No row measured something else than these files let expect.\n\n"


def _far(one: Matrix) -> Iterator[str]:
    """Tell of each shown row that differed under what it did, and how far."""
    found = [it for row in one.rows for it in trust.differences(row)]
    if not found:
        return
    yield "## How far\n\n"
    yield (
        "Differences from the first execution of the same process; of each measure the largest over the executions "
        "that were examined, the first few of each process that differed. Integers are counted, not subtracted.\n\n"
    )
    yield table(
        [plain(name) for name in (*_FAR, *_DISTANCE)],
        [
            (
                *(
                    code(it.row.id),
                    it.mode,
                    it.differed,
                    plain(it.under),
                    it.where,
                    it.first,
                    code(it.output),
                ),
                *msgspec.structs.astuple(it.distance),
            )
            for it in found
        ],
    )
    yield "\n"


def _revealed(one: Matrix) -> Iterator[str]:
    """List the shown rows that differ under some perturbations only."""
    yield "## Rows that only some perturbations reveal\n\n"
    yield f"{plain(perturbations.revealed_words(one))}\n\n"
    if found := list(perturbations.revealed(one.rows)):
        yield table(
            ("row", "mode", "differs", "executions that differed"),
            [(code(it.id), plain(it.mode), plain(it.where), plain(it.counts)) for it in found],
        )
        yield "\n"


def _slow(one: Matrix) -> Iterator[str]:
    """List the shown rows that cost most."""
    slow = cost.slow(cost.all_timed(one.rows))
    yield f"## Slowest with the flag on\n\n{plain(cost.summary(one.rows))}\n\n"
    if not slow:
        return
    yield table(
        _SLOW,
        [
            (
                *(code(it.row.row.id), cost.duration(it.off), cost.duration(it.on), cost.ratio_words(it)),
                *(cost.spread_words(it), cost.unfilled_words(it)),
                *(cost.memory(it.cost.off_memory), cost.memory(it.cost.on_memory)),
            )
            for it in slow
        ],
    )
    yield "\n"


def _weak(one: Matrix) -> Iterator[str]:
    """List why rows are of low power, and which of the shown ones."""
    found = trust.weak_rows(one)
    if found:
        yield "## Low power\n\n"
    for reason, rows in found.items():
        ids = ", ".join(code(row.row.id) for row in rows[:_IDS])
        more = f" and {len(rows) - _IDS} more, marked in the tables" if len(rows) > _IDS else ""
        yield f"* {plain(reason)}: {len(rows)} shown: {ids}{more}\n"
    if found:
        yield "\n"


def _controls(one: Matrix) -> Iterator[str]:
    """Table what the controls answered, and what the sentinels saw."""
    yield f"## Controls\n\n{plain(trust.controls_words(one))}\n\n"
    if controls := trust.control_lines(one):
        yield table(
            ("control", "mode", "processes", "expected", "seen", "right"),
            [
                (*map(plain, cells), right if right == "yes" else f"**{right}**")
                for *cells, right in map(msgspec.structs.astuple, controls)
            ],
        )
        yield "\n"
    yield f"## Sentinels\n\n{plain(words.sentence(trust.sentinels_words(one)))}\n\n"
    if sentinels := trust.sentinel_lines(one):
        yield table(
            ("mode", "process", "op", "checks", "lowest", "median", "without power"),
            [tuple(plain(str(cell)) for cell in msgspec.structs.astuple(line)) for line in sentinels],
        )
        yield "\n"


def _reasons(one: Matrix) -> Iterator[str]:
    """List the cells without a usable verdict under their reasons."""
    reasons: dict[str, list[str]] = {}
    warn_only = "warn_only" in one.run.header.settings.modes
    for row in one.rows:
        modes = (("off", row.off), ("on", row.on), ("warn_only", row.warn_only))
        for mode, cell in modes if warn_only and row.on.verdict == "raises" else modes[:2]:
            if cell.verdict not in (*COMPARED, "raises"):
                reason = f"{cell.verdict}: {cell.reason or 'no reason was recorded'}"
                reasons.setdefault(reason, []).append(f"{code(row.row.id)} {mode}")
    for row in one.rows:
        if reason := words.joint_reason(row):
            reasons.setdefault(reason, []).append(code(row.row.id))
    if reasons:
        yield "## Cells without a usable verdict\n\n"
    for reason, cells in reasons.items():
        yield f"* {plain(reason)}\n"
        yield from (f"  * {cell}\n" for cell in cells)
    if reasons:
        yield "\n"
