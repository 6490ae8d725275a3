"""What reports say of a run in words: n and its bound, what its verdicts rest on, the environment, the command that reruns a row.

Absence is a word here ("none", "unset", "not recorded"), never a blank, a zero or NaN.
"""

from __future__ import annotations

import shlex
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from detmatrix.reports.matrix.model import Matrix
from detmatrix.reports.render import NONE, pieces
from detmatrix.scanner.claims.matching import device_kind
from detmatrix.scanner.modes import DEFAULT_MODES, MODES, WORKER_MODES
from detmatrix.scanner.observations.parts import machine_of, parts_of, ranges, shard_words
from detmatrix.scanner.observations.records import Claim, Closing, Environment, Header, Row
from detmatrix.scanner.observations.settings import SETTINGS, Setting, Settings
from detmatrix.scanner.perturbations import PERTURBATIONS
from detmatrix.scanner.plurals import several
from detmatrix.scanner.schedules import FREEDOMS
from detmatrix.scanner.verdicts import simulated
from detmatrix.scanner.verdicts.bound import CORRELATION, effective, executed_words, upper_bound
from detmatrix.scanner.verdicts.controls import check_controls, unobserved
from detmatrix.scanner.verdicts.findings import MatrixRow
from detmatrix.scanner.verdicts.power import POWER_SHARE, has_power

# The format that brought controls, sentinels, perturbations, severity and cost.
EVIDENCE_SINCE = 2


def controls_words(one: Matrix) -> str:
    """Say what the controls show of the scan; what was wrong with them stands among its states."""
    header = one.run.header
    if not header.controls:
        early = "scanned before detmatrix had them" if header.format < EVIDENCE_SINCE else "none were planned"
        return f"No controls: {early}. Nothing shows that this scan could see a difference or an alert."
    checks = check_controls(header, one.run.controls)
    wrong = len({(it.control, it.mode, it.seen) for it in checks if not it.ok})
    answered = {it.control for it in checks}
    unseen = len({(name, mode) for name, mode, _ in unobserved(one.run) if name in answered})
    unseen += sum(row.spec.removeprefix("control.") not in answered for row in header.controls)
    void = ", so nothing below is trustworthy"
    text = f"{wrong} gave another answer{void}" if wrong else "each gave the expected answer"
    if one.run.distrust:
        text += f"; a worker that replaced another gave a wrong answer{void}"
    if unseen:
        text += f"; {unseen} not observed{void if any(unobserved(one.run)) else ''}"
    return f"Controls are ops with a known answer, run in every process of every mode: {text}."


def sentinels_words(one: Matrix) -> str:
    """Say what the sentinels saw over the whole scan."""
    seen = one.run.sentinels
    if one.simulated:
        return "no sentinel: schedules are chosen, so the machine cannot hide a difference"
    if not seen:
        return "no sentinel: nothing shows whether anything could race while the rows ran"
    # The first execution of each never can differ.
    shares = [it.differing / (it.executions - 1) if it.executions > 1 else 0.0 for it in seen]
    weak = sum(not has_power(it) for it in seen)
    return (
        f"{len(seen)} checks of {', '.join(dict.fromkeys(it.op for it in seen))}: {percent(statistics.median(shares))} of the executions differed "
        f"in the median, {percent(min(shares))} at the lowest; {weak} without power (below {100 * POWER_SHARE:g} %)"
    )


def power_words(one: Matrix) -> str | None:
    """Say how many rows of the scan are of low power, and why most of them are; ``None`` if none that is shown is."""
    if not any(row.weak for row in one.rows):
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
    called = Counter[str]()
    for row in one.scanned:
        known = (it.simulated for it in (row.off, row.on) if it.verdict == "not_run" and it.simulated)
        called.update({call for it in known for call in it.libraries})
    rows = ", ".join(f"{name} {several(count, 'row')}" for name, count in called.most_common())
    return f"Not run, because they call a library that is not simulated: {rows}." if rows else None


def meaning_of(perturbation: str) -> str:
    """Say what a perturbation does."""
    return PERTURBATIONS[perturbation].meaning


