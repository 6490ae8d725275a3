"""The judged claims as JSON for machines, one claim per line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from reports.docs.agreement import (
    AGREEMENT_MEANING,
    Docs,
    JudgedClaim,
    Undocumented,
    count,
)
from reports.docs.conditions import Evidence
from reports.docs.lists import RegeneratedLists, lists_of
from reports.matrix.model import cell_fields
from reports.render.json import json_of
from scanner.claims.matching import device_kind
from scanner.observations.records import MODES
from scanner.verdicts.findings import upper_bound

_CELL = ("verdict", "runs", "differing", "upper_bound", "alert", "reason")


def render(docs: Docs, builds: Mapping[str, object] | None = None) -> Iterator[str]:
    """Yield one object; one claim per line. What files of *builds* say stands under a key of its own."""
    lists = lists_of(docs)
    yield '{\n"claims": [\n'
    yield ",\n".join(json_of(_claim_fields(judged, lists)) for judged in docs.judged)
    yield '\n],\n"undocumented": [\n'
    yield ",\n".join(json_of(_undocumented_fields(one, lists)) for one in docs.undocumented)
    rest: dict[str, object] = {
        "self_contradictory": [
            {
                "deterministic": one.id,
                "raises": other.id,
                "targets": [target for target in one.targets if target in other.targets],
                "texts": [one.text, other.text],
            }
            for one, other in docs.self_contradictory
        ],
        "filled": list(dict.fromkeys(one.row.row.id for one in docs.filled)),
        "unread": [_undocumented_fields(one, None) for one in docs.unread],
        "unparsed": [
            {"id": claim.id, "section": claim.section, "targets": claim.targets, "text": claim.text}
            for claim in docs.unparsed
        ],
        "torch": docs.torch,
        "runs": [
            {
                "path": one.name,
                "torch": one.run.header.environment.torch,
                "device": one.run.header.settings.device,
                "tool": one.run.header.tool,
                "executions": one.executions,
                "upper_bound": upper_bound(one.executions),
                "planned": one.planned,
                "complete": one.run.closing is not None,
                "distrust": one.distrust,
                "low_power": one.weak,
                "serial": one.serial,
            }
            for one in docs.matrices
        ],
        "note": docs.note,
        "counts": {name: number for name, number, _ in count(docs)},
        "agreements": AGREEMENT_MEANING,
    }
    if builds is not None:
        rest["expected"] = builds
    yield "\n]"
    yield from (f",\n{json_of(key)}: {json_of(value)}" for key, value in rest.items())
    yield "\n}\n"


def _claim_fields(judged: JudgedClaim, lists: RegeneratedLists | None) -> dict[str, object]:
    """Return a claim: the keys that are promised, then what else is known of it."""
    claim = judged.claim
    return {
        "section": claim.section,
        "targets": claim.targets,
        "device": claim.device,
        "direction": claim.direction,
        "conditions": claim.conditions,
        "text": claim.text,
        "agreement": judged.agreement,
        "evidence": list(dict.fromkeys(one.row.row.id for one in judged.deciding)),
        "id": claim.id,
        "order": claim.order,
        "reason": judged.reason,
        "regenerated": lists.changes.get(claim.order) if lists else None,
        "rows": [_row_fields(one) for one in judged.evidence],
    }


def _undocumented_fields(one: Undocumented, lists: RegeneratedLists | None) -> dict[str, object]:
    smallest, elements = one.smallest
    return {
        "op": one.op,
        "device": one.device,
        "direction": one.direction,
        "finding": one.finding,
        "evidence": list(dict.fromkeys(row.row.row.id for row in one.evidence)),
        "smallest": {"id": smallest.row.row.id, "elements": elements},
        "named": [claim.id for claim in one.named if claim.parsed],
        "unparsed": [claim.id for claim in one.named if not claim.parsed],
        "regenerated": lists.added.get((one.op, one.device)) if lists else None,
        "rows": [_row_fields(row) for row in one.evidence],
    }


def _row_fields(one: Evidence) -> dict[str, object]:
    row = one.row
    cells: dict[str, object] = {
        mode: {name: cell_fields(row, mode)[name] for name in _CELL} for mode in MODES
    }
    return {
        "id": row.row.id,
        "run": one.run,
        "device": row.row.device,
        "kind": device_kind(row.row.device),
        "effect": one.effect,
        "finding": row.finding,
        **cells,
        "reason": one.doubt or row.reason,
        "low_power": row.weak,
        "serial": row.serial,
        "traits": row.row.traits,
    }
