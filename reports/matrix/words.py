"""What reports say in words: cells, the bound, the environment, the command that reruns a row.

Absence is a word here ("none", "unset", "not recorded"), never a blank, a zero or NaN.
"""

from __future__ import annotations

import re
import shlex
from typing import Literal

from reports.matrix import perturbations, trust
from reports.matrix.database_rows import enumerated_words
from reports.matrix.model import COMPARED, Matrix, bound_of, cell_of_mode, constant_of, is_seeded
from reports.render.markdown import NONE
from scanner.observations.records import MODES, Claim, Environment, Mode, Settings
from scanner.verdicts.findings import Cell, MatrixRow, upper_bound
from scanner.worker.perturb import DEFAULT

State = Literal["untrusted", "incomplete", "low_power"]


# A role of the docstring's markup, and what it names.
_ROLE = re.compile(r":\w+:`~?([^`]*)`")
_ROUNDED = 4  # values of n that are named one by one

# One sentence each, printed with every report, of the words that are neither verdicts nor findings.
GLOSSARY = {
    "off, on": "torch.use_deterministic_algorithms(False) and (True), in worker processes of their own.",
    "distinct": "The different outputs within a mode.",
    "between processes only": "Each process gave the same bits every time, and another process other bits.",
    "other bits with 1 thread": "Another thread count gives other bits. That is no nondeterminism: its executions are "
    "compared among themselves.",
    "seeded": "The op draws random numbers; its generator was seeded before every execution.",
    "constant": "The result holds no information by definition, so that its sameness shows nothing; the reason is "
    "given, and no bound.",
    "samples, enlarged": "Rows made of PyTorch's databases: a sample as it is, tiny; or grown until kernels run in "
    "parallel, with indices that repeat.",
    "low power": "The sentinel beside the row, an op that differs wherever anything can race, hardly differed: that "
    "the row did not differ in that mode shows little.",
    "serial": "With the flag off one thread did all the work of an execution, so that nothing in it could race: that the "
    "row did not differ shows nothing of inputs for which more threads work.",
    "warn_only": "What an op that raises does with the flag on and warn_only=True, which turns the alert into a "
    "warning; all alerts it then gives are listed.",
    "cost": "Median time of an execution with the flag on over that with it off, taken in turns in one process; "
    "≈ where the quartiles of the two overlap; fill off: the same ratio with "
    "torch.utils.deterministic.fill_uninitialized_memory off, where that makes a difference.",
    "V_ermv, V_c": "The mean of |A - B| / |A| over all elements, and the share of elements whose values differ, for a "
    "first output A and a differing one B (arXiv 2408.05148). Of each measure the largest is told.",
}

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
    "perturb": "perturbations asked for",
    "confidence": "confidence that n was chosen for",
    "max_rate": "rate of differing that n was chosen for",
    "max_time": "executions per case and process, at most",
    "cost": "rows timed",
    "overloads": "overloads recorded",
    "specs": "files of own specs",
    "sources": "sources of specs",
    "dtypes": "dtypes of database entries",
    "samples": "samples per database entry, at most",
}


def counted(cell: Cell) -> str:
    """Return "k of n differed" of a cell in which executions were compared, else nothing."""
    return f"{cell.differing} of {cell.runs} differed" if cell.verdict in COMPARED else ""


def details(row: MatrixRow, mode: Mode) -> str:
    """Return what a cell says behind its verdict if executions were compared, else nothing."""
    cell = cell_of_mode(row, mode)
    if cell.verdict not in COMPARED:
        return ""
    lines = [counted(cell), "constant" if cell.constant else f"{cell.distinct} distinct"]
    if cell.differing and not cell.within:
        lines.append(cell.where or "")
    lines += [trust.threads_words(cell), "seeded" if is_seeded(row, mode) else ""]
    return ", ".join(filter(None, lines))


def cell_words(row: MatrixRow, mode: Mode) -> str:
    """Return a cell of the matrix: the verdict, k of n, the distinct outputs, and where they differ."""
    verdict = cell_of_mode(row, mode).verdict
    if text := details(row, mode):
        return f"{verdict}: {text}"
    return f"{verdict}, seeded" if is_seeded(row, mode) else verdict


