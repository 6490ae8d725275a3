"""Workers side by side: each observes its share of the rows, in either mode by turns, and answers for itself.

A share has its own processes, controls and sentinels, so that what is said of its rows rests on them alone. The modes take
turns every few dozen rows: a scan that is cut short has whole rows. One file is written, a line at a time. On the CPU, where workers
would be load to one another, there is one share, and one process at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from types import SimpleNamespace
from typing import Any

from detmatrix.scanner.modes import MODE_TABLE, turns
from detmatrix.scanner.observations.records import MODES, Header, Mode
from detmatrix.scanner.observations.runfile import Line, Run
from detmatrix.scanner.processes.process import WorkerSupervisor
from detmatrix.scanner.run.passes import PassRunner
from detmatrix.scanner.run.progress import Progress

# Rows of a share between two turns of the modes: so few that a scan which is cut short has lost little.
_TURN = 48


class _StoppedError(Exception):
    """The scan ends, and what workers still say is not kept."""


class Shares:
    """The shares of a scan, and what was observed in all of them."""

    def __init__(
        self, header: Header, supervisor: WorkerSupervisor, progress: Progress, write: Callable[[Line], None]
    ) -> None:
        self._header = header
        self._workers = header.settings.workers
        self._alone = self._workers == 1 and header.settings.device == "cpu"
        # Which rows the flag cures is known when all processes of the other modes have spoken.
        self._last = [mode for mode in header.settings.modes if MODE_TABLE[mode].concern == "cured"]
        rows = len(header.planned)
        # Of a small scan as many as give each share some.
        self._turn = max(1, rows if self._alone else min(_TURN, -(-rows // self._workers)))
        self._lock = threading.Lock()
        self._stopped = False
        if self._alone:
            self._supervisors = [dict.fromkeys(MODES, supervisor)]
            self._passes = [PassRunner(header, progress, write)]
            return
        # The one that described the build would hold memory of the device beside them.
        supervisor.retire()
        told = {name: self._guarded(getattr(progress, name)) for name in ("at", "saw", "further")}
        guarded: Any = SimpleNamespace(**told)
        # A share has a worker of either mode, which takes turns with the other.
        self._supervisors = [{mode: supervisor.another() for mode in MODES} for _ in range(self._workers)]
        self._passes = [
            PassRunner(header, guarded, self._guarded(write), f"worker {number}, ", number)
            for number in range(self._workers)
        ]

    def _guarded(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that only one share calls at a time, and none when the scan ends."""

        def one_at_a_time(*args: Any) -> Any:
            with self._lock:
                if self._stopped:
                    raise _StoppedError
                return call(*args)

        return one_at_a_time

    def observe(self) -> None:
        """Observe all rows in off, on, and those that raise under warn_only."""
        self._side_by_side(self._observe)

    def observe_further(self, mode: Mode, missing: Mapping[tuple[str, ...], int]) -> None:
        """Execute rows more often in a mode."""
        processes = self._header.settings.processes
        self._side_by_side(lambda number: self._whole(number, mode, processes, missing))

    def observe_cured(self) -> None:
        """Observe what the flag cures without the fill."""

        def work(number: int) -> None:
            for process in range(self._header.settings.processes):
                for mode in self._last:
                    self._whole(number, mode, process)

        self._side_by_side(work)

    def _observe(self, number: int) -> None:
        settings, ours = self._header.settings, self._supervisors[number]
        for process in range(settings.processes):
            for places in self._places(number):
                for mode in MODES:
                    self._passes[number].run(mode, process, ours[mode], places)
            for mode in settings.modes:
                if mode not in (*self._last, *MODES):
                    self._whole(number, mode, process)

    def _whole(
        self, number: int, mode: Mode, process: int, runs: Mapping[tuple[str, ...], int] | None = None
    ) -> None:
        supervisor = self._supervisors[number]["on" if turns("on", mode) else "off"]
        for places in self._places(number):
            self._passes[number].run(mode, process, supervisor, places, runs)

    def _places(self, number: int) -> Sequence[range]:
        """Return the places of the rows of a share, turn by turn."""
        rows, turn = len(self._header.planned), self._turn
        return [
            range(start, min(start + turn, rows))
            for start in range(number * turn, rows, turn * self._workers)
        ]

    def _side_by_side(self, work: Callable[[int], None]) -> None:
        """Do something in all shares at once; where one fails, or the scan is interrupted, all of them end."""
        if self._alone:
            work(0)
            return
        with ThreadPoolExecutor(self._workers) as pool:
            working = [pool.submit(work, number) for number in range(self._workers)]
            try:
                for one in as_completed(working):
                    one.result()
            except BaseException:
                with self._lock:
                    self._stopped = True
                for supervisor in self._all_supervisors():
                    supervisor.kill()
                raise

    def _all_supervisors(self) -> list[WorkerSupervisor]:
        return [one for ours in self._supervisors for one in ours.values()]

    def leave(self) -> None:
        """Stop workers that would hold memory of a device beside the one that is asked for what is not observed."""
        if not self._alone:
            self.retire()

    def retire(self) -> None:
        """Stop all workers."""
        for supervisor in self._all_supervisors():
            supervisor.retire()

    def recall(self, run: Run) -> None:
        """Take in what an interrupted scan has observed already."""
        shares = {
            row.key: place // self._turn % self._workers for place, row in enumerate(run.header.planned)
        }
        observations = (*run.controls, *run.observations)
        for number, passes in enumerate(self._passes):
            passes.recall(
                [one for one in observations if shares.get(one.key, one.worker) == number],
                [one for one in run.sentinels if one.worker == number],
                run.distrust,
            )

    @property
    def unwell(self) -> dict[tuple[str, ...], str]:
        """Rows that cost a worker, and how."""
        return {key: text for passes in self._passes for key, text in passes.unwell.items()}

    @property
    def distrust(self) -> tuple[str, ...]:
        """Why what was observed cannot be trusted; empty if it can."""
        return tuple(dict.fromkeys(text for passes in self._passes for text in passes.distrust))
