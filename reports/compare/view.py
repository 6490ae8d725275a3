"""What a comparison shows, in every format: its keys are the JSON, its attributes what only people read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reports.compare import cost as compare_cost
from reports.compare.claims import CLAIM_MEANING, MEASURED_MEANING, ClaimChange
from reports.compare.cost import CostChange
from reports.compare.excerpt import step_counts
from reports.compare.rows.comparable import REASON_MEANING, Reason, hardware
from reports.compare.rows.judged import CHANGES, CLASS_MEANING, CONFIRMED_MEANING, MOVES, Change
from reports.compare.rows.rates import CAVEAT, LEVEL, RateTest
from reports.compare.runs import Comparison, Pair, timelines
from reports.compare.timeline import Table
from reports.compare.words import (
    again_words,
    arrow,
    caveats,
    cell_words,
    class_words,
    finding_words,
    notes,
    title,
)
from reports.matrix import words
from reports.matrix.cells import cell_view
from reports.matrix.cost import ratio_words, spread_words, times
from reports.matrix.listed import SECTION_WORDS, documented
from reports.matrix.model import Matrix, cell_of_mode
from reports.render.json import View, fields_of
from reports.render.markdown import NONE
from scanner.modes import CHOSEN_MODES, MODE_TABLE
from scanner.observations.parts import in_common, parts_of
from scanner.observations.records import MODES
from scanner.verdicts.chosen import MODE_FINDING_MEANING
from scanner.verdicts.findings import FINDING_MEANING, MatrixRow

_CELL = ("verdict", "runs", "differing", "upper_bound", "alert", "reason")
MOST = 10  # rows that one bullet names


def view_of(comparison: Comparison) -> View:
    """Return what is shown of a comparison."""
    runs = {id(one): _run(one) for one in comparison.matrices}
    pairs = {id(pair): _pair(pair) for pair in comparison.pairs}
    asked = {mode for one in comparison.matrices for mode in one.run.header.settings.modes}
    modes = {mode: MODE_TABLE[mode].meaning for mode in CHOSEN_MODES if mode in asked}
    return View(
        {
            "runs": [runs[id(one)] for one in comparison.matrices],
            "pairs": [pairs[id(pair)] for pair in comparison.pairs],
            "classes": CLASS_MEANING,
            "unconfirmed": CONFIRMED_MEANING,
            "reasons": REASON_MEANING,
            "claim_changes": CLAIM_MEANING,
            "measured": MEASURED_MEANING,
            "findings": FINDING_MEANING,
            "modes": modes,
            "mode_findings": MODE_FINDING_MEANING if modes else {},
            "rates": {"test": CAVEAT, "level": LEVEL},
            "alone": [one.name for one in comparison.alone],
        },
        title=title(comparison),
        caveats=list(caveats(comparison)),
        notes=list(notes(comparison)),
        tables=[
            Table(
                timeline,
                [runs[id(one)] for one in timeline.matrices],
                [pairs[id(pair)] for pair in timeline.pairs],
            )
            for timeline in timelines(comparison)
        ],
        cost_meaning=compare_cost.MEANING,
        # Schedules are no samples of a rate.
        rates_meaning="" if all(one.simulated for one in comparison.matrices) else CAVEAT,
    )


def _run(one: Matrix) -> View:
    header = one.run.header
    return View(
        {
            "path": one.name,
            "torch": header.environment.torch,
            "device": header.settings.device,
            "hardware": hardware(one),
            "threads": in_common(header, "threads"),
            "started": header.started,
            "tool": header.tool,
            "driver": in_common(header, "driver"),
            "format": header.format,
            "executions": one.executions,
            "upper_bound": one.upper_bound,
            "perturb": header.settings.perturb,
            "planned": one.planned,
            "complete": not one.missing,
            "distrust": one.distrust,
            "low_power": one.weak,
            "serial": one.serial,
            "serial_unknown": one.serial_unknown,
            "controls": len(header.controls),
            "sentinels": len(one.run.sentinels),
            "findings": one.counts,
        },
        device=one.device,
        n=f"up to {one.executions} schedules" if one.simulated else f"n = {one.executions} executions",
        machine=words.machine_words(one),
        python=words.named_machines(part.environment.python for part in parts_of(header)),
    )


def _pair(pair: Pair) -> View:
    """Return what is shown of two runs; its rows are made as a format gets to them, and once."""
    tests = [(change, test) for change in pair.changes for test in change.judged.tests]
    bits = [change for change in pair.changes if change.other_bits]
    again, cost = _again(pair), pair.cost
    return View(
        {
            "from": pair.old.name,
            "to": pair.new.name,
            "counts": pair.counts,
            "unconfirmed": pair.unconfirmed,
            "other_bits": len(bits),
            "obstacles": pair.obstacles,
            "likely": [
                {
                    **fields_of(one, "kind", "op"),
                    "rows": [change.row.row.id for change in one.changes],
                    "tests": [_test(test) for test in one.tests],
                }
                for one in pair.likely
            ],
            "again": again,
            "rows": (_row(pair, change) for change in pair.changes),
            "claims": [_claim(one) for one in pair.claims],
            "undocumented": [change.row.row.id for change in pair.undocumented],
            "claims_notes": [lists.note for lists in pair.lists],
            "cost": [_cost(one) for one in cost.listed] if cost else [],
            "costs": cost and {"rows": cost.rows, "from": cost.old_median, "to": cost.new_median},
        },
        versions=[one.run.header.environment.torch for one in (pair.old, pair.new)],
        step=step_counts(pair),
        again_words=again and again_words(again),
        measured_again=_measured_again(pair),
        changes=(
            (kind, [_row(pair, change) for change in pair.of(kind)]) for kind in CHANGES if pair.of(kind)
        ),
        doubts=(_doubt(pair, reason, some) for reason in REASON_MEANING if (some := _doubted(pair, reason))),
        tests=len(tests),
        told_apart=sum(test.differ for _, test in tests),
        apart=[
            (change.row.row.id, [str(test)])
            for change, test in tests
            if test.differ and change.kind == "same"
        ],
        bits=[(change.row.row.id, change.bits_words) for change in bits],
        has_lists=any(lists.claims for lists in pair.lists),
        unlisted=(_row(pair, change) for change in pair.undocumented),
        cost_lines=[_cost_line(one) for one in cost.listed] if cost else [],
        medians=[times(one) for one in (cost.old_median, cost.new_median) if one is not None] if cost else [],
    )


def _row(pair: Pair, change: Change) -> View:
    row, judged = change.row.row, change.judged
    listed = [documented(row, lists.claims) for lists in pair.lists]
    measured = pair.again.rows.get(row.key) if pair.again else None
    return View(
        {
            **fields_of(row, "spec", "case", "direction", "dtype", "device"),
            "class": judged.kind,
            "confirmed": judged.confirmed,
            "seems": judged.apparent,
            "reason": judged.reason,
            "detail": judged.detail or None,
            "from": change.old and {**_seen(change.old), "documented": listed[0]},
            "to": change.new and {**_seen(change.new), "documented": listed[1]},
            "tests": [_test(test) for test in judged.tests],
            "again": measured and {"from": _seen(measured[0]), "to": _seen(measured[1])},
            "other_bits": change.other_bits,
            **({"bits_moved": far} if (far := change.moved) else {}),
        },
        id=row.id,
        words=class_words(change),
        documented=arrow(*listed),
        cells=[
            arrow(finding_words(change.old, pair.old), finding_words(change.new, pair.new)),
            *_modes(change.old or change.row, change.row),
            arrow(*listed),
            judged.detail or NONE,
        ],
    )


def _modes(old: MatrixRow, new: MatrixRow) -> list[str]:
    """Return what both modes of a row showed and show."""
    return [arrow(*(cell_words(cell_of_mode(row, mode)) for row in (old, new))) for mode in MODES]


def _seen(row: MatrixRow) -> dict[str, object]:
    return {
        **fields_of(row, "finding", "reason"),
        **{mode: fields_of(cell_view(row, mode), *_CELL) for mode in MODES},
        "low_power": row.weak,
        "serial": row.serial,
        **({"modes": {mode: it.finding for mode, it in row.chosen.items()}} if row.chosen else {}),
    }


def _test(test: RateTest) -> dict[str, object]:
    sides = {"from": test.old, "to": test.new}
    return {**fields_of(test, "mode", "unit"), **sides, **fields_of(test, "p", "differ")}


def _again(pair: Pair) -> dict[str, Any] | None:
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


def _measured_again(pair: Pair) -> list[tuple[str, list[str]]]:
    """Return the rows that were measured again: id, what came out, and finding and both cells, of one run and the other."""
    words_of = {change.row.row.key: class_words(change) for change in pair.changes}
    return [
        (old.row.id, [words_of[key], arrow(old.finding, new.finding), *_modes(old, new)])
        for key, (old, new) in (pair.again.rows.items() if pair.again else ())
    ]


def _doubted(pair: Pair, reason: Reason) -> list[Change]:
    return [change for change in pair.of("not_comparable") if change.judged.reason == reason]


def _doubt(pair: Pair, reason: Reason, changes: Sequence[Change]) -> View:
    """Return rows that one reason keeps from being compared: those that seem to have changed, the worst first, then others."""
    details: dict[str, list[str]] = {}
    for change in changes:
        if change.judged.apparent is None:
            details.setdefault(change.judged.detail, []).append(change.row.row.id)
    # What stands against all rows needs no list of them.
    of_all = {obstacle.detail for obstacle in pair.obstacles}
    return View(
        {},
        reason=reason,
        rows=len(changes),
        seeming=[
            _row(pair, change) for kind in MOVES for change in changes if change.judged.apparent == kind
        ],
        others=[(detail, ids, detail in of_all) for detail, ids in details.items()],
    )


def _claim(one: ClaimChange) -> View:
    claims = [claim for claim in (one.old, one.new) if claim is not None]
    bullet = ("id", "section", "text", "conditions")
    kinds = [change.of_flag for change in one.rows]
    findings = dict.fromkeys(str(change.row.finding) for change in one.rows if change.of_flag == "same")
    return View(
        {
            "change": one.kind,
            **fields_of(one.claim, "id", "targets", "device"),
            "from": one.old and fields_of(one.old, *bullet),
            "to": one.new and fields_of(one.new, *bullet),
            **fields_of(one, "measured", "unmeasured"),
            "rows": [{"id": change.row.row.id, "class": change.of_flag} for change in one.rows],
        },
        bullet=words.bullet_words(one.claim),
        bullets=arrow(words.bullet_words(claims[0]), words.bullet_words(claims[-1])),
        sections=arrow(*(SECTION_WORDS[claim.section] if claim else NONE for claim in (one.old, one.new))),
        # Of the rows that speak to it how many are of each class, the first that changed, what those show that did not.
        counts=", ".join(f"{kinds.count(kind)} {kind}" for kind in CLASS_MEANING if kind in kinds) or NONE,
        moved=[change.row.row.id for change in one.rows if change.of_flag in MOVES][:MOST],
        same=", ".join(findings),
    )


def _cost(one: CostChange) -> dict[str, object]:
    before, after = (fields_of(side, "ratio", "spread") for side in (one.old, one.new))
    return {"id": one.change.row.row.id, "factor": one.factor, "from": before, "to": after}


def _cost_line(one: CostChange) -> tuple[str, list[str]]:
    sides = [words(side) for side in (one.old, one.new) for words in (ratio_words, spread_words)]
    return one.change.row.row.id, [*sides, times(one.factor)]
