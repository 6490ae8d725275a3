"""Rows of two runs measured again, both in turns, so that whatever the machine does meanwhile is done to both.

A B A B…: in each round every mode gets a fresh worker process of the one interpreter and then one of the other, with
controls and sentinels as in a scan. What comes out are two runs like those that scans write.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from itertools import product

from msgspec import Struct
from msgspec.structs import replace

from detmatrix.opspecs.pytorch.sources import databases
from detmatrix.opspecs.registry import SPECS
from detmatrix.scanner.cases.catalog import load_catalog, named_files, with_installed
from detmatrix.scanner.cases.rows import control_rows, known_rows
from detmatrix.scanner.errors import UntrustedScanError, UsageError
from detmatrix.scanner.modes import DEFAULT_MODES, LEAST_RUNS, MODE_TABLE, modes_on
from detmatrix.scanner.observations.records import (
    FORMAT,
    MODES,
    Closing,
    Environment,
    Header,
    Mode,
    Observation,
    Row,
    Sentinel,
    Settings,
)
from detmatrix.scanner.observations.runfile import Line, Run, run_of
from detmatrix.scanner.observations.settings import SETTINGS
from detmatrix.scanner.processes.environment import environment, load, missing_device, tool_version
from detmatrix.scanner.processes.process import ImportSandbox, WorkerSupervisor
from detmatrix.scanner.run.passes import PassRunner
from detmatrix.scanner.run.progress import Progress
from detmatrix.scanner.verdicts.power import PowerCheck

Key = tuple[str, str, str, str]

# With fewer processes Fisher's test could not tell "in every process but one something differed" from "in none".
LEAST_ROUNDS = 7
# Where rows differ between processes only, each is one event: two outputs that are equally likely are told from one
# only where the rarer one of them came up in seven processes.
LEAST_BETWEEN = 16
# At least so many times the processes of the scans.
_TIMES = 2


class Side(Struct, frozen=True):
    """One of two runs, and where its torch is."""

    run: Run
    python: str
    here: Environment  # as ``examine`` found it


def examine(run: Run, python: str, sandbox: ImportSandbox) -> Environment:
    """Return what an interpreter is, here and now; refuse one without the torch of a run, or a device like that of the run."""
    device = run.header.settings.device
    if run.header.settings.simulate:
        raise UsageError(
            f"{run.path} is simulated, and the same schedules show the same again; compare without --confirm"
        )
    supervisor = WorkerSupervisor(python, sandbox.path, (), device)
    try:
        build = supervisor.start(MODES[0]).build
    except UntrustedScanError as error:
        raise UsageError(f"--python {error}") from error
    finally:
        supervisor.retire()
    then = run.header.environment
    if (build["torch"], build["torch_git"]) != (then.torch, then.torch_git):
        raise UsageError(
            f"--python {python}: has torch {_build(build['torch'], build['torch_git'])}, and {run.path} is a run of "
            f"torch {_build(then.torch, then.torch_git)}; give one --python for each run, in the order of the runs"
        )
    if missing := missing_device(device, build):
        raise UsageError(
            f"--python {python}: {run.path} is a run on {device}, and {missing}; compare without --confirm"
        )
    return environment(device, build)


def _build(torch: str, git: str | None) -> str:
    return f"{torch} (git {git[:12]})" if git else torch


def rounds_for(old: Settings, new: Settings, *, between: bool = False) -> int:
    """Return in how many rounds two runs are measured again: twice as many processes as either had, or more."""
    return max(LEAST_BETWEEN if between else LEAST_ROUNDS, _TIMES * max(old.processes, new.processes))


def rows_here(
    run: Run, keys: Sequence[Key], spec_files: Sequence[str] = ()
) -> tuple[dict[Key, Row], dict[Key, str]]:
    """Return those rows of a run that this detmatrix can still call, and why not of the others.

    The rows of PyTorch's databases are in the torch, not here: a worker is asked for them as the scan recorded them, and
    says itself if the entry is gone.
    """
    planned = {row.key: row for row in run.header.planned}
    of_torch = {key for key in keys if key in planned and databases((planned[key].source,))}
    of_here = [key for key in keys if key not in of_torch]
    settings = run.header.settings
    specs, missing = SPECS, "the catalog of this detmatrix has no such row"
    if _needs_files(of_here):
        try:
            specs = load_catalog(named_files(spec_files, settings.specs, f"{run.path} has specs of its own"))
        except UsageError as error:
            missing = str(error)
    here = {row.key: row.op for row in known_rows(settings.device, specs)}
    found = {
        key: planned[key]
        for key in keys
        if key in of_torch or (key in planned and here.get(key) == planned[key].op)
    }
    return found, {key: missing for key in keys if key not in found}


def _needs_files(keys: Sequence[Key]) -> bool:
    """Tell whether specs of the user's own are among the rows."""
    return not {key[0] for key in keys} <= {spec.name for spec in SPECS}


