"""Which perturbations really ran, and which rows only some of them reveal.

What was asked for is no evidence: a small share, or a case that takes long, leaves a perturbation without an execution.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from reports.matrix.model import Matrix, cell_of_mode
from reports.matrix.trust import TableSection
from reports.matrix.view import RowView
from reports.render.simulated import schedule_words, witness_words
from scanner.observations.records import WORKER_MODES
from scanner.perturbations import PERTURBATIONS
from scanner.schedules import FREEDOMS

# Fewer executions under a perturbation than this do not show that it reveals nothing.
ENOUGH = 5
_QUIET = ("quiet",)
_THREADS, _ORDER = "threads", "order"


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
    counts = [group for row in one.rows for mode in WORKER_MODES for group in cell_of_mode(row, mode).groups]
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
            f" Executions with another thread count ({meaning_of(_THREADS)}) are no part of n unless they differ among "
            f"themselves."
        )
    if _ORDER in ran:
        text += f" Rows that launch Triton kernels have others, which are no part of n either: {meaning_of(_ORDER)}."
    missing = [name for name in asked if name not in ran]
    return text + (f" Asked for but had no share: {', '.join(missing)}." if missing else "")


def revealed(rows: Sequence[RowView]) -> TableSection:
    """List the cells that differ under one perturbation, and in enough executions under another do not.

    Of a simulated GPU they are those that differ, each with the class that shows it by itself.
    """
    if any(row.off.simulated or row.on.simulated for row in rows):
        shown = [
            (row.id, mode, it)
            for row in rows
            for mode, cell in row.cells.items()
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
    groups = (group for row in rows for cell in row.cells.values() for group in cell.groups)
    if not any(
        it.executions and kind_of(it.perturbation) not in (_THREADS, _ORDER, *_QUIET) for it in groups
    ):
        text = "None is known: these rows ran under no perturbation but quiet, or none is on record."
    elif not lines:
        text = f"None: no row that differed kept the same bits in {ENOUGH} or more executions under a perturbation."
    else:
        text = (
            f"They differed from the first execution of their process under one perturbation, and in {ENOUGH} or more "
            f"executions under another they did not. A rare difference may miss one by chance."
        )
    return TableSection(text, ("row", "mode", "differs", "executions that differed"), lines)


def _revealed(rows: Sequence[RowView]) -> Iterator[tuple[str, ...]]:
    for row in rows:
        for mode, cell in row.cells.items():
            groups = [it for it in cell.groups if not PERTURBATIONS[kind_of(it.perturbation)].apart]
            shows = [group.perturbation for group in groups if group.differing]
            hides = [it.perturbation for it in groups if not it.differing and it.executions >= ENOUGH]
            if cell.verdict == "nondeterministic" and shows and hides:
                few = len(shows) <= len(hides)
                where = f"{'only' if few else 'not'} under {' and '.join(shows if few else hides)}"
                counts = ", ".join(f"{it.perturbation} {it.differing} of {it.executions}" for it in groups)
                yield row.id, mode, where, counts
