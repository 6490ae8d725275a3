"""Trace rows: send them through a worker one by one, and gather what they reached."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from scanner.cases.catalog import choose, load_catalog
from scanner.cases.rows import row_of, without_unrequested
from scanner.errors import UntrustedScanError
from scanner.observations.records import Row
from scanner.observations.trace.records import (
    FORMAT,
    RULE_SETS,
    Reach,
    TracedBuild,
    TracedOverload,
    TracedRow,
    TraceFile,
    TraceSettings,
)
from scanner.processes.environment import tool_version
from scanner.processes.process import WorkerEndedError
from scanner.processes.sandbox import ImportSandbox
from scanner.processes.supervisor import WorkerSupervisor

DEFAULT_TIMEOUT = 60.0
# Fake tensors need a device with a number where torch has no such device.
_DEVICES = {"cpu": "cpu", "cuda": "cuda:0"}
# Workers are asked for drawn inputs of the same seed as a scan's, though none of their values is used.
_SEED = 0

Tell = Callable[[int, int, str], None]


def trace(
    patterns: Sequence[str],
    device: str,
    *,
    python: str,
    spec_files: Sequence[str],
    timeout: float,
    tell: Tell,
) -> TraceFile:
    """Trace the rows that patterns select.

    Args:
        patterns: As ``scan`` takes them.
        device: ``"cpu"`` or ``"cuda"``, which need not be there.
        python: The interpreter whose torch is traced.
        spec_files: Files of the user's own specs.
        timeout: Seconds a case may take.
        tell: Called before each row with its place, how many there are, and its id.

    Raises:
        UsageError: What was asked cannot be done.
        UntrustedScanError: No worker could start.
    """
    selection = choose(patterns, device, load_catalog(spec_files))
    rows = [
        row_of(spec, planned, _DEVICES[device])
        for spec, planned in without_unrequested(selection, requested=bool(patterns))
    ]
    started = datetime.now(UTC).isoformat(timespec="seconds")
    with ImportSandbox() as sandbox:
        # Threads are placed for work that is measured; here nothing is.
        supervisor = WorkerSupervisor(python, sandbox.path, tuple(spec_files), "cuda")
        try:
            build = _build(supervisor)
            traced = []
            for place, row in enumerate(rows):
                tell(place, len(rows), row.id)
                traced.append(TracedRow(row=row, reached=_reached(supervisor, row, timeout)))
            overloads = _overloads(supervisor, traced, _DEVICES[device])
        finally:
            supervisor.retire()
    return TraceFile(
        format=FORMAT,
        tool=tool_version(),
        rules=len(RULE_SETS),
        started=started,
        settings=TraceSettings(
            patterns=tuple(patterns), device=_DEVICES[device], timeout=timeout, specs=tuple(spec_files)
        ),
        build=build,
        rows=tuple(traced),
        overloads=overloads,
    )


def _build(supervisor: WorkerSupervisor) -> TracedBuild:
    """Start the first worker, and return what it says of its torch."""
    text = supervisor.first("off").build
    return TracedBuild(
        torch=text["torch"],
        torch_git=text["torch_git"],
        cuda=text["cuda"],
        cudnn=text["cudnn"],
        python=text["python"],
        gpus=tuple(device["name"] for device in text["devices"]),
    )


def _reached(supervisor: WorkerSupervisor, row: Row, timeout: float) -> tuple[Reach, ...]:
    """Ask for one row; what ends the worker costs this row alone."""
    place = {"spec": row.spec, "case": row.case, "direction": row.direction, "dtype": row.dtype}
    modes = ("off", "on", "late") if row.direction == "backward" else ("off", "on")
    try:
        answer = supervisor.ask("off", {"do": "trace", **place, "device": row.device, "seed": _SEED}, timeout)
        reached = msgspec.convert(answer["modes"], tuple[Reach, ...])
        if tuple(reach.mode for reach in reached) == modes:
            return reached
        failure: dict[str, Any] = {"outcome": "crash", "message": "the worker's reply lacks a mode"}
    except WorkerEndedError as ended:
        failure = {"outcome": "timeout" if ended.timed_out else "crash", "message": str(ended)}
    except (KeyError, msgspec.ValidationError) as error:
        supervisor.retire()
        failure = {"outcome": "crash", "message": f"the worker's reply makes no sense ({error})"}
    return tuple(msgspec.convert({"mode": mode, **failure}, Reach) for mode in modes)


def _overloads(
    supervisor: WorkerSupervisor, rows: Sequence[TracedRow], device: str
) -> tuple[TracedOverload, ...]:
    """Ask what the build has for each overload that was reached."""
    names = {
        name: None
        for row in rows
        for reach in row.reached
        for calls in (reach.forward, reach.backward)
        for name in calls
    }
    try:
        answer = supervisor.ask(
            "off", {"do": "functions", "names": sorted(names), "device": device}, DEFAULT_TIMEOUT
        )
        return msgspec.convert(answer["overloads"], tuple[TracedOverload, ...])
    except (WorkerEndedError, KeyError, msgspec.ValidationError) as error:
        raise UntrustedScanError(
            f"the worker could not describe the overloads ({error}); trace again"
        ) from error
