"""The specs that only the scanned torch can name: PyTorch's databases, enumerated by a worker, entry by entry."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from queue import SimpleQueue
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from detmatrix.opspecs.model import Case, OpSpec, Planned
from detmatrix.opspecs.patterns import OpNames, op_names, ops_of, recorded_names
from detmatrix.opspecs.pytorch.names import names_for
from detmatrix.opspecs.pytorch.sources import SOURCES, databases
from detmatrix.opspecs.registry import names_of
from detmatrix.scanner.cases.settings import asked_for, settings_for
from detmatrix.scanner.errors import UsageError
from detmatrix.scanner.observations.records import (
    MODES,
    Count,
    Direction,
    Dtype,
    Provoked,
    Row,
    Settings,
)
from detmatrix.scanner.processes.environment import resolve_device
from detmatrix.scanner.processes.process import WorkerEndedError, WorkerSupervisor
from detmatrix.scanner.processes.sandbox import ImportSandbox

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


def _say_nothing(_: str, __: int, ___: int) -> None:
    """Tell nobody."""


@dataclass(frozen=True, kw_only=True)
class EntrySpec(OpSpec):
    """An entry of a database as a worker enumerated it; the inputs of its cases are drawn by workers alone."""

    records: dict[Planned, Row] = field(default_factory=dict, compare=False)  # in the worker's order
    device: str = ""  # the one it was enumerated for: "cpu" or "cuda"

    def rows(self, device: str) -> Iterator[Planned]:
        """Yield the rows of this entry, in the worker's order; none on another device."""
        yield from self.records if device in (self.device, "any") else ()


def recorded(supervisor: WorkerSupervisor, rows: Sequence[Row]) -> tuple[OpSpec, ...]:
    """Return the specs of a database's rows that were planned before, without those whose entry is not there now.

    Which enlargements an op takes in time may differ from one day to the next, so that nothing is tried anew; whether
    the samples are the same, the digests of the inputs tell.

    Raises:
        UsageError: A database cannot be imported.
        UntrustedScanError: No worker could start.
    """
    by_spec: dict[str, list[Row]] = {}
    for row in rows:
        by_spec.setdefault(row.spec, []).append(row)
    sources = databases([row.source for row in rows])
    known = {name for source in sources for name in _names(supervisor, source)}
    return tuple(_spec(of) for name, of in by_spec.items() if name in known)


def names_in(supervisor: WorkerSupervisor, settings: Settings) -> tuple[OpNames, ...]:
    """Return the names of all entries of the databases that are scanned; importing them takes seconds.

    Raises:
        UsageError: A database cannot be imported.
    """
    return tuple(
        op_names(name, source)
        for source in databases(settings.sources)
        for name in _names(supervisor, source)
    )


def enumerated_entries(
    supervisor: WorkerSupervisor,
    settings: Settings,
    specs: Sequence[OpSpec],
    names: Sequence[OpNames],
    tell: Tell = _say_nothing,
    known: Collection[str] = (),
) -> Iterator[tuple[EntrySpec, Counter[str]]]:
    """Yield the entries that patterns could select as specs, each with what was counted, as workers answer.

    Raises:
        UsageError: A database cannot be imported.
        UntrustedScanError: No worker could start.
    """
    options = {
        "device": settings.device,
        "seed": settings.seed,
        "dtypes": list(settings.dtypes) or None,
        "samples": settings.samples,
    }
    asked = [one for one in wanted(settings.patterns, names, specs) if one.name not in known]
    answers = _answers(supervisor, [one.name for one in asked], options, tell)
    for one, answer in zip(asked, answers, strict=True):
        counts = Counter(samples=answer.samples, refused=answer.refused)
        taken = {(row.dtype, row.case, row.provoked) for row in answer.rows}
        counts.update("enlarged" if provoked == "enlarged" else "taken" for _, _, provoked in taken)
        common: dict[str, Any] = {"family": one.family, "spec": one.name, "op": answer.op, "why": answer.why}
        common |= {"source": one.family, "device": settings.device, "documented": names_for(one.name)}
        yield _spec([Row(**common, **asdict(row)) for row in answer.rows]), counts


class _Described(Struct):
    """What a worker says of a spec that leaves it to what its inputs are."""

    directions: tuple[Direction, ...] = ("forward",)
    dtype: Dtype = "float32"