def warn_only_words(row: MatrixRow) -> str:
    """Return what an op that raises does under warn_only; nothing of one that does not raise."""
    if row.on.verdict != "raises":
        return ""
    if row.warn_only.verdict == "not_run":
        return "warn_only not run"
    text = ", ".join(filter(None, (row.warn_only.verdict, details(row, "warn_only"))))
    return f"warn_only: {text}"


def on_words(row: MatrixRow) -> str:
    """Return the cell of the flag on, with what the row does under warn_only."""
    return "; ".join(filter(None, (cell_words(row, "on"), warn_only_words(row))))


def finding_note(row: MatrixRow) -> str:
    """Return what the finding rests on, if it is the one that says "deterministic"; else nothing."""
    if row.finding != "deterministic":
        return ""
    constant = constant_of(row)
    return f"n = {min(row.off.runs, row.on.runs)} per mode" if constant is None else f"constant: {constant}"


def finding_words(row: MatrixRow, *, trusted: bool = True) -> str:
    """Return the finding with all that must not be read without it."""
    note = finding_note(row)
    lines = [f"{row.finding} ({note})" if note else row.finding]
    return ", ".join([*lines, *doubts(row), *["not trustworthy"] * (not trusted)])


def doubts(row: MatrixRow) -> list[str]:
    """Return why it shows little that a row did not differ."""
    return ["low power"] * (row.weak is not None) + ["serial"] * row.serial


def joint_reason(row: MatrixRow) -> str:
    """Return why a row is inconclusive although both modes have a usable verdict; else nothing."""
    usable = {row.off.verdict, row.on.verdict} <= {*COMPARED, "raises"}
    return (row.reason or "no reason was recorded") if row.finding == "inconclusive" and usable else ""


def percent(share: float) -> str:
    """Return a share with three significant digits."""
    return f"{100 * share:.3g} %"


def sentence(text: str) -> str:
    """Return words that begin without a capital and end without a full stop as a sentence."""
    return f"{text[:1].upper()}{text[1:]}."


def n_words(one: Matrix) -> str:
    """Say what n is in this run, and what 0 of n leaves possible."""
    header = one.run.header
    settings = header.settings
    values = sorted({cell.runs for row in one.rows for cell in (row.off, row.on) if bound_of(cell)})
    values = values or [one.executions]
    if len(values) > _ROUNDED:
        values = [values[0], values[-1]]
    bounds = ", ".join(f"{percent(upper_bound(n))} for n = {n}" for n in values)
    return (
        f"{_of(settings.processes, 'process', 'processes')} per mode ran each row "
        f"{_of(settings.runs, 'time', 'times')}: n = {one.executions} executions per cell, unless the cell "
        f"says otherwise, compared bit for bit; {perturbations.ran_words(one)}"
        f"{_chosen(settings)}{_stopped(one)} Where 0 of n differed, the rate of differing is below "
        f"1 - 0.05^(1/n) with 95 % confidence: {bounds}. That bounds the rate, it excludes nothing."
    )


def _chosen(settings: Settings) -> str:
    """Say what n was chosen for, if it was chosen."""
    if settings.max_rate is None or settings.confidence is None:
        return ""
    return (
        f" n was chosen so that a difference in {percent(settings.max_rate)} of the executions would be seen with a "
        f"probability of {percent(settings.confidence)}."
    )


def _stopped(one: Matrix) -> str:
    """Say what ends the executions of a case early, so that its n is smaller."""
    if one.run.header.format < trust.EVIDENCE_SINCE:
        return ""
    limit = one.run.header.settings.max_time
    text = f", or a case has run for {limit:g} s in it" if limit is not None else ""
    return (
        f" A process goes on to the next perturbation once ten executions have differed under one{text}; "
        f"a cell's n counts what was executed, so that k of n of such a cell is an order of magnitude, not an unbiased "
        f"rate."
    )


def states(one: Matrix) -> list[tuple[State, str]]:
    """Return what a reader must know before believing anything below, each with what it is called."""
    lines: list[tuple[State, str]] = [("untrusted", f"Not trustworthy: {reason}") for reason in one.distrust]
    if one.run.closing is None:
        seen = len({observation.key for observation in one.run.observations})
        text = (
            f"Incomplete: the scan did not finish; {seen} of {one.planned} rows were observed at least once. "
            f"Finish it with scan --resume"
        )
        lines.append(("incomplete", text))
    settings, environment = one.run.header.settings, one.run.header.environment
    if settings.device == "cpu" and min(environment.threads, len(environment.affinity)) == 1:
        text = (
            "One thread: nothing can race on this CPU, so that nothing found deterministic here says anything"
        )
        lines.append(("low_power", text))
    if (weak := trust.power_words(one)) is not None:
        lines.append(("low_power", weak))
    return lines


