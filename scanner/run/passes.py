"""Rows sent through worker processes, and beside them what says how much that is worth.

What a worker is asked to do with a row stands first, and the record that its answer makes. A pass is one process of one
mode: rows in planned order, the controls before them, a sentinel before, between and after them. A scan makes the passes of one build; to confirm a change those of two builds are made in turns.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from detmatrix.opspecs.controls import SENTINELS
from detmatrix.scanner.accelerators import kind_of
from detmatrix.scanner.cases.rows import row_of
from detmatrix.scanner.modes import MODE_TABLE
from detmatrix.scanner.observations.consistency import fault
from detmatrix.scanner.observations.records import (
    MODES,
    Cost,
    Dispatch,
    Distrust,
    Header,
    Invariance,
    Mode,
    Observation,
    Row,
    Sentinel,
    Settings,
)
from detmatrix.scanner.observations.runfile import Line
from detmatrix.scanner.observations.settings import SETTINGS
from detmatrix.scanner.perturbations import OF_SEVERAL_THREADS
from detmatrix.scanner.processes.environment import load
from detmatrix.scanner.processes.process import SENSELESS, WorkerEndedError, WorkerSupervisor
from detmatrix.scanner.run.progress import Progress
from detmatrix.scanner.schedules import CANONICAL
from detmatrix.scanner.verdicts.cells import row_cell
from detmatrix.scanner.verdicts.controls import misbehaving
from detmatrix.scanner.verdicts.findings import runs_in, unequal_inputs

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
    """Ask the worker in service for a record of a row at its *place*, held against the settings; without an answer it says why."""
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
    """Return what a row is executed under on which so many threads work, *stressed* often enough or not."""
    left_out = OF_SEVERAL_THREADS if threads == 1 else ("stress",) * stressed
    return [name for name in settings.perturb if name not in left_out] or list(settings.perturb)


def time_to_settle(settings: Settings) -> float:
    """Return the seconds of what is asked of few rows, where a finding or an answer rests on it: five at least."""
    least: float = SETTINGS["max_time"].default
    return min(settings.timeout / 2, max(settings.max_time or math.inf, least))


# Controls and a sentinel run after so many rows, or after so many seconds. On a simulated GPU, where time means nothing, controls are all
# that runs between rows, after fewer of them.
_SENTINEL_ROWS, _SIMULATED_ROWS = 96, 24
_SENTINEL_SECONDS = 2.0
# Executions of a control between rows: whether it answers rightly shows in two, which every scan may make of a row.
_CHECK_RUNS = 2
# Executions of a sentinel.
_WATCHED_RUNS = 20
# Of the time that a row may take, what its executions on a simulated GPU may.
_OWN_SHARE = 0.9
# Workers that are asked for the controls, one after the other, before rows run in one that has not answered them all.
_TRIES = 3


class PassRunner:
    """What has been observed of the planned rows, and how to observe the rest."""

    def __init__(
        self,
        header: Header,
        progress: Progress,
        write: Callable[[Line], None],
        text: str = "",
        number: int = 0,
        *,
        stress_once: bool = True,
    ) -> None:
        """Nothing is observed yet.

        *text* stands before the mode in the progress; *number* is that of the share of the rows, where workers run side by side.
        *stress_once*: on the CPU the first process of a mode alone executes rows under stress, which takes time, and one
        process shows nearly all. Not where each process is an event.
        """
        self._header, self._settings = header, header.settings
        self._progress = progress
        self._write = write
        self._prefix = text
        self._number = number
        self._stress_once = stress_once and header.settings.device == "cpu"
        self._simulates = bool(header.settings.simulate)
        self._control_keys = {row.key for row in header.controls}
        self._places = {row.key: place for place, row in enumerate(header.planned)}
        self._done: set[tuple[tuple[str, ...], Mode, int]] = set()
        self._controls: list[Observation] = []
        self._seen: defaultdict[tuple[str, ...], list[Observation]] = defaultdict(list)  # of each row
        # By mode and process: the place of the last row observed, and what the last sentinel stood before.
        self._reached: dict[tuple[Mode, int], int] = {}
        self._watched: dict[tuple[Mode, int], int] = {}
        self._distrust: list[str] = []
        # Of each supervisor the pass that its worker is in, the last worker that answered the controls, and the place up to which they vouch for its rows.
        self._passing: dict[WorkerSupervisor, tuple[Mode, int]] = {}
        self._controlled: dict[WorkerSupervisor, int] = {}
        self._vouched: dict[WorkerSupervisor, int] = {}
        self.unwell: dict[tuple[str, ...], str] = {}  # rows that cost a worker, and how
        # Of the pass that is being made.
        self._supervisor: WorkerSupervisor
        self._mode: Mode
        self._process: int

    @property
    def distrust(self) -> tuple[str, ...]:
        """Why what was observed cannot be trusted; empty if it can."""
        unequal = (text for seen in self._seen.values() for text in unequal_inputs(seen))
        found = (*unequal, *misbehaving(self._header, self._controls), *self._distrust)
        return tuple(dict.fromkeys(found))

    def recall(
        self, observations: Iterable[Observation], sentinels: Iterable[Sentinel], distrust: Iterable[str]
    ) -> None:
        """Take in what an interrupted scan has observed already."""
        for observation in observations:
            self._note(observation)
        self._watched |= {(one.mode, one.process): one.before for one in sentinels}
        self._distrust = list(distrust)

    def run(
        self,
        mode: Mode,
        process: int,
        supervisor: WorkerSupervisor,
        places: range | None = None,
        runs: Mapping[tuple[str, ...], int] | None = None,
    ) -> None:
        """Send the rows still to be observed through a worker of one mode, and through fresh ones where it ended.

        *places* are those of the rows in the plan, where the pass is made in parts; *runs* says how often to execute which rows,
        where that is not as often as the settings say.
        """
        self._supervisor, self._mode, self._process = supervisor, mode, process
        planned = range(len(self._header.planned))
        places = planned if places is None else places
        rows = [one for one in self._due(places) if runs is None or one[1].key in runs]
        here = (mode, process)
        if not rows and (places != planned or self._reached.get(here, -1) < self._watched.get(here, 0)):
            return
        if self._passing.get(supervisor) != here:
            supervisor.renew(mode)
            self._passing[supervisor] = here
        if mode not in MODES or runs is not None:
            self._progress.further(len(rows))
        most, seconds = (
            (_SIMULATED_ROWS, math.inf) if self._simulates else (_SENTINEL_ROWS, _SENTINEL_SECONDS)
        )
        since, since_when = most, 0.0
        for place, row in rows:
            if since >= most or time.monotonic() - since_when > seconds:
                self._watch(place)
                self._control_again(place)
                since, since_when = 0, time.monotonic()
            self._control(place)
            since += 1
            compiles = ", compiling" if MODE_TABLE[mode].compiles else ""
            self._progress.at(row, f"{self._prefix}{mode}, process {process}{compiles}")
            observation = self._observe_row(row, runs[row.key] if runs is not None else None)
            self._keep(observation)
            self._progress.saw(row_cell([observation], "", row).verdict)
            if mode == "on" and len(observation.digests) > 1:
                # The controls run again before a row is silent: the worker itself may be corrupted.
                self._control_again(place + 1)
        self._watch(places.stop)
        self._control_again(places.stop)

    def _due(self, places: range) -> Iterator[tuple[int, Row]]:
        """Yield the rows still to be observed, each with its place in the plan."""
        mode, process = self._mode, self._process
        concern = MODE_TABLE[mode].concern
        for place in () if MODE_TABLE[mode].retired else places:
            row = self._header.planned[place]
            if (row.key, mode, process) in self._done:
                continue
            # What raises does so in each process by itself.
            seen = [it for it in self._seen[row.key] if it.process == process or concern != "raising"]
            rests = concern in {"raising", "cured"}
            cells = {one: row_cell([it for it in seen if it.mode == one], "", row) for one in MODES if rests}
            if runs_in(mode, row, cells, self._header.claims) is None:
                yield place, row

    def _control(self, place: int) -> None:
        """Have the worker in service answer the controls before the row at *place*, unless it has.

        What the first worker of a pass answers goes into the run file as observations; of one that replaces another
        only what it answered wrongly.
        """
        supervisor = self._supervisor
        perturb = list(self._settings.perturb)
        for _ in range(_TRIES):
            serving = supervisor.serving(self._mode)
            if serving is not None and serving == self._controlled.get(supervisor):
                return
            aged, first = supervisor.aged(self._mode), serving or supervisor.started + 1
            timeout = max(self._settings.timeout, PATIENCE)
            answers: Iterable[Observation]
            answers = (self._observe(row, perturb, timeout) for row in self._header.controls)
            if aged and misbehaving(self._header, (*self._controls[:1], *(answers := [*answers]))):
                # What rows of another mode left behind is not held against this one: another worker is asked.
                supervisor.retire()
                continue
            for observation in answers:
                if (observation.key, self._mode, self._process) not in self._done:
                    self._keep(observation)
                    continue
                # The first control is the one whose bits are the same in the whole scan.
                for reason in misbehaving(self._header, (*self._controls[:1], observation)):
                    if reason not in self._distrust:
                        self._distrust.append(reason)
                        self._write(Distrust(reason=reason))
            # A control that ended the worker leaves one that has not answered the others.
            self._controlled[supervisor] = first
            self._vouched[supervisor] = place

    def _control_again(self, before: int) -> None:
        """Have the worker in service answer the controls once more; void its rows since they last answered rightly.

        What an op did to the process need not show in any flag: it may have replaced what we compare with.
        """
        supervisor = self._supervisor
        serving = supervisor.serving(self._mode)
        if serving is None or serving != self._controlled.get(supervisor):
            return
        since = self._vouched[supervisor]
        timeout = max(self._settings.timeout, PATIENCE)
        calm = CANONICAL if self._simulates else "quiet"
        for row in self._header.controls:
            observation = self._observe(row, [calm], timeout, runs=_CHECK_RUNS)
            wrong = misbehaving(self._header, (*self._controls[:1], observation))
            if wrong and since < before:
                void = Distrust(
                    reason=wrong[0],
                    mode=self._mode,
                    process=self._process,
                    since=since,
                    before=before,
                    worker=self._number,
                )
                self._write(void)
                supervisor.retire()
                break
        self._vouched[supervisor] = before

    def _observe(self, row: Row, perturb: list[str], timeout: float, **changed: float | None) -> Observation:
        settings = self._settings
        request = request_for("observe", row, settings) | {
            "runs": settings.runs,
            "perturbations": perturb,
            "max_time": settings.max_time,
            **changed,
        }
        if self._simulates:
            # A kernel that does not end is told by its name before the worker is stopped.
            request["seconds"] = _OWN_SHARE * timeout
        place = place_of(row) | {"mode": self._mode, "process": self._process, "worker": self._number}
        return ask(self._supervisor, Observation, place, self._mode, request, timeout, settings)

    def _observe_row(self, row: Row, further: int | None) -> Observation:
        """Execute a row as the settings say, or further so often; what one thread does alone is not asked again."""
        settings, mode = self._settings, self._mode
        threads, of_off = self._threads(row, mode), self._threads(row, "off")
        runs = settings.runs_in(mode) if further is None else further
        more: dict[str, float | None] = {"runs": runs}
        if further is None:
            perturb = perturbations_of(settings, threads, stressed=self._process > 0 and self._stress_once)
            # What several threads do with the flag off can race; counting takes milliseconds.
            more["count_threads"] = threads is None and (mode == "off" or of_off in {None, 1})
            # One sample of each mode: what gives the same bits gives them in every process.
            more["sample"] = self._process == 0 and mode in MODES
        else:
            threads = of_off if threads is None else threads
            perturb = perturbations_of(settings, threads)
            # Pauses show some races on a CPU a hundred times oftener, and take too long for every row.
            if settings.device == "cpu" and threads != 1 and "pause" not in perturb:
                perturb.append("pause")
        if further is not None or runs > settings.runs:
            # They stop by themselves before they cost the row what is known of it.
            more["max_time"] = time_to_settle(settings)
        return self._observe(row, perturb, settings.timeout, **more)

    def _threads(self, row: Row, mode: Mode) -> int | None:
        """Return how many threads worked in the first process of a mode that told; the others execute the same code."""
        told = (one.threads for one in self._seen[row.key] if one.mode == mode and one.threads is not None)
        return next(told, None)

    def _watch(self, before: int) -> None:
        """Run the sentinel in the worker in service, and write what it saw."""
        self._watched[self._mode, self._process] = before
        # Simulated orders are drawn, whatever the machine lets race.
        if self._simulates:
            return
        device = self._settings.device
        spec = SENTINELS["cpu" if device == "cpu" else "accelerator"]
        (planned,) = spec.rows(kind_of(device))
        row = row_of(spec, planned, device)
        request = request_for("sentinel", row, self._settings) | {"runs": _WATCHED_RUNS}
        place: dict[str, Any] = place_of(row) | {"mode": self._mode, "process": self._process}
        try:
            timeout = max(self._settings.timeout, PATIENCE)
            answer = self._supervisor.ask_for(Observation, self._mode, request, timeout, place)
        except WorkerEndedError as ended:
            answer = Observation(**place, outcome="crash", message=str(ended))
        counted = list(answer.digests.values())
        self._write(
            Sentinel(
                mode=self._mode,
                process=self._process,
                before=before,
                op=spec.op_name,
                executions=sum(counted),
                differing=sum(counted[1:]),
                load=load()[0],
                message=": ".join(text for text in (answer.exception, answer.message) if text) or None,
                worker=self._number,
            )
        )

    def _keep(self, observation: Observation) -> None:
        self._write(observation)
        self._note(observation)

    def _note(self, observation: Observation) -> None:
        """Remember of an observation what the rest of the scan asks about."""
        key, mode, process = observation.key, observation.mode, observation.process
        self._done.add((key, mode, process))
        if key in self._control_keys:
            self._controls.append(observation)
            return
        self._reached[mode, process] = max(self._reached.get((mode, process), -1), self._places[key])
        self._seen[key].append(observation)
        if observation.outcome in {"crash", "timeout"}:
            self.unwell[key] = f"{observation.outcome} in mode {mode}"
        elif str(observation.message).startswith("changed global state"):
            self.unwell[key] = f"it {observation.message}"
