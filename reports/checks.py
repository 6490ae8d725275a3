"""What CI is told of runs: the rows with findings that a check fails on, the worst first, and the formats that CI systems read.

Titles and texts hold what run files say, which may be anything. GitHub ends a command at a line break, and a property at
a comma or a colon: these, and its escape character, are escaped as its own toolkit does it, after everything that is not
printable has been spelled out. No line begins with anything but a command of ours.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath
from typing import Literal
from xml.sax.saxutils import escape, quoteattr

from detmatrix.reports.matrix.chosen_columns import Column, all_columns
from detmatrix.reports.matrix.model import Matrix
from detmatrix.reports.matrix.run_words import GLOSSARY, serial_words, states
from detmatrix.reports.render import grouped
from detmatrix.scanner.errors import one_line
from detmatrix.scanner.plurals import first_of, several
from detmatrix.scanner.verdicts.findings import MatrixRow
from detmatrix.scanner.verdicts.vocabulary import BESIDE_MEANING, DOUBTS, FINDING, RAISING, WORST_FIRST

Level = Literal["error", "warning", "notice"]
State = Literal["passed", "failed", "skipped", "error"]
Case = tuple[State, str]  # a test case, and its XML

_TAG: dict[State, str] = {"failed": "failure", "skipped": "skipped", "error": "error"}
NAMED = 3  # rows that one line names
_DATA = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
_PROPERTY = _DATA | str.maketrans({":": "%3A", ",": "%2C"})

# What is an error unless something else is asked for, and what is worth a warning in any case.
FAILS: tuple[str, ...] = (*BESIDE_MEANING, "silent")
WARNS: tuple[str, ...] = (*FAILS, *RAISING)

# What is found of a row with the flag off and on, the worst first, and what it means.
_MEANINGS: dict[str, str] = {
    **BESIDE_MEANING,
    **{finding: FINDING[finding].meaning for finding in WORST_FIRST},
    **{doubt: GLOSSARY[doubt.replace("_", " ")] for doubt in DOUBTS},
}
# Rows by what was found of them, the further column that finds it, if one does, and op.
_Groups = dict[tuple[str, Column | None, str], list[MatrixRow]]


def annotation(level: Level, title: str, text: str, file: str, line: int | None = None) -> str:
    """Return a remark that GitHub Actions reads from the log of a job, and shows beside a file: one workflow command a line."""
    # By its words alone, from the current folder: a path that a run file holds is not looked for.
    near = os.path.relpath(file)
    near = PurePath(file).name if near.startswith("..") else near
    file, title = (one_line(it).translate(_PROPERTY) for it in (near, title))
    at = "" if line is None else f",line={line}"
    return f"::{level} file={file}{at},title={title}::{one_line(text).translate(_DATA)}\n"


def errors_first(annotations: Iterable[str]) -> Iterator[str]:
    """Order annotations: GitHub shows ten of each level of one step."""
    return iter(sorted(annotations, key=lambda line: not line.startswith("::error ")))


def case_of(group: str, name: str, state: State = "passed", text: str = "", doubt: str | None = None) -> Case:
    """Return a test case of JUnit, a row of an op or several that are told together.

    *text* is what it showed, or why it was skipped, *doubt* why it says little that it passed.
    """
    body = ""
    if state != "passed":
        inner = "" if state == "skipped" else escape(one_line(text))
        end = f">{inner}</{_TAG[state]}>" if inner else "/>"
        body = f"<{_TAG[state]} message={_quoted(text)}{end}"
    elif doubt:
        body = f"<system-out>{escape(one_line(doubt))}</system-out>"
    end = f">{body}</testcase>" if body else "/>"
    return state, f"<testcase classname={_quoted(group)} name={_quoted(name)}{end}\n"


def junit(suites: Sequence[tuple[str, Sequence[Case]]]) -> Iterator[str]:
    """Yield suites, each with its name, as JUnit XML, one test case a line."""
    every = [case for _, cases in suites for case in cases]
    yield f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites{_counts(every)}>\n'
    for name, cases in suites:
        yield f"<testsuite name={_quoted(name)}{_counts(cases)}>\n"
        yield from (text for _, text in cases)
        yield "</testsuite>\n"
    yield "</testsuites>\n"


def _counts(cases: Sequence[Case]) -> str:
    """Return the attributes that say how many test cases there are of each state."""
    states_of = Counter[str](state for state, _ in cases)
    named_states = (("failures", "failed"), ("errors", "error"), ("skipped", "skipped"))
    return f' tests="{len(cases)}"' + "".join(f' {name}="{states_of[state]}"' for name, state in named_states)


def _quoted(text: str) -> str:
    """Return a value in quotes; XML allows no control character, however it is written, so they are spelled out."""
    return quoteattr(one_line(text))


def failing_line(matrices: Sequence[Matrix], findings: Sequence[str]) -> str | None:
    """Say in a line which rows have one of the findings, the worst first; ``None`` if none has.

    A run that settled nothing, or that cannot be trusted, has not passed.
    """
    asked = f"--fail-on {','.join(findings)}"
    if untrusted := [f"{one.name} is not trustworthy: {one.distrust[0]}" for one in matrices if one.distrust]:
        return f"{asked}: {'; '.join(untrusted)}"
    ops = grouped(
        (f"{finding} {column.where}" if column else finding, f"{op} ({several(len(some), 'row')})")
        for (finding, column, op), some in _groups(matrices).items()
        if finding in findings
    )
    if ops:
        told = "; ".join(f"{finding}: {', '.join(some)}" for finding, some in ops.items())
        failing = [row for one in matrices for row in one.rows if row.found & {*findings}]
        count, which = len(failing), {row.row.spec for row in failing}
        return f"{asked}: {several(count, 'row')} of {several(len(which), 'op')}: {told}"
    for one in matrices:
        if all(row.finding == "inconclusive" for row in one.scanned):
            return (
                f"{asked}: nothing was settled in {one.name}: {several(one.planned, 'row')}, all inconclusive"
            )
    return None


def render_github(
    matrices: Sequence[Matrix], fails: Sequence[str] = FAILS, at: tuple[str, int] | None = None
) -> Iterator[str]:
    """Return annotations: one for each op and finding, at the file and line where the user's function lies."""
    return errors_first(note for one in matrices for note in _annotations(one, fails, at))