def ran_words(one: Matrix) -> str:
    """Say under which perturbations the shown rows ran, and which of those asked for had no execution."""
    asked = one.run.header.settings.perturb
    if asked == ("quiet",):
        return "they were not perturbed."
    counts = [group for row in one.rows for mode in WORKER_MODES for group in row.cell(mode).groups]
    ran = {group.perturbation for group in counts if group.executions}.intersection(PERTURBATIONS)
    if not ran:
        return f"no perturbation of theirs is on record (asked for: {', '.join(asked)})."
    *others, last = [
        f"{name} ({meaning_of(name)})" for name in dict.fromkeys((*asked, *PERTURBATIONS)) if name in ran
    ]
    text = f"they were shared among {', '.join(others)} and {last}." if others else f"they were all {last}."
    retired = [f"{name} ({meaning_of(name)})" for name in asked if PERTURBATIONS[name].retired]
    missing = [name for name in asked if name not in ran and not PERTURBATIONS[name].retired]
    text += f" Left out: {', '.join(retired)}." if retired else ""
    return text + (f" Requested, but never run: {', '.join(missing)}." if missing else "")


# --- The run

State = Literal["untrusted", "incomplete", "low_power"]

_ROUNDED = 4  # values of n that are named one by one

# One sentence each, printed with every report, of the words that are neither verdicts nor findings.
GLOSSARY = {
    "off, on": "torch.use_deterministic_algorithms(False) and (True), in worker processes of their own.",
    "distinct": "How many different outputs a mode gave.",
    "between processes only": "Each process gave the same bits every time; another process gave other bits.",
    "seeded": "The op draws random numbers; its generator is seeded before every execution.",
    "constant": "The result holds no information by definition, so equal results prove nothing; the reason is given, and no "
    "bound.",
    "samples, enlarged": "Rows from PyTorch's OpInfo and ModuleInfo databases: the original (tiny) sample, or one "
    "enlarged so that kernels can run in parallel, with repeated indices.",
    "low power": "No difference is weak evidence in this row: the sentinel beside it (an op that differs wherever anything can "
    "race) hardly differed, or the executions were too few to show a race that occurs in half of them, or one as rare as in "
    "another mode.",
    "serial": "With the flag off one thread did all the work, so nothing could race. This says nothing about inputs large "
    "enough for several threads.",
    "warn_only": "What an op that raises does with the flag on and warn_only=True, which turns the alert into a "
    "warning; all its alerts are listed.",
    "fill off": "The flag on, torch.utils.deterministic.fill_uninitialized_memory off. Rows that differ only with the flag off "
    "also run this way, to separate what the flag fixes from what the fill fixes.",
    "no workspace": "The flag on, CUBLAS_WORKSPACE_CONFIG not set. Ops that torch up to 2.9 lists as raising in this case also "
    "run this way, on CUDA.",
    "cost": "Median time of an execution with the flag on over that with it off; the two alternate in one process. ≈: their "
    "quartiles overlap. fill off: the same ratio with torch.utils.deterministic.fill_uninitialized_memory off, where the fill "
    "matters.",
    "V_ermv, V_c": "The mean of |A - B| / |A| over all elements, and the share of elements whose values differ, for a "
    "first output A and a differing one B (arXiv 2408.05148). The largest value of each is shown.",
}

_ENVIRONMENT = {
    "torch": "torch",
    "torch_git": "torch git revision",
    "cuda": "CUDA of the torch build",
    "cudnn": "cuDNN",
    "driver": "GPU driver",
    "gpu": "GPU",
    "gpu_capability": "GPU capability",
    "simulated": "simulated GPU",
    "rocm": "ROCm of the torch build",
    "tf32": "float32 may be computed as TF32 in",
    "cpu": "CPU",
    "cpu_model": "model of the CPU",
    "cores": "CPU cores",
    "threads": "torch threads in a worker",
    "affinity": "cores a worker may use",
    "load": "load before (1, 5, 15 minutes)",
    "load_after": "load after (1, 5, 15 minutes)",
    "python": "Python",
    "triton": "Triton, interpreted",
    "os": "operating system",
}

# Machines of a merged file whose states are told one by one.
_MACHINES = 8
_UNFINISHED = "not recorded, the scan did not finish"
_DATABASES = {"opinfo": "operators", "modules": "modules"}


