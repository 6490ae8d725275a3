"""One scan: plan the rows, send them through workers, write what they observed as it comes.

The workers run one after the other; within a process the rows come in catalog order, and the modes alternate, so
that a scan cut short has seen both. Each worker first answers the controls, and a sentinel runs before, between and
after the rows. Rows whose finding would rest on too few executions are executed further. Timings come
last, in a process that switches the flag itself.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from detmatrix.opspecs.controls import INVARIANCE_CONTROLS
from detmatrix.opspecs.model import OpSpec
from detmatrix.opspecs.pytorch.sources import databases
from detmatrix.scanner.accelerators import lacking
from detmatrix.scanner.cases.catalog import choose, load_catalog, named_files, with_installed
from detmatrix.scanner.cases.discovery import Planner, with_databases
from detmatrix.scanner.cases.plan import Plan, Shard, settings_for
from detmatrix.scanner.cases.rows import control_rows, divided, known_rows, plan_digest
from detmatrix.scanner.claims.tables import parse_claims
from detmatrix.scanner.errors import UntrustedScanError, UsageError
from detmatrix.scanner.invariance import THREADS, Property
from detmatrix.scanner.modes import FURTHER_MODES, MODE_TABLE, idle_modes
from detmatrix.scanner.observations.consistency import COUNTED
from detmatrix.scanner.observations.records import (
    FORMAT,
    MODES,
    BuildOverloads,
    Closing,
    Cost,
    Dispatch,
    Distrust,
    EnumeratedEntry,
    Header,
    Invariance,
    Mode,
    Row,
)
from detmatrix.scanner.observations.runfile import Line, Run, RunReader, run_of
from detmatrix.scanner.observations.torch_versions import minor
from detmatrix.scanner.observations.writer import RunWriter
from detmatrix.scanner.processes.environment import (
    environment,
    load,
    resolve_device,
    tool_version,
    workers_for,
)
from detmatrix.scanner.processes.process import (
    ImportSandbox,
    WorkerEndedError,
    WorkerProcess,
    WorkerSupervisor,
)
from detmatrix.scanner.run.passes import PATIENCE, Seen, ask, place_of, request_for, time_to_settle
from detmatrix.scanner.run.progress import Progress
from detmatrix.scanner.run.resume import begun, check_header, observations_made
from detmatrix.scanner.run.shares import Shares
from detmatrix.scanner.run.simulation import described, simulation_for
from detmatrix.scanner.verdicts.findings import MatrixRow, matrix, runs_missing
from detmatrix.scanner.verdicts.invariance import is_control, misled

# Of timing a row, but for the fewest samples that quartiles need.
_COST_SECONDS = 0.15

_Kind = TypeVar("_Kind")


def scan(plan: Plan, progress: Progress) -> Run:
    """Scan, and return what the run file then holds; refuse what cannot be done here, or in a file that is there."""
    # Opened first, for it is also the lock: what is read below stays as it is until the scan is done.
    with RunWriter(plan.output) as writer, contextlib.ExitStack() as ending:
        ending.callback(progress.end)
        before = begun(plan)
        if before is not None:
            if before.closing is not None:
                return before
            # Its rows are planned from what they were planned from in the beginning.
            then, said = before.header.settings, f"{plan.output}: the scan has specs of its own"
            settings = replace(then, specs=named_files(plan.settings.specs, then.specs, said))
        else:
            settings = replace(plan.settings, specs=with_installed(plan.settings.specs))
        if settings.specs:
            progress.doing(f"loading {' '.join(settings.specs)}")
        specs = load_catalog(settings.specs, settings.sources)
        if before is None:
            sources = with_databases(settings.patterns, settings.sources, specs, said="sources" in plan.said)
            if sources != settings.sources:
                progress.note(
                    f"only PyTorch's databases have what a pattern names: --source {','.join(sources)}"
                )
            settings = replace(settings, sources=sources)
        if not databases(settings.sources):
            # A pattern that matches nothing anywhere is told before a worker starts.
            choose(settings.patterns, "any", specs)
        plan = replace(plan, settings=settings)
        with ImportSandbox() as sandbox:
            run = _Scan(plan, before, specs, sandbox, progress).run(writer)
        writer.check()
    return run


class _Scan:
    def __init__(
        self,
        plan: Plan,
        before: Run | None,
        specs: Sequence[OpSpec],
        sandbox: ImportSandbox,
        progress: Progress,
    ) -> None:
        self._plan = plan
        self._begun = before
        self._specs = specs
        self._progress = progress
        # As asked until a worker has said what there is, then as resolved.
        self._supervisor = WorkerSupervisor(
            plan.python,
            sandbox.path,
            plan.settings.specs,
            plan.settings.device,
            simulation=simulation_for(plan.settings, plan.python, progress),
            as_simulated=plan.settings.as_simulated,
            # What depends on their order is a finding of a user's function, and of a database another sample.
            ordered=not plan.settings.specs or bool(databases(plan.settings.sources)),
        )
        self._passes: Shares
        self._workers = contextlib.ExitStack()  # that are stopped in the end
        self._lines: list[Line]  # behind the plan, those of an interrupted scan included
        self._controlled: int | None = None  # which worker has answered the controls of invariance

    def run(self, writer: RunWriter) -> Run:
        """Execute what is planned and not yet observed; return what the file then holds."""
        started = time.monotonic()
        self._writer = writer
        self._progress.doing(f"starting torch: {self._plan.python}")
        try:
            self._header = self._first_header(self._first_worker())
            _compile_first(self._header, self._supervisor, self._progress)
            header = self._begin()
            settings = header.settings
            passes = settings.processes * len(MODES) + settings.cost + settings.overloads
            before = observations_made(self._begun) if self._begun else 0
            asked = sum(not is_control(one) for one in self._all_of(Invariance))
            self._progress.begin(
                len(header.planned) * (passes + len(settings.invariance)),
                before + len(self._all_of(Cost)) + len(self._all_of(Dispatch)) + asked,
            )
            self._passes.observe()
            for mode in FURTHER_MODES:
                # Which rows the flag cures is known when all processes of the other modes have spoken.
                if MODE_TABLE[mode].concern == "cured":
                    self._passes.observe_cured()
                needed = {row.row.key: runs_missing(row, mode) for row in self._rows_seen()}
                self._passes.observe_further(mode, {key: more for key, more in needed.items() if more})
            self._passes.leave()
            if settings.cost:
                limit = min(filter(None, (settings.max_time, _COST_SECONDS)))
                self._pass_aside("cost", Cost, "cost", max_seconds=limit)
            if settings.overloads or settings.simulate:
                self._build_pass()
            if settings.overloads:
                self._pass_aside("dispatch", Dispatch, "overloads")
            if settings.invariance:
                self._supervisor.renew(MODES[0])
                self._invariance_pass()
        finally:
            self._supervisor.retire()
            self._workers.close()
        misled_by = misled(one for one in self._all_of(Invariance) if is_control(one))
        late = (one.reason for one in self._all_of(Distrust) if one.mode is None)
        self._write(
            Closing(
                seconds=round(time.monotonic() - started, 3),
                load=load(),
                **{name: len(self._all_of(kind)) for name, kind in COUNTED.items()},
                distrust=tuple(dict.fromkeys((*self._passes.distrust, *misled_by, *late))),
            )
        )
        return self._seen()

    def _all_of(self, kind: type[_Kind]) -> list[_Kind]:
        return [line for line in self._lines if isinstance(line, kind)]

    def _seen(self) -> Run:
        return run_of(str(self._plan.output), self._header, self._lines)

    def _first_worker(self) -> WorkerProcess:
        """Start the worker that says which torch there is."""
        supervisor = self._supervisor
        worker = supervisor.first(MODES[0])
        asked, supervisor.device = supervisor.device, resolve_device(supervisor.device, worker.build)
        if asked == "auto" and supervisor.device != "cpu":
            # The one that was asked lives where threads are placed for work on the CPU.
            supervisor.retire()
            worker = supervisor.first(MODES[0])
        return worker

    def _first_header(self, worker: WorkerProcess) -> Header:
        """Return the header of this scan: the begun one if it can go on here, else a new one."""
        device, begun = self._supervisor.device, self._begun and self._begun.header
        settings = self._plan.settings
        here = environment(device, worker.build, described(settings), ordered=self._supervisor.ordered)
        shard = Shard(begun.shard, begun.shards) if begun else self._plan.shard or Shard()
        if begun is None:
            if lacks := lacking(device):
                self._progress.note(lacks)
            settings = settings_for(settings, device, workers_for(device, worker.build))
            for why, modes in idle_modes(settings.modes, device).items():
                self._progress.note(f"modes {', '.join(modes)}: not run, {why}")
        self._planner = Planner(self._supervisor, settings, self._specs)
        rows = self._planner.first()
        groups = list(dict.fromkeys([*(row.spec for row in rows), *(it.name for it in self._planner.wanted)]))
        shard_of = divided(groups, shard.total)
        header = Header(
            format=FORMAT,
            tool=tool_version(),
            started=datetime.now(UTC).isoformat(timespec="seconds"),
            settings=settings,
            environment=here,
            planned=tuple(row for row in rows if shard_of[row.spec] == shard.number),
            claims=parse_claims(worker.build["docstring"]),
            controls=control_rows(device),
            groups=shard_of,
            shards=shard.total,
            shard=shard.number,
        )
        header = replace(header, plan=plan_digest(header, rows))
        if begun:
            check_header(self._plan, begun, header)
        return begun or header

    def _begin(self) -> Header:
        """Make the file ready to append to, plan what is not yet planned, and note what it has already."""
        force, output, kept = self._plan.force, self._plan.output, None
        # With --force only until databases have said whether they have what was asked for.
        keeps = not (self._begun or self._plan.resume) and (not force or bool(self._planner.wanted))
        if keeps and output.stat().st_size:
            kept = self._writer.set_aside()
            until = " until all rows are planned" * force
            self._progress.note(f"{output}: the earlier run is kept as {kept.name}{until}")
        self._writer.begin(self._begun.end if self._begun else 0)
        if self._begun is None:
            self._writer.write(self._header)
        known = frozenset[str]() if self._begun is None else self._begun.entries
        known |= {group for group, shard in self._header.groups.items() if shard != self._header.shard}
        for _, entry in self._planner.enumerated(self._progress.enumerating, known):
            # What was enumerated is not lost with the minutes that it took.
            self._writer.write(entry)
        if self._begun is None:
            try:
                self._planner.check(whole=self._header.shards == 1)
            except UsageError:
                # Nothing is kept of a scan that cannot begin, and nothing lost by it.
                self._writer.begin(0)
                if kept is not None:
                    self._writer.replace(kept)
                    self._progress.note(f"{output}: holds the earlier run again")
                raise
        if kept is not None and force:
            kept.unlink(missing_ok=True)
        # A plan that cannot be read is told before anything is measured, not behind it.
        reader = RunReader(self._plan.output)
        lines = [*reader.records()]
        planned = run_of(str(self._plan.output), reader.header, lines)
        self._header = planned.header
        self._lines = [line for line in lines if not isinstance(line, EnumeratedEntry)]
        self._passes = Shares(self._header, self._supervisor, self._progress, self._write)
        self._workers.callback(self._passes.retire)
        self._passes.recall(planned)
        return self._header

    def _write(self, record: Line) -> None:
        self._writer.write(record)
        self._lines.append(record)

    def _rows_seen(self) -> Iterator[MatrixRow]:
        return matrix(self._header, self._seen().observations, closed=False)

    def _pass_aside(self, do: str, kind: type[Seen], what: str, **more: Any) -> None:
        """Ask of each row what is not yet known of it, in a process that may switch the flag to either mode."""
        done = {one.key for one in self._all_of(kind)}
        for row in self._header.planned:
            if row.key not in done:
                self._progress.at(row, what)
                self._write(self._aside(row, do, kind, **more))
                self._progress.saw(None)

    def _build_pass(self) -> None:
        """Record what overloads there are, and the alerts that are compiled into the build."""
        if self._all_of(BuildOverloads):
            return
        settings = self._header.settings
        request = {"do": "kernels", "device": settings.device, "overloads": settings.overloads}
        try:
            kernels = self._supervisor.ask_for(BuildOverloads, "on", request, PATIENCE)
        except WorkerEndedError as ended:
            kernels = BuildOverloads(groups=(), message=str(ended))
        self._write(kernels)

    def _invariance_pass(self) -> None:
        """Ask of each row that did not differ with the flag off what else its bits depend on.

        Behind all other passes, since which rows are repeatable must be known. Controls are asked before the rows and at the end.
        """
        settings, machine = self._header.settings, self._header.environment
        tried = {(one.key, one.what) for one in self._all_of(Invariance)}
        left = [
            (row, what)
            for row in self._rows_seen()
            for what in settings.invariance
            if (row.row.key, what) not in tried
        ]
        cores = len(machine.affinity) or machine.cores
        above = [str(count) for count in THREADS if count > cores]
        if left and above and "threads" in settings.invariance:
            self._progress.note(
                f"--invariance threads: {', '.join(above)} are more than the {cores} cores here; kernels split their work by the "
                f"number they are told, so the bits are those of as many threads"
            )
        for row, what in left:
            if row.off.verdict == "deterministic":
                self._progress.at(row.row, f"invariance to {what}")
                self._control_invariance()
                self._write(self._ask_invariance(row.row, what))
            self._progress.saw(None)
        if left:
            self._control_invariance(again=True)

    def _control_invariance(self, *, again: bool = False) -> None:
        """Have the worker in service answer the controls, unless it has; what a later one answers wrongly is distrust."""
        serving, settings = self._supervisor.serving(MODES[0]), self._header.settings
        if not again and serving is not None and serving == self._controlled:
            return
        tried = {(one.key, one.what) for one in self._all_of(Invariance)}
        rows = known_rows(settings.device, INVARIANCE_CONTROLS)
        for row, what in ((row, what) for row in rows for what in settings.invariance):
            record = self._ask_invariance(row, what)
            if (record.key, what) not in tried:
                self._write(record)
            elif wrong := misled([record]):
                self._write(Distrust(reason=wrong[0]))
        self._controlled = self._supervisor.serving(MODES[0])

    def _ask_invariance(self, row: Row, what: Property) -> Invariance:
        settings = self._header.settings
        # It stops by itself before it costs the row what is known of it.
        more = {"property": what, "max_time": time_to_settle(settings)}
        return self._aside(row, "invariance", Invariance, mode=MODES[0], **more)

    def _aside(self, row: Row, do: str, kind: type[Seen], mode: Mode = "on", **more: Any) -> Seen:
        """Have a row executed in a process beside those that observe; its failure is its own."""
        place = place_of(row) | ({"property": more["property"]} if "property" in more else {})
        if row.key in self._passes.unwell:
            # What cost a worker would cost another one.
            text = f"not tried again: {self._passes.unwell[row.key]}"
            return msgspec.convert(place | {"outcome": "not_run", "message": text}, kind)
        settings = self._header.settings
        request = request_for(do, row, settings) | more
        return ask(self._supervisor, kind, place, mode, request, settings.timeout, settings)


def _compile_first(header: Header, supervisor: WorkerSupervisor, progress: Progress) -> None:
    """See to it that what is to be compiled can be, before anything is measured."""
    modes = [mode for mode in header.settings.modes if MODE_TABLE[mode].compiles]
    if not modes:
        return
    torch = header.environment.torch
    for mode in modes:
        if minor(torch) < (since := MODE_TABLE[mode].since):
            least = ".".join(map(str, since))
            raise UsageError(
                f"--modes {mode}: needs torch {least} or newer, and this is {torch}; leave it out"
            )
    progress.doing("torch.compile compiles a first function, which may take a minute")
    supervisor.retire()
    try:
        supervisor.start(modes[0])
    except UntrustedScanError as error:
        raise UsageError(
            f"--modes {modes[0]}: {error}; install what is missing, or leave the mode out"
        ) from error
    supervisor.retire()
