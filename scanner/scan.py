"""One scan: plan the rows, send them through workers, write what they observed as it comes.

The workers run one after the other; within a process the rows come in catalog order, and the modes alternate, so
that a scan cut short has seen both. Each worker first answers the controls, and a sentinel runs before, between and
after the rows. Timings come last, in a process that switches the flag itself.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import msgspec

from opspecs.controls import SENTINELS
from opspecs.database import databases
from opspecs.model import OpSpec
from scanner.alerts import alert_caller
from scanner.catalog import choose, load_catalog, with_installed
from scanner.claims import parse_claims
from scanner.controls import misbehaving
from scanner.crew import Crew
from scanner.enumeration import check_patterns
from scanner.errors import UntrustedScanError, UsageError
from scanner.machine import environment, load, resolve_device
from scanner.manager import Stage, Worker, WorkerEndedError
from scanner.plan import DEFAULT_SOURCES, Plan, settings_for
from scanner.progress import Progress
from scanner.records import (
    FORMAT,
    MODES,
    Closing,
    Cost,
    Distrust,
    Header,
    Mode,
    Observation,
    Row,
    Sentinel,
)
from scanner.resume import begun, check_header, continued
from scanner.rows import control_rows, plan_rows, row_of
from scanner.runfile import Run, RunWriter, read_run
from scanner.verdicts import observation_verdict, unequal_inputs

# A sentinel runs after so many rows, or after so many seconds.
_SENTINEL_ROWS = 12
_SENTINEL_SECONDS = 2.0
_SENTINEL_RUNS = 20
# Controls and sentinels get at least so long: the first of them may have to wait for a GPU to start.
_PATIENCE = 60.0
# Workers that are asked for the controls, one after the other, before rows run in one that has not answered them all.
_TRIES = 3
# Timing stops then, however few samples there are.
_COST_SECONDS = 0.15


def scan(plan: Plan, progress: Progress) -> Run:
    """Scan, and return what the run file then holds.

    Raises:
        UsageError: What was asked cannot be done, or the run file cannot be written.
        RunFileError: The file to resume is damaged.
        UntrustedScanError: No worker could start.
    """
    # Opened first, for it is also the lock: what is read below stays as it is until the scan is done.
    with RunWriter(plan.output) as writer:
        before = begun(plan)
        if before is not None:
            if before.closing is not None:
                return before
            plan = continued(plan, before.header.settings)
        else:
            files = with_installed(plan.spec_files)
            plan = msgspec.structs.replace(plan, spec_files=files)
        specs = load_catalog(plan.spec_files, plan.sources or DEFAULT_SOURCES)
        check_patterns(plan.patterns, plan.sources or DEFAULT_SOURCES)
        if not databases(plan.sources):
            # A pattern that matches nothing anywhere is told before a worker starts.
            choose(plan.patterns, "any", specs)
        with Stage() as stage:
            _Scan(plan, before, specs, stage, progress).run(writer)
    return read_run(plan.output)


class _Scan:
    """The state of a scan that is going on."""

    def __init__(
        self, plan: Plan, before: Run | None, specs: Sequence[OpSpec], stage: Stage, progress: Progress
    ) -> None:
        self._plan = plan
        self._begun = before
        self._specs = specs
        self._progress = progress
        # As asked until a worker has said what there is, then as resolved.
        device = before.header.settings.device if before else plan.device
        self._crew = Crew(plan.python, stage.path, plan.spec_files, device)
        self._done: set[tuple[tuple[str, ...], Mode, int]] = set()
        self._inputs: list[Observation] = []
        self._controls: list[Observation] = []
        self._raised: set[tuple[tuple[str, ...], int]] = set()
        self._unwell: dict[tuple[str, ...], str] = {}
        self._timed: set[tuple[str, ...]] = set()
        self._sentinels = 0
        # By mode and process: the place of the last row observed, and what the last sentinel stood before.
        self._reached: dict[tuple[Mode, int], int] = {}
        self._watched: dict[tuple[Mode, int], int] = {}
        self._distrust: list[str] = []
        self._controlled: int | None = None  # the number of the last worker that answered the controls

    def run(self, writer: RunWriter) -> None:
        """Execute what is planned and not yet observed."""
        started = time.monotonic()
        self._writer = writer
        try:
            self._header = header = self._first_header(self._first_worker())
            self._begin()
            settings = header.settings
            rows = len(header.planned)
            self._progress.begin(
                rows * (settings.processes * len(MODES) + settings.cost),
                sum(key[0] not in self._control_keys and key[1] in MODES for key in self._done)
                + len(self._timed),
            )
            try:
                for process in range(settings.processes):
                    for mode in settings.modes:
                        self._pass(list(self._due(mode, process)), mode, process)
                if settings.cost:
                    self._cost_pass()
            finally:
                self._progress.end()
        finally:
            self._crew.retire()
        writer.write(
            Closing(
                seconds=round(time.monotonic() - started, 3),
                load=load(),
                observations=len(self._done),
                sentinels=self._sentinels,
                costs=len(self._timed),
                distrust=tuple(
                    dict.fromkeys(
                        (
                            *unequal_inputs(self._inputs),
                            *misbehaving(header, self._controls),
                            *self._distrust,
                        )
                    )
                ),
            )
        )

    def _first_worker(self) -> Worker:
        """Start the worker that says which torch there is.

        Raises:
            UntrustedScanError: It did not start.
            UsageError: It did not start in an interpreter that the user named.
        """
        crew = self._crew
        try:
            worker = crew.start(MODES[0])
            asked, crew.device = crew.device, resolve_device(crew.device, worker.build)
            if asked == "auto" and crew.device != "cpu":
                # The one that was asked lives where threads are placed for work on the CPU.
                crew.retire()
                worker = crew.start(MODES[0])
        except UntrustedScanError as error:
            if self._plan.python == sys.executable:
                raise
            raise UsageError(f"--python {error}") from error
        return worker

    def _first_header(self, worker: Worker) -> Header:
        """Return the header of this scan: the begun one if it can go on here, else a new one."""
        device = self._crew.device
        here, tell = environment(device, worker.build), self._progress.enumerating
        if self._begun is not None:
            header = self._begun.header
            check_header(
                self._plan, header, here, plan_rows(self._crew, header.settings, self._specs, tell, header)[0]
            )
            return header
        settings = settings_for(self._plan, device)
        planned, enumerated = plan_rows(self._crew, settings, self._specs, tell)
        return Header(
            format=FORMAT,
            tool=tool_version(),
            started=datetime.now(UTC).isoformat(timespec="seconds"),
            settings=settings,
            environment=here,
            planned=planned,
            claims=parse_claims(worker.build["docstring"]),
            controls=control_rows(device),
            enumerated=enumerated,
        )

    def _begin(self) -> None:
        """Make the file ready to append to, and note what it has already."""
        self._control_keys = {row.key for row in self._header.controls}
        self._places = {row.key: place for place, row in enumerate(self._header.planned)}
        self._writer.begin(self._begun.end if self._begun else 0)
        if self._begun is None:
            self._writer.write(self._header)
            return
        for observation in (*self._begun.controls, *self._begun.observations):
            self._note(observation)
        self._timed = {cost.key for cost in self._begun.costs}
        self._distrust = list(self._begun.distrust)
        for sentinel in self._begun.sentinels:
            self._sentinels += 1
            self._watched[sentinel.mode, sentinel.process] = sentinel.before

    def _due(self, mode: Mode, process: int) -> Iterator[tuple[int, Row]]:
        """Yield the rows still to be observed, each with its place in the plan."""
        for place, row in enumerate(self._header.planned):
            forced = mode in MODES or (row.key, process) in self._raised
            if forced and (row.key, mode, process) not in self._done:
                yield place, row

    def _pass(self, rows: Sequence[tuple[int, Row]], mode: Mode, process: int) -> None:
        """Send rows through a worker of one mode, and through fresh ones where it ended."""
        here = (mode, process)
        if not rows and self._reached.get(here, -1) < self._watched.get(here, 0):
            return
        # Every pass begins in a process of its own; the one that described the build may still be unused.
        self._crew.renew(mode)
        if mode not in MODES:
            self._progress.more(len(rows))
        since = _SENTINEL_ROWS
        watched = 0.0
        for place, row in rows:
            if since >= _SENTINEL_ROWS or time.monotonic() - watched > _SENTINEL_SECONDS:
                self._watch(mode, process, place)
                since, watched = 0, time.monotonic()
            self._control(mode, process)
            since += 1
            self._progress.at(row, f"{mode}, process {process}")
            observation = self._observe(row, mode, process, list(self._header.settings.perturb))
            self._keep(observation)
            self._progress.saw(observation_verdict(observation, row))
        self._watch(mode, process, len(self._header.planned))

    def _control(self, mode: Mode, process: int) -> None:
        """Have the worker in service answer the controls, unless it has.

        What the first worker of a pass answers goes into the run file as observations; of one that replaces another
        only what it answered wrongly.
        """
        settings = self._header.settings
        # A control's answer is known for the worker's own thread count.
        perturb = [name for name in settings.perturb if name != "threads"]
        for _ in range(_TRIES):
            if self._crew.serving is not None and self._crew.serving == self._controlled:
                return
            first = self._crew.serving or self._crew.started + 1
            for row in self._header.controls:
                observation = self._observe(row, mode, process, perturb, max(settings.timeout, _PATIENCE))
                if (row.key, mode, process) not in self._done:
                    self._keep(observation)
                    continue
                # The first control is the one whose bits are the same in the whole scan.
                for reason in misbehaving(self._header, (*self._controls[:1], observation)):
                    if reason not in self._distrust:
                        self._distrust.append(reason)
                        self._writer.write(Distrust(reason=reason))
            # A control that ended the worker leaves one that has not answered the others.
            self._controlled = first

    def _observe(
        self, row: Row, mode: Mode, process: int, perturb: list[str], timeout: float | None = None
    ) -> Observation:
        settings = self._header.settings
        timeout = settings.timeout if timeout is None else timeout
        request = self._request("observe", row) | {
            "runs": settings.runs,
            "perturbations": perturb,
            "max_time": settings.max_time,
        }
        place = _place(row) | {"mode": mode, "process": process}
        try:
            answer = self._crew.ask(mode, request, timeout)
            return msgspec.convert(place | answer, Observation)
        except WorkerEndedError as ended:
            outcome = "timeout" if ended.timed_out else "crash"
            seconds = timeout if ended.timed_out else 0.0
            failure = {"outcome": outcome, "message": str(ended), "seconds": seconds}
        except msgspec.ValidationError as error:
            self._crew.retire()
            failure = {"outcome": "crash", "message": f"the worker's reply makes no sense ({error})"}
        return msgspec.convert(place | failure, Observation)

    def _watch(self, mode: Mode, process: int, before: int) -> None:
        """Run the sentinel in the worker in service, and write what it saw."""
        settings = self._header.settings
        spec = SENTINELS[settings.device.partition(":")[0]]
        (planned,) = spec.rows(settings.device.partition(":")[0])
        request = self._request("sentinel", row_of(spec, planned, settings.device)) | {"runs": _SENTINEL_RUNS}
        try:
            answer = self._crew.ask(mode, request, max(settings.timeout, _PATIENCE))
        except WorkerEndedError as ended:
            answer = {"message": str(ended)}
        told = [str(answer[name]) for name in ("exception", "message") if answer.get(name)]
        executions = int(answer.get("executions", 0))
        digests = answer.get("digests") or {"": executions}
        self._writer.write(
            Sentinel(
                mode=mode,
                process=process,
                before=before,
                op=spec.op_name,
                executions=executions,
                differing=executions - next(iter(digests.values())),
                load=load()[0],
                message=": ".join(told) or None,
            )
        )
        self._sentinels += 1
        self._watched[mode, process] = before

    def _cost_pass(self) -> None:
        """Time what is not yet timed, in a process that may switch the flag to either mode."""
        rows = [row for row in self._header.planned if row.key not in self._timed]
        if rows:
            self._crew.renew("on")
        for row in rows:
            self._progress.at(row, "cost")
            self._writer.write(self._cost(row))
            self._timed.add(row.key)
            self._progress.timed()

    def _cost(self, row: Row) -> Cost:
        place = _place(row)
        if row.key in self._unwell:
            # What ended a worker or hung would do so again.
            return msgspec.convert(place | {"outcome": "not_run", "message": self._unwell[row.key]}, Cost)
        try:
            answer = self._crew.ask(
                "on",
                self._request("cost", row) | {"max_seconds": _COST_SECONDS},
                self._header.settings.timeout,
            )
            return msgspec.convert(place | answer, Cost)
        except WorkerEndedError as ended:
            failure = {"outcome": "timeout" if ended.timed_out else "crash", "message": str(ended)}
        except msgspec.ValidationError as error:
            self._crew.retire()
            failure = {"outcome": "crash", "message": f"the worker's reply makes no sense ({error})"}
        return msgspec.convert(place | failure, Cost)

    def _request(self, do: str, row: Row) -> dict[str, Any]:
        seed = self._header.settings.seed
        request = {"do": do, **_place(row), "device": self._header.settings.device, "seed": seed}
        return request | ({"recipe": row.recipe} if row.recipe else {})

    def _keep(self, observation: Observation) -> None:
        self._writer.write(observation)
        self._note(observation)

    def _note(self, observation: Observation) -> None:
        """Remember of an observation what the rest of the scan asks about."""
        key, mode, process = observation.key, observation.mode, observation.process
        self._done.add((key, mode, process))
        if key in self._control_keys:
            self._controls.append(observation)
            return
        self._reached[mode, process] = max(self._reached.get((mode, process), -1), self._places[key])
        # Only the digest of its inputs is needed at the end.
        self._inputs.append(
            Observation(
                **_place(observation),
                mode=mode,
                process=process,
                outcome=observation.outcome,
                inputs_digest=observation.inputs_digest,
            )
        )
        if mode == "on" and alert_caller(observation.exception, observation.message):
            self._raised.add((key, process))
        if observation.outcome in {"crash", "timeout"}:
            self._unwell[key] = f"not timed: {observation.outcome} in mode {mode}"


def _place(one: Row | Observation) -> dict[str, Any]:
    """Return what names a row in requests and records."""
    return {"spec": one.spec, "case": one.case, "direction": one.direction, "dtype": one.dtype}


def tool_version() -> str:
    """Return the installed version of detmatrix."""
    try:
        return version("detmatrix")
    except PackageNotFoundError:
        return "unknown"
