"""The rows of a scan as its header plans them: what patterns select, and the controls."""

from __future__ import annotations

from collections.abc import Sequence

from opspecs.controls import SPECS as CONTROLS
from opspecs.model import OpSpec, Planned
from scanner.catalog import choose
from scanner.enumeration import EntrySpec
from scanner.records import Row, Settings


def planned_rows(settings: Settings, specs: Sequence[OpSpec]) -> tuple[Row, ...]:
    """Return the rows of a scan with these settings, in catalog order.

    Raises:
        UsageError: A pattern matches nothing on the device.
    """
    chosen = choose(settings.patterns, settings.device.partition(":")[0], specs)
    return tuple(row_of(spec, planned, settings.device) for spec, planned in chosen)


def control_rows(device: str) -> tuple[Row, ...]:
    """Return the rows of the controls on *device* (``"cpu"``, ``"cuda:N"``)."""
    kind = device.partition(":")[0]
    return tuple(row_of(spec, planned, device) for spec in CONTROLS for planned in spec.rows(kind))


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
        documented=spec.documented or (spec.name,),
        traits=dict(case.traits),
        constant=case.constant,
        **(spec.told(planned) if isinstance(spec, EntrySpec) else {"source": spec.source}),
    )
