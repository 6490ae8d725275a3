"""What reports say in words: cells, the bound, the environment, the command that reruns a row.

Absence is a word here ("none", "unset", "not recorded"), never a blank, a zero or NaN.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from reports.matrix import COMPARED, Matrix, is_seeded
from scanner.records import MODES, Environment, Mode, Settings
from scanner.verdicts import Cell, MatrixRow, upper_bound

NONE = "none"
_ROUNDED = 4  # values of n that are named one by one

_ENVIRONMENT = {
    "torch": "torch",
    "torch_git": "torch git revision",
    "cuda": "CUDA of the torch build",
    "cudnn": "cuDNN",
    "driver": "GPU driver",
    "gpu": "GPU",
    "gpu_capability": "GPU capability",
    "cpu": "CPU",
    "cores": "CPU cores",
    "threads": "torch threads in a worker",
    "affinity": "cores a worker may use",
    "load": "load before (1, 5, 15 minutes)",
    "python": "Python",
    "os": "operating system",
}
_SETTINGS = {
    "patterns": "patterns",
    "device": "device",
    "runs": "executions per process",
    "processes": "processes per mode",
    "timeout": "timeout per case and process",
    "seed": "seed",
    "modes": "modes",
    "specs": "files of own specs",
}


def counted(cell: Cell) -> str:
    """Return "k of n differed" of a cell in which executions were compared, else nothing."""
    return f"{cell.differing} of {cell.runs} differed" if cell.verdict in COMPARED else ""


def cell_words(row: MatrixRow, mode: Mode) -> str:
    """Return a cell of the matrix: the verdict, k of n, and the distinct outputs."""
    cell = row.off if mode == "off" else row.on
    seeded = ", seeded" if is_seeded(row, mode) else ""
    told = f": {counted(cell)}, {cell.distinct} distinct" if counted(cell) else ""
    return f"{cell.verdict}{told}{seeded}"


def finding_words(row: MatrixRow) -> str:
    """Return the finding; the one that says "deterministic" says of how many executions."""
    if row.finding != "deterministic":
        return row.finding
    return f"deterministic (n = {min(row.off.runs, row.on.runs)} per mode)"


def percent(share: float) -> str:
    """Return a share with three significant digits."""
    return f"{100 * share:.3g} %"


def n_words(one: Matrix) -> str:
    """Say what n is in this run, and what 0 of n leaves possible."""
    settings = one.run.header.settings
    values = sorted({cell.runs for row in one.rows for cell in (row.off, row.on) if cell.upper_bound})
    values = values or [one.executions]
    if len(values) > _ROUNDED:
        values = [values[0], values[-1]]
    bounds = ", ".join(f"{percent(upper_bound(n))} for n = {n}" for n in values)
    return (
        f"{_of(settings.processes, 'process', 'processes')} per mode ran each row "
        f"{_of(settings.runs, 'time', 'times')}: n = {one.executions} executions per cell, unless the cell "
        f"says otherwise, compared bit for bit. Where 0 of n differed, the rate of differing is below "
        f"1 - 0.05^(1/n) with 95 % confidence: {bounds}. That bounds the rate, it excludes nothing."
    )


def state_words(one: Matrix) -> list[str]:
    """Return what a reader must know before believing anything below: distrust, and an unfinished scan."""
    told = [f"Not trustworthy: {reason}" for reason in one.distrust]
    if one.run.closing is None:
        seen = len({observation.key for observation in one.run.observations})
        told.append(
            f"Incomplete: the scan did not finish; {seen} of {one.planned} rows were observed at least once. "
            f"Finish it with scan --resume"
        )
    settings, environment = one.run.header.settings, one.run.header.environment
    if settings.device == "cpu" and min(environment.threads, len(environment.affinity)) == 1:
        told.append(
            "One thread: nothing can race on this CPU, so that nothing found deterministic here says anything"
        )
    return told


def shown_words(one: Matrix) -> str | None:
    """Say which rows are left out, if any are."""
    asked = [f"found {' or '.join(one.only)}"] if one.only else []
    asked += [f"matching {' or '.join(one.patterns)}"] if one.patterns else []
    if not asked:
        return None
    return f"Shown: {len(one.rows)} of {one.planned} rows, those {' and '.join(asked)}."


def environment_words(one: Matrix) -> list[tuple[str, str]]:
    """Return the environment as (label, text), everything the run file says of it."""
    header, closing = one.run.header, one.run.closing
    told = []
    for field in Environment.__struct_fields__:
        if field != "variables":
            told.append((_ENVIRONMENT.get(field, field), _text(field, getattr(header.environment, field))))
        if field == "load":
            told.append(
                (
                    "load after (1, 5, 15 minutes)",
                    _text("load", closing.load) if closing else "not recorded, the scan did not finish",
                )
            )
    return told + _variables(header.environment.variables)


def settings_words(one: Matrix) -> list[tuple[str, str]]:
    """Return the settings and the circumstances of the scan as (label, text)."""
    header, closing = one.run.header, one.run.closing
    told = [
        (_SETTINGS.get(field, field), _text(field, getattr(header.settings, field)))
        for field in Settings.__struct_fields__
    ]
    return [
        ("run file", one.name),
        *told,
        ("started (UTC)", header.started),
        ("wall time", f"{closing.seconds:.1f} s" if closing else "not recorded, the scan did not finish"),
        ("scanned by", f"detmatrix {header.tool}, run file format {header.format}"),
    ]


def rerun_options(settings: Settings) -> str:
    """Return the options of the command that runs a row again as it was run."""
    specs = "".join(f"--specs {shlex.quote(path)} " for path in settings.specs)
    return (
        f"{specs}--device {settings.device} --runs {settings.runs} --processes {settings.processes} "
        f"--seed {settings.seed} --timeout {settings.timeout:g} -o rerun.jsonl"
    )


def _variables(variables: dict[str, dict[str, str]]) -> list[tuple[str, str]]:
    """Return one line per variable; per mode where the modes differ."""
    modes = [*MODES, *sorted(set(variables) - set(MODES))]
    modes = [mode for mode in modes if mode in variables]
    names = sorted({name for mode in modes for name in variables[mode]})
    told = []
    for name in names:
        values = {mode: variables[mode].get(name) for mode in modes}
        texts = {mode: "unset" if value is None else value or "(empty)" for mode, value in values.items()}
        same = len(set(texts.values())) == 1
        text = texts[modes[0]] if same else "; ".join(f"{mode}: {text}" for mode, text in texts.items())
        told.append((f"variable {name}", text))
    return told or [("variables", "none recorded")]


def _text(field: str, value: object) -> str:
    """Return a recorded value in words."""
    if value is None or value == "":
        return NONE
    if field == "patterns":
        return (
            " ".join(str(part) for part in value)
            if isinstance(value, tuple) and value
            else "none given, so all rows"
        )
    if field == "affinity" and isinstance(value, tuple):
        return _ranges(value) or "not restricted"
    if field == "timeout":
        return f"{value:g} s"
    if isinstance(value, tuple):
        return ", ".join(str(part) for part in value) or NONE
    return str(value)


def _ranges(numbers: Sequence[int]) -> str:
    """Return sorted numbers with runs joined: ``0-3, 8``."""
    told: list[list[int]] = []
    for number in sorted(set(numbers)):
        if told and number == told[-1][1] + 1:
            told[-1][1] = number
        else:
            told.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in told)


def _of(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"
