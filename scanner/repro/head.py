"""What a script begins with: the comment that says what was found and where, and the variables that steered the scan."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence

from detmatrix.scanner.errors import UsageError, one_line
from detmatrix.scanner.modes import DEFAULT_MODES, MODE_TABLE
from detmatrix.scanner.observations.records import Environment, Header
from detmatrix.scanner.schedules import FREEDOMS, PERMITTED
from detmatrix.scanner.verdicts.cells import Cell
from detmatrix.scanner.verdicts.findings import MatrixRow
from detmatrix.scanner.verdicts.simulated import still_words
from detmatrix.scanner.verdicts.vocabulary import FINDING_MEANING, MODE_FINDING_MEANING

# The variables of a worker's environment that change what is computed, or in what order; no others are set.
_STEERING = (
    "ATEN_CPU_CAPABILITY",
    "GOMP_CPU_AFFINITY",
    "KMP_AFFINITY",
    "MKL_CBWR",
    "MKL_NUM_THREADS",
    "NVIDIA_TF32_OVERRIDE",
    "OMP_NUM_THREADS",
    "OMP_PLACES",
    "OMP_PROC_BIND",
)
# What such variables consist of: "granularity=fine,compact,1,0", "{0:4},{4:4}".
_VALUE = re.compile(r"[\w ,:;=+*!.{}()-]{0,200}", re.ASCII)
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


def steering_of(header: Header) -> dict[str, str]:
    """Return the variables that steered the threads and kernels of a run."""
    recorded = header.environment.variables.get("off", {})
    return {name: _value(recorded[name]) for name in _STEERING if name in recorded}


def set_variables(variables: Mapping[str, str]) -> list[str]:
    """Return the statements that set them, unless whoever runs the script has."""
    return [f"os.environ.setdefault({name!r}, {value!r})" for name, value in variables.items()]


def set_by_mode(env: Environment) -> dict[str, str]:
    """Return the variables that a scan sets when the flag is on, and only then."""
    off, on = (env.variables.get(mode, {}) for mode in ("off", "on"))
    return {name: _value(on[name]) for name in MODE_TABLE["on"].variables if name in on and name not in off}


def _value(recorded: str) -> str:
    """Return the value of a variable.

    Raises:
        UsageError: It is none that any of them has.
    """
    if not _VALUE.fullmatch(recorded):
        raise UsageError(
            f"no script can be written: the run file has {one_line(recorded[:80])!r} as the value of a variable that steers "
            f"threads or kernels; restore the file"
        )
    return recorded