def machine_words(one: Matrix) -> str:
    """Return what a run's ops ran on."""
    header = one.run.header
    return named_machines(_machine(header, part.environment) for part in parts_of(header))


def named_machines(names: Iterable[str]) -> str:
    """Name machines, those of one name once: "2 kinds of machines: A100; H100"."""
    # Neither who merged first nor which shard ran where makes another text.
    kinds = sorted(set(names))
    return kinds[0] if len(kinds) == 1 else f"{len(kinds)} kinds of machines: {_first_of(kinds)}"


def _first_of(texts: Sequence[str]) -> str:
    more = len(texts) - _MACHINES
    return "; ".join([*texts[:_MACHINES], *[f"and {several(more, 'other')}"] * (more > 0)])


def machine_of_row(header: Header, row: Row) -> str:
    """Return what one row ran on."""
    return _machine(header, machine_of(header, row))


def _machine(header: Header, environment: Environment) -> str:
    if environment.simulated:
        return simulated.gpu_words(header)
    on_cpu = device_kind(header.settings.device) == "cpu"
    threads = f"{environment.cpu}, {several(environment.threads, 'thread')}"
    inputs = ", given the inputs of a simulated GPU" * header.settings.as_simulated
    return f"{threads if on_cpu else environment.gpu or environment.cpu}{inputs}"


def percent(share: float) -> str:
    """Return a share with three significant digits."""
    return f"{100 * share:.3g} %"


def n_words(one: Matrix) -> str:
    """Say what n is in this run, and what 0 of n leaves possible."""
    if one.simulated:
        return simulated.n_words(one.run.header)
    settings = one.run.header.settings
    counts = [*dict.fromkeys(_executions(one, one.rows))]
    if len(counts) > _ROUNDED:
        counts = [counts[0], counts[-1]]
    bounds = ", ".join(
        f"{percent(upper_bound(count))} for {executed_words(count)} (as for {effective(count):.3g} independent executions)"
        for count in counts
    )
    chosen = stopped = ""
    if settings.max_rate is not None and settings.confidence is not None:
        chosen = (
            f" n was chosen to show a difference that occurs in {percent(settings.max_rate)} of the executions with a "
            f"probability of {percent(settings.confidence)}, if executions were independent."
        )
    if one.run.header.format >= EVIDENCE_SINCE:
        limit = (
            f", or a case has run for {settings.max_time:g} s in it" if settings.max_time is not None else ""
        )
        stopped = (
            f" A process moves on to the next perturbation after ten differing executions{limit}; k of n is then only a "
            f"rough estimate of the rate."
        )
    return (
        f"{several(settings.processes, 'process', 'es')} per mode ran each row {several(settings.runs, 'time')}: "
        f"n = {one.executions} executions per cell, unless the cell says otherwise, compared bit for bit; "
        f"{ran_words(one)}{chosen}{stopped} Where 0 of n differed, the true rate of differing is below (95 % "
        f"confidence): {bounds}. Executions in one process depend on each other: the bound assumes a correlation of "
        f"{CORRELATION:g}, which ops that race showed in the recorded CPU scans. The bound does not rule out nondeterminism. "
        f"More processes tighten it; more executions in each process hardly do."
    )


