"""What a worker is asked to do with a row, and the record that its answer makes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec

from detmatrix.scanner.observations.consistency import fault
from detmatrix.scanner.observations.records import (
    Cost,
    Dispatch,
    Invariance,
    Mode,
    Observation,
    Row,
    Settings,
)
from detmatrix.scanner.perturbations import OF_SEVERAL_THREADS, PERTURBATIONS
from detmatrix.scanner.processes.process import SENSELESS, WorkerEndedError, WorkerSupervisor

# Controls and sentinels get at least so long: the first of them may have to wait for a GPU to start.
PATIENCE = 60.0

Seen = TypeVar("Seen", Observation, Cost, Dispatch, Invariance)


def ask(
    supervisor: WorkerSupervisor,
    kind: type[Seen],
    place: dict[str, Any],
    mode: Mode,
    request: dict[str, Any],
    timeout: float,
    settings: Settings,
) -> Seen:
    """Ask the worker in service for a record of a row at its *place*; where it has no answer, the record says why.

    The record is held against the settings of the scan as it will be when it is read.
    """
    try:
        record = supervisor.ask_for(kind, mode, request, timeout, place)
        if (wrong := fault(record, settings)) is None:
            return record
        supervisor.retire()
        failure: dict[str, Any] = {"message": f"{SENSELESS} (it {wrong})"}
    except WorkerEndedError as ended:
        failure = {"message": str(ended)}
        if ended.timed_out:
            failure |= {"outcome": "timeout"} | ({"seconds": timeout} if kind is Observation else {})
    return msgspec.convert(place | {"outcome": "crash"} | failure, kind)


def request_for(do: str, row: Row, settings: Settings) -> dict[str, Any]:
    """Return what a worker is asked to do with a row."""
    request = {"do": do, **place_of(row), "device": settings.device, "seed": settings.seed}
    if settings.workers > 1 and not settings.simulate:
        # Each of them has a process of either mode.
        request["share"] = 1 / (2 * settings.workers)
    return request | ({"enlargement": row.enlargement} if row.enlargement else {})


def place_of(one: Row | Observation) -> dict[str, Any]:
    """Return what names a row in requests and records."""
    return {"spec": one.spec, "case": one.case, "direction": one.direction, "dtype": one.dtype}


def perturbations_of(settings: Settings, threads: int | None, *, stressed: bool = False) -> list[str]:
    """Return what a row is executed under on which so many threads work: what one does alone is not held up by busy cores.

    *stressed* says whether it has been executed under stress often enough.
    """
    left_out = OF_SEVERAL_THREADS if threads == 1 else ("stress",) * stressed
    return [name for name in settings.perturb if name not in left_out] or list(settings.perturb)


def compared_within(settings: Settings, perturb: Iterable[str]) -> tuple[list[str], float]:
    """Return what more executions than were asked for are made under, and the seconds that they may take.

    Those count alone that are compared with the others of the cell, and they stop by themselves before they cost the row what
    is known of it.
    """
    limit = settings.timeout / 2
    compared = [name for name in perturb if not PERTURBATIONS[name].apart]
    return compared, limit if settings.max_time is None else min(limit, settings.max_time)
