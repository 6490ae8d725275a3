"""Rows: of specs, of entries of databases, of the controls, which of them a scan plans, and which shard of a plan has them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import convert
from msgspec.structs import replace

from detmatrix.opspecs.controls import SIMULATED_CONTROLS
from detmatrix.opspecs.controls import SPECS as CONTROLS
from detmatrix.opspecs.model import Case, OpSpec, Planned
from detmatrix.scanner.accelerators import SIMULATED, kind_of
from detmatrix.scanner.cases.catalog import choose
from detmatrix.scanner.errors import UsageError
from detmatrix.scanner.modes import MODE_TABLE
from detmatrix.scanner.observations.parts import BUILD, common_settings
from detmatrix.scanner.observations.records import Header, Row, Settings, Source
from detmatrix.scanner.plurals import several


@dataclass(frozen=True, kw_only=True)
class EntrySpec(OpSpec):
    """An entry of a database as a worker enumerated it; the inputs of its cases are drawn by workers alone."""

    records: dict[Planned, Row] = field(default_factory=dict, compare=False)  # in the worker's order
    device: str = ""  # the one it was enumerated for: "cpu" or "cuda"

    def rows(self, device: str) -> Iterator[Planned]:
        """Yield the rows of this entry, in the worker's order; none on another device."""
        yield from self.records if device in (self.device, "any") else ()


def entry_spec(rows: Sequence[Row]) -> EntrySpec:
    """Return the entry of a database that these rows are of."""
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


def planned_rows(settings: Settings, specs: Sequence[OpSpec]) -> tuple[Row, ...]:
    """Return the rows of a scan with these settings, in catalog order."""
    return rows_of(choose(settings.patterns, kind_of(settings.device), specs), settings)


def known_rows(device: str, specs: Sequence[OpSpec]) -> tuple[Row, ...]:
    """Return all rows that there are on *device*, also those that a scan plans only where somebody asks for them."""
    return tuple(row_of(spec, planned, device) for spec in specs for planned in spec.rows(kind_of(device)))


def rows_of(selection: Iterable[tuple[OpSpec, Planned]], settings: Settings) -> tuple[Row, ...]:
    """Return what was selected as rows, without those that somebody has to ask for unless somebody did.

    A row says of itself that it is compiled: a file that continues a scan, or that measures some rows again, plans a part of the
    rows, and compiles of these what the whole scan did. Unless all are asked for it is one row of each op in each direction, the
    first that provokes a difference, since of an innocent one little can be learnt.
    """
    requested = bool(settings.patterns) or "batch" in settings.invariance
    rows = tuple(
        row_of(spec, planned, settings.device)
        for spec, planned in selection
        if requested or not spec.cases[planned.case].on_request
    )
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


def divided(groups: Sequence[str], shards: int) -> dict[str, int]:
    """Return the shard that observes each group of rows, every Nth in planned order; refuse more shards than there are groups."""
    if shards > max(len(groups), 1):
        are = "is" if len(groups) == 1 else "are"
        raise UsageError(
            f"--shard, --shards: {several(shards, 'shard')}, and there {are} {several(len(groups), 'op')} to divide among "
            f"them; give fewer shards"
        )
    return {group: 1 + place % shards for place, group in enumerate(groups)}


def plan_digest(header: Header, rows: Sequence[Row]) -> str:
    """Return the digest of a plan, by the header of any of its shards and the rows of all that are planned before enumerating."""
    environment = header.environment
    planned = {
        "tool": header.tool,
        "build": [getattr(environment, name) for name in BUILD],
        "settings": common_settings(header.settings),
        "claims": header.claims,
        # Which of its GPUs a machine gives is its own affair.
        "controls": [replace(row, device=kind_of(row.device)) for row in header.controls],
        # The module of a file of specs is named after its place.
        "rows": [(row.key, row.digest or row.op) for row in rows],
        "groups": header.groups,
        "shards": header.shards,
    }
    return hashlib.sha256(msgspec.json.encode(planned)).hexdigest()
