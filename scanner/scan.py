"""One scan: plan the rows, send them through workers, write what they observed as it comes.

The workers run one after the other, so that none of them is load to another; within a process the rows come
in catalog order, and the modes alternate, so that a scan cut short has seen both.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import msgspec

from opspecs.model import OpSpec
from scanner.catalog import choose, load_catalog
from scanner.claims import parse_claims
from scanner.errors import RunFileError, UntrustedScanError, UsageError
from scanner.machine import environment, load, resolve_device
from scanner.manager import Stage, Worker, WorkerEndedError
from scanner.progress import Progress
from scanner.records import FORMAT, MODES, Closing, Environment, Header, Mode, Observation, Row, Settings
from scanner.runfile import Run, RunWriter, read_run
from scanner.verdicts import observation_verdict

DEFAULT_RUNS = 50
DEFAULT_PROCESSES = 2
DEFAULT_TIMEOUT = 60.0
DEFAULT_SEED = 0


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What the user asked for; ``None`` where nothing was said, so that a resumed scan goes on as it began."""

    output: Path
    patterns: tuple[str, ...] = ()
    device: str = "auto"  # "auto", "cpu", "cuda", "cuda:N"
    runs: int | None = None
    processes: int | None = None
    timeout: float | None = None
    seed: int | None = None
    spec_files: tuple[str, ...] = ()
    resume: bool = False
    force: bool = False
    python: str = sys.executable


def scan(plan: Plan, progress: Progress) -> Run:
    """Scan, and return what the run file then holds.

    Raises:
        UsageError: What was asked cannot be done, or the run file cannot be written.
        RunFileError: The file to resume is damaged.
        UntrustedScanError: No worker could start.
    """
    # Opened first, for it is also the lock: what is read below stays as it is until the scan is done.
    with RunWriter(plan.output) as writer:
        begun = _begun(plan)
        if begun is not None:
            _check_settings(plan, begun.header.settings)
            if begun.closing is not None:
                return begun
            plan = msgspec.structs.replace(plan, spec_files=plan.spec_files or begun.header.settings.specs)
        specs = load_catalog(plan.spec_files)
        # A pattern that matches nothing anywhere is told before a worker starts.
        choose(plan.patterns, "any", specs)
        with Stage() as stage:
            _Scan(plan, begun, specs, stage, progress).run(writer)
    return read_run(plan.output)


def _begun(plan: Plan) -> Run | None:
    """Return the scan to go on with, or ``None`` to start anew.

    Raises:
        UsageError: The file holds something that would be lost.
    """
    path = plan.output
    if plan.force or path.stat().st_size == 0:
        return None
    if plan.resume:
        return None if _torn_header(path) else read_run(path)
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
    total = len(run.header.planned) * run.header.settings.processes * len(run.header.settings.modes)
    raise UsageError(
        f"{path}: holds an unfinished scan ({len(run.observations)} of {total} observations); go on with --resume, "
        f"or start over with --force"
    )


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
        ("--runs", plan.runs, settings.runs),
        ("--processes", plan.processes, settings.processes),
        ("--timeout", plan.timeout, settings.timeout),
        ("--seed", plan.seed, settings.seed),
    ]
    for name, now, then in asked:
        if now is not None and now != then:
            raise _not_resumable(plan, name, now, then)


def _not_resumable(plan: Plan, name: str, *values: Any) -> UsageError:
    """Return the one line said of a scan that cannot go on here: what differs, as it is now and was then."""
    told = " ({}, it has {})".format(*map(_brief, values)) if values else ""
    return UsageError(
        f"{plan.output}: cannot be resumed, {name} is not the one it began with{told}; start over with --force, or "
        f"choose another place with -o"
    )


def _torn_header(path: Path) -> bool:
    """Tell whether a scan was killed while it wrote its very first line."""
    data = path.read_bytes()
    return b"\n" not in data and data.startswith(b'{"kind":"header"'[: len(data)])


