"""What a scan's verdicts rest on, in words: controls, sentinels and power, perturbations, differences."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence

from msgspec import Struct

from reports.matrix.difference import NOT_MEASURED, Distance, distance, first_differing
from reports.matrix.model import Matrix, cell_of_mode, outputs_of, unobserved
from reports.render.markdown import NONE
from scanner.observations.records import WORKER_MODES, Mode, Output, Row, Sentinel
from scanner.verdicts.controls import check_controls
from scanner.verdicts.findings import Cell, MatrixRow
from scanner.verdicts.power import POWER_SHARE, has_power

# The format that brought controls, sentinels, perturbations, severity and cost.
EVIDENCE_SINCE = 2


class ControlLine(Struct, frozen=True):
    """What one control answered in one mode, in the processes that agree."""

    control: str
    mode: str
    processes: str
    expected: str
    seen: str
    ok: str


class SentinelLine(Struct, frozen=True):
    """What the sentinels of one process saw: shares of the executions that could differ."""

    mode: str
    process: int
    op: str
    checks: int
    lowest: str
    median: str
    weak: int  # checks that leave the rows beside them without power


class Difference(Struct, frozen=True):
    """One output of one cell that differed."""

    row: Row
    mode: Mode
    differed: str  # "7 of 100, 5 distinct"
    under: str
    where: str
    first: str
    output: str  # its name, "not known" where only processes differ
    executions: int | None  # in which it differed from the first of its process
    distance: Distance


def control_lines(one: Matrix) -> list[ControlLine]:
    """Return one line per control, mode and answer, in the order of the header and of the modes."""
    header = one.run.header
    places = [row.spec.removeprefix("control.") for row in header.controls]
    agreeing: defaultdict[tuple[str, Mode, str, str], list[int]] = defaultdict(list)
    for check in check_controls(header, one.run.controls):
        agreeing[check.control, check.mode, check.expected, check.seen].append(check.process)
    lines = [
        ControlLine(control, mode, ranges(processes), expected, seen, "yes" if expected == seen else "no")
        for (control, mode, expected, seen), processes in sorted(
            agreeing.items(),
            key=lambda item: (places.index(item[0][0]), WORKER_MODES.index(item[0][1]), item[1]),
        )
    ]
    answered = {line.control for line in lines}
    missing: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for name, mode, process in unobserved(one.run):
        if name in answered:
            missing[name, mode].append(process)
    never = {(name, "any"): list[int]() for name in places if name not in answered}
    return lines + [
        ControlLine(name, where, ranges(processes) or NONE, "an answer", "not observed", "not known")
        for (name, where), processes in {**missing, **never}.items()
    ]


def controls_words(one: Matrix) -> str:
    """Say what the controls show of the scan as a whole."""
    header = one.run.header
    if not header.controls:
        early = "scanned before detmatrix had them" if header.format < EVIDENCE_SINCE else "none were planned"
        return f"No controls: {early}. Nothing shows that this scan could see a difference or an alert."
    lines = control_lines(one)
    wrong = sum(line.ok == "no" for line in lines)
    text = (
        "each answered as it must"
        if not wrong
        else f"{wrong} answered otherwise, so nothing below is trustworthy"
    )
    if one.run.distrust:
        text += "; a worker that replaced another answered otherwise, so nothing below is trustworthy"
    if unseen := sum(line.ok == "not known" for line in lines):
        text += f"; {unseen} not observed{', so nothing below is trustworthy' if any(unobserved(one.run)) else ''}"
    return f"Controls are ops whose answer is known, observed in every process of every mode: {text}."


def sentinel_lines(one: Matrix) -> list[SentinelLine]:
    """Return one line per process and op, by mode."""
    seen: defaultdict[tuple[Mode, int, str], list[Sentinel]] = defaultdict(list)
    for sentinel in one.run.sentinels:
        seen[sentinel.mode, sentinel.process, sentinel.op].append(sentinel)
    ordered = sorted(seen.items(), key=lambda item: (WORKER_MODES.index(item[0][0]), *item[0][1:]))
    return [
        SentinelLine(mode, process, op, len(found), *_shares(found), sum(not has_power(it) for it in found))
        for (mode, process, op), found in ordered
    ]


def sentinels_words(one: Matrix) -> str:
    """Say what the sentinels saw over the whole scan."""
    seen = one.run.sentinels
    if not seen:
        return "no sentinel: nothing shows whether anything could race while the rows ran"
    lowest, median = _shares(seen)
    weak = sum(not has_power(sentinel) for sentinel in seen)
    return (
        f"{len(seen)} checks of {', '.join(dict.fromkeys(sentinel.op for sentinel in seen))}: {median} of the "
        f"executions differed in the median, {lowest} at the lowest; {weak} without power (below "
        f"{100 * POWER_SHARE:g} %)"
    )


def power_words(one: Matrix) -> str | None:
    """Say how many rows of the scan are of low power, and why most of them are; ``None`` if none is."""
    if not one.weak:
        return None
    reason, count = next(iter(one.weak.items()))
    more = len(one.weak) - 1
    rest = f" ({_rows(count)}), and {more} more {'reason' if more == 1 else 'reasons'}" if more else ""
    return (
        f"Low power: {sum(one.weak.values())} of {_rows(one.planned)} did not differ in a mode in which hardly "
        f"anything could race: {reason}{rest}"
    )


def serial_words(one: Matrix) -> str | None:
    """Say how many rows of the scan one thread did alone; ``None`` if none is known to be so."""
    if not one.serial:
        return None
    return (
        f"Serial: {one.serial} of {_rows(one.planned)} did not differ, and one thread did all their work, so that nothing "
        f"in them could race; {one.serial_provoking} of these provoke a difference. They were not executed under stress, "
        f"and confirm no bullet."
    )


def weak_rows(one: Matrix) -> dict[str, list[MatrixRow]]:
    """Return the shown rows of low power by reason, the most frequent reason of the scan first."""
    found: dict[str, list[MatrixRow]] = {reason: [] for reason in one.weak}
    for row in one.rows:
        if row.weak is not None:
            found[row.weak].append(row)
    return {reason: rows for reason, rows in found.items() if rows}


def threads_words(cell: Cell) -> str:
    """Say under which thread counts a cell has other bits, "other bits with 1 thread"; else nothing.

    An op that differs anyway has other bits each time, so of one it would say nothing of threads.
    """
    if cell.differing:
        return ""
    counts = [name.removeprefix("threads=") for name in cell.other_threads]
    return (
        f"other bits with {' and '.join(counts)} {'thread' if counts == ['1'] else 'threads'}"
        if counts
        else ""
    )


def under_words(cell: Cell) -> str:
    """Say under which perturbations executions differed from the first of their process."""
    if not cell.groups:
        return "not recorded"
    lines = [f"{it.perturbation} {it.differing} of {it.executions}" for it in cell.groups if it.differing]
    return ", ".join(lines) or NONE


def differences(row: MatrixRow) -> Iterator[Difference]:
    """Yield what differed, one output of one mode at a time."""
    for mode in WORKER_MODES:
        cell = cell_of_mode(row, mode)
        if cell.verdict != "nondeterministic":
            continue
        mine = [observation for observation in row.observations if observation.mode == mode]
        first = first_differing(mine)
        unseen = "the first of a process" if cell.between else "not recorded"
        outputs: list[Output | None] = [output for output in outputs_of(mine) if output.differing]
        # Where only processes differ, or thread counts among themselves, no output was held against another.
        alone = f"{NOT_MEASURED}: differs {cell.where}" if not cell.within else NOT_MEASURED
        for output in outputs or [None]:
            yield Difference(
                row=row.row,
                mode=mode,
                differed=f"{cell.differing} of {cell.runs}, {cell.distinct} distinct",
                under=under_words(cell),
                where=cell.where or NONE,
                first=f"{first[0]} (process {first[1]})" if first else unseen,
                output=output.name if output else "not known",
                executions=output.differing if output else None,
                distance=distance(output, alone if output is None else NOT_MEASURED),
            )


def ranges(numbers: Sequence[int]) -> str:
    """Return sorted numbers with runs joined: ``0-3, 8``."""
    lines: list[list[int]] = []
    for number in sorted(set(numbers)):
        if lines and number == lines[-1][1] + 1:
            lines[-1][1] = number
        else:
            lines.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in lines)


def _shares(sentinels: Sequence[Sentinel]) -> tuple[str, str]:
    """Return the lowest and the median share of executions that differed; the first of each never can."""
    shares = [it.differing / (it.executions - 1) if it.executions > 1 else 0.0 for it in sentinels]
    return f"{100 * min(shares):.3g} %", f"{100 * statistics.median(shares):.3g} %"


def _rows(count: int) -> str:
    return f"{count} {'row' if count == 1 else 'rows'}"
