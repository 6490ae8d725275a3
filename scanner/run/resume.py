"""Going on with an unfinished scan: what is in its file, and whether what is asked for now can follow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from scanner.cases.settings import Plan, ordered
from scanner.errors import RunFileError, UsageError
from scanner.observations.records import FORMAT, MODES, Environment, Header, Row, Settings
from scanner.observations.runfile import Run, read_run


def begun(plan: Plan) -> Run | None:
    """Return the scan to go on with, or ``None`` to start anew.

    Raises:
        UsageError: The file holds something that would be lost, or settings that are not those asked for.
        RunFileError: The file to resume is damaged.
    """
    path = plan.output
    if plan.force or path.stat().st_size == 0:
        return None
    if plan.resume:
        if _torn_header(path):
            return None
        run = read_run(path)
        _check_settings(plan, run.header.settings)
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
        raise UsageError(
            f"{path}: holds a complete run; choose another place with -o, or overwrite it with --force"
        )
    # Only what raises runs in a further mode, and how much that will be is not known before.
    processes = run.header.settings.processes
    total = len(run.header.planned) * processes * len(MODES)
    made = sum(one.mode in MODES and one.process < processes for one in run.observations)
    raise UsageError(
        f"{path}: holds an unfinished scan ({made} of {total} observations); go on with --resume, or start over "
        f"with --force"
    )


def continued(plan: Plan, settings: Settings) -> Plan:
    """Return the plan of a scan that goes on, with what its rows were planned from in the beginning."""
    return msgspec.structs.replace(
        plan,
        spec_files=plan.spec_files or settings.specs,
        sources=settings.sources,
        patterns=settings.patterns,
    )


def check_header(plan: Plan, header: Header, here: Environment, rows: tuple[Row, ...]) -> None:
    """Refuse to add to a scan what another build, machine or catalog would add.

    Raises:
        UsageError: Names what differs.
    """
    for name in (field for field in Environment.__struct_fields__ if field != "load"):
        now, then = getattr(here, name), getattr(header.environment, name)
        if now != then:
            raise not_resumable(plan, f"the {name} here", now, then)
    if [row.key for row in rows] != [row.key for row in header.planned]:
        raise not_resumable(plan, "the catalog here")


def _check_settings(plan: Plan, settings: Settings) -> None:
    """Refuse to go on with a scan under settings that are not its own; those not given are not asked for.

    Raises:
        UsageError: Names what differs.
    """
    # "cuda" is content with any of the devices.
    device = {"auto", settings.device, settings.device.partition(":")[0]}
    asked: list[tuple[str, Any, Any]] = [
        ("the list of patterns", plan.patterns or None, settings.patterns),
        ("--device", None if plan.device in device else plan.device, settings.device),
        ("--confidence", plan.confidence, settings.confidence),
        ("--max-rate", plan.max_rate, settings.max_rate),
        ("--runs", plan.runs, settings.runs),
        ("--processes", plan.processes, settings.processes),
        ("--perturb", plan.perturb and ordered(plan.perturb), settings.perturb),
        ("--max-time", plan.max_time, settings.max_time),
        ("--cost", plan.cost, settings.cost),
        ("--overloads", plan.overloads, settings.overloads),
        ("--timeout", plan.timeout, settings.timeout),
        ("--seed", plan.seed, settings.seed),
        ("--source", plan.sources, settings.sources),
        ("--dtypes", plan.dtypes, settings.dtypes),
        ("--samples", plan.samples, settings.samples),
    ]
    for name, now, then in asked:
        if now is not None and now != then:
            raise not_resumable(plan, name, now, then)


def not_resumable(plan: Plan, name: str, *values: Any) -> UsageError:
    """Return the one line said of a scan that cannot go on here: what differs, as it is now and was then."""
    text = " ({}, it has {})".format(*map(_brief, values)) if values else ""
    return UsageError(
        f"{plan.output}: cannot be resumed, {name} is not the one it began with{text}; start over with --force, or "
        f"choose another place with -o"
    )


def _brief(value: Any) -> str:
    """Write a setting as the user would."""
    if isinstance(value, tuple):
        return " ".join(str(item) for item in value) or "none"
    return {None: "none", True: "yes", False: "no"}.get(value, str(value)) if not value else str(value)


def _torn_header(path: Path) -> bool:
    """Tell whether a scan was killed while it wrote its very first line."""
    data = path.read_bytes()
    return b"\n" not in data and data.startswith(b'{"kind":"header"'[: len(data)])
