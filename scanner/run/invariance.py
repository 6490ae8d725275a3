"""The pass of a scan that asks of rows which did not differ what else their bits depend on.

It is made behind all others, with the flag off and in one process: which rows are repeatable must be known first. Its controls are
asked of every worker, before its rows and at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from detmatrix.opspecs.controls import INVARIANCE_CONTROLS
from detmatrix.scanner.accelerators import kind_of
from detmatrix.scanner.cases.rows import row_of
from detmatrix.scanner.invariance import THREADS, Property
from detmatrix.scanner.observations.invariance_records import Invariance
from detmatrix.scanner.observations.records import Distrust, Header, Row
from detmatrix.scanner.observations.runfile import Line, Run
from detmatrix.scanner.processes.supervisor import WorkerSupervisor
from detmatrix.scanner.run.progress import Progress
from detmatrix.scanner.verdicts.findings import MatrixRow
from detmatrix.scanner.verdicts.invariance import is_control, misled

# Has a row tried in the worker in service.
Ask = Callable[[Row, Property], Invariance]


class InvariancePass:
    """What has been asked, and how to ask the rest."""

    def __init__(
        self,
        header: Header,
        supervisor: WorkerSupervisor,
        progress: Progress,
        write: Callable[[Line], None],
        ask: Ask,
    ) -> None:
        self._header = header
        self._supervisor = supervisor
        self._progress = progress
        self._write = write
        self._ask = ask
        self._done: set[tuple[tuple[str, ...], Property]] = set()
        self._controlled: int | None = None
        self.distrust: tuple[str, ...] = ()

    def recall(self, run: Run) -> None:
        """Take in what an interrupted scan has asked already."""
        self._done = {(one.key, one.what) for one in run.invariances}
        self.distrust = misled(one for one in run.invariances if is_control(one))

    @property
    def records(self) -> int:
        """How many records there are, those of controls included."""
        return len(self._done)

    @property
    def asked(self) -> int:
        """How many of them are of rows, with one property each."""
        return sum(not key[0].startswith("control.") for key, _ in self._done)

    def run(self, rows: Iterable[MatrixRow]) -> None:
        """Ask of each row that did not differ with the flag off."""
        left = [
            (row, what)
            for row in rows
            for what in self._header.settings.invariance
            if (row.row.key, what) not in self._done
        ]
        if left:
            self._say_what_is_above_the_cores()
        for row, what in left:
            if row.off.verdict == "deterministic":
                self._progress.at(row.row, f"invariance to {what}")
                self._control()
                self._keep(self._ask(row.row, what))
            self._progress.saw(None)
        if left:
            self._control(again=True)

    def _say_what_is_above_the_cores(self) -> None:
        cores = len(self._header.environment.affinity) or self._header.environment.cores
        above = [str(count) for count in THREADS if count > cores]
        if above and "threads" in self._header.settings.invariance:
            self._progress.note(
                f"--invariance threads: {', '.join(above)} are more than the {cores} cores here; kernels split their work by the "
                f"number they are told, so the bits are those of as many threads"
            )

    def _control(self, *, again: bool = False) -> None:
        """Have the worker in service answer the controls, unless it has; what a later one answers wrongly is distrust."""
        serving = self._supervisor.serving
        if not again and serving is not None and serving == self._controlled:
            return
        for row, what in self._controls():
            record = self._ask(row, what)
            if (record.key, what) not in self._done:
                self._keep(record)
            elif wrong := misled([record]):
                self._write(Distrust(reason=wrong[0]))
            self.distrust = tuple(dict.fromkeys((*self.distrust, *misled([record]))))
        self._controlled = self._supervisor.serving

    def _controls(self) -> Iterator[tuple[Row, Property]]:
        device = self._header.settings.device
        for spec in INVARIANCE_CONTROLS:
            for planned in spec.rows(kind_of(device)):
                row = row_of(spec, planned, device)
                yield from ((row, what) for what in self._header.settings.invariance)

    def _keep(self, record: Invariance) -> None:
        self._write(record)
        self._done.add((record.key, record.what))
