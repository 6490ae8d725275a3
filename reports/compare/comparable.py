"""What keeps two runs, or two rows of them, from being compared: only like is compared with like.

A difference that the machine, the settings or the inputs could explain says nothing about torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from detmatrix.reports.matrix.model import Matrix
from detmatrix.reports.matrix.words import named_machines
from detmatrix.scanner.claims.matching import device_kind
from detmatrix.scanner.observations.parts import machine_of, part_without, parts_of
from detmatrix.scanner.observations.records import MODES, Environment, Header, Row, digest_kind
from detmatrix.scanner.observations.settings import SETTINGS, Settings, written
from detmatrix.scanner.verdicts.findings import MatrixRow

Reason = Literal[
    "untrusted_run",
    "other_device",
    "other_threads",
    "other_variables",
    "other_perturbations",
    "not_asked_for",
    "other_inputs",
    "no_verdict",
    "low_power",
    "too_few_executions",
    "fewer_executions",
    "warn_only_missing",
    "not_reproduced",
]

# One sentence each, printed with every report. The order is that of the reports.
REASON_MEANING: dict[Reason, str] = {
    "untrusted_run": "A run cannot be trusted; its rows are no evidence.",
    "other_device": "The runs are of different hardware, which may choose other kernels and race otherwise.",
    "other_threads": "The runs had different numbers of threads.",
    "other_variables": "Environment variables that steer what is computed, or where threads run, differ.",
    "other_perturbations": "The executions ran under different circumstances.",
    "not_asked_for": "One of the scans was asked for other rows; this row is not among them.",
    "other_inputs": "The runs computed different things: other input bits, or another call.",
    "no_verdict": "A run has no finding for the row; the reason is given.",
    "low_power": "The row did not differ in a run that could have missed a race.",
    "too_few_executions": "One run saw the row differ and the other did not, but so few executions differed that the "
    "other run may have missed it.",
    "fewer_executions": "Neither run saw the row differ, but one made so few executions that it could have missed a rate "
    "that the other excludes.",
    "warn_only_missing": "The op raises in both runs, and only one run shows what it does under warn_only.",
    "not_reproduced": "Measured again, the row changed in another way than the runs suggest.",
}

# With these the runs did not compute the same, or cannot be believed: what is other in them says nothing of torch.
UNLIKE: frozenset[Reason] = frozenset(
    ("untrusted_run", "other_device", "other_threads", "other_variables", "other_inputs")
)

# Where libraries lie and which devices are seen, not what they compute; two environments on one machine differ here. And
# what a scan sets itself for PyTorch's databases, and older ones did not.
_PLACES = {
    "CUDA_DEVICE_ORDER",
    "CUDA_HOME",
    "CUDA_VISIBLE_DEVICES",
    "DYLD_LIBRARY_PATH",
    "LD_LIBRARY_PATH",
    "NVIDIA_DRIVER_CAPABILITIES",
    "NVIDIA_VISIBLE_DEVICES",
    "PYTHONHASHSEED",
}


class NotComparable(Struct, frozen=True):
    """Why something is not comparable."""

    reason: Reason
    detail: str


def of_environments(kind: str, before: Environment, after: Environment) -> Iterator[NotComparable]:
    """Yield what two machines, or two states of one, do not have in common that ops of a kind of device depend on."""
    hardware_then, hardware_now = (_hardware(kind, one) for one in (before, after))
    if hardware_then != hardware_now:
        yield NotComparable("other_device", f"{hardware_then} → {hardware_now}")
    if kind == "cpu" and _threads(before) != _threads(after):
        yield NotComparable("other_threads", f"{_threads(before)} → {_threads(after)}")
    if changed := list(_variables(before, after)):
        yield NotComparable("other_variables", "; ".join(changed))


def of_machines(old: Matrix, new: Matrix, before: MatrixRow, after: MatrixRow) -> NotComparable | None:
    """Return what the machines of a row do not have in common, where a run is of several; of others ``of_runs`` tells."""
    headers = old.run.header, new.run.header
    if not any(header.parts for header in headers):
        return None
    machines = (machine_of(header, one.row) for header, one in zip(headers, (before, after), strict=True))
    return next(of_environments(kind_of(old), *machines), None)


def of_rows(old: MatrixRow, new: MatrixRow) -> NotComparable | None:
    """Return what keeps one row of two runs that are alike from being compared."""
    if old.row.op != new.row.op:
        return NotComparable("other_inputs", f"calls {old.row.op} → {new.row.op}")
    before, after = (
        {one.inputs_digest: one.inputs for one in row.observations if one.inputs_digest is not None}
        for row in (old, new)
    )
    # Where a row was never called there are no inputs; it has no finding then, which is told instead.
    if not before or not after:
        return None
    if set(map(digest_kind, before)) != set(map(digest_kind, after)):
        # Run files before format 5 hold digests of another kind: what is drawn is known by dtype and shape alone.
        if set(before.values()) != set(after.values()):
            return NotComparable("other_inputs", "the inputs have other dtypes or shapes")
    elif before.keys() != after.keys():
        return NotComparable("other_inputs", "the input bits are not the same")
    return None


def of_absence(absent: Matrix, present: Matrix, row: Row) -> NotComparable | None:
    """Return why it says nothing that one run did not plan a row and the other did."""
    if (part := part_without(absent.run.header, row)) is not None:
        return NotComparable("not_asked_for", f"{absent.name} lacks {part}, where the row would be")
    settings, others = absent.run.header.settings, present.run.header.settings
    if settings.patterns:
        return NotComparable("not_asked_for", f"{absent.name} is a scan of {' '.join(settings.patterns)}")
    has, had = (_asked(one) for one in (settings, others))
    asked = [f"{option} {has[option]} and not {had[option]}" for option in has if has[option] != had[option]]
    return (
        NotComparable("not_asked_for", f"{absent.name} is a scan with {'; '.join(asked)}") if asked else None
    )


def _asked(settings: Settings) -> dict[str, str]:
    """Return in words what decides, beside patterns, which rows a scan plans."""
    # Where the files of specs lie is no matter, and of the properties one alone has cases of its own.
    settings = replace(
        settings,
        specs=tuple(Path(path).name for path in settings.specs),
        invariance=tuple(one for one in settings.invariance if one == "batch"),
    )
    return {
        setting.option: written(getattr(settings, name)) or "none"
        for name, setting in SETTINGS.items()
        if setting.selects
    }


def kind_of(one: Matrix) -> str:
    """Return the kind of device a run is of."""
    return device_kind(one.run.header.settings.device)


def hardware(one: Matrix) -> str:
    """Name what the ops of a run ran on."""
    return named_machines(_hardware(kind_of(one), part.environment) for part in parts_of(one.run.header))


def _hardware(kind: str, environment: Environment) -> str:
    if of := environment.simulated:
        return f"{environment.gpu} ({of.architecture}, {of.multiprocessors} multiprocessors)"
    return environment.cpu if kind == "cpu" else environment.gpu or environment.cpu


def of_runs(old: Matrix, new: Matrix) -> Iterator[NotComparable]:
    """Yield what keeps all rows of two runs from being compared; nothing if they are alike."""
    for one in (old, new):
        if one.distrust:
            yield NotComparable("untrusted_run", f"{one.name}: {'; '.join(one.distrust)}")
    before, after = old.run.header, new.run.header
    if not (before.parts or after.parts):
        yield from of_environments(kind_of(old), before.environment, after.environment)
    if before.settings.perturb != after.settings.perturb:
        text = ",".join(before.settings.perturb), ",".join(after.settings.perturb)
        yield NotComparable("other_perturbations", f"{text[0]} → {text[1]}")
    schedules = _schedules(before), _schedules(after)
    if schedules[0] != schedules[1]:
        yield NotComparable("other_perturbations", " → ".join(schedules))


def _schedules(header: Header) -> str:
    """Say how many schedules of each class a simulated row has."""
    of = header.environment.simulated
    return ", ".join(f"{name} {count}" for name, count in of.executions.items()) if of else ""


def _threads(environment: Environment) -> str:
    """Say how many threads there were and, where that is fewer, on how many cores they raced."""
    threads, cores = environment.threads, len(environment.affinity)
    return f"{threads} on {cores} core{'s' * (cores != 1)}" if 0 < cores < threads else f"{threads}"


def _variables(old: Environment, new: Environment) -> Iterator[str]:
    """Yield the variables that differ, by mode; a mode that one of the runs did not have is left out."""
    for mode in MODES:
        if mode not in old.variables or mode not in new.variables:
            continue
        before, after = old.variables[mode], new.variables[mode]
        for name in sorted((before.keys() | after.keys()) - _PLACES):
            values = before.get(name, "unset"), after.get(name, "unset")
            if values[0] != values[1]:
                yield f"{mode}: {name} {values[0]} → {values[1]}"
