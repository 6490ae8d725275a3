"""What a scan's verdicts rest on: controls, sentinels, power and perturbations, each as a sentence with a table."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Sequence

from msgspec import Struct

from detmatrix.reports.matrix.model import Matrix
from detmatrix.reports.render.markdown import NONE
from detmatrix.scanner.observations.parts import ranges
from detmatrix.scanner.observations.records import WORKER_MODES, Mode, Sentinel
from detmatrix.scanner.perturbations import PERTURBATIONS
from detmatrix.scanner.plurals import several
from detmatrix.scanner.schedules import FREEDOMS
from detmatrix.scanner.verdicts.controls import check_controls
from detmatrix.scanner.verdicts.distrust import unobserved
from detmatrix.scanner.verdicts.findings import MatrixRow
from detmatrix.scanner.verdicts.power import POWER_SHARE, has_power
from detmatrix.scanner.verdicts.simulated import schedule_words, witness_words

# The format that brought controls, sentinels, perturbations, severity and cost.
EVIDENCE_SINCE = 2


# Fewer executions under a perturbation than this do not show that it reveals nothing.
ENOUGH = 5
_QUIET = ("quiet",)
_THREADS, _ORDER = "threads", "order"


class TableSection(Struct, frozen=True):
    """A part of a report: a sentence, and the table that it stands above, if there is anything to list."""

    text: str
    heads: tuple[str, ...]
    lines: Sequence[tuple[object, ...]]


def controls(one: Matrix) -> TableSection:
    """Say what the controls show of the scan, and table their answers in the order of the header and of the modes."""
    header = one.run.header
    names = [row.spec.removeprefix("control.") for row in header.controls]
    agreeing: dict[tuple[str, Mode, str, str], list[int]] = {}
    for it in check_controls(header, one.run.controls):
        agreeing.setdefault((it.control, it.mode, it.expected, it.seen), []).append(it.process)
    ordered = sorted(
        agreeing.items(), key=lambda item: (names.index(item[0][0]), WORKER_MODES.index(item[0][1]), item[1])
    )
    lines: list[tuple[object, ...]] = [
        (control, mode, ranges(processes), expected, seen, "yes" if expected == seen else "no")
        for (control, mode, expected, seen), processes in ordered
    ]
    answered = {control for control, *_ in agreeing}
    unseen: dict[tuple[str, str], list[int]] = {}
    for name, mode, process in unobserved(one.run):
        if name in answered:
            unseen.setdefault((name, mode), []).append(process)
    unseen |= {(name, "any"): [] for name in names if name not in answered}
    lines += [
        (name, mode, ranges(processes) or NONE, "an answer", "not observed", "not known")
        for (name, mode), processes in unseen.items()
    ]
    wrong = sum(expected != seen for _, _, expected, seen in agreeing)
    heads = ("control", "mode", "processes", "expected", "seen", "right")
    return TableSection(_controls_text(one, wrong, len(unseen)), heads, lines)


def _controls_text(one: Matrix, wrong: int, unseen: int) -> str:
    header = one.run.header
    if not header.controls:
        early = "scanned before detmatrix had them" if header.format < EVIDENCE_SINCE else "none were planned"
        return f"No controls: {early}. Nothing shows that this scan could see a difference or an alert."
    void = ", so nothing below is trustworthy"
    text = f"{wrong} gave another answer{void}" if wrong else "each gave the expected answer"
    if one.run.distrust:
        text += f"; a worker that replaced another gave a wrong answer{void}"
    if unseen:
        text += f"; {unseen} not observed{void if any(unobserved(one.run)) else ''}"
    return f"Controls are ops with a known answer, run in every process of every mode: {text}."


def sentinels(one: Matrix) -> TableSection:
    """Say what the sentinels saw, and table the shares of executions that differed by mode, process and op."""
    seen: dict[tuple[Mode, int, str], list[Sentinel]] = {}
    for it in one.run.sentinels:
        seen.setdefault((it.mode, it.process, it.op), []).append(it)
    ordered = sorted(seen.items(), key=lambda item: (WORKER_MODES.index(item[0][0]), *item[0][1:]))
    text = sentinels_words(one)
    return TableSection(
        f"{text[:1].upper()}{text[1:]}.",
        ("mode", "process", "op", "checks", "lowest", "median", "without power"),
        [(*key, len(found), *_shares(found), _weak(found)) for key, found in ordered],
    )


def sentinels_words(one: Matrix) -> str:
    """Say what the sentinels saw over the whole scan."""
    seen = one.run.sentinels
    if one.simulated:
        return "no sentinel: schedules are chosen, so the machine cannot hide a difference"
    if not seen:
        return "no sentinel: nothing shows whether anything could race while the rows ran"
    lowest, median = _shares(seen)
    return (
        f"{len(seen)} checks of {', '.join(dict.fromkeys(it.op for it in seen))}: {median} of the executions differed "
        f"in the median, {lowest} at the lowest; {_weak(seen)} without power (below {100 * POWER_SHARE:g} %)"
    )


def power_words(one: Matrix) -> str | None:
    """Say how many rows of the scan are of low power, and why most of them are; ``None`` if none is."""
    if not one.weak:
        return None
    reason, count = next(iter(one.weak.items()))
    more = len(one.weak) - 1
    rest = f" ({several(count, 'row')}), and {several(more, 'more reason')}"
    return (
        f"Low power: in {sum(one.weak.values())} of {several(one.planned, 'row')} a race could have gone unseen in at least "
        f"one mode: {reason}{rest if more else ''}"
    )


def serial_words(one: Matrix) -> str | None:
    """Say how many rows of the scan one thread did alone, and of how many that is not known; ``None`` if there are none."""
    known = (
        f"one thread did all the work in {one.serial} of {several(one.planned, 'row')} ({one.serial_provoking} of them "
        f"provoking), so nothing could race there. These rows are not used to check the docs."
    )
    unknown = f"not measured in {several(one.serial_unknown, 'row')} that did not differ."
    found = [text for text, count in ((known, one.serial), (unknown, one.serial_unknown)) if count]
    return f"Serial: {' '.join(found)}" if found else None


def library_words(one: Matrix) -> str | None:
    """Say which libraries rows of a simulated run call, whose code nobody executed; ``None`` if none does."""
    cells = ((row.off, row.on) for row in one.scanned)
    called = Counter(
        name
        for both in cells
        for name in {
            call
            for cell in both
            if cell.verdict == "not_run" and cell.simulated
            for call in cell.simulated.libraries
        }
    )
    rows = ", ".join(f"{name} {several(count, 'row')}" for name, count in called.most_common())
    return f"Not run, because they call a library that is not simulated: {rows}." if rows else None


def _shares(found: Sequence[Sentinel]) -> tuple[str, str]:
    """Return the lowest and the median share of executions that differed; the first of each never can."""
    shares = [it.differing / (it.executions - 1) if it.executions > 1 else 0.0 for it in found]
    return f"{100 * min(shares):.3g} %", f"{100 * statistics.median(shares):.3g} %"


def _weak(found: Sequence[Sentinel]) -> int:
    """Count the checks that leave the rows beside them without power."""
    return sum(not has_power(it) for it in found)


def meaning_of(perturbation: str) -> str:
    """Say what a perturbation does."""
    return PERTURBATIONS[kind_of(perturbation)].meaning


def kind_of(perturbation: str) -> str:
    """Return the name by which a perturbation is asked for, "threads" of "threads=1"."""
    return perturbation.partition("=")[0]


def ran_words(one: Matrix) -> str:
    """Say under which perturbations the shown rows ran, and which of those asked for had no execution."""
    asked = one.run.header.settings.perturb
    if asked == _QUIET:
        return "they were not perturbed."
    counts = [group for row in one.rows for mode in WORKER_MODES for group in row.cell(mode).groups]
    if not counts:
        return f"no perturbation of theirs is on record (asked for: {', '.join(asked)})."
    ran = {kind_of(group.perturbation) for group in counts if group.executions}
    *others, last = [
        f"{name} ({meaning_of(name)})"
        for name in dict.fromkeys((*asked, *PERTURBATIONS))
        if name in ran and not PERTURBATIONS[name].apart
    ] or ["of another thread count"]
    text = f"they were shared among {', '.join(others)} and {last}." if others else f"they were all {last}."
    if _THREADS in ran:
        text += (
            f" Executions with another thread count ({meaning_of(_THREADS)}) count towards n only if they differ among "
            f"themselves."
        )
    if _ORDER in ran:
        text += f" Rows that launch Triton kernels have others, which are no part of n either: {meaning_of(_ORDER)}."
    missing = [name for name in asked if name not in ran]
    return text + (f" Requested, but never run: {', '.join(missing)}." if missing else "")


def revealed(rows: Sequence[MatrixRow]) -> TableSection:
    """List the cells that differ under one perturbation, and in enough executions under another do not.

    Of a simulated GPU they are those that differ, each with the class that shows it by itself.
    """
    if any(row.off.simulated or row.on.simulated for row in rows):
        shown = [
            (row.row.id, mode, it)
            for row in rows
            for mode, cell in row.shown.items()
            if (it := cell.simulated) and it.schedule
        ]
        counts = Counter(it.schedule.name for _, _, it in shown if it.schedule)
        told = ", ".join(f"{name} {counts[name]}" for name in FREEDOMS if counts[name])
        text = f"Cells by the weakest class of schedules that shows a difference by itself: {told or 'none differed'}."
        told_of = [
            (row, mode, schedule_words(it.schedule), witness_words(it))
            for row, mode, it in shown
            if it.schedule
        ]
        return TableSection(text, ("row", "mode", "differs under", "one pair that shows it"), told_of)
    lines = list(_revealed(rows))
    groups = (group for row in rows for cell in row.shown.values() for group in cell.groups)
    if not any(
        it.executions and kind_of(it.perturbation) not in (_THREADS, _ORDER, *_QUIET) for it in groups
    ):
        text = "Unknown: these rows ran quiet only, or their perturbations were not recorded."
    elif not lines:
        text = f"None: no row that differed kept the same bits in {ENOUGH} or more executions under a perturbation."
    else:
        text = (
            f"These cells differed under one perturbation, and not in {ENOUGH} or more executions under another. A rare "
            f"difference can miss a perturbation by chance."
        )
    return TableSection(text, ("row", "mode", "differs", "executions that differed"), lines)


def _revealed(rows: Sequence[MatrixRow]) -> Iterator[tuple[str, ...]]:
    for row in rows:
        for mode, cell in row.shown.items():
            groups = [it for it in cell.groups if not PERTURBATIONS[kind_of(it.perturbation)].apart]
            shows = [group.perturbation for group in groups if group.differing]
            hides = [it.perturbation for it in groups if not it.differing and it.executions >= ENOUGH]
            if cell.verdict == "nondeterministic" and shows and hides:
                few = len(shows) <= len(hides)
                where = f"{'only' if few else 'not'} under {' and '.join(shows if few else hides)}"
                counts = ", ".join(f"{it.perturbation} {it.differing} of {it.executions}" for it in groups)
                yield row.row.id, mode, where, counts