def state_words(one: Matrix) -> list[str]:
    """Return what a reader must know before believing anything below."""
    return [text for _, text in states(one)]


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
    lines = []
    for field in Environment.__struct_fields__:
        if field != "variables":
            lines.append((_ENVIRONMENT.get(field, field), _text(field, getattr(header.environment, field))))
        if field == "load":
            lines.append(
                (
                    "load after (1, 5, 15 minutes)",
                    _text("load", closing.load) if closing else "not recorded, the scan did not finish",
                )
            )
    return lines + _variables(header.environment.variables)


def settings_words(one: Matrix) -> list[tuple[str, str]]:
    """Return the settings and the circumstances of the scan as (label, text)."""
    header, closing = one.run.header, one.run.closing
    lines = [
        (_SETTINGS.get(field, field), _text(field, getattr(header.settings, field)))
        for field in Settings.__struct_fields__
    ]
    return [
        ("run file", one.name),
        *lines,
        *enumerated_words(header.enumerated),
        ("sentinels", trust.sentinels_words(one)),
        ("started (UTC)", header.started),
        ("wall time", f"{closing.seconds:.1f} s" if closing else "not recorded, the scan did not finish"),
        ("scanned by", f"detmatrix {header.tool}, run file format {header.format}"),
    ]


def rerun_options(settings: Settings) -> str:
    """Return the options of the command that runs a row again as it was run."""
    specs = "".join(f"--specs {shlex.quote(path)} " for path in settings.specs)
    perturb = f" --perturb {','.join(settings.perturb)}" if settings.perturb != DEFAULT else ""
    limit = f" --max-time {settings.max_time:g}" if settings.max_time is not None else ""
    sources = f" --source {','.join(settings.sources)}" if settings.samples else ""
    sources += f" --samples {settings.samples}" if settings.samples else ""
    sources += f" --dtypes {','.join(settings.dtypes)}" if settings.dtypes else ""
    return (
        f"{specs}--device {settings.device} --runs {settings.runs} --processes {settings.processes} "
        f"--seed {settings.seed} --timeout {settings.timeout:g}{perturb}{limit}{sources} -o rerun.jsonl"
    )


def _variables(variables: dict[str, dict[str, str]]) -> list[tuple[str, str]]:
    """Return one line per variable; per mode where the modes differ."""
    modes = [*MODES, *sorted(set(variables) - set(MODES))]
    modes = [mode for mode in modes if mode in variables]
    names = sorted({name for mode in modes for name in variables[mode]})
    lines = []
    for name in names:
        values = {mode: variables[mode].get(name) for mode in modes}
        texts = {mode: "unset" if value is None else value or "(empty)" for mode, value in values.items()}
        same = len(set(texts.values())) == 1
        text = texts[modes[0]] if same else "; ".join(f"{mode}: {text}" for mode, text in texts.items())
        lines.append((f"variable {name}", text))
    return lines or [("variables", "none recorded")]


def _text(field: str, value: object) -> str:
    """Return a recorded value in words."""
    text = "" if value is None else str(value)
    match field, value:
        case "patterns", tuple():
            text = " ".join(map(str, value)) or "none given, so all rows"
        case "dtypes", tuple():
            text = ", ".join(map(str, value)) or "float32, or the first that an entry declares"
        case "affinity", tuple():
            text = trust.ranges(value) or "not restricted"
        case (("timeout" | "max_time"), float()):
            text = f"{value:g} s"
        case (("confidence" | "max_rate"), float()):
            text = percent(value)
        case _, bool():
            text = "yes" if value else "no"
        case _, tuple():
            text = ", ".join(map(str, value))
    return text or NONE


def _of(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


def bullet_words(claim: Claim) -> str:
    """Return a bullet's words without its marker and the markup of its roles and code."""
    return _ROLE.sub(r"\1", claim.text.lstrip("*+•- ")).replace("`", "")
