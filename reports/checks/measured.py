"""What CI is told of runs: the rows with findings that a check fails on, op by op and the worst first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from reports.checks import github, junit
from reports.checks.model import Annotation, CheckCase, Level, State, Suite, named, place_of
from reports.matrix.columns import Column, all_columns
from reports.matrix.model import WORST_FIRST, Matrix
from reports.matrix.trust import serial_words
from reports.matrix.view import row_view
from reports.matrix.words import GLOSSARY, cell_words, states
from scanner.plurals import several
from scanner.verdicts.findings import BESIDE_MEANING, DOUBTS, FINDING_MEANING, MatrixRow

# What is an error unless something else is asked for, and what is worth a warning in any case.
FAILS: tuple[str, ...] = (*BESIDE_MEANING, "silent")
WARNS: tuple[str, ...] = (*FAILS, "raises", "over_alert")

# What is found of a row with the flag off and on, the worst first, and what it means.
_MEANINGS: dict[str, str] = {
    **BESIDE_MEANING,
    **{finding: FINDING_MEANING[finding] for finding in WORST_FIRST},
    **{doubt: GLOSSARY[doubt.replace("_", " ")] for doubt in DOUBTS},
}
_WORST_FIRST = tuple(_MEANINGS)
# By one of these and op, the rows of a run.
_Groups = dict[tuple[str, str], list[MatrixRow]]


def failing_line(matrices: Iterable[Matrix], findings: Sequence[str]) -> str | None:
    """Say in a line which rows have one of the findings, the worst first; ``None`` if none has.

    A run that settled nothing, or that cannot be trusted, has not passed.
    """
    matrices = list(matrices)
    untrusted = [f"{one.name} is not trustworthy: {one.distrust[0]}" for one in matrices if one.distrust]
    rows = [row for one in matrices for row in one.rows]
    groups = _groups(rows)
    told = []
    for finding in (finding for finding in _WORST_FIRST if finding in findings):
        ops = {op: len(some) for (of, op), some in groups.items() if of == finding}
        if ops:
            of_ops = (f"{op} ({several(count, 'row')})" for op, count in ops.items())
            told.append(f"{finding}: {', '.join(of_ops)}")
    asked = f"--fail-on {','.join(findings)}"
    counts = Counter[tuple[str, str, str]]()
    for one in matrices:
        for it, column, op, some in _in_columns(one, findings):
            counts[it, column.where, op] += len(some)
    told += [f"{it} {where}: {op} ({several(count, 'row')})" for (it, where, op), count in counts.items()]
    if untrusted:
        return f"{asked}: {'; '.join(untrusted)}"
    if told:
        failing = [row for row in rows if row.found & {*findings}]
        count, which = len(failing), {row.row.spec for row in failing}
        return f"{asked}: {several(count, 'row')} of {several(len(which), 'op')}: {'; '.join(told)}"
    for one in matrices:
        if all(row.finding == "inconclusive" for row in one.scanned):
            return (
                f"{asked}: nothing was settled in {one.name}: {several(one.planned, 'row')}, all inconclusive"
            )
    return None


def _in_columns(
    one: Matrix, findings: Sequence[str]
) -> Iterator[tuple[str, Column, str, Sequence[MatrixRow]]]:
    """Yield what further columns of a run say of these findings: the finding, the column, an op, and its rows."""
    for column in all_columns([one]):
        groups: dict[tuple[str, str], list[MatrixRow]] = {}
        for row in one.rows:
            finding = column.finding(row)
            if finding is not None and finding in findings:
                groups.setdefault((finding, row.row.spec), []).append(row)
        yield from ((finding, column, op, rows) for (finding, op), rows in groups.items())


def render_github(matrices: Sequence[Matrix], fails: Sequence[str] = FAILS) -> Iterator[str]:
    """Yield annotations: one for each op and finding."""
    return github.render(note for one in matrices for note in _annotations(one, fails))


def render_junit(matrices: Sequence[Matrix], fails: Sequence[str] = FAILS) -> Iterator[str]:
    """Yield test cases: one for each row."""
    return junit.render([_suite(one, fails) for one in matrices])


def _annotations(one: Matrix, fails: Sequence[str]) -> Iterator[Annotation]:
    for state, text in states(one):
        level: Level = "error" if state == "untrusted" else "warning"
        yield Annotation(
            level=level, title="detmatrix", text=f"{one.name}: {text}", file=place_of(one.run.path)
        )
    if serial := serial_words(one):
        yield Annotation(
            level="notice", title="detmatrix", text=f"{one.name}: {serial}", file=place_of(one.run.path)
        )
    for (finding, op), rows in _groups(one.rows).items():
        if finding not in fails and finding not in WARNS:
            continue
        yield Annotation(
            level="error" if finding in fails else "warning",
            title=f"{finding}: {op}",
            text=f"{named([row.row.id for row in rows])}: {_shown(rows[0])}. {_MEANINGS[finding]}",
            file=_file(one, rows[0]),
        )
    for found, column, op, some in _in_columns(one, fails):
        text = f"{named([row.row.id for row in some])}: {column.words(row_view(some[0]))}. {column.findings[found]}"
        title = f"{found} {column.where}: {op}"
        yield Annotation(level="error", title=title, text=text, file=_file(one, some[0]))


def _suite(one: Matrix, fails: Sequence[str]) -> Suite:
    doubts, columns = [text for state, text in states(one) if state == "untrusted"], all_columns([one])
    scan = (
        [CheckCase(group="detmatrix", name="scan", state="error", text="; ".join(doubts))] if doubts else []
    )
    return Suite(name=one.name, cases=(*scan, *(_case(row, fails, columns) for row in one.rows)))


def _case(row: MatrixRow, fails: Sequence[str], columns: Sequence[Column]) -> CheckCase:
    state: State = "passed"
    if row.found & {*fails}:
        state = "failed"
    elif row.finding == "inconclusive":
        state = "skipped"
    text = f"{row.finding}: {row.reason if row.finding == 'inconclusive' and row.reason else _shown(row)}"
    text += "".join(f"; {found}" for found in (*row.beside, *row.doubts) if found in fails)
    text += "".join(f"; {it} {one.where}" for one in columns if (it := one.finding(row)) in fails)
    return CheckCase(
        group=row.row.spec,
        name=row.row.id.removeprefix(f"{row.row.spec}:"),
        state=state,
        text=text,
        doubt=_doubt(row),
    )


def _doubt(row: MatrixRow) -> str | None:
    """Say why it shows little that a row did not differ; ``None`` of one of which nothing says so."""
    why = [*filter(None, (row.weak, GLOSSARY["serial"] if row.serial else None))]
    return f"{row_view(row).finding_words()}: {'; '.join(why)}" if why else None


def _groups(rows: Iterable[MatrixRow]) -> _Groups:
    """Return rows by what was found of them and op, the worst first."""
    groups: _Groups = {}
    for row in rows:
        for found in (*row.beside, row.finding, *row.doubts):
            groups.setdefault((found, row.row.spec), []).append(row)
    return dict(sorted(groups.items(), key=lambda one: _WORST_FIRST.index(one[0][0])))


def _shown(row: MatrixRow) -> str:
    return f"off: {cell_words(row, 'off')}; on: {cell_words(row, 'on')}"


def _file(one: Matrix, row: MatrixRow) -> str:
    """Return the file of the user's that declares a row, if the run says which it is, or else the run file."""
    specs = one.run.header.settings.specs
    return place_of(specs[0] if row.row.digest and len(specs) == 1 else one.run.path)
