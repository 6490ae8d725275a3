"""The report in a terminal: one line an op, the worst first, as wide as that is, with what the scan does not show.

Whatever a run file says is put on one line and printed as text; the only commands to the terminal are colours of ours.
"""

from __future__ import annotations

import shlex
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import click

from detmatrix.reports.matrix.chosen_columns import NOTHING, Column
from detmatrix.reports.matrix.ops import MISSING
from detmatrix.reports.matrix.rows import timed
from detmatrix.reports.render import NARROW, View, fitted, wrapped
from detmatrix.scanner.errors import one_line, safe_lines
from detmatrix.scanner.observations import torch_versions
from detmatrix.scanner.plurals import several
from detmatrix.scanner.verdicts.findings import MatrixRow
from detmatrix.scanner.verdicts.simulated import recall_words
from detmatrix.scanner.verdicts.vocabulary import COLUMN_WORDS, FINDING, NO_SIGN, WORST_FIRST

_COLUMN = 9  # of a release, where there are several
_LEAST_NAME = 12
_WIDEST_NAME = 22  # beside two devices with what to do on each
_INDENT = 7  # of what a line goes on with below it


class Screen(NamedTuple):
    """Where the text is read."""

    paint: Callable[..., str]  # colours a text, or leaves it as it is
    width: int  # in columns


def shown(report: View, *, whole: bool = False, colour: bool = False, width: int = NARROW) -> Iterator[str]:
    """Yield the report, line by line; the *whole* report lists every op, those with nothing to do too."""
    to = Screen(click.style if colour else lambda text, **_: text, width)
    for line in _lines(report, whole=whole, to=to):
        yield f"{line.rstrip()}\n"


def _lines(report: View, *, whole: bool, to: Screen) -> Iterator[str]:
    ops = report.ops
    listed = ops["ops"] if whole else ops.listed
    about, _, bounds = report.head.rpartition(" · ")
    simulated = [
        text
        for run in report.runs
        if run.simulated
        for text in (run.machine, *recall_words(run.matrix.rows, run.header))
    ]
    yield from (
        line for text in (about, *dict.fromkeys(simulated), bounds) for line in wrapped(text, width=to.width)
    )
    for label, counted in ops.by_device.items() or [("", ops.counted)]:
        # A finding that no op has is nothing to warn of.
        counts = [
            (f"{_sign(it, '')}{count} {it}", _colour(it) if count else None) for it, count in counted.items()
        ]
        yield from _flowing(to, [*[(f"{label}:", None)] * bool(label), *counts])
    for state, text in report.states:
        fg = "yellow" if state == "low_power" else "red"
        yield from (to.paint(line, fg=fg, bold=True) for line in wrapped(text, width=to.width))
    if ops.shown is not None:
        yield from wrapped(ops.shown, width=to.width)
    if listed:
        yield from _table(listed, ops, to)
    if not whole and ops.left_out:
        left = Counter(op.finding for op in ops.left_out)
        rest = ", ".join(f"{left[finding]} {finding}" for finding in WORST_FIRST if left[finding])
        yield from wrapped(f"… {left.total()} more: {rest}. List them with --all", width=to.width)
    if listed:
        # Several releases leave no room for costs and further columns, of which then only rows tell.
        alone = len(ops["columns"]) == 1
        left_out = {column.name for column in ops.further} | (
            {"cost"} if (not alone and ops.by_device) or not _room(listed, ops, to)[0] else set()
        )
        left_out |= {"docs"} if len(ops["columns"]) == len(ops.by_device) else set()
        legend = [line for line in ops.legend(listed) if line[0] not in left_out]
        for label, (first, *texts) in legend:
            yield from _flowing(to, ((text, None) for text in (f"{label}: {first}", *texts)), dim=True)
        for place, column in enumerate(ops.further if alone or ops.narrowed else ()):
            cells = [op.further[place] for op in listed if alone]
            seen = {cell.finding for cell in cells}
            texts = [
                f"{column.head} {column.name}: {column.meaning}",
                *(f"{_sign(it)} {it}" for it in column.findings if it in seen),
                *[f"{NO_SIGN} {NOTHING}"] * (None in seen),
                *["k/n k of n rows compiled"] * any(it.finding and it.compiled is not None for it in cells),
            ]
            yield from _flowing(to, ((text, None) for text in texts), dim=True)
    pairs = (f"{it.row.id}, {one}" for op in listed * whole for _, it in op.rows for one in it.witnesses)
    for text in chain(pairs, report.limits):
        yield from wrapped(text, width=to.width)
    where = "" if ops.narrowed else " (detmatrix docs RUN lists them)"
    unmeasured = (line for text in ops.unmeasured_words for line in wrapped(f"{text}{where}", width=to.width))
    yield from (to.paint(line, bold=True) for line in unmeasured)


