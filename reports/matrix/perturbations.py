"""Which perturbations really ran, and which rows only some of them reveal.

What was asked for is no evidence: a small share, or a case that takes long, leaves a perturbation without an execution.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from reports.matrix.model import Matrix, cell_of_mode
from scanner.observations.records import WORKER_MODES, Mode
from scanner.verdicts.findings import GroupCount, MatrixRow
from scanner.worker.perturb import PERTURBATIONS

# Fewer executions under a perturbation than this do not show that it reveals nothing.
ENOUGH = 5
_QUIET = ("quiet",)
_THREADS = "threads"


class Revealed(Struct, frozen=True):
    """A cell that differs under some perturbations and not under others."""

    id: str
    mode: Mode
    where: str  # "only under stress", "not under quiet"
    counts: str  # "quiet 0 of 50, stress 6 of 50"


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
    ran = [kind_of(group.perturbation) for group in counts if group.executions]
    shared = [name for name in asked if name in ran and name != _THREADS]
    text = _among([f"{name} ({meaning_of(name)})" for name in shared])
    if _THREADS in ran:
        text += (
            f" Executions with another thread count ({meaning_of(_THREADS)}) are no part of n unless they differ among "
            f"themselves."
        )
    missing = [name for name in asked if name not in ran]
    return text + (f" Asked for but had no share: {', '.join(missing)}." if missing else "")


def _among(lines: Sequence[str]) -> str:
    if not lines[1:]:
        return f"they were all {lines[0] if lines else 'of another thread count'}."
    return f"they were shared among {', '.join(lines[:-1])} and {lines[-1]}."


def revealed(rows: Sequence[MatrixRow]) -> Iterator[Revealed]:
    """Yield the cells that differ under one perturbation, and in enough executions under another do not."""
    for row in rows:
        for mode in WORKER_MODES:
            cell = cell_of_mode(row, mode)
            groups = [group for group in cell.groups if kind_of(group.perturbation) != _THREADS]
            shows = [group.perturbation for group in groups if group.differing]
            hides = [it.perturbation for it in groups if not it.differing and it.executions >= ENOUGH]
            if cell.verdict == "nondeterministic" and shows and hides:
                yield Revealed(row.row.id, mode, _where(shows, hides), _counts(groups))


def revealed_words(one: Matrix) -> str:
    """Say what is listed, or that there is nothing to list."""
    recorded = any(
        group.executions and kind_of(group.perturbation) not in (_THREADS, *_QUIET)
        for row in one.rows
        for mode in WORKER_MODES
        for group in cell_of_mode(row, mode).groups
    )
    if not recorded:
        return "None is known: these rows ran under no perturbation but quiet, or none is on record."
    if not any(True for _ in revealed(one.rows)):
        return f"None: no row that differed kept the same bits in {ENOUGH} or more executions under a perturbation."
    return (
        f"They differed from the first execution of their process under one perturbation, and in {ENOUGH} or more "
        f"executions under another they did not. A rare difference may miss one by chance."
    )


def _where(shows: Sequence[str], hides: Sequence[str]) -> str:
    if len(shows) <= len(hides):
        return f"only under {' and '.join(shows)}"
    return f"not under {' and '.join(hides)}"


def _counts(groups: Sequence[GroupCount]) -> str:
    return ", ".join(f"{it.perturbation} {it.differing} of {it.executions}" for it in groups)
