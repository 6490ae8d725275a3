"""The comparison as JSON for machines, one row per line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from reports.compare.builds import HEADS, NOTE, BuildTimeline
from reports.compare.claims import CLAIM_MEANING, MEASURED_MEANING, ClaimChange, documented
from reports.compare.comparable import REASON_MEANING, hardware
from reports.compare.cost import CostChange, CostComparison
from reports.compare.judge import CLASS_MEANING, CONFIRMED_MEANING, Change
from reports.compare.rates import CAVEAT, LEVEL, RateTest
from reports.compare.runs import Comparison, Pair
from reports.matrix.model import Matrix, cell_fields
from reports.render.json import json_of
from scanner.observations.records import MODES, Claim
from scanner.verdicts.findings import FINDING_MEANING, MatrixRow, upper_bound

_CELL = ("verdict", "runs", "differing", "upper_bound", "alert", "reason")


def render(comparison: Comparison, builds: Sequence[BuildTimeline] = ()) -> Iterator[str]:
    """Yield one object; one row per line."""
    yield f'{{\n"runs": {json_of([_run(one) for one in comparison.matrices])},\n"pairs": [\n'
    for number, pair in enumerate(comparison.pairs):
        yield ",\n" if number else ""
        yield from _pair(pair)
    rest = {
        "classes": CLASS_MEANING,
        "unconfirmed": CONFIRMED_MEANING,
        "reasons": REASON_MEANING,
        "claim_changes": CLAIM_MEANING,
        "measured": MEASURED_MEANING,
        "findings": FINDING_MEANING,
        "rates": {"test": CAVEAT, "level": LEVEL},
        "alone": [one.name for one in comparison.alone],
        **({"builds": {"note": NOTE, "timelines": list(map(_builds, builds))}} if builds else {}),
    }
    yield "\n]"
    yield from (f",\n{json_of(key)}: {json_of(value)}" for key, value in rest.items())
    yield "\n}\n"


def _builds(one: BuildTimeline) -> dict[str, object]:
    return {
        "device": one.device,
        "releases": [dict(zip(HEADS, line, strict=True)) for line in one.lines],
        "steps": [{"from": step.old, "to": step.new, **msgspec.to_builtins(step.step)} for step in one.steps],
    }


def _run(one: Matrix) -> dict[str, object]:
    header = one.run.header
    return {
        "path": one.name,
        "torch": header.environment.torch,
        "device": header.settings.device,
        "hardware": hardware(one),
        "threads": header.environment.threads,
        "started": header.started,
        "tool": header.tool,
        "driver": header.environment.driver,
        "format": header.format,
        "executions": one.executions,
        "upper_bound": upper_bound(one.executions),
        "perturb": header.settings.perturb,
        "planned": one.planned,
        "complete": one.run.closing is not None,
        "distrust": one.distrust,
        "low_power": one.weak,
        "serial": one.serial,
        "controls": len(header.controls),
        "sentinels": len(one.run.sentinels),
        "findings": one.counts,
    }


def _pair(pair: Pair) -> Iterator[str]:
    first = {
        "from": pair.old.name,
        "to": pair.new.name,
        "counts": pair.counts,
        "unconfirmed": pair.unconfirmed,
        "other_bits": sum(bool(change.other_bits) for change in pair.changes),
        "obstacles": pair.obstacles,
        "again": _again(pair),
    }
    yield "{"
    yield from (f"{json_of(key)}: {json_of(value)},\n" for key, value in first.items())
    yield '"rows": [\n'
    for number, change in enumerate(pair.changes):
        yield (",\n" if number else "") + json_of(_row(pair, change))
    rest = {
        "claims": [_claim(one) for one in pair.claims],
        "undocumented": [change.row.row.id for change in pair.undocumented],
        "claims_notes": [lists.note for lists in pair.lists],
        "cost": [_cost(one) for one in pair.cost.listed] if pair.cost else [],
        "costs": _costs(pair.cost),
    }
    yield "\n]"
    yield from (f",\n{json_of(key)}: {json_of(value)}" for key, value in rest.items())
    yield "}"


def _row(pair: Pair, change: Change) -> dict[str, object]:
    row, judged = change.row.row, change.judged
    listed = [documented(row, lists.claims) for lists in pair.lists]
    return {
        "spec": row.spec,
        "case": row.case,
        "direction": row.direction,
        "dtype": row.dtype,
        "device": row.device,
        "class": judged.kind,
        "confirmed": judged.confirmed,
        "seems": judged.apparent,
        "reason": judged.reason,
        "detail": judged.detail or None,
        "from": _side(change.old, listed[0]),
        "to": _side(change.new, listed[1]),
        "tests": [_test(test) for test in judged.tests],
        "again": _measured(pair, change),
        "other_bits": change.other_bits,
    }


def _again(pair: Pair) -> dict[str, object] | None:
    """Return what was measured again of a pair; ``None`` if nothing should have been."""
    again, outcome = pair.again, pair.outcome
    if again is None or outcome is None:
        return None
    return {
        "rows": len(again.rows),
        "rounds": again.rounds,
        "executions": again.new.executions,
        "outcome": outcome,
        "distrust": [*again.old.distrust, *again.new.distrust],
        "left": {":".join(key): reason for key, reason in again.left.items()},
    }


def _measured(pair: Pair, change: Change) -> dict[str, object] | None:
    """Return what a row showed when it was measured again; ``None`` if it was not."""
    rows = pair.again.rows.get(change.row.row.key) if pair.again else None
    return {"from": _seen(rows[0]), "to": _seen(rows[1])} if rows else None


def _test(test: RateTest) -> dict[str, object]:
    return {
        "mode": test.mode,
        "unit": test.unit,
        "from": test.old,
        "to": test.new,
        "p": test.p,
        "differ": test.differ,
    }


def _side(row: MatrixRow | None, listed: str) -> dict[str, object] | None:
    """Return a row in one run; ``None`` if it was not planned."""
    if row is None:
        return None
    return {**_seen(row), "documented": listed}


def _seen(row: MatrixRow) -> dict[str, object]:
    return {
        "finding": row.finding,
        "reason": row.reason,
        **{mode: {name: cell_fields(row, mode)[name] for name in _CELL} for mode in MODES},
        "low_power": row.weak,
        "serial": row.serial,
    }


def _claim(one: ClaimChange) -> dict[str, object]:
    return {
        "change": one.kind,
        "id": one.claim.id,
        "targets": one.claim.targets,
        "device": one.claim.device,
        "from": _bullet(one.old),
        "to": _bullet(one.new),
        "measured": one.measured,
        "unmeasured": one.unmeasured,
        "rows": [{"id": change.row.row.id, "class": change.kind} for change in one.rows],
    }


def _bullet(claim: Claim | None) -> dict[str, object] | None:
    if claim is None:
        return None
    return {"id": claim.id, "section": claim.section, "text": claim.text, "conditions": claim.conditions}


def _cost(one: CostChange) -> dict[str, object]:
    return {
        "id": one.change.row.row.id,
        "factor": one.factor,
        "from": {"ratio": one.old.ratio, "spread": one.old.spread},
        "to": {"ratio": one.new.ratio, "spread": one.new.spread},
    }


def _costs(cost: CostComparison | None) -> dict[str, object] | None:
    if cost is None:
        return None
    return {"rows": cost.rows, "from": cost.old_median, "to": cost.new_median}