def described(
    supervisor: WorkerSupervisor, settings: Settings, specs: Sequence[OpSpec]
) -> tuple[OpSpec, ...]:
    """Return specs with the directions and dtypes that a worker finds, of those that leave them to it.

    Raises:
        UntrustedScanError: No worker could start.
    """
    return tuple(_described_spec(supervisor, settings, one) if one.described else one for one in specs)


def _described_spec(supervisor: WorkerSupervisor, settings: Settings, spec: OpSpec) -> OpSpec:
    case = next(iter(spec.cases))
    request = {
        "do": "describe",
        "spec": spec.name,
        "case": case,
        "device": settings.device,
        "seed": settings.seed,
    }
    try:
        answer = supervisor.ask_for(_Described, MODES[0], request, settings.timeout)
    except WorkerEndedError:
        answer = _Described()
    return replace(spec, directions=answer.directions, dtypes=(answer.dtype,))


def listed(
    sources: Sequence[str], patterns: Sequence[str], specs: Sequence[OpSpec], python: str | None
) -> tuple[OpSpec, ...]:
    """Return the entries of databases that patterns could select, as a scan with default settings would plan them.

    Raises:
        UsageError: A database cannot be imported.
        UntrustedScanError: No worker could start.
    """
    asked = asked_for(patterns=tuple(patterns), sources=tuple(sources))
    python = sys.executable if python is None else python
    with ImportSandbox() as sandbox:
        supervisor = WorkerSupervisor(python, sandbox.path, (), "auto")
        try:
            supervisor.device = resolve_device("auto", supervisor.first(MODES[0]).build)
            settings = settings_for(asked, supervisor.device)
            names = names_in(supervisor, settings)
            return tuple(spec for spec, _ in enumerated_entries(supervisor, settings, specs, names))
        finally:
            supervisor.retire()


def wanted(patterns: Sequence[str], names: Sequence[OpNames], specs: Sequence[OpSpec]) -> list[OpNames]:
    """Return the entries that patterns could select; all of them without a pattern."""
    if not patterns:
        return list(names)
    ops = [*map(names_of, specs), *names]
    found = {one.name for pattern in patterns for one in ops_of(pattern, ops)}
    return [one for one in names if one.name in found]


def _names(supervisor: WorkerSupervisor, source: str) -> list[str]:
    """Return the names of a source's entries."""
    try:
        answer = supervisor.ask_for(_Names, MODES[0], {"do": "entries", "source": source}, _SECONDS)
    except WorkerEndedError as error:
        answer = _Names(failed=f"the worker that imports PyTorch's databases {error}")
    if answer.failed is not None:
        raise UsageError(f"--source {source}: {answer.failed}")
    return answer.entries


def _answers(
    supervisor: WorkerSupervisor, names: Sequence[str], options: dict[str, Any], tell: Tell
) -> Iterator[_Entry]:
    """Yield what workers answer for entries, in the order of the names.

    Nothing is observed yet, so that workers may be load to one another: there are several if there is enough to do.
    """
    count = min(os.cpu_count() or 1, _MOST_WORKERS, 1 + len(names) // _WORTH_A_WORKER)
    others = [supervisor.another() for _ in range(count - 1)]
    idle: SimpleQueue[WorkerSupervisor] = SimpleQueue()
    for one in (supervisor, *others):
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
            # After an interruption or a failure nobody begins another entry.
            yield from pool.map(ask, range(len(names)), names)
    finally:
        for one in others:
            one.retire()


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


def _spec(rows: Sequence[Row]) -> EntrySpec:
    first = rows[0]
    return EntrySpec(
        name=first.spec,
        op=first.op,
        why=first.why,
        family=first.source,
        source=first.source,
        device=first.device.partition(":")[0],
        cases={row.case: Case(inputs=_never, provokes=row.provokes, traits=row.traits) for row in rows},
        records={Planned(row.spec, row.case, row.direction, row.dtype): row for row in rows},
    )


def _never(_: Any) -> Any:
    raise AssertionError("the inputs of a database's entry are drawn by a worker")


def with_databases(
    patterns: Sequence[str], sources: Sequence[str], specs: Sequence[OpSpec], *, said: bool
) -> tuple[str, ...]:
    """Return the sources with those databases that patterns name and no spec that is at hand does.

    Which database has an op is known from the names recorded; whether the torch at hand has it, that alone knows.

    Args:
        patterns: As the command line has them.
        sources: Those asked for, or the default.
        specs: All that can be known of them without a worker.
        said: Whether the sources were asked for, so that no other is scanned.

    Raises:
        UsageError: A pattern names an entry of a source that was left out; says which one to add.
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