def bound_words(one: Matrix) -> str:
    """Say in short what n is in a run, and what 0 of n leaves possible where that is the most, and in nine of ten cells if half of it."""
    if one.simulated:
        return simulated.bound_words(one.run.header)
    counts = _executions(one, one.scanned)
    if not one.run.observations:
        return "nothing was executed"
    usual, most = upper_bound(counts[len(counts) // 10]), upper_bound(counts[0])
    below = f"{percent(usual)} in nine of ten cells, {percent(most)} in all"
    if usual > most / 2:
        below = percent(most)
    return (
        f"{executed(one)} executions per row and mode; where none differed, the true rate is below "
        f"{below} (95 % confidence)"
    )


def executed(one: Matrix) -> str:
    """Return how often cells that did not differ were executed; of a simulation how often at most."""
    if one.simulated:
        return f"up to {one.executions}"
    return span(sorted(map(sum, _executions(one, one.scanned))))


def span(values: Sequence[int]) -> str:
    """Return sorted numbers as "84–100", or the only one."""  # noqa: RUF002
    return f"{values[0]}–{values[-1]}" if len(set(values)) > 1 else str(values[0])  # noqa: RUF001


def _executions(one: Matrix, rows: Sequence[MatrixRow]) -> list[tuple[int, ...]]:
    """Return the executions by process of cells that did not differ, those of the largest bound first.

    For want of any they are what was asked for.
    """
    counts = [cell.by_process for row in rows for cell in (row.off, row.on) if cell.bound]
    return sorted(counts, key=lambda count: (-upper_bound(count), count)) or [one.asked]


def states(one: Matrix) -> list[tuple[State, str]]:
    """Return what a reader must know before believing anything below, each with what it is called."""
    found: list[tuple[State, str]] = [("untrusted", f"Not trustworthy: {reason}") for reason in one.distrust]
    if one.missing:
        seen = len({observation.key for observation in one.run.observations})
        header = one.run.header
        rows, finish = "rows", "Finish the scan with scan --resume"
        if shard_words(header):
            rows = "rows of this file"
            finish = "Finish each scan with scan --resume, then combine all files with detmatrix merge"
        ops = len(one.unreached)
        left = f"; not enumerated: {several(ops, 'op')}, of which no row is known" if ops else ""
        text = f"{one.missing}; {seen} of {one.planned} {rows} were observed at least once{left}. {finish}"
        found.append(("incomplete", f"Incomplete: {text}"))
    settings, machines = one.run.header.settings, [part.environment for part in parts_of(one.run.header)]
    if settings.device == "cpu" and all(min(it.threads, len(it.affinity)) == 1 for it in machines):
        text = "One thread: nothing can race on this CPU, so no deterministic result here means anything"
        found.append(("low_power", text))
    if (weak := power_words(one)) is not None:
        found.append(("low_power", weak))
    return found


def shown_words(one: Matrix) -> str | None:
    """Say which rows are left out, if any are."""
    asked = [f"found {' or '.join(one.only)}"] if one.only else []
    asked += [f"matching {' or '.join(one.patterns)}"] if one.patterns else []
    if not asked:
        return None
    return f"Shown: {len(one.rows)} of {one.planned} rows, those {' and '.join(asked)}."


def environment_words(one: Matrix) -> list[tuple[str, str]]:
    """Return the environment as (label, text), everything the run file says of it."""
    header, found = one.run.header, dict[str, dict[str, list[int]]]()
    for part in parts_of(header, one.run.closing):
        for label, text in _environment(header, part.environment, part.closing):
            found.setdefault(label, {}).setdefault(text, []).append(part.shard)
    return [
        # What several machines have, each with the shards that it observed.
        (
            label,
            _first_of([f"{text} (shards {ranges(some)} of {header.shards})" for text, some in texts.items()])
            if len(texts) > 1
            else next(iter(texts)),
        )
        for label, texts in found.items()
    ]


def _environment(header: Header, environment: Environment, closing: Closing | None) -> list[tuple[str, str]]:
    values = {name: getattr(environment, name, None) for name in _ENVIRONMENT}
    values["load_after"] = closing.load if closing else _UNFINISHED
    values["affinity"] = ranges(environment.affinity) or "not restricted"
    if environment.tf32 is None:
        values["tf32"] = "not known"
    if environment.simulated:
        values["simulated"] = simulated.gpu_words(header)
    rare = ("triton", "simulated", "cpu_model")
    shown = (name for name in _ENVIRONMENT if name not in rare or values[name])
    lines = [(_ENVIRONMENT[name], _text(values[name])) for name in shown]
    # A mode that nobody chose has none that mattered.
    ran = {*DEFAULT_MODES, *header.settings.modes}
    return lines + _variables({mode: it for mode, it in environment.variables.items() if mode in ran})


def settings_words(one: Matrix) -> list[tuple[str, str]]:
    """Return the settings and the circumstances of the scan as (label, text)."""
    header, closing = one.run.header, one.run.closing
    # Cells that differ, by the weakest class of schedules that shows it by itself.
    known = (cell.simulated for row in one.rows for cell in row.shown.values())
    weakest = Counter(it.schedule.name for it in known if it and it.schedule)
    counts = ", ".join(f"{name} {weakest[name]}" for name in FREEDOMS if weakest[name]) or NONE
    return [
        ("run file", one.name),
        *([("shards of the plan", shards)] if (shards := shard_words(header)) else []),
        *(
            (setting.label, _text(getattr(header.settings, name), setting))
            for name, setting in SETTINGS.items()
            if name not in {"simulate", "multiprocessors"} or one.simulated
        ),
        *(
            (
                f"database of {_DATABASES.get(it.source, it.source)}",
                f"{it.entries} entries with {it.samples} samples, {it.taken} taken; {it.enlarged} enlarged, {it.refused} could not be",
            )
            for it in header.enumerated
        ),
        ("sentinels", sentinels_words(one)),
        *([("weakest schedules that show a difference", counts)] if one.simulated else []),
        ("started (UTC)", header.started),
        ("wall time", f"{closing.seconds:.1f} s" if closing else _UNFINISHED),
        ("scanned by", f"detmatrix {header.tool}, run file format {header.format}"),
    ]


def rerun_options(settings: Settings) -> str:
    """Return the options of the command that runs a row again as it was run."""
    lines: list[str] = []
    for name, setting in SETTINGS.items():
        value = getattr(settings, name)
        # A number is given whatever it is; lists that are the default would be most of the line.
        if setting.reruns and (
            isinstance(value, (int, float)) or setting.said(value) != setting.said(setting.default)
        ):
            lines += setting.words(value)
    return shlex.join([*lines, "-o", "rerun.jsonl"])


def _variables(variables: dict[str, dict[str, str]]) -> list[tuple[str, str]]:
    """Return one line per variable; per mode where the modes differ."""
    modes = [mode for mode in dict.fromkeys([*MODES, *sorted(variables)]) if mode in variables]
    lines = []
    for name in sorted({name for mode in modes for name in variables[mode]}):
        values = {mode: variables[mode].get(name) for mode in modes}
        texts = {mode: "unset" if value is None else value or "(empty)" for mode, value in values.items()}
        same = len(set(texts.values())) == 1
        text = texts[modes[0]] if same else "; ".join(f"{mode}: {text}" for mode, text in texts.items())
        lines.append((f"variable {name}", text))
    return lines or [("variables", "none recorded")]


def _text(value: object, setting: Setting | None = None) -> str:
    """Return a value of the environment, or of a setting, in words."""
    match value:
        case bool():
            return "yes" if value else "no"
        case tuple():
            separator, empty = (setting.separator, setting.empty) if setting else (", ", NONE)
            return separator.join(map(str, value)) or empty or NONE
        case float() if setting:
            return percent(value) if setting.unit == "%" else f"{value:g} {setting.unit}"
    return NONE if value is None else str(value) or NONE


def bullet_words(claim: Claim) -> str:
    """Return a bullet's words without its marker and the markup of its roles and code."""
    return "".join(text for _, text in pieces(claim.text.lstrip("*+•- ")))


def serial_word(serial: bool | None) -> str | None:
    """Return "serial" of what one thread did, and "unknown" of what nobody counted threads of."""
    return "unknown" if serial is None else "serial" if serial else None


def proof_words(rows: Sequence[MatrixRow]) -> Iterator[str]:
    """Say of how many rows a simulated GPU proved that all orders give the same, and which kernels of real size it did not execute."""
    known = [(one, cell.simulated) for one in rows for cell in (one.off, one.on) if cell.simulated]
    proof = {one.row.id for one, _ in known} - {one.row.id for one, it in known if not it.race_free}
    if proof:
        yield f"{simulated.PROVED}: {len(proof)} of {several(len(rows), 'row')}"
    elsewhere: dict[str, set[str]] = {}
    for one, it in known:
        for text in simulated.others(it):
            elsewhere.setdefault(text, set()).add(one.row.id)
    yield from (f"{text}: {several(len(ids), 'row')}" for text, ids in elsewhere.items())
