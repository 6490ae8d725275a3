"""The comment that a script begins with: what was found, and where."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence

from scanner.errors import one_line
from scanner.modes import DEFAULT_MODES
from scanner.observations.records import Header
from scanner.schedules import FREEDOMS, PERMITTED
from scanner.verdicts.cells import Cell
from scanner.verdicts.findings import MatrixRow
from scanner.verdicts.simulated import still_words
from scanner.verdicts.vocabulary import FINDING_MEANING, MODE_FINDING_MEANING

# Lines of a script are broken behind so many characters, where they can be.
WIDTH = 118
# Whose finding a row's own is, where other modes have findings too.
OF_OFF_AND_ON = " with the flag off and on"


def finding_comment(row: MatrixRow, header: Header) -> list[str]:
    """Say what was found, and where."""
    env, settings = header.environment, header.settings
    of_gpu = f"{env.gpu}, CUDA {env.cuda}" if env.cuda is not None else env.gpu
    where = of_gpu if settings.device != "cpu" else f"{env.cpu}, {env.threads} threads"
    if env.simulated:
        where = f"{of_gpu} ({env.simulated.architecture}): seen in simulation, not on a GPU"
    message = "; ".join(
        f"{mode}: {_described(cell)}"
        for mode, cell in row.cells.items()
        if mode in DEFAULT_MODES and cell.verdict != "not_run"
    )
    whose = OF_OFF_AND_ON * any(it.finding is not None for it in row.chosen.values())
    lines = [
        f"{row.row.id} with torch {env.torch} on {where}",
        f"{row.finding}{whose}: {FINDING_MEANING[row.finding]} {message or 'nothing was observed'} (detmatrix {header.tool}).",
        *([f"{row.reason}."] if row.needs_both and row.reason else []),
        *(
            f"{finding} in {mode}: {MODE_FINDING_MEANING[finding]} {_described(it, it.finding_reason)}."
            for mode, it in row.chosen.items()
            if (finding := it.finding) is not None
        ),
    ]
    return comment_of(lines)


def comment_of(lines: Sequence[str]) -> list[str]:
    """Return lines as the comment that a script begins with."""
    comment = [f"# {line}" for long in lines for line in textwrap.wrap(one_line(long), WIDTH - 2)]
    # Python takes "coding: ..." in a comment of the first two lines for the encoding of all that follows.
    return [re.sub(r"coding([:=])", r"coding \1", line) for line in comment]


def _described(cell: Cell, reason: str | None = None) -> str:
    """Say what was seen under a mode; why it is inconclusive or no verdict, if that is known of it."""
    if reason is not None:
        return textwrap.shorten(reason, 200)
    if cell.simulated and (schedule := cell.simulated.schedule):
        permitted = "" if FREEDOMS[schedule.name].headline else f", {PERMITTED}"
        return f"differs under {schedule.name} (number {schedule.number}, seed {schedule.seed}{permitted})"
    if cell.simulated and cell.verdict == "deterministic":
        return still_words(cell.simulated, cell.runs)
    if cell.verdict in ("deterministic", "nondeterministic"):
        return f"{cell.differing} of {cell.runs} differed, {cell.distinct} distinct"
    return (
        cell.verdict if cell.verdict == "raises" else textwrap.shorten(f"{cell.verdict}, {cell.reason}", 200)
    )
