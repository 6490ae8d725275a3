"""The rows of a scan as its header plans them: what patterns select, and the controls."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from msgspec import convert

from opspecs.controls import SPECS as CONTROLS
from opspecs.model import OpSpec, Planned
from opspecs.pytorch.names import names_for
from opspecs.pytorch.sources import databases
from opspecs.registry import selected
from scanner.accelerators import kind_of
from scanner.cases.catalog import choose
from scanner.cases.discovery import EntrySpec, Tell, enumerated_entries, recorded
from scanner.observations.records import EnumeratedEntry, Header, Row, Settings, Source
from scanner.processes.supervisor import WorkerSupervisor


def planned_rows(settings: Settings, specs: Sequence[OpSpec]) -> tuple[Row, ...]:
    """Return the rows of a scan with these settings, in catalog order.

    Raises:
        UsageError: A pattern matches nothing on the device.
    """
    chosen = choose(settings.patterns, kind_of(settings.device), specs)
    return tuple(row_of(spec, planned, settings.device) for spec, planned in chosen)


def first_rows(settings: Settings, specs: Sequence[OpSpec]) -> tuple[Row, ...]:
    """Return the rows that need no worker to be known; whether each pattern matches something is not known yet."""
    chosen = selected(settings.patterns, kind_of(settings.device), specs)
    return tuple(row_of(spec, planned, settings.device) for spec, planned in chosen)


def entries(
    supervisor: WorkerSupervisor, settings: Settings, tell: Tell, known: Collection[str]
) -> Iterator[tuple[OpSpec, EnumeratedEntry]]:
    """Yield the entries of PyTorch's databases, with those of their rows that patterns select, as workers find them.

    Args:
        supervisor: Its device is resolved.
        settings: Of the scan.
        tell: Told how far the enumeration is.
        known: Names of those that need not be asked for.

    Raises:
        UsageError: A database cannot be imported.
        UntrustedScanError: No worker could start.
    """
    for spec, counts in enumerated_entries(supervisor, settings, tell, known):
        yield (
            spec,
            EnumeratedEntry(
                source=convert(spec.source, Source),
                spec=spec.name,
                rows=first_rows(settings, [spec]),
                samples=counts["samples"],
                taken=counts["taken"],
                enlarged=counts["enlarged"],
                refused=counts["refused"],
            ),
        )


def rows_again(supervisor: WorkerSupervisor, header: Header, specs: Sequence[OpSpec]) -> tuple[Row, ...]:
    """Return the rows that a scan which goes on would plan here now, but for entries that are not enumerated yet.

    Raises:
        UsageError: A database cannot be imported.
        UntrustedScanError: No worker could start.
    """
    settings = header.settings
    if databases(settings.sources):
        specs = (*specs, *recorded(supervisor, [row for row in header.planned if row.provoked]))
    rows = first_rows(settings, specs)
    if not header.continues:
        return rows
    planned = {row.key for row in header.planned}
    return tuple(row for row in rows if row.key in planned)


def control_rows(device: str) -> tuple[Row, ...]:
    """Return the rows of the controls on *device* (``"cpu"``, ``"cuda:N"``)."""
    return tuple(row_of(spec, planned, device) for spec in CONTROLS for planned in spec.rows(kind_of(device)))


def _names(spec: OpSpec) -> tuple[str, ...]:
    """Return the names by which PyTorch's lists would speak of a spec that does not say so itself."""
    return names_for(spec.name) if isinstance(spec, EntrySpec) else (spec.name,)


def row_of(spec: OpSpec, planned: Planned, device: str) -> Row:
    """Return a row of the plan, with what its spec says of it."""
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
        documented=spec.documented or _names(spec),
        traits=dict(case.traits),
        constant=case.constant,
        digest=spec.digest,
        **(spec.row_fields(planned) if isinstance(spec, EntrySpec) else {"source": spec.source}),
    )
