"""What a scan plans, and the specs that only the scanned torch can name: PyTorch's databases, enumerated by workers, entry by entry."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from queue import SimpleQueue
from typing import Any

from msgspec import Struct, convert
from msgspec.structs import asdict

from detmatrix.opspecs.model import OpSpec
from detmatrix.opspecs.patterns import op_names, ops_of, recorded_names
from detmatrix.opspecs.pytorch.names import names_for
from detmatrix.opspecs.pytorch.sources import SOURCES, databases
from detmatrix.opspecs.registry import names_of, selected
from detmatrix.scanner.accelerators import kind_of
from detmatrix.scanner.cases.plan import asked_for, settings_for
from detmatrix.scanner.cases.rows import EntrySpec, entry_spec, planned_rows, rows_of
from detmatrix.scanner.errors import UsageError
from detmatrix.scanner.observations.records import (
    MODES,
    Count,
    Direction,
    Dtype,
    EnumeratedEntry,
    Provoked,
    Row,
    Settings,
    Source,
)
from detmatrix.scanner.processes.environment import resolve_device
from detmatrix.scanner.processes.process import ImportSandbox, WorkerEndedError, WorkerSupervisor

# Workers that try samples at the same time, each with a torch of its own in memory; and how many entries are worth the
# seconds that another one takes to start.
_MOST_WORKERS = 4
_WORTH_A_WORKER = 50
# Importing a database takes seconds; an entry that takes longer is planned without trying its samples.
_SECONDS = 120.0


# What is told before an entry is tried: its name, how many were, and of how many.
Tell = Callable[[str, int, int], None]


class _EntryRow(Struct):
    """A row as a worker describes it; the fields are those of ``records.Row``."""

    case: str
    direction: Direction
    dtype: Dtype
    provoked: Provoked
    enlargement: str = ""
    samples: Count = 0
    provokes: str = ""
    traits: dict[str, str] = {}


class _Entry(Struct):
    """What a worker says of one entry."""

    op: str
    why: str
    rows: list[_EntryRow]
    samples: Count
    refused: Count


class _Names(Struct):
    """What a worker says of one database."""

    entries: list[str] = []
    failed: str | None = None


class _Described(Struct):
    """What a worker says of a spec that leaves it to what its inputs are."""

    directions: tuple[Direction, ...] = ("forward",)
    dtype: Dtype = "float32"


class Planner:
    """Plans the rows of a scan: first those that need no database, then entry by entry."""

    def __init__(self, supervisor: WorkerSupervisor, settings: Settings, specs: Sequence[OpSpec]) -> None:
        """Ask workers for what must be known of specs, and for the names in databases; importing these takes seconds, or is refused."""
        self._supervisor = supervisor  # its device is resolved
        self._settings = settings
        self._specs = tuple(self._described(one) if one.described else one for one in specs)
        sources = databases(settings.sources)
        self._names = [op_names(name, source) for source in sources for name in self._entries_of(source)]
        # The entries of databases that patterns could select, which are enumerated only as they are asked for.
        ops = [*map(names_of, self._specs), *self._names]
        meant = {one.name for pattern in settings.patterns for one in ops_of(pattern, ops)}
        self.wanted = [one for one in self._names if one.name in meant or not settings.patterns]
        self._found: list[OpSpec] = []

    def _described(self, spec: OpSpec) -> OpSpec:
        """Return a spec with the directions and dtypes that a worker finds, where it leaves them to it."""
        request: dict[str, Any] = {"do": "describe", "spec": spec.name, "case": next(iter(spec.cases))}
        request |= {"device": self._settings.device, "seed": self._settings.seed}
        try:
            answer = self._supervisor.ask_for(_Described, MODES[0], request, self._settings.timeout)
        except WorkerEndedError:
            answer = _Described()
        return replace(spec, directions=answer.directions, dtypes=(answer.dtype,))

    def _entries_of(self, source: str) -> list[str]:
        request = {"do": "entries", "source": source}
        try:
            answer = self._supervisor.ask_for(_Names, MODES[0], request, _SECONDS)
        except WorkerEndedError as error:
            answer = _Names(failed=f"the worker that imports PyTorch's databases {error}")
        if answer.failed is not None:
            raise UsageError(f"--source {source}: {answer.failed}")
        return answer.entries

    def _rows(self, specs: Sequence[OpSpec]) -> tuple[Row, ...]:
        """Return the rows of some specs that patterns select; whether each matches something is not known yet."""
        device, others = self._settings.device, [*map(names_of, self._specs), *self._names]
        selection = selected(self._settings.patterns, kind_of(device), specs, others)
        return rows_of(selection, self._settings)

    def first(self) -> tuple[Row, ...]:
        """Return the rows of the header."""
        return self._rows(self._specs) if self._names else planned_rows(self._settings, self._specs)

    def enumerated(
        self, tell: Tell, known: Collection[str] = ()
    ) -> Iterator[tuple[EntrySpec, EnumeratedEntry]]:
        """Yield the entries that patterns could select, but for *known* ones, as specs with the rows that they do, as workers answer."""
        asked = [one for one in self.wanted if one.name not in known]
        for one, answer in zip(asked, self._answers([one.name for one in asked], tell), strict=True):
            source, device = convert(one.family, Source), self._settings.device
            told: dict[str, Any] = {"spec": one.name, "op": answer.op, "why": answer.why, "family": source}
            told |= {"source": source, "device": device, "documented": names_for(one.name)}
            spec = entry_spec([Row(**told, **asdict(row)) for row in answer.rows])
            self._found.append(spec)
            taken = Counter(kind for *_, kind in {(row.dtype, row.case, row.provoked) for row in answer.rows})
            entry = EnumeratedEntry(
                source=source,
                spec=one.name,
                rows=self._rows([spec]),
                samples=answer.samples,
                taken=taken.total() - taken["enlarged"],
                enlarged=taken["enlarged"],
                refused=answer.refused,
            )
            yield spec, entry

    def _answers(self, names: Sequence[str], tell: Tell) -> Iterator[_Entry]:
        """Yield what workers answer for entries, in the order of the names.

        Nothing is observed yet, so that workers may be load to one another: there are several if there is enough to do.
        """
        options = {name: getattr(self._settings, name) for name in ("device", "seed", "samples")}
        options["dtypes"] = list(self._settings.dtypes) or None
        count = min(os.cpu_count() or 1, _MOST_WORKERS, 1 + len(names) // _WORTH_A_WORKER)
        workers = [self._supervisor]
        if count > 1:
            self._supervisor.retire()
            workers = [self._supervisor.another(beside=True) for _ in range(count)]
        idle: SimpleQueue[WorkerSupervisor] = SimpleQueue()
        for one in workers:
            idle.put(one)

        def ask(number: int, name: str) -> _Entry:
            tell(name, number, len(names))
            one = idle.get()
            try:
                return _entry(one, name, options)
            finally:
                idle.put(one)

        try:
            with ThreadPoolExecutor(count) as pool:
                try:
                    # After an interruption or a failure nobody begins another entry, and none is waited for.
                    yield from pool.map(ask, range(len(names)), names)
                except BaseException:
                    for one in workers:
                        one.kill()
                    raise
        finally:
            for one in workers[count == 1 :]:
                one.retire()

    def check(self, *, whole: bool) -> None:
        """Refuse patterns of which one has selected nothing; if not the *whole* was enumerated, an op that it could mean will do."""
        ops = [*map(names_of, self._specs), *self._names]
        if not whole and all(ops_of(pattern, ops) for pattern in self._settings.patterns):
            return
        planned_rows(self._settings, (*self._specs, *self._found))


def listed(
    sources: Sequence[str], patterns: Sequence[str], specs: Sequence[OpSpec], python: str | None
) -> tuple[OpSpec, ...]:
    """Return the entries of databases that patterns could select, as a scan with default settings would plan them."""
    asked = asked_for(patterns=tuple(patterns), sources=tuple(sources))
    python = sys.executable if python is None else python
    with ImportSandbox() as sandbox:
        supervisor = WorkerSupervisor(python, sandbox.path, (), "auto")
        try:
            supervisor.device = resolve_device("auto", supervisor.first(MODES[0]).build)
            planner = Planner(supervisor, settings_for(asked, supervisor.device), specs)
            return tuple(spec for spec, _ in planner.enumerated(lambda *_: None))
        finally:
            supervisor.retire()


def _entry(supervisor: WorkerSupervisor, name: str, options: dict[str, Any]) -> _Entry:
    """Return the rows of one entry; fewer if trying its samples ends workers, and at least one that says so."""
    for trial in (True, False):
        try:
            request = {"do": "enumerate", "name": name, "trial": trial, **options}
            return supervisor.ask_for(_Entry, MODES[0], request, _SECONDS)
        except WorkerEndedError:
            continue
    row = _EntryRow(case="sample_0", direction="forward", dtype="float32", provoked="samples")
    return _Entry(op=name.partition(":")[2], why="", rows=[row], samples=0, refused=0)


def with_databases(
    patterns: Sequence[str], sources: Sequence[str], specs: Sequence[OpSpec], *, said: bool
) -> tuple[str, ...]:
    """Return the sources with those databases that patterns name and no spec that is at hand does.

    Which database has an op is known from the names recorded; whether the torch at hand has it, that alone knows. No other
    source is scanned if the user *said* which; a pattern that names an entry of one is refused with what to add.
    """
    ops = [*map(names_of, specs), *(one for one in recorded_names() if one.family in sources)]
    found = set(sources)
    for pattern in patterns:
        if not ops_of(pattern, ops):
            missing = {one.family for one in ops_of(pattern, recorded_names())}
            if missing and said:
                raise UsageError(f"no op matches {pattern!r}; add --source {' or '.join(sorted(missing))}")
            found |= missing
    return tuple(name for name in SOURCES if name in found)