class _Scan:
    """The state of a scan that is going on."""

    def __init__(
        self, plan: Plan, begun: Run | None, specs: Sequence[OpSpec], stage: Stage, progress: Progress
    ) -> None:
        self._plan = plan
        self._begun = begun
        self._specs = specs
        self._stage = stage
        self._progress = progress
        # A worker lives in another folder.
        self._python = os.path.abspath(plan.python) if os.sep in plan.python else plan.python  # noqa: PTH100 - links stay
        self._spec_files = tuple(str(Path(path).resolve()) for path in plan.spec_files)
        self._worker: Worker | None = None
        self._worker_mode: Mode | None = None
        self._worker_used = False
        # As asked until a worker has said what there is, then as resolved.
        self._device = begun.header.settings.device if begun else plan.device
        self._inputs: dict[tuple[str, ...], str] = {}
        self._distrust: list[str] = []
        self._count = 0

    def run(self, writer: RunWriter) -> None:
        """Execute what is planned and not yet observed."""
        started = time.monotonic()
        try:
            header = self._header(self._first_worker())
            self._settings = header.settings
            done = self._begin(header, writer)
            modes = header.settings.modes
            self._progress.begin(len(header.planned) * header.settings.processes * len(modes), len(done))
            try:
                for process in range(header.settings.processes):
                    for mode in modes:
                        rows = [row for row in header.planned if (row.key, mode, process) not in done]
                        self._pass(rows, mode, process, writer)
            finally:
                self._progress.end()
        finally:
            self._retire()
        writer.write(
            Closing(
                seconds=round(time.monotonic() - started, 3),
                load=load(),
                observations=self._count,
                distrust=tuple(self._distrust),
            )
        )

    def _first_worker(self) -> Worker:
        """Start the worker that says which torch there is.

        Raises:
            UntrustedScanError: It did not start.
            UsageError: It did not start in an interpreter that the user named.
        """
        try:
            worker = self._start(MODES[0])
            device = resolve_device(self._device, worker.build)
            if self._device == "auto" and device != "cpu":
                # The one that was asked lives where threads are placed for work on the CPU.
                self._retire()
                self._device = device
                worker = self._start(MODES[0])
        except UntrustedScanError as error:
            if self._plan.python == sys.executable:
                raise
            raise UsageError(f"--python {error}") from error
        self._device = device
        return worker

    def _begin(self, header: Header, writer: RunWriter) -> set[tuple[tuple[str, ...], Mode, int]]:
        """Make the file ready to append to, and return what it has already."""
        writer.begin(self._begun.end if self._begun else 0)
        if self._begun is None:
            writer.write(header)
            return set()
        for observation in self._begun.observations:
            self._note(observation)
        return {(o.key, o.mode, o.process) for o in self._begun.observations}

    def _header(self, worker: Worker) -> Header:
        """Return the header of this scan: the begun one if it can go on here, else a new one."""
        plan = self._plan
        if self._begun is not None:
            header = self._begun.header
            self._check_resumable(header, worker)
            return header
        device = resolve_device(plan.device, worker.build)
        settings = Settings(
            patterns=plan.patterns,
            device=device,
            runs=DEFAULT_RUNS if plan.runs is None else plan.runs,
            processes=DEFAULT_PROCESSES if plan.processes is None else plan.processes,
            timeout=DEFAULT_TIMEOUT if plan.timeout is None else plan.timeout,
            seed=DEFAULT_SEED if plan.seed is None else plan.seed,
            specs=plan.spec_files,
        )
        return Header(
            format=FORMAT,
            tool=tool_version(),
            started=datetime.now(UTC).isoformat(timespec="seconds"),
            settings=settings,
            environment=environment(device, worker.build),
            planned=self._rows(settings),
            claims=parse_claims(worker.build["docstring"]),
        )

    def _rows(self, settings: Settings) -> tuple[Row, ...]:
        kind = settings.device.partition(":")[0]
        return tuple(
            Row(
                family=spec.family,
                spec=spec.name,
                op=spec.op_name,
                case=planned.case,
                direction=planned.direction,
                dtype=planned.dtype,
                device=settings.device,
                provokes=spec.cases[planned.case].provokes,
                why=spec.why,
                documented=spec.documented or (spec.name,),
                traits=dict(spec.cases[planned.case].traits),
            )
            for spec, planned in choose(settings.patterns, kind, self._specs)
        )

    def _check_resumable(self, header: Header, worker: Worker) -> None:
        """Refuse to add to a scan what another build, machine or catalog would add.

        Raises:
            UsageError: Names what differs.
        """
        settings = header.settings
        here = environment(resolve_device(settings.device, worker.build), worker.build)
        for name in (field for field in Environment.__struct_fields__ if field != "load"):
            now, then = getattr(here, name), getattr(header.environment, name)
            if now != then:
                raise _not_resumable(self._plan, f"the {name} here", now, then)
        if [row.key for row in self._rows(settings)] != [row.key for row in header.planned]:
            raise _not_resumable(self._plan, "the catalog here")

    def _pass(self, rows: Sequence[Row], mode: Mode, process: int, writer: RunWriter) -> None:
        """Send rows through a worker of one mode, and through fresh ones where it ended."""
        if rows and (self._worker_mode != mode or self._worker_used):
            # Every pass begins in a process of its own; the one that described the build may still be unused.
            self._retire()
        for row in rows:
            self._progress.at(row, mode, process)
            observation = self._observe(row, mode, process)
            writer.write(observation)
            self._note(observation)
            self._progress.saw(observation_verdict(observation))

    def _observe(self, row: Row, mode: Mode, process: int) -> Observation:
        worker = self._worker or self._start(mode)
        self._worker_used = True
        settings = self._settings
        request = {
            "spec": row.spec,
            "case": row.case,
            "direction": row.direction,
            "dtype": row.dtype,
            "device": row.device,
            "seed": settings.seed,
            "runs": settings.runs,
        }
        place: dict[str, Any] = {name: request[name] for name in ("spec", "case", "direction", "dtype")}
        place |= {"mode": mode, "process": process}
        try:
            reply = worker.ask(request, settings.timeout)
            observation = msgspec.convert(place | reply["observed"], Observation)
        except WorkerEndedError as ended:
            self._retire()
            outcome = "timeout" if ended.timed_out else "crash"
            seconds = settings.timeout if ended.timed_out else 0.0
            return msgspec.convert(
                place | {"outcome": outcome, "message": str(ended), "seconds": seconds}, Observation
            )
        except (KeyError, msgspec.ValidationError) as error:
            self._retire()
            message = f"the worker's reply makes no sense ({error})"
            return msgspec.convert(place | {"outcome": "crash", "message": message}, Observation)
        if reply.get("tainted"):
            self._retire()
        return observation

    def _note(self, observation: Observation) -> None:
        """Count an observation, and hold its inputs against those that other processes had."""
        self._count += 1
        digest = observation.inputs_digest
        if digest is None:
            return
        if self._inputs.setdefault(observation.key, digest) != digest:
            self._distrust.append(
                f"the inputs of {':'.join(observation.key)} in process {observation.process} of mode "
                f"{observation.mode} are not those of the first process"
            )

    def _start(self, mode: Mode) -> Worker:
        self._worker = Worker(self._python, mode, self._stage.path, self._spec_files, device=self._device)
        self._worker_mode = mode
        self._worker_used = False
        return self._worker

    def _retire(self) -> None:
        if self._worker is not None:
            self._worker.stop()
        self._worker = None
        self._worker_mode = None


def _brief(value: Any) -> str:
    """Write a setting as the user would."""
    if isinstance(value, tuple):
        return " ".join(str(item) for item in value) or "none"
    return str(value)


def tool_version() -> str:
    """Return the installed version of detmatrix."""
    try:
        return version("detmatrix")
    except PackageNotFoundError:
        return "unknown"