def render_junit(matrices: Sequence[Matrix], fails: Sequence[str] = FAILS) -> Iterator[str]:
    """Yield test cases: one for each row."""
    return junit([(one.name, list(_cases(one, fails))) for one in matrices])


def _annotations(one: Matrix, fails: Sequence[str], at: tuple[str, int] | None) -> Iterator[str]:
    place = at or (one.run.path,)
    for state, text in states(one):
        level: Level = "error" if state == "untrusted" else "warning"
        yield annotation(level, "detmatrix", f"{one.name}: {text}", *place)
    if serial := serial_words(one):
        yield annotation("notice", "detmatrix", f"{one.name}: {serial}", *place)
    for (finding, column, op), rows in _groups([one]).items():
        if finding not in fails and (column or finding not in WARNS):
            continue
        shown, where = (column.words(rows[0]), f" {column.where}") if column else (_shown(rows[0]), "")
        meaning = column.findings[finding] if column else _MEANINGS[finding]
        text = f"{first_of([row.row.id for row in rows], NAMED)}: {shown}. {meaning}"
        level = "error" if finding in fails else "warning"
        # The file of the user's that declares a row, if the run says which it is.
        specs = one.run.header.settings.specs
        file = specs[0] if rows[0].row.digest and len(specs) == 1 else one.run.path
        yield annotation(level, f"{finding}{where}: {op}", text, *(at or (file,)))


def _cases(one: Matrix, fails: Sequence[str]) -> Iterator[Case]:
    columns = all_columns([one])
    if doubts := [text for state, text in states(one) if state == "untrusted"]:
        yield case_of("detmatrix", "scan", "error", "; ".join(doubts))
    for row in one.rows:
        open_ = row.finding == "inconclusive"
        state: State = "failed" if row.found & {*fails} else "skipped" if open_ else "passed"
        text = f"{row.finding}: {row.reason if open_ and row.reason else _shown(row)}"
        text += "".join(f"; {found}" for found in (*row.beside, *row.doubts) if found in fails)
        text += "".join(
            f"; {it} {column.where}" for column in columns if (it := column.finding(row)) in fails
        )
        # Why it shows little that the row did not differ.
        why = [*filter(None, (row.weak, GLOSSARY["serial"] if row.serial else None))]
        doubt = f"{row.finding_words()}: {'; '.join(why)}" if why else None
        yield case_of(row.row.spec, row.row.id.removeprefix(f"{row.row.spec}:"), state, text, doubt)


def _groups(matrices: Sequence[Matrix]) -> _Groups:
    """Return rows by what was found of them and op, the worst first; what further columns find stands behind."""
    own, further = _Groups(), _Groups()
    for one in matrices:
        for row in one.rows:
            for found in (*row.beside, row.finding, *row.doubts):
                own.setdefault((found, None, row.row.spec), []).append(row)
        for column in all_columns([one]):
            for row in one.rows:
                if (finding := column.finding(row)) is not None:
                    further.setdefault((finding, column, row.row.spec), []).append(row)
    return dict(sorted(own.items(), key=lambda group: [*_MEANINGS].index(group[0][0]))) | further


def _shown(row: MatrixRow) -> str:
    return f"off: {row.off.words}; on: {row.on.words}"
