"""Going on with an unfinished scan: what is in its file, and whether what is asked for now can follow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from scanner.cases.catalog import named_files
from scanner.cases.settings import Plan, Shard
from scanner.errors import RunFileError, UsageError
from scanner.observations.one_case import Key
from scanner.observations.parts import BUILD
from scanner.observations.records import FORMAT, MODES, Environment, Header, Row, Settings, SimulatedDevice
from scanner.observations.runfile import Run, RunReader, read_run
from scanner.observations.settings import SETTINGS, written
from scanner.processes.environment import tool_version
from scanner.run.whole import whole_rows

# What opspecs.user puts before the name of a module that it loads.
_OWN = "detmatrix_specs_"


def begun(plan: Plan) -> Run | None:
    """Return the scan to go on with, or ``None`` to start anew.

    Raises:
        UsageError: The file holds something unfinished or foreign, or settings that are not those asked for.
        RunFileError: The file to resume is damaged.
    """
    path = plan.output
    if plan.force or path.stat().st_size == 0:
        return None
    if plan.resume:
        if _torn_header(path):
            return None
        run = read_run(path)
        _check_file(plan, run.header)
        if run.closing is None and run.header.format != FORMAT:
            raise not_resumable(plan, "its format", FORMAT, run.header.format)
        return run
    try:
        run = read_run(path)
    except RunFileError:
        raise UsageError(
            f"{path}: exists and is no run file that can be read; choose another place with -o, or overwrite it "
            f"with --force"
        ) from None
    if run.closing is not None:
        return None  # it is kept under another name
    # Only what raises runs in a further mode, and how much that will be is not known before.
    processes = run.header.settings.processes
    total = len(run.header.planned) * processes * len(MODES)
    made = sum(one.mode in MODES and one.process < processes for one in run.observations)
    raise UsageError(
        f"{path}: holds an unfinished scan ({made} of {total} observations); go on with --resume, or start over "
        f"with --force"
    )


def continued(plan: Plan, settings: Settings) -> Plan:
    """Return the plan of a scan that goes on, with what its rows were planned from in the beginning.

    Raises:
        UsageError: Specs of the user's own belong to it, and the command line names none.
    """
    specs = named_files(plan.settings.specs, settings.specs, f"{plan.output}: the scan has specs of its own")
    return msgspec.structs.replace(plan, settings=msgspec.structs.replace(settings, specs=specs))


class OtherMachineError(Exception):
    """A scan cannot go on in its file, for another machine has a part in it; the text says why."""


def check_header(plan: Plan, header: Header, here: Environment, rows: tuple[Row, ...]) -> None:
    """Refuse to add to a scan what another build, machine or catalog would add.

    Raises:
        UsageError: Names what differs.
        OtherMachineError: Nothing does but the machine.
    """
    there = header.environment
    others = [
        field
        for field in Environment.__struct_fields__
        if field != "load" and getattr(here, field) != getattr(there, field)
    ]
    for name in others:
        if name in BUILD:
            label = "simulated GPU" if name == "simulated" else name
            raise not_resumable(plan, f"the {label} here", getattr(here, name), getattr(there, name))
    if tool_version() != header.tool:
        raise not_resumable(plan, "the detmatrix here", tool_version(), header.tool)
    if [row.key for row in rows] != [row.key for row in header.planned]:
        raise not_resumable(plan, "the catalog here")
    for row, then_planned in zip(rows, header.planned, strict=True):
        # A file of specs that lies in a package is known by either name.
        if row.op.removeprefix(_OWN) != then_planned.op.removeprefix(_OWN):
            raise not_resumable(plan, f"the op of {row.id}", row.op, then_planned.op)
        if row.digest != then_planned.digest:
            raise not_resumable(
                plan, f"the file that declares {row.id}", row.digest[:12], then_planned.digest[:12]
            )
    for name in others:
        now, then = _brief(getattr(here, name)), _brief(getattr(there, name))
        raise OtherMachineError(f"the {name} here is not the one it began with ({now}, it has {then})")


def elsewhere(plan: Plan) -> Plan:
    """Return the plan of the same scan in a file of this machine, which holds what those of others have not whole."""
    first = plan.continues[0] if plan.continues else plan.output
    files = (*plan.continues, plan.output)
    beside = first.with_name(f"{first.stem}.{len(files) + 1}{first.suffix}")
    return msgspec.structs.replace(plan, output=beside, continues=files)


def starts(plan: Plan) -> tuple[str, ...]:
    """Return when the files of other machines were begun that a scan continues.

    Raises:
        RunFileError: One is damaged.
    """
    return tuple(RunReader(path).header.started for path in plan.continues)


def continued_elsewhere(plan: Plan) -> bool:
    """Tell whether another machine went on with a scan in the file beside: what it observed there must stay.

    Raises:
        RunFileError: That file is damaged.
    """
    beside = elsewhere(plan)
    path = beside.output
    if not path.exists() or path.stat().st_size == 0 or _torn_header(path):
        return False
    return RunReader(path).header.began == starts(beside)


def left(runs: Sequence[Run], rows: Iterable[Row]) -> tuple[Row, ...]:
    """Return the rows that no run of another machine has observed whole."""
    whole = frozenset[Key]().union(*map(whole_rows, runs))
    return tuple(row for row in rows if row.key not in whole)


def _check_file(plan: Plan, header: Header) -> None:
    """Refuse to go on in a file that is not the first one of its scan, or with another attempt, another shard, or other settings.

    Raises:
        UsageError: Names what differs.
    """
    if header.parts:
        raise UsageError(f"{plan.output}: is a merged file; go on with the files that it was made of")
    if header.file > 1 and not plan.continues:
        raise UsageError(
            f"{plan.output}: is file {header.file} of the scan that {header.continues} began; go on with --resume "
            f"-o {plan.output.parent / header.continues}"
        )
    if plan.continues and header.began != starts(plan):
        raise UsageError(
            f"{plan.output}: continues another attempt than {plan.continues[0]}; remove it, or choose another place with -o"
        )
    shard = Shard(header.shard, header.shards)
    if plan.shard is not None and plan.shard != shard:
        raise not_resumable(plan, "--shard", plan.shard, shard)
    check_settings(plan, header.settings)


def check_settings(plan: Plan, settings: Settings) -> None:
    """Refuse other settings than those of a scan; those not given are not asked for.

    Raises:
        UsageError: Names the first that differs.
    """
    for name, setting in SETTINGS.items():
        now, then = getattr(plan.settings, name), getattr(settings, name)
        if name in plan.said and not setting.resumes(now, then):
            raise not_resumable(plan, setting.option or f"the list of {setting.label}", now, then)


def not_resumable(plan: Plan, name: str, *values: Any) -> UsageError:
    """Return the one line said of a scan that cannot go on here: what differs, as it is now and was then."""
    text = " ({}, it has {})".format(*map(_brief, values)) if values else ""
    return UsageError(
        f"{plan.output}: cannot be resumed, {name} is not the one it began with{text}; start over with --force, or "
        f"choose another place with -o"
    )


def _brief(value: Any) -> str:
    """Write a setting as the user would."""
    match value:
        case None:
            return "none"
        case bool():
            return "yes" if value else "no"
        case Shard():
            return str(value)
        case SimulatedDevice():
            return f"{value.architecture}, {value.multiprocessors} multiprocessors, build {value.build}"
        case tuple():
            return " ".join(map(str, value)) or "none"
    return written(value)


def _torn_header(path: Path) -> bool:
    """Tell whether a scan was killed while it wrote its very first line."""
    data = path.read_bytes()
    return b"\n" not in data and data.startswith(b'{"kind":"header"'[: len(data)])
