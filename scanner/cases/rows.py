"""The rows of a scan as its header plans them: what patterns select, and the controls."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from msgspec import convert
from msgspec.structs import replace

from detmatrix.opspecs.controls import SIMULATED_CONTROLS
from detmatrix.opspecs.controls import SPECS as CONTROLS
from detmatrix.opspecs.model import OpSpec, Planned
from detmatrix.opspecs.patterns import ops_of
from detmatrix.opspecs.registry import names_of, selected
from detmatrix.scanner.accelerators import SIMULATED, kind_of
from detmatrix.scanner.cases.catalog import choose
from detmatrix.scanner.cases.discovery import (
    EntrySpec,
    Tell,
    described,
    enumerated_entries,
    names_in,
    recorded,
    wanted,
)
from detmatrix.scanner.modes import MODE_TABLE
from detmatrix.scanner.observations.records import EnumeratedEntry, Header, Row, Settings, Source
from detmatrix.scanner.processes.process import WorkerSupervisor


def planned_rows(settings: Settings, specs: Sequence[OpSpec]) -> tuple[Row, ...]:
    """Return the rows of a scan with these settings, in catalog order.

    Raises:
        UsageError: A pattern matches nothing on the device.
    """
    return _rows_of(choose(settings.patterns, kind_of(settings.device), specs), settings)


def known_rows(device: str, specs: Sequence[OpSpec]) -> tuple[Row, ...]:
    """Return all rows that there are on *device*, also those that a scan plans only where somebody asks for them."""
    return tuple(row_of(spec, planned, device) for spec in specs for planned in spec.rows(kind_of(device)))


def _rows_of(selection: Iterable[tuple[OpSpec, Planned]], settings: Settings) -> tuple[Row, ...]:
    """Leave out the rows that somebody has to ask for, unless somebody did."""
    requested = bool(settings.patterns) or "batch" in settings.invariance
    rows = (
        row_of(spec, planned, settings.device)
        for spec, planned in selection
        if requested or not spec.cases[planned.case].on_request
    )
    return with_compiled(rows, settings)


def with_compiled(planned: Iterable[Row], settings: Settings) -> tuple[Row, ...]:
    """Return the rows of some ops, all that are planned of each, with those marked that are compiled.

    A row says of itself that it is: a file that continues a scan, or that measures some rows again, plans a part of the rows, and
    compiles of these what the whole scan did. Unless all are asked for it is one row of each op in each direction, the first that
    provokes a difference, since of an innocent one little can be learnt.
    """
    rows = tuple(planned)
    if not any(MODE_TABLE[mode].compiles for mode in settings.modes):
        return rows
    chosen: dict[tuple[str, str], Row] = {}
    for row in rows:
        known = chosen.setdefault((row.spec, row.direction), row)
        if not known.provokes and row.provokes:
            chosen[row.spec, row.direction] = row
    return tuple(
        replace(row, compiled=True) if settings.compile_all or row is chosen[row.spec, row.direction] else row
        for row in rows
    )


class Planner:
    """Plans the rows of a scan: first those that need no database, then entry by entry."""

    def __init__(self, supervisor: WorkerSupervisor, settings: Settings, specs: Sequence[OpSpec]) -> None:
        """Ask workers for what must be known of specs, and for the names in databases.

        Raises:
            UsageError: A database cannot be imported.
            UntrustedScanError: No worker could start.
        """
        self._supervisor = supervisor
        self._settings = settings
        self._specs = described(supervisor, settings, specs)
        self._names = names_in(supervisor, settings)
        self._found: list[OpSpec] = []

    def _rows(self, specs: Sequence[OpSpec]) -> tuple[Row, ...]:
        """Return the rows of some specs that patterns select; whether each matches something is not known yet."""
        device, others = self._settings.device, [*map(names_of, self._specs), *self._names]
        selection = selected(self._settings.patterns, kind_of(device), specs, others)
        return _rows_of(selection, self._settings)

    def first(self) -> tuple[Row, ...]:
        """Return the rows of the header.

        Raises:
            UsageError: A pattern matches nothing, where that is known by now.
        """
        return self._rows(self._specs) if self._names else planned_rows(self._settings, self._specs)

    @property
    def entry_names(self) -> list[str]:
        """The entries of databases that patterns could select, which are enumerated only as they are asked for."""
        return [one.name for one in wanted(self._settings.patterns, self._names, self._specs)]

    def entries(self, tell: Tell, known: Collection[str]) -> Iterator[EnumeratedEntry]:
        """Yield the entries of PyTorch's databases, with those of their rows that patterns select, as workers find them."""
        options = (self._supervisor, self._settings, self._specs, self._names, tell, known)
        for spec, counts in enumerated_entries(*options):
            self._found.append(spec)
            yield EnumeratedEntry(
                source=convert(spec.source, Source),
                spec=spec.name,
                rows=self._rows([spec]),
                samples=counts["samples"],
                taken=counts["taken"],
                enlarged=counts["enlarged"],
                refused=counts["refused"],
            )

    def check(self, *, whole: bool) -> None:
        """Refuse patterns of which one has selected nothing.

        Args:
            whole: Whether all entries were enumerated; else a pattern is content with an op that it could mean.

        Raises:
            UsageError: Names it.
        """
        ops = [*map(names_of, self._specs), *self._names]
        if not whole and all(ops_of(pattern, ops) for pattern in self._settings.patterns):
            return
        planned_rows(self._settings, (*self._specs, *self._found))

    def again(self, header: Header) -> tuple[Row, ...]:
        """Return what a scan that goes on would plan here now, but for entries that are not enumerated yet."""
        entries = recorded(self._supervisor, [row for row in header.planned if row.provoked])
        return tuple(
            row
            for row in (*self._rows(self._specs), *self._rows(entries))
            if header.groups.get(row.spec, header.shard) == header.shard
        )


def control_rows(device: str) -> tuple[Row, ...]:
    """Return the rows of the controls on *device* (``"cpu"``, ``"cuda:N"``)."""
    return known_rows(device, SIMULATED_CONTROLS if device == SIMULATED else CONTROLS)


def row_of(spec: OpSpec, planned: Planned, device: str) -> Row:
    """Return a row of the plan, with what its spec says of it."""
    if isinstance(spec, EntrySpec):
        return spec.records[planned]
    case = spec.cases[planned.case]
    return Row(
        family=spec.family,
        spec=spec.name,
        op=spec.op_name,
        case=planned.case,
        direction=planned.direction,
        dtype=planned.dtype,
        device=device,
        provokes=case.provokes,
        why=spec.why,
        documented=spec.documented or (spec.name,),
        traits=dict(case.traits),
        constant=case.constant,
        digest=spec.digest,
        source=convert(spec.source, Source),
    )
