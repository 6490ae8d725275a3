"""What a comparison shows, in every format: its keys are the JSON, its attributes what only people read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from detmatrix.reports.compare.comparable import CAVEAT, LEVEL, REASON_MEANING, Reason, arrow, hardware
from detmatrix.reports.compare.judge import CLASS_MEANING, CONFIRMED_MEANING, MOVES, Change
from detmatrix.reports.compare.runs import CLAIM_MEANING, COST_MEANING, MEASURED_MEANING, Comparison, Pair
from detmatrix.reports.matrix import run_words
from detmatrix.reports.matrix.model import NOT_LISTED, Matrix, documented
from detmatrix.reports.matrix.rows import flag_cells
from detmatrix.reports.matrix.run_words import named_machines, states
from detmatrix.reports.render import NONE, View, fields_of, grouped
from detmatrix.scanner.accelerators import label_of
from detmatrix.scanner.modes import CHOSEN_MODES, MODE_TABLE
from detmatrix.scanner.observations import torch_versions
from detmatrix.scanner.observations.parts import in_common, parts_of
from detmatrix.scanner.observations.records import MODES
from detmatrix.scanner.plurals import several
from detmatrix.scanner.verdicts.cells import COMPARED, Cell
from detmatrix.scanner.verdicts.findings import MatrixRow
from detmatrix.scanner.verdicts.vocabulary import BESIDE, FINDING_MEANING, MODE_FINDING_MEANING, WORST_FIRST

NOT_PLANNED = "not planned"
# The format of run files that brought digests of another kind.
_DIGESTS = 5
_NAMED = 8  # ops in the first sentence
_SAME_MACHINE = "; scan both releases on one machine: detmatrix scan --python OLD -o old.jsonl, detmatrix scan --python NEW -o new.jsonl"


def finding_words(row: MatrixRow | None, one: Matrix) -> str:
    """Return the finding of a row in one run, with what must not be read without it."""
    if row is None:
        return NOT_PLANNED
    rests, marks = finding_notes(row, one)
    return ", ".join([f"{row.finding} ({rests})" if rests else row.finding, *marks])


def finding_notes(row: MatrixRow, one: Matrix) -> tuple[str, list[str]]:
    """Return what a finding rests on, and the doubts about it."""
    rests = ""
    if row.finding == "deterministic":
        n = min(row.off.runs, row.on.runs)
        rests = f"{n} schedules" if row.off.simulated else f"n = {n}"
        rests = rests if row.constant is None else "constant"
    elif row.finding == "inconclusive":
        rests = f"{row.off.verdict}, {row.on.verdict}"
    beside = [BESIDE[name].phrase for name in row.beside]
    return rests, beside + row.doubt_words(trusted=not one.distrust)


def _caveats(comparison: Comparison) -> Iterator[str]:
    """Yield what a reader must know of the runs before believing any of it."""
    for one in comparison.matrices:
        yield from (f"{one.name}: {text}" for _, text in states(one))
    yield from (f"{pair.name}: {_obstacle_words(pair)}" for pair in comparison.pairs if pair.obstacles)


def _obstacle_words(pair: Pair) -> str:
    """Say why no row can be compared, and what to do where two machines are the reason; empty if rows can be."""
    why = "; ".join(f"{one.reason}: {one.detail}" for one in pair.obstacles)
    releases = pair.old.release != pair.new.release and not pair.new.simulated
    elsewhere = releases and any(one.reason == "other_device" for one in pair.obstacles)
    return f"no row can be compared, {why}{_SAME_MACHINE * elsewhere}" if why else ""


def _notes(comparison: Comparison) -> Iterator[str]:
    """Yield what else is missing from the runs, and what they do not have in common and may be compared all the same."""
    for one in comparison.matrices:
        missing = {
            "no controls: nothing shows that the scan could see a difference": one.run.header.controls,
            "no sentinel: nothing shows whether anything could race": one.run.sentinels or one.simulated,
        }
        if told := "; ".join(text for text, there in missing.items() if not there):
            yield f"{one.name}: {told}."
    yield from build_notes(comparison)
    for pair in comparison.pairs:
        headers = pair.old.run.header, pair.new.run.header
        if len({header.format < _DIGESTS for header in headers}) > 1:
            yield (
                f"{pair.name}: one of the files has an older kind of digests, so inputs were "
                f"compared by dtype and shape only."
            )
        pairs = [("detmatrix", [header.tool for header in headers])]
        builds = [header.environment.simulated and header.environment.simulated.build for header in headers]
        if all(builds):
            pairs.append(("the simulation", [str(build) for build in builds]))
        elif pair.new.kind != "cpu":
            drivers = ((it.environment.driver or "unknown" for it in parts_of(header)) for header in headers)
            pairs.append(("the driver", [*map(named_machines, drivers)]))
        for what, (before, after) in pairs:
            if before != after:
                yield f"{pair.name}: {what} differs, {before} → {after}; changes may be due to that."
        yield from (
            f"{pair.name}: {likely.op} likely {likely.kind}: {several(len(likely.rows), 'row')} seem to have; "
            f"each may be chance, all together are not: {likely.told}."
            for likely in pair.likely
        )
    yield from (
        f"{one.name}: no other run is on {label_of(one.kind)}, so it is compared with none."
        for one in comparison.alone
    )
    yield from dict.fromkeys(it.note for pair in comparison.pairs for it in pair.lists if it.note is not None)


def build_notes(comparison: Comparison) -> Iterator[str]:
    """Yield a warning wherever the builds of two runs are of different kinds, as those for CPUs and for CUDA are."""
    for pair in comparison.pairs:
        old, new = (one.torch for one in (pair.old, pair.new))
        if torch_versions.build_kind(old) != torch_versions.build_kind(new):
            yield (
                f"{pair.name}: builds of different kinds, {old} and {new}; changes may come from "
                f"that, not from the release."
            )


def view_of(comparison: Comparison) -> View:
    """Return what is shown of a comparison."""
    asked = {mode for one in comparison.matrices for mode in one.run.header.settings.modes}
    modes = {mode: MODE_TABLE[mode].meaning for mode in CHOSEN_MODES if mode in asked}
    heads = ["from → to", "rows compared", *MOVES, "not comparable", "with other bits", "changed bullets"]
    return View(
        {
            "runs": [_run(one) for one in comparison.matrices],
            "pairs": [_pair(pair) for pair in comparison.pairs],
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
        title=" → ".join(f"torch {one.torch}" for one in comparison.matrices),
        caveats=list(_caveats(comparison)),
        notes=list(_notes(comparison)),
        cost_meaning=COST_MEANING,
        not_planned=NOT_PLANNED,
        not_listed=NOT_LISTED,
        step_heads=heads,
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
            "hardware": named_machines(hardware(one.kind, part.environment) for part in parts_of(header)),
            "threads": in_common(header, "threads"),
            **fields_of(header, "started", "tool"),
            "driver": in_common(header, "driver"),
            "format": header.format,
            **fields_of(one, "executions", "upper_bound"),
            "perturb": header.settings.perturb,
            "planned": one.planned,
            "complete": not one.missing,
            "distrust": one.distrust,
            "low_power": one.weak,
            **fields_of(one, "serial", "serial_unknown"),
            "controls": len(header.controls),
            "sentinels": len(one.run.sentinels),
            "findings": one.counts,
        },
        one,
        device=one.device,
        executed=run_words.executed(one),
        machine=run_words.machine_words(one),
        python=run_words.named_machines(part.environment.python for part in parts_of(header)),
    )


def _pair(pair: Pair) -> View:
    """Return what is shown of two runs; its rows are made as a format gets to them, and once."""
    tests = [(change, test) for change in pair.changes for test in change.tests]
    bits = sorted((change for change in pair.changes if change.other_bits), key=lambda it: -it.farthest)
    again, cost, ops = _again(pair), pair.cost, _by_op(pair)
    words_of = {change.row.key: change.words for change in pair.changes}
    return View(
        {
            "from": pair.old.name,
            "to": pair.new.name,
            "counts": pair.counts,
            "unconfirmed": sum(change.confirmed is False for change in pair.changes),
            "other_bits": len(bits),
            "bits_compared": pair.bits[1],
            "obstacles": pair.obstacles,
            "likely": pair.likely,
            "again": again,
            "rows": (_row(pair, change) for change in pair.changes),
            "claims": pair.claims,
            "undocumented": [change.row.id for change in pair.undocumented],
            "claims_notes": [lists.note for lists in pair.lists],
            "cost": cost.listed if cost else [],
            "costs": cost,
        },
        pair,
        versions=[one.torch for one in (pair.old, pair.new)],
        lead=_lead(pair, ops),
        obstacle_words=_obstacle_words(pair),
        step=_step(pair),
        ops=ops,
        again_words=again and again.words,
        # Rows that were measured again: id, what came out, finding and both cells, of one run and the other.
        measured_again=[
            (old.row.id, [words_of[key], arrow(old.finding, new.finding), *_modes(old, new)])
            for key, (old, new) in (pair.again.rows.items() if pair.again else ())
        ],
        changes=((kind, [_row(pair, it) for it in pair.of(kind)]) for kind in MOVES if pair.of(kind)),
        # The ops of which one run alone planned rows: how many each did, and the worst that they show.
        only_one=[
            View(
                {},
                op=op,
                counts=[sum(it.kind == kind for it in some) for kind in ("added", "removed")],
                worst=min((it.latest.finding for it in some), key=WORST_FIRST.index),
            )
            for op, some in grouped(
                (it.row.spec, it) for it in (*pair.of("added"), *pair.of("removed"))
            ).items()
        ],
        doubts=(
            _doubt(pair, reason, some)
            for reason in REASON_MEANING
            if (some := [it for it in pair.of("not_comparable") if it.reason == reason])
        ),
        tests=len(tests),
        told_apart=sum(test.differ for _, test in tests),
        apart=[(it.row.id, [str(test)]) for it, test in tests if test.differ and it.kind == "same"],
        bits=[(change.row.id, change.bits_words) for change in bits],
        bits_told=f"{several(len(bits), 'row')} whose bits repeat in both runs, with other bits in the later one",
        has_lists=any(lists.claims for lists in pair.lists),
        unlisted=(_row(pair, change) for change in pair.undocumented),
        cost_cells=[(one["id"], one.cells) for one in cost.listed] if cost else [],
        medians=cost.medians if cost else [],
    )


def _row(pair: Pair, change: Change) -> View:
    row = change.row
    listed = [documented(row, lists.claims) for lists in pair.lists]
    measured = pair.again.rows.get(row.key) if pair.again else None
    return View(
        {
            **fields_of(row, "spec", "case", "direction", "dtype", "device"),
            "class": change.kind,
            "confirmed": change.confirmed,
            "seems": change.apparent,
            "reason": change.reason,
            "detail": change.detail or None,
            "from": change.old and {**_seen(change.old), "documented": listed[0]},
            "to": change.new and {**_seen(change.new), "documented": listed[1]},
            "tests": [test.view for test in change.tests],
            "again": measured and {"from": _seen(measured[0]), "to": _seen(measured[1])},
            "other_bits": change.other_bits,
            **({"bits_moved": far} if (far := change.moved) else {}),
        },
        id=row.id,
        words=change.words,
        documented=arrow(*listed),
        cells=[
            arrow(finding_words(change.old, pair.old), finding_words(change.new, pair.new)),
            *_modes(change.old or change.latest, change.latest),
            arrow(*listed),
            change.detail or NONE,
        ],
    )


def _modes(old: MatrixRow, new: MatrixRow) -> list[str]:
    """Return what both modes of a row showed and show."""

    def told(cell: Cell) -> str:
        if cell.verdict in COMPARED:
            return f"{cell.verdict}, {cell.counted}"
        return f"{cell.verdict} ({cell.alert})" if cell.alert else cell.verdict

    return [arrow(*(told(row.cell(mode)) for row in (old, new))) for mode in MODES]


def _seen(row: MatrixRow) -> dict[str, object]:
    return {
        **fields_of(row, "finding", "reason"),
        **flag_cells(row),
        "low_power": row.weak,
        "serial": row.serial,
        **({"modes": {mode: it.finding for mode, it in row.chosen.items()}} if row.chosen else {}),
    }


def _again(pair: Pair) -> View | None:
    """Return what was measured again of a pair, how often, and what came out; ``None`` if nothing should have been."""
    again = pair.again
    if again is None:
        return None
    changes = {change.row.key: change for change in pair.changes}
    judged = [changes[key] for key in again.rows]
    confirmed = sum(one.confirmed is True for one in judged)
    same = sum(one.kind == "same" for one in judged)
    undecided, rows, left = len(judged) - confirmed - same, len(again.rows), len(again.left)
    distrust, executions = [*again.old.distrust, *again.new.distrust], again.new.executions
    rounds = again.new.run.header.settings.processes
    measured = (
        f"{several(rows, 'row')} that seemed to differ {'was' if rows == 1 else 'were'} measured again, both runs in turns: "
        f"{rounds} rounds of fresh processes, up to {executions} executions of each run in each mode. Of these rows, "
        f"{confirmed} changed (confirmed), {same} did not, {undecided} are undecided. Processes in which hardly anything could "
        f"race count only if the row differed."
    )
    texts = (
        (measured, rows),
        (f"{several(left, 'row')} could not be measured again.", left),
        (f"The measurement cannot be trusted: {'; '.join(distrust)}.", distrust and (rows or left)),
        ("Nothing to confirm: no comparable row seems to differ without proof.", not (rows or left)),
    )
    return View(
        {
            "rows": rows,
            "rounds": rounds,
            "executions": executions,
            "outcome": {"confirmed": confirmed, "same": same, "undecided": undecided, "left": left},
            "distrust": distrust,
            "left": {":".join(key): reason for key, reason in again.left.items()},
        },
        words=" ".join(text for text, is_so in texts if is_so),
    )


def _doubt(pair: Pair, reason: Reason, changes: Sequence[Change]) -> View:
    """Return rows that one reason keeps from being compared: those that seem to have changed, the worst first, then others."""
    details = grouped((it.detail, it.row.id) for it in changes if it.apparent is None)
    # What stands against all rows needs no list of them.
    of_all = {obstacle.detail for obstacle in pair.obstacles}
    return View(
        {},
        reason=reason,
        rows=len(changes),
        seeming=[_row(pair, change) for kind in MOVES for change in changes if change.apparent == kind],
        others=[(detail, ids, detail in of_all) for detail, ids in details.items()],
    )


def _step(pair: Pair) -> tuple[int | str, ...]:
    """Return what the table of the steps tells of one, in the order of its columns."""
    counts = pair.counts
    seeming = sum(change.apparent is not None for change in pair.changes)
    possible = f"{counts['not_comparable']} ({several(seeming, 'possible change')})" if seeming else ""
    unmeasured = sum(one.unmeasured for one in pair.claims)
    return (
        pair.compared,
        *(counts[kind] for kind in MOVES),
        possible or counts["not_comparable"],
        f"{pair.bits[0]} of {pair.bits[1]}" if pair.bits[1] else "not comparable",
        f"{len(pair.claims)}, {unmeasured} not measured" if unmeasured else len(pair.claims),
    )


def _by_op(pair: Pair) -> list[dict[str, Any]]:
    """Return what changed, the worst first, and then what only seems to have; ten rows of one op once."""
    rows: dict[tuple[str, ...], list[str]] = {}
    for change in (it for kind in (*MOVES, "not_comparable") for it in pair.of(kind)):
        row = change.row
        if change.seeming not in MOVES:
            continue
        before, after = (one.finding if one else NOT_PLANNED for one in (change.old, change.new))
        found = arrow(before, after)
        # Of a row that has the same finding in both runs it says what else changed.
        if before == after or change.apparent is not None or change.wrong:
            found = f"{found}: {change.detail}"
        listed = arrow(*(documented(row, lists.claims) for lists in pair.lists))
        key = (row.spec, change.words, found, listed, change.wrong)
        rows.setdefault(key, []).append(row.id.removeprefix(f"{row.spec}:"))
    names = ("op", "kind", "finding", "documented", "wrong")
    return [{**dict(zip(names, key, strict=True)), "rows": ids} for key, ids in rows.items()]


def _lead(pair: Pair, changes: Sequence[dict[str, Any]]) -> str:
    """Say in a sentence what changed between two runs, and on which device."""
    moved = [one for one in changes if one["kind"] in MOVES]
    first = sorted(moved, key=lambda one: not one["wrong"])[:_NAMED]
    same = grouped((one["wrong"] or f"{one['kind']}: {one['finding']}", one["op"]) for one in first)
    named = [f"{change}: {', '.join(dict.fromkeys(ops))}" for change, ops in same.items()]
    more = f"; {len(moved) - _NAMED} more" if len(moved) > _NAMED else ""
    old, new = (one.release for one in (pair.old, pair.new))
    device = pair.new.device if pair.new.simulated else pair.new.device.upper()
    still = f"no op changed in {several(pair.compared, 'row')}" if pair.compared else "no row can be compared"
    seeming = len({one["op"] for one in changes} - {one["op"] for one in moved})
    may = f"{several(seeming, 'op')} may have changed" if seeming else ""
    lists = f"{several(len(pair.claims), 'bullet')} of the documented lists changed" if pair.claims else ""
    farthest = max((change.farthest for change in pair.changes), default=-1.0)
    others, alike = pair.bits
    far = ", how far was not recorded" if others else ""
    if farthest > 0:
        far = f", in one by at least {farthest:.2g} of its largest number"
    other = f"{others or 'none'} of {several(alike, 'row')} whose bits repeat in a mode gave other bits{far}"
    if not others:
        other = "" if not pair.compared else other if alike else "bits not comparable"
    costs = pair.cost.listed if pair.cost else []
    dear = f"the flag's cost may have changed in {several(len(costs), 'row')}" if costs else ""
    also = "".join(f"; {text}" for text in (may, lists, other, dear) if text)
    return f"{device}, torch {old} → {new}: {'; '.join(named) or still}{more}{also}."
