"""The report in a terminal: one line an op, the worst first, in 80 columns, with what the scan does not show.

Whatever a run file says is put on one line and printed as text; the only commands to the terminal are colours of ours.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

import click
from msgspec import UNSET

from reports.matrix.cost import Timed, ratio_words
from reports.matrix.invariance import LEGEND
from reports.matrix.model import WORST_FIRST, Matrix
from reports.matrix.ops import MISSING, OpColumn, OpRow, OpsView, OpView
from reports.render.signs import FINDING_SIGN
from reports.render.terminal import WIDTH, wrapped
from reports.report.view import ReportView, report_view
from scanner.errors import one_line, safe_lines
from scanner.observations import versions
from scanner.verdicts.findings import Finding

_COLUMN = 9  # of a release, where there are several
_PROPERTY = 19  # of what a scan asked beyond run to run
_LEAST_NAME = 12
_COLOURS: dict[Finding, str] = {
    "silent": "bright_red",
    "raises": "red",
    "over_alert": "yellow",
    "fixed_by_mode": "blue",
    "uninitialized": "cyan",
    "mode_dependent": "magenta",
    "deterministic": "green",
}

Paint = Callable[..., str]


def render(matrices: Sequence[Matrix], *, whole: bool = False, colour: bool = False) -> Iterator[str]:
    """Yield the report, line by line.

    Args:
        matrices: At least one.
        whole: List every op, those with nothing to do too.
        colour: Whether whoever reads it sees colours.
    """
    return shown(report_view(matrices), whole=whole, colour=colour)


def shown(report: ReportView, *, whole: bool = False, colour: bool = False) -> Iterator[str]:
    """Yield the same of a report that is made already."""
    paint: Paint = click.style if colour else _plain
    for line in _lines(report, whole=whole, paint=paint):
        yield f"{line.rstrip()}\n"


def _plain(text: str, **_: object) -> str:
    return text


def _lines(report: ReportView, *, whole: bool, paint: Paint) -> Iterator[str]:
    ops = report.ops
    listed = ops.ops if whole else ops.listed
    about, _, bounds = report.head.rpartition(" · ")
    yield from (*wrapped(about), *wrapped(bounds))
    # A finding that no op has is nothing to warn of.
    colours = {finding: _COLOURS.get(finding) if ops.counts[finding] else None for finding in ops.told}
    counts = [(f"{FINDING_SIGN[it]}{ops.counts[it]} {it}", colour) for it, colour in colours.items()]
    yield from _flowing(paint, counts)
    for state, text in report.states:
        fg = "yellow" if state == "low_power" else "red"
        yield from (paint(line, fg=fg, bold=True) for line in wrapped(text))
    if ops.shown is not None:
        yield from wrapped(ops.shown)
    if listed:
        yield from _table(listed, ops, paint)
    if not whole and ops.left_out:
        left = Counter(op.finding for op in ops.left_out)
        rest = ", ".join(f"{left[finding]} {finding}" for finding in WORST_FIRST if left[finding])
        yield f"… {left.total()} more: {rest}. List them with --all"
    if listed:
        # Several releases leave no room for costs.
        legend = [line for line in ops.legend(listed) if len(ops.columns) == 1 or line[0] != "cost"]
        for label, (first, *texts) in legend:
            yield from _flowing(paint, ((text, None) for text in (f"{label}: {first}", *texts)), dim=True)
    yield from _dependences(ops, paint)
    for text in report.limits:
        yield from wrapped(text)
    where = "" if ops.chosen else " (detmatrix docs RUN lists them)"
    yield from (paint(f"{text}{where}", bold=True) for text in ops.unmeasured_words)


def _flowing(paint: Paint, items: Iterable[tuple[str, str | None]], **style: bool) -> Iterator[str]:
    """Yield lines of as many items as fit, each a text with its colour."""
    line: list[str] = []
    width = 0
    for text, colour in items:
        if line and width + len(text) > WIDTH:
            yield "  ".join(line)
            line, width = ["     "], 7
        line.append(paint(text, fg=colour, **style))
        width += len(text) + 2
    yield "  ".join(line)


def _table(ops: Sequence[OpView], view: OpsView, paint: Paint) -> Iterator[str]:
    """Yield a line for each op below the heads, and those of its rows if they were asked for."""
    # The latest of many releases; the page has room for all of them.
    columns = view.columns if len(view.columns) == 1 else view.columns[-((WIDTH - 28) // _COLUMN) :]
    several_columns = len(columns) > 1
    names = {op.name: one_line(op.short) for op in ops}
    costs = [op.cost_words for op in ops]
    docs = [op.docs_words.replace(" and ", "/") for op in ops]
    cost, doc = (max(map(len, (head, *texts))) for head, texts in (("COST", costs), ("DOCS", docs)))
    action = 0 if several_columns else max(len(op.action) for op in ops)
    fixed = 2 + _COLUMN * len(columns) + 1 + (doc if several_columns else cost + 1 + doc + 1 + action)
    width = min(max(len(names[op.name]) for op in ops), max(_LEAST_NAME, WIDTH - fixed))
    if several_columns:
        yield paint(
            " " * (width + 3)
            + "".join(f"{_cut(one_line(it.torch), _COLUMN - 1):{_COLUMN}}" for it in columns),
            dim=True,
        )
        yield paint(
            f"  {'OP':{width}} " + "".join(f"{_under(it):{_COLUMN}}" for it in columns) + "DOCS", dim=True
        )
    else:
        yield paint(f"  {'OP':{width}} FWD BWD  {'COST':{cost}} {'DOCS':{doc}} ACTION", dim=True)
    for op, spent, listed in zip(ops, costs, docs, strict=True):
        start = f"{FINDING_SIGN[op.finding]} {_cut(names[op.name], width):{width}}"
        marks = "".join(
            f"{cell.forward.glyphs:3} {cell.backward.glyphs:3}  "
            for column, cell in zip(view.columns, op.cells, strict=True)
            if column in columns
        )
        said = f"{listed:{doc}}"
        if listed == MISSING:
            said = paint(said, fg="magenta", bold=True)
        elif listed != op.listed.replace(" and ", "/"):  # of a device that it was not measured on
            said = paint(said, dim=True)
        rest = said if several_columns else f"{spent:{cost}} {said} {op.action}"
        yield f"{paint(start, fg=_COLOURS.get(op.finding))} {marks}{rest}"
        if view.chosen:
            yield from _rows(op.rows, paint)
    if several_columns:
        left = len(view.columns) - len(columns)
        before = f"{left} earlier {'column' if left == 1 else 'columns'}, " if left else ""
        yield paint(f"… left out: {before}costs and actions: --format html has them", dim=True)


def _dependences(view: OpsView, paint: Paint) -> Iterator[str]:
    """Yield a line for each op that varies with something that was asked; nothing where nobody asked."""
    if not view.properties:
        return
    width = WIDTH - _PROPERTY * len(view.properties) - 1
    heads = "".join(f"{what.upper():{_PROPERTY}}" for what in view.properties)
    yield paint(f"{'INVARIANCE, FLAG OFF':{width}} {heads}", dim=True)
    for op in view.dependent:
        told = "".join(
            paint(f"{text:{_PROPERTY}}", fg="magenta" if text.startswith("varies") else None)
            for text in map(op.invariance_words, view.properties)
        )
        yield f"{_cut(one_line(op.short), width):{width}} {told}"
        if view.chosen:
            for one in op.rows:
                yield from _dependence(one)
    if view.independent_words:
        yield from wrapped(view.independent_words)
    yield from (paint(line, dim=True) for line in wrapped(LEGEND))


def _dependence(one: OpRow) -> Iterator[str]:
    """Yield what a row varies with, and where."""
    row = one.row
    for what, it in ({} if row.invariance is UNSET else row.invariance).items():
        if it.verdict not in {"invariant", "not_asked"}:
            name = row.id.removeprefix(f"{row.spec}:")
            yield from wrapped(f"{name} {what}: {row.invariance_words(what)}", "    ")


def _under(column: OpColumn) -> str:
    return f"{column.device.upper()}{' exp' if column.expected else ''}"


def _rows(ones: Sequence[OpRow], paint: Paint) -> Iterator[str]:
    """Yield a line on each row of an op: its case, k of n with the flag off and on, its cost, and doubts about it."""
    lines = []
    for one in ones:
        row = one.row
        cost = ratio_words(row.cost) if isinstance(row.cost, Timed) else ""
        shown = f"{row.off.short} → {row.on.short}"
        lines.append((row, one_line(row.id.removeprefix(f"{row.spec}:")), shown, cost, ", ".join(row.doubts)))
    both, costs, doubts = (max(len(str(line[place])) for line in lines) for place in (2, 3, 4))
    width = min(max(len(line[1]) for line in lines), WIDTH - both - costs - doubts - 9)
    for row, name, *rest in lines:
        start = f"    {FINDING_SIGN[row.finding]} {_cut(name, width):{width}}"
        yield f"{paint(start, fg=_COLOURS.get(row.finding))} {rest[0]:{both}} {rest[1]:{costs}} {rest[2]}"


def _cut(text: str, width: int) -> str:
    """Return the end of a text that is too wide: names differ there."""
    return text if len(text) <= width else f"…{text[len(text) - width + 1 :]}"


def _release(report: ReportView, one: OpRow) -> tuple[object, ...]:
    """Return what orders runs by the release of torch."""
    return versions.key(versions.release(report.runs[one.run].header.environment.torch))


def following(report: ReportView) -> str:
    """Name the commands to go on with: on the first op that the lists miss, or else the worst, and for the page."""
    runs = shlex.join(run.matrix.run.path for run in report.runs)
    ops = report.ops.acting
    first = next((op for op in ops if op.listed == MISSING), ops[0] if ops else None)
    commands = []
    if first:
        # One run says what to do; all of them are a line that nobody reads.
        latest = report.runs[max(first.rows, key=lambda it: _release(report, it)).run].matrix.run.path
        commands.append(f"detmatrix explain {shlex.quote(first.short)} {shlex.quote(latest)}")
    commands.append(f"detmatrix report {runs} --open")
    return safe_lines("Next: " + "\n      ".join(commands))
