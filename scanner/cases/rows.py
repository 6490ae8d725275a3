"""The rows of a scan as its header plans them: what patterns select, and the controls."""

from __future__ import annotations

from collections.abc import Sequence

from opspecs.controls import SPECS as CONTROLS
from opspecs.model import OpSpec, Planned
from opspecs.pytorch.names import names_for
from opspecs.pytorch.sources import databases
from scanner.cases.catalog import choose
from scanner.cases.discovery import EntrySpec, Tell, described, enumerate_sources, recorded
from scanner.observations.records import Enumerated, Header, Row, Settings
from scanner.processes.supervisor import WorkerSupervisor


def planned_rows(settings: Settings, specs: Sequence[OpSpec]) -> tuple[Row, ...]:
    """Return the rows of a scan with these settings, in catalog order.

    Raises:
        UsageError: A pattern matches nothing on the device.
    """
    chosen = choose(settings.patterns, settings.device.partition(":")[0], specs)
    return tuple(row_of(spec, planned, settings.device) for spec, planned in chosen)


def plan_rows(
    supervisor: WorkerSupervisor,
    settings: Settings,
    specs: Sequence[OpSpec],
    tell: Tell,
    begun: Header | None = None,
) -> tuple[tuple[Row, ...], tuple[Enumerated, ...]]:
    """Return the rows of a scan, those of PyTorch's databases included, and what a worker enumerated for them.

    Args:
        supervisor: Its device is resolved.
        settings: Of the scan.
        specs: What needs no worker to be known.
        tell: Told how far the enumeration is.
        begun: The header of the scan that goes on, if one does.

    Raises:
        UsageError: A pattern matches nothing on the device, or a database cannot be imported.
        UntrustedScanError: No worker could start.
    """
    specs = described(supervisor, settings, specs)
    if not databases(settings.sources):
        return planned_rows(settings, specs), ()
    if begun is None:
        entries, enumerated = enumerate_sources(supervisor, settings, specs, tell)
    else:
        entries = recorded(supervisor, [row for row in begun.planned if row.provoked])
        enumerated = begun.enumerated
    return planned_rows(settings, (*specs, *entries)), enumerated


def control_rows(device: str) -> tuple[Row, ...]:
    """Return the rows of the controls on *device* (``"cpu"``, ``"cuda:N"``)."""
    kind = device.partition(":")[0]
    return tuple(row_of(spec, planned, device) for spec in CONTROLS for planned in spec.rows(kind))


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