def measure(
    sides: tuple[Side, Side],
    rows: tuple[Sequence[Row], Sequence[Row]],
    sandbox: ImportSandbox,
    progress: Progress,
    *,
    rounds: int,
    runs: int | None = None,
    spec_files: Sequence[str] = (),
) -> tuple[Run, Run]:
    """Measure rows of two runs again, in turns, and return them as runs.

    *rows* are as either run planned them, the same keys in the same order; *rounds* are processes of each run in each mode.
    Executions per process are by default as many as the scans had, the larger of both, or more.
    """
    old, new = (side.run.header.settings for side in sides)
    if runs is None:
        # With fewer in all, what the flag does to a row could not be told from a race.
        runs = max(old.runs, new.runs, math.ceil(LEAST_RUNS / rounds))
    times = (old.max_time, new.max_time)
    chosen = {*DEFAULT_MODES, *(set(old.modes) & set(new.modes))}
    modes = tuple(mode for mode in modes_on(old.device) if mode in chosen)
    shared = {
        "runs": runs,
        "processes": rounds,
        "timeout": max(old.timeout, new.timeout),
        "max_time": None if None in times else max(*filter(None, times), SETTINGS["max_time"].default),
        "modes": modes,
        "workers": 1,
        "cost": False,
    }
    parts = [
        _Part(side, replace(side.run.header.settings, **shared), of_side, sandbox, progress, spec_files)
        for side, of_side in zip(sides, rows, strict=True)
    ]
    with ExitStack() as stack:
        if rows[0]:
            progress.begin(sum(map(len, rows)) * rounds * len(MODES), 0)
            stack.callback(progress.end)
        passes = product(range(rounds if rows[0] else 0), modes)
        # Which rows the flag cures is known when all rounds of the other modes have been made.
        for number, mode in sorted(passes, key=lambda one: MODE_TABLE[one[1]].concern == "cured"):
            for part in parts:
                part.make(mode, number)
    return parts[0].run(), parts[1].run()


class _Part:
    """What is measured of one of the two runs."""

    def __init__(
        self,
        side: Side,
        settings: Settings,
        rows: Sequence[Row],
        sandbox: ImportSandbox,
        progress: Progress,
        spec_files: Sequence[str],
    ) -> None:
        here = [row.key for row in rows if not databases((row.source,))]
        files = with_installed(spec_files) if _needs_files(here) else ()
        self.supervisor = WorkerSupervisor(
            *(side.python, sandbox.path, files, settings.device),
            as_simulated=settings.as_simulated,
            ordered=not files or bool(databases([row.source for row in rows])),
        )
        self._side = side
        self._header = Header(
            format=FORMAT,
            tool=tool_version(),
            started=datetime.now(UTC).isoformat(timespec="seconds"),
            settings=replace(settings, patterns=tuple(row.id for row in rows)),
            environment=side.here,
            planned=tuple(rows),
            controls=control_rows(settings.device),
        )
        self._started = time.monotonic()
        self._lines: list[Line] = []
        text = f"torch {side.here.torch}, "
        # Fisher's test counts processes, so that each is made alike.
        self._passes = PassRunner(self._header, progress, self._lines.append, text, stress_once=False)

    def make(self, mode: Mode, process: int) -> None:
        """Make one pass, and leave no worker behind that would be load for the other run."""
        try:
            self._passes.run(mode, process, self.supervisor)
        except UntrustedScanError as error:
            raise UsageError(f"--python {error}") from error
        finally:
            self.supervisor.retire()

    def run(self) -> Run:
        run = run_of(self._side.run.path, self._header, self._lines)
        closing = Closing(
            seconds=round(time.monotonic() - self._started, 3),
            load=load(),
            observations=len(run.observations) + len(run.controls),
            sentinels=len(run.sentinels),
            distrust=self._passes.distrust,
        )
        observations = tuple(powerful(run.header, run.observations, run.sentinels))
        return replace(run, observations=observations, closing=closing)


def powerful(
    header: Header, observations: Sequence[Observation], sentinels: Sequence[Sentinel]
) -> Iterator[Observation]:
    """Leave out processes of low power in which nothing differed, where at least half of the processes remain.

    One busy moment would else cast doubt on all rounds. What differed, differed.
    """
    places = {row.key: place for place, row in enumerate(header.planned)}
    power_check = PowerCheck(header, sentinels)
    cells: dict[tuple[Key, Mode], list[Observation]] = {}
    for one in observations:
        cells.setdefault((one.key, one.mode), []).append(one)
    for cell in cells.values():
        kept = [
            one
            for one in cell
            if one.outcome != "ran" or len(one.digests) > 1 or power_check.of(places[one.key], [one]) is None
        ]
        between = len({next(iter(one.digests)) for one in cell if one.digests}) > 1
        yield from cell if between or 2 * len(kept) < header.settings.processes else kept
