"""A sentinel run beside rows: whether what is known to race did race there."""

from __future__ import annotations

import msgspec

from opspecs.controls import SENTINELS
from scanner.accelerators import kind_of
from scanner.cases.rows import row_of
from scanner.observations.records import Count, Mode, Sentinel, Settings
from scanner.processes.environment import load
from scanner.processes.process import WorkerEndedError
from scanner.processes.supervisor import WorkerSupervisor
from scanner.run.requests import PATIENCE, request_for

_RUNS = 20


class _Watched(msgspec.Struct):
    """What a worker says of a sentinel."""

    digests: dict[str, Count] = {}
    exception: str | None = None
    message: str | None = None


def watched(
    supervisor: WorkerSupervisor, settings: Settings, mode: Mode, process: int, *, before: int, worker: int
) -> Sentinel:
    """Run the sentinel in the worker in service, and return what it saw.

    Args:
        supervisor: The workers.
        settings: Of the scan.
        mode: Of the worker.
        process: Its number.
        before: The place of the row that follows.
        worker: Of the share of the rows that is observed there.
    """
    spec = SENTINELS["cpu" if settings.device == "cpu" else "accelerator"]
    (planned,) = spec.rows(kind_of(settings.device))
    request = request_for("sentinel", row_of(spec, planned, settings.device), settings)
    try:
        request |= {"runs": _RUNS}
        answer = supervisor.ask_for(_Watched, mode, request, max(settings.timeout, PATIENCE))
    except WorkerEndedError as ended:
        answer = _Watched(message=str(ended))
    lines = [text for text in (answer.exception, answer.message) if text]
    counted = list(answer.digests.values())
    return Sentinel(
        mode=mode,
        process=process,
        before=before,
        op=spec.op_name,
        executions=sum(counted),
        differing=sum(counted[1:]),
        load=load()[0],
        message=": ".join(lines) or None,
        worker=worker,
    )