def _flowing(
    to: Screen, items: Iterable[tuple[str, str | None]], *, below: bool = False, **style: bool
) -> Iterator[str]:
    """Yield lines of as many items as fit, each a text with its colour; what no line has room for is broken.

    If they belong *below* the line above, the first line stands further in too.
    """
    indent, begin = " " * _INDENT, " " * (_INDENT - 2)
    line, width = ([begin], _INDENT) if below else ([], 0)
    for text, colour in items:
        pieces = [text]
        if len(text) > to.width - (_INDENT if line else 0):
            first = indent if line else ""
            broken = textwrap.wrap(text, to.width, initial_indent=first, subsequent_indent=indent)
            pieces = [it.strip() for it in broken]
        for place, piece in enumerate(pieces, 1):
            if line and width + len(piece) > to.width:
                yield "  ".join(line)
                line, width = [begin], _INDENT
            line.append(to.paint(piece, fg=colour, **style))
            width = width + len(piece) + 2 if place == len(pieces) else to.width
    yield "  ".join(line)


def _table(ops: Sequence[View], view: View, to: Screen) -> Iterator[str]:
    """Yield a line for each op below the heads, and those of its rows if they were asked for."""
    # The latest of many releases; the page has room for all of them.
    columns = view["columns"][-((to.width - 28) // _COLUMN) :]
    several_columns = len(columns) > 1
    if several_columns and len(columns) == len(view.by_device):
        yield from _side_by_side(ops, view, to)
        return
    costs, docs = [op.cost_words for op in ops], [op.docs_words.replace(" and ", "/") for op in ops]
    cost, doc = (max(map(len, (head, *texts))) for head, texts in (("COST", costs), ("DOCS", docs)))
    further = () if several_columns else view.further
    told = [[_mark(cell) for cell in op.further] if further else [] for op in ops]
    sizes = [max(map(len, texts)) for texts in zip(*told, strict=True)]
    beside = [max(len(column.head), size) for column, size in zip(further, sizes, strict=True)]
    longest = max(len(one_line(op["short"])) for op in ops)
    actions = [_sent(op, view.further) for op in ops]
    costly, acting = _room(ops, view, to)
    action = max(map(len, actions)) if acting else 0
    fixed = 3 + _COLUMN * len(columns) + (cost + 1 if costly else 0) + doc + acting
    # Further columns that do not fit beside the others stand below the line of their op, each behind its head.
    needed = sum(beside) + len(beside)
    below = bool(further) and fixed + needed + action + min(longest, _LEAST_NAME) > to.width
    fixed += 0 if below else needed
    room = max(_LEAST_NAME, to.width - fixed - action)
    # A name may take of what is said behind it, if that leaves enough.
    limit = max(room, to.width - fixed - _LEAST_NAME) if acting else room
    most = max(room, min(_WIDEST_NAME, limit))
    names = fitted((op["short"] for op in ops), room, most, limit)
    # Of a name that is wider still the line alone has less room.
    width = max(2, *(min(len(name), most) for name in names.values()))
    # A wide terminal has room for what the rows of each op show.
    left, rows = to.width - fixed - width, [op.counts_words for op in ops]
    wide = to.width > NARROW and costly and action + 1 + max(map(len, rows)) <= left
    head, *acts = (
        f"{act:{action}} {count}" if wide else textwrap.shorten(act, max(left, 1), placeholder="…")
        for act, count in zip(("ACTION", *actions), ("ROWS", *rows), strict=True)
    )
    heads = [f"{'COST':{cost}}"] * costly + ([f"{'DOCS':{doc}}", head] if acting else ["DOCS"])
    pairs = [] if below else zip(further, beside, strict=True)
    told_heads = "".join(f"{column.head:{size}} " for column, size in pairs)
    yield from _heads(columns, width, told_heads + " ".join(heads), to)
    for op, spent, listed, texts, act in zip(ops, costs, docs, told, acts, strict=True):
        start, marks = _begins(op, f"{names[op.short]:{width}}", len(columns), to)
        if not below:
            marks += "".join(f"{text:{size}} " for text, size in zip(texts, beside, strict=True))
        # Of a device that it was not measured on the lists say less.
        less = {"dim": True} if listed != op.listed.replace(" and ", "/") else {}
        said = to.paint(f"{listed:{doc}}", **({"fg": "magenta", "bold": True} if listed == MISSING else less))
        if (over := len(names[op.short]) - width) > 0:
            act = textwrap.shorten(act, max(left - over, 1), placeholder="…")  # noqa: PLW2901
        rest = [f"{spent:{cost}}"] * costly + [said] + [act] * acting
        yield f"{start} {marks}{' '.join(rest)}"
        if below and any(cell.finding for cell in op.further):
            cells = zip(further, texts, sizes, strict=True)
            items = [(f"{column.head} {text:{size}}", None) for column, text, size in cells]
            yield from _flowing(to, items, below=True, dim=True)
        if view.narrowed:
            yield from _rows([row for _, row in op.rows], view.further, to)
    known = not costly and any(op["cost"] or op["fill"] for op in ops)
    yield from _left_out(view, len(columns), to, "costs" * known if acting else "costs and actions")


def _heads(columns: Sequence[View], width: int, rest: str, to: Screen) -> Iterator[str]:
    """Yield the heads of a table, those of several releases or devices in two lines."""
    under = "FWD BWD  "
    if len(columns) > 1:
        most = _COLUMN - 2
        texts = (one_line(it.torch) for it in columns)
        torches = (f"{it if len(it) <= most + 1 else f'{it[:most]}…':{_COLUMN}}" for it in texts)
        yield to.paint(" " * (width + 3) + "".join(torches), dim=True)
        under = "".join(f"{_under(it):{_COLUMN}}" for it in columns)
    yield to.paint(f"  {'OP':{width}} {under}{rest}", dim=True)


def _begins(op: View, name: str, shown: int, to: Screen) -> tuple[str, str]:
    """Return what the line of an op begins with: its sign and name, and its marks in the columns *shown*."""
    worst = next(iter(op.beside), op.finding)
    marks = (f"{cell.forward.glyphs:3} {cell.backward.glyphs:3}  " for cell in op.cells[-shown:])
    return to.paint(f"{_sign(worst)} {name}", fg=_colour(worst)), "".join(marks)


def _left_out(view: View, shown: int, to: Screen, without: str) -> Iterator[str]:
    """Say what a table has no room for: *without* names columns, those of releases and further ones are known."""
    left = len(view["columns"]) - shown
    texts = [
        *[several(left, "earlier column")] * bool(left),
        *(column.name for column in view.further if shown > 1 and not view.narrowed),
        *[without] * bool(without),
    ]
    if texts:
        text = f"… left out: {', '.join(texts)}: --format html has them"
        yield from (to.paint(line, dim=True) for line in wrapped(text, width=to.width))


def _room(ops: Sequence[View], view: View, to: Screen) -> tuple[bool, bool]:
    """Tell whether a table has room for what the flag costs, and for what to do, which one release always has."""
    texts = ((one_line(op.short), op.cost_words, op.docs_words, op.action) for op in ops)
    name, cost, doc, action = (
        max(map(len, some)) for some in zip(("OP", "COST", "DOCS", "ACTION"), *texts, strict=True)
    )
    alone = len(view["columns"]) == 1
    name = min(name, _WIDEST_NAME) if alone else name
    left = to.width - 5 - _COLUMN * len(view["columns"]) - name - doc - action
    return left >= cost, alone or left >= 0


def _side_by_side(ops: Sequence[View], view: View, to: Screen) -> Iterator[str]:
    """Yield the table of one release on each of several kinds of devices, with what to do on each of them."""
    left = to.width - 3 - _COLUMN * len(view["columns"])
    actions = [" | ".join(it.action for it in op.devices) for op in ops]
    room = max(_WIDEST_NAME, left - max(map(len, actions)))
    names = fitted((op["short"] for op in ops), room)
    width = max(map(len, names.values()))
    columns = view["columns"]
    yield from _heads(columns, width, f"ACTION: {' | '.join(map(_under, columns))}", to)
    for op, action in zip(ops, actions, strict=True):
        start, marks = _begins(op, f"{names[op.short]:{width}}", len(columns), to)
        fits = len(action) <= left - width
        yield f"{start} {marks}{action if fits else ''}"
        if not fits:
            yield from _flowing(to, [(action, None)], below=True)
        for column in columns if view.narrowed else ():
            if rows := [row for run, row in op.rows if run in column.runs]:
                yield to.paint(f"    {column.title}:", dim=True)
                yield from _rows(rows, view.further, to)
    yield from _left_out(view, len(columns), to, "costs and documentation")


def _sent(op: View, columns: Sequence[Column]) -> str:
    """Return what to do, with the head of a column that it names behind something else, where names leave no room."""
    first, _, seen = op.action.rpartition("; see ")
    head = next((column.head for column in columns if column.name == seen), None)
    return f"{first}; see {head}" if head else op.action


def _mark(cell: View) -> str:
    """Return the sign of what a further column finds of an op, and in how many of its rows something was compiled."""
    sign = _sign(cell.finding or "")
    return sign if cell.finding is None or cell.compiled is None else f"{sign} {cell.compiled}/{cell.among}"


def _under(column: View) -> str:
    return "CUDA sim" if column.device == "simulated" else column.device.upper()


def _rows(rows: Sequence[MatrixRow], further: Sequence[Column], to: Screen) -> Iterator[str]:
    """Yield a line on each row of an op: its case, k of n with the flag off and on, its cost, and doubts about it."""
    lines = []
    for row in rows:
        times = timed(row)
        cost = times.ratio_words if times else ""
        shown = f"{row.off.short} → {row.on.short}"
        found = [f"{it.head} {finding}" for it in further if (finding := it.finding(row))]
        told = ", ".join([*row.remarks, *row.doubt_words(), *found])
        lines.append((row, one_line(row.row.id.removeprefix(f"{row.row.spec}:")), shown, cost, told))
    longest, both, costs, doubts = (max(len(str(line[place])) for line in lines) for place in range(1, 5))
    # What does not fit beside the others stands below.
    below = longest + both + costs + doubts + 9 > to.width
    room = max(_LEAST_NAME, to.width - both - costs - (0 if below else doubts) - 9)
    names = fitted((line[1] for line in lines), room)
    width = max(map(len, names.values()))
    for row, name, shown, cost, told in lines:
        start = f"    {FINDING[row.finding].sign} {names[name]:{width}}"
        line = f"{to.paint(start, fg=_colour(row.finding))} {shown:{both}} {cost:{costs}}"
        yield line if below else f"{line} {told}"
        if below and told:
            yield from wrapped(told, " " * _INDENT, width=to.width)


def _sign(name: str, otherwise: str = NO_SIGN) -> str:
    """Return the sign of what a column finds, or of what stands in its place."""
    return COLUMN_WORDS[name].sign if name in COLUMN_WORDS else otherwise


def _colour(name: str) -> str | None:
    """Return the colour of a finding or of what stands beside it; none of what is no finding."""
    return COLUMN_WORDS[name].colour if name in COLUMN_WORDS else None


def following(report: View) -> str:
    """Name the commands to go on with: on the first op that the lists miss, or else the worst, and for the page."""
    matrices = [run.matrix for run in report.runs]
    runs = shlex.join(one.run.path for one in matrices)
    ops = report.ops.acting
    first = next((op for op in ops if op.beside or op.listed == MISSING), next(iter(ops), None))
    commands = []
    if first:
        # One run says what to do; all of them are a line that nobody reads.
        latest = max(
            (matrices[run] for run, _ in first.rows), key=lambda one: torch_versions.key(one.release)
        )
        commands.append(f"detmatrix explain {shlex.quote(first.short)} {shlex.quote(latest.run.path)}")
    commands.append(f"detmatrix report {runs} --open")
    return safe_lines("Next: " + "\n      ".join(commands))
