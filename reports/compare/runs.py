"""Runs compared in the order given: each with the one before it on the same kind of device, row by row.

Rows that seem to differ can be measured again, both runs in turns; what comes out is compared like any two runs, and decides.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Literal

import click
from msgspec import Struct
from msgspec.structs import replace

from detmatrix.reports.compare.comparable import (
    NotComparable,
    Reason,
    arrow,
    of_absence,
    of_draws,
    of_environments,
    of_machines,
    of_rows,
    of_runs,
    together,
)
from detmatrix.reports.compare.judge import (
    CLASS,
    MOVES,
    Change,
    Kind,
    blocked,
    few_processes,
    judge,
    with_dependence,
)
from detmatrix.reports.matrix.model import SECTION_WORDS, Matrix, RunLists, matrix_of
from detmatrix.reports.matrix.rows import timed, times
from detmatrix.reports.matrix.run_words import bullet_words
from detmatrix.reports.render import NONE, View, fields_of, grouped
from detmatrix.scanner.accelerators import label_of
from detmatrix.scanner.claims.matching import claimed_kind, matches, names_of
from detmatrix.scanner.errors import UsageError, one_line
from detmatrix.scanner.observations import torch_versions
from detmatrix.scanner.observations.parts import parts_of
from detmatrix.scanner.observations.records import MODES, Claim, Environment, Mode, Row
from detmatrix.scanner.plurals import several
from detmatrix.scanner.processes.process import ImportSandbox
from detmatrix.scanner.run.progress import progress_for
from detmatrix.scanner.run.remeasure import Key, Side, examine, measure, rounds_for, rows_here
from detmatrix.scanner.verdicts.findings import MatrixRow

ClaimKind = Literal["moved", "added", "dropped", "reworded"]
Measured = Literal["changed", "otherwise", "same", "not_comparable", "other_device", "not_covered"]

# One sentence each, printed with every report.
CLAIM_MEANING: dict[ClaimKind, str] = {
    "moved": "The bullet stands in another list than before.",
    "added": "Only the later release has the bullet.",
    "dropped": "Only the earlier release has the bullet.",
    "reworded": "The same list says something else of the same ops: in other words, or under other conditions.",
}
MEASURED_MEANING: dict[Measured, str] = {
    "changed": "At least one matching row changed as the bullet did; for a reworded bullet, changed at all.",
    "otherwise": "Matching rows changed, and none as the bullet did: a documented change that was not measured.",
    "same": "A documented change that was not measured: with the flag off and on, matching rows show the same in both runs, "
    "whatever they do in chosen modes.",
    "not_comparable": "No matching row can be compared.",
    "other_device": "The bullet is about another device, told as not measured.",
    "not_covered": "No row of these runs matches the bullet.",
}
MOST = 10  # rows that one bullet names


def compare_claims(old: Sequence[Claim], new: Sequence[Claim], changes: Sequence[Change]) -> list[View]:
    """Return the bullets, with a claim for each device, that two releases do not share; in the later one's order."""
    lists = ([one for one in some if one.section != "note"] for some in (old, new))
    turned = [it for it in _paired(*lists) if len({one and (one.id, one.text) for one in it}) > 1]
    bullets = grouped(((it[1] is None, [*filter(None, it)][-1].order), it) for it in turned)
    return [_claim(turns, changes) for turns in bullets.values()]


def _paired(old: Sequence[Claim], new: Sequence[Claim]) -> Iterator[tuple[Claim | None, Claim | None]]:
    """Pair the claims of two releases: first those that say the same, then those of the same ops, if there is one of each."""
    left, found = list(old), dict[int, Claim]()
    keys: tuple[Callable[[Claim], object], ...] = (
        lambda claim: claim.id,
        lambda claim: claim.id.partition("/")[2],  # the same bullet in another list
        lambda claim: (frozenset(claim.targets), claim.device, claim.direction) if claim.parsed else claim.id,
    )
    for key in keys:
        after = Counter(key(claim) for place, claim in enumerate(new) if place not in found)
        before = Counter(map(key, left))
        for place, claim in enumerate(new):
            if place not in found and before[key(claim)] == after[key(claim)] == 1:
                found[place] = next(one for one in left if key(one) == key(claim))
                left.remove(found[place])
    yield from ((found.get(place), after) for place, after in enumerate(new))
    yield from ((before, None) for before in left)


def _claim(turns: Sequence[tuple[Claim | None, Claim | None]], changes: Iterable[Change]) -> View:
    """Return what became of a bullet, and what rows that speak to it show."""
    old, new = next((turn for turn in turns if None not in turn), turns[0])
    claims = [claim for turn in (*turns, (old, new)) for claim in turn if claim is not None]
    kind: ClaimKind = "added" if old is None else "dropped"
    if old is not None and new is not None:
        kind = "reworded" if old.section == new.section else "moved"
    rows, elsewhere = (
        [it for it in changes if any(matches(it.row, one, ignore_device=ignored) for one in claims)]
        for ignored in (False, True)
    )
    kinds = [change.of_flag for change in rows]
    moved = [change for change in rows if change.of_flag in MOVES]
    as_listed = [change for change in moved if any(_as_listed(*turn, change.latest) for turn in turns)]
    measured: Measured = "not_comparable" if rows else "other_device" if elsewhere else "not_covered"
    if moved:
        measured = "changed" if as_listed or kind == "reworded" else "otherwise"
    elif "same" in kinds:
        measured = "same"
    bullet = ("id", "section", "text", "conditions")
    devices = dict.fromkeys([*filter(None, turn)][-1].device for turn in turns)
    there = {claimed_kind(change.row.device) for change in rows}
    unseen = ", ".join(one.upper() for one in devices if one not in {*there, "any"})
    findings = dict.fromkeys(str(change.latest.finding) for change in rows if change.of_flag == "same")
    return View(
        {
            "change": kind,
            **fields_of(claims[-1], "id", "targets"),
            "device": ", ".join(devices),
            "from": old and fields_of(old, *bullet),
            "to": new and fields_of(new, *bullet),
            "measured": measured,
            # The lists say that something changed, and the rows that it did not.
            "unmeasured": measured in {"same", "otherwise"} and kind != "reworded",
            "rows": [{"id": change.row.id, "class": change.of_flag} for change in rows],
        },
        as_listed=as_listed,
        bullet=bullet_words(claims[-1]),
        bullets=arrow(bullet_words(claims[-2]), bullet_words(claims[-1])),
        measured_words="; ".join(
            [measured] * (measured != "other_device")
            + [f"not measured: {unseen}"] * bool(unseen and measured != "not_covered")
        ),
        sections=arrow(*(SECTION_WORDS[claim.section] if claim else NONE for claim in (old, new))),
        # Of the rows that speak to it how many are of each class, the first that changed, what those show that did not.
        counts=", ".join(f"{kinds.count(it)} {it}" for it in CLASS if it in kinds) or NONE,
        moved=[change.row.id for change in moved][:MOST],
        same=", ".join(findings),
    )


def _as_listed(old: Claim | None, new: Claim | None, row: MatrixRow) -> bool:
    """Tell whether a row came into a list, does with the flag on what that says, or left one and raises nothing."""
    before, after = (claim.section if claim and matches(row.row, claim) else None for claim in (old, new))
    verdict = {"deterministic": "deterministic", "raises": "raises", "cublas": "raises"}.get(after or "")
    shown = row.on.verdict == verdict if after else row.on.verdict != "raises"
    return before != after and shown


def undocumented(claims: Iterable[View], changes: Iterable[Change]) -> tuple[Change, ...]:
    """Return the rows of torch that changed although no claim about them changed in the same way."""
    heard = {change.row.key for claim in claims for change in claim.as_listed}
    return tuple(
        change
        for change in changes
        if change.of_flag in MOVES
        and change.row.key not in heard
        and names_of(change.row)[0].startswith("torch.")
    )


# A ratio that grew or shrank by less is not listed.
FACTOR = 1.5
COST_MEANING = (
    f"Cost is the median time with the flag on over the median time with it off, in one process of one run; times of two runs "
    f"are never compared. Listed are rows whose ratio grew or shrank by more than {FACTOR:g} times, if the ranges that the "
    f"quartiles allow do not overlap. Each run timed each row once, and --confirm times nothing again: all of these changes "
    f"are unconfirmed."
)


def compare_costs(changes: Iterable[Change]) -> View:
    """Compare the ratios of the rows that compute the same in both runs, and list those that changed, most first."""
    sides = ((it.row.id, timed(it.old), timed(it.new)) for it in changes if it.old and it.new)
    both = [
        (name, old, new, new.ratio / old.ratio)
        for name, old, new in sides
        if old and new and old.ratio and new.ratio
    ]
    listed = [
        View(
            {
                "id": name,
                "factor": factor,
                "from": fields_of(old, "ratio", "spread"),
                "to": fields_of(new, "ratio", "spread"),
            },
            cells=[
                *(words for side in (old, new) for words in (side.ratio_words, side.spread_words)),
                times(factor),
            ],
        )
        for name, old, new, factor in sorted(both, key=lambda one: (-max(one[3], 1 / one[3]), one[0]))
        if max(factor, 1 / factor) > FACTOR
        and (old.spread[1] < new.spread[0] or new.spread[1] < old.spread[0])
    ]
    ratios = [(old.ratio, new.ratio) for _, old, new, _ in both]
    medians = [statistics.median(side) for side in zip(*ratios, strict=True)] or [None, None]
    return View(
        {"rows": len(both), "from": medians[0], "to": medians[1]},
        listed=listed,
        medians=[times(one) for one in medians if one is not None],
    )


# --- Rows measured again, both runs in turns, and what that makes of what the scans suggest

# Reasons for which the runs suggest a change and cannot prove it, and which measuring again may remove.
_OPEN: tuple[Reason, ...] = ("low_power", "too_few_executions", "warn_only_missing")


class Again(Struct, frozen=True, kw_only=True, dict=True):
    """Rows of two runs that were measured again in turns, as two runs of their own."""

    old: Matrix
    new: Matrix
    left: Mapping[Key, str]  # rows that should have been, and why they could not

    @cached_property
    def rows(self) -> dict[Key, tuple[MatrixRow, MatrixRow]]:
        """What was measured, by what joins it."""
        after = {row.row.key: row for row in self.new.rows}
        return {row.row.key: (row, after[row.row.key]) for row in self.old.rows}


def open_to_doubt(change: Change) -> bool:
    """Tell whether a row seems to differ between two runs, in its class or in its rates, without proof."""
    if change.old is None or change.new is None:
        return False
    if change.kind == "same":
        return any(test.differ for test in change.tests)
    return change.confirmed is False or (change.apparent is not None and change.reason in _OPEN)


def settle(first: Change, before: MatrixRow, after: MatrixRow, again: Again | None) -> Change:
    """Join what ``judge`` made of a row of two scans with what measuring both again in turns shows."""
    key = after.row.key
    if again is not None and (why := again.left.get(key)):
        return _unsettled(first, f"not measured again: {why}")
    if again is None or key not in again.rows:
        return first
    measured = again.rows[key]
    found = _judge_in_turns(measured)
    obstacles = (*of_runs(again.old, again.new), of_rows(before, measured[0]), of_rows(after, measured[1]))
    vain = next((f"{it.reason}: {it.detail}" for it in obstacles if it is not None), None)
    if vain is None and found.kind == "same":
        vain = _unproven(first.carried, (before, after), measured)
    elif vain is None and found.confirmed is False:
        vain = few_processes(*measured)
    if vain:
        return _unsettled(first, f"measured again without result, {vain}")
    # What bits depend on was not measured again, and need not be.
    return with_dependence(confirm(first, found), before, after)


def confirm(first: Change, again: Change) -> Change:
    """Join what ``judge`` made of a row of two scans with what it made of it measured again: the latter decides."""
    if again.kind == "same":
        text = f"the scans suggest {first.seeming if first.seeming != 'same' else 'unequal rates'}"
        shown = again.detail or "both show the same"
        return replace(again, detail=f"{text}; measured again in turns, {shown}")
    if again.kind == "not_comparable":
        # What was seen to differ in the scans is not undone by a measurement that saw too little of it.
        kept = again.reason == "too_few_executions" and first.confirmed is None
        why = f"measured again without result, {again.reason}: {again.detail}"
        return again if kept else _unsettled(first, why)
    if again.kind == first.seeming:
        return replace(again, confirmed=True, detail=f"{again.detail}; measured again in turns")
    text = f"the scans suggest {first.seeming}, measured again it is {again.kind}: {again.detail}"
    if again.confirmed:
        return replace(again, detail=text)
    # Without proof the worse one stands, so that no check for regressions passes because of it.
    stays = first.confirmed is False and again.kind != "regressed"
    if stays:
        return _unsettled(first, f"not_reproduced: {text}")
    found = Change(kind="not_comparable", reason="not_reproduced", apparent=again.kind, detail=text)
    return replace(found, tests=again.tests)


def _unsettled(first: Change, why: str) -> Change:
    """Leave a row as the scans show it, and say why."""
    return replace(first, detail=f"{first.detail}; {why}" if first.detail else why)


def _judge_in_turns(measured: tuple[MatrixRow, MatrixRow]) -> Change:
    """Judge rows that were measured in turns: where one differed, the other could have, whatever the sentinels saw."""
    found = judge(*measured)
    raising = {row.on.verdict == "raises" for row in measured}
    # Rows of which both show the same are left to ``_unproven``.
    alike = measured[0].finding == measured[1].finding
    if found.reason != "low_power" or len(raising) > 1 or not (alike or found.carried):
        return found
    old, new = (
        replace(row, weak=None, cells={mode: replace(it, weak=None) for mode, it in row.cells.items()})
        for row in measured
    )
    return judge(old, new)


def _unproven(
    carried: Sequence[Mode], scanned: tuple[MatrixRow, MatrixRow], measured: tuple[MatrixRow, MatrixRow]
) -> str | None:
    """Say why it proves little that rows measured again show the same; ``None`` if nothing is against it.

    A row that did not differ in fewer executions than a scan made of it proves less than the scan. Where both differ in the modes
    in which the scans disagree, that is proof whatever could race elsewhere. Of a mode that was chosen its cell tells, of those of
    the flag the row.
    """
    for mode in carried or MODES:
        had = max(row.cell(mode).runs for row in scanned)
        for cell in (row.cell(mode) for row in measured):
            if cell.verdict == "deterministic" and cell.runs < had:
                return f"too_few_executions: {mode}: 0 of {cell.runs}, and the scans made {had} executions"
    if carried and all(row.cell(mode).verdict == "nondeterministic" for mode in carried for row in measured):
        return None
    found = [row.chosen[mode].weak for row in measured for mode in carried if mode in row.chosen]
    found += [row.weak for row in measured if not carried or not {*carried} <= row.chosen.keys()]
    return next((f"low_power: {why}" for why in found if why is not None), None)


class Pair(Struct, frozen=True, kw_only=True):
    """Two runs on one kind of device, the second held against the first."""

    old: Matrix
    new: Matrix
    lists: tuple[RunLists, RunLists]
    obstacles: tuple[NotComparable, ...]  # what keeps every row from being compared
    changes: tuple[Change, ...]  # every row, those that are gone last
    claims: Sequence[View]
    undocumented: tuple[Change, ...]  # measured changes that no changed claim is about
    cost: View | None  # None: ratios on other hardware or settings are not comparable
    again: Again | None = None  # what was measured again to confirm the changes; None: nothing

    @property
    def name(self) -> str:
        """The names of both."""
        return f"{self.old.name} → {self.new.name}"

    @property
    def counts(self) -> dict[Kind, int]:
        """How many rows are of each class."""
        counts = Counter(change.kind for change in self.changes)
        return {kind: counts[kind] for kind in CLASS}

    @property
    def compared(self) -> int:
        """How many rows have a finding in both runs that could be compared."""
        kinds: tuple[Kind, ...] = ("same", *MOVES)
        return sum(it.kind in kinds and it.latest.finding != "inconclusive" for it in self.changes)

    @property
    def bits(self) -> tuple[int, int]:
        """How many rows gave other bits, of how many whose bits could be compared."""
        compared = [change for change in self.changes if change.bits]
        return sum(bool(change.other_bits) for change in compared), len(compared)

    @property
    def likely(self) -> list[View]:
        """The ops of which several rows seem to have changed in one way: each by chance for all that is known, not all together."""
        seeming = grouped(
            ((change.apparent, change.row.op), change)
            for change in self.changes
            if change.apparent is not None and change.chance
        )
        found = []
        for (kind, op), changes in seeming.items():
            # All rows of the op count, not those alone that were picked because they differ.
            every = [it for change in self.changes if change.row.op == op for it in change.tests]
            modes = dict.fromkeys(test.mode for change in changes for test in change.tests)
            tests = [together([test for test in every if test.mode == mode]) for mode in modes]
            apart = [test for test in tests if test is not None and test.differ]
            if apart and len(changes) > 1:
                ids = [change.row.id for change in changes]
                shown = {"kind": kind, "op": op, "rows": ids, "tests": [test.view for test in apart]}
                found.append(View(shown, told="; ".join(map(str, apart))))
        return found

    def of(self, kind: Kind) -> list[Change]:
        """Return the rows of one class, first those that are newly or no longer wrong with the flag on."""
        return sorted((change for change in self.changes if change.kind == kind), key=lambda it: not it.wrong)


class Comparison(Struct, frozen=True, kw_only=True):
    """All runs, and what became of their rows from one to the next."""

    matrices: tuple[Matrix, ...]
    pairs: tuple[Pair, ...]
    alone: tuple[Matrix, ...]  # the only one of its kind of device


def compare(matrices: Sequence[Matrix], again: Mapping[tuple[str, str], Again] | None = None) -> Comparison:
    """Compare each run with the one before it on the same kind of device; *again* is by the names of the two runs.

    Raises:
        UsageError: No two runs are of one kind of device.
    """
    latest: dict[str, Matrix] = {}
    pairs = []
    for one in matrices:
        kind = one.kind
        if (before := latest.get(kind)) is not None:
            pairs.append(compare_pair(before, one, (again or {}).get((before.name, one.name))))
        latest[kind] = one
    if not pairs:
        text = ", ".join(f"{one.name} is of {label_of(one.kind)}" for one in matrices)
        simulated = "; what is simulated is never compared with what was measured" * any(
            one.simulated for one in matrices
        )
        raise UsageError(f"nothing to compare: {text}{simulated}; give two runs of one kind of device")
    kinds = Counter(one.kind for one in matrices)
    alone = tuple(one for one in matrices if kinds[one.kind] == 1)
    return Comparison(matrices=tuple(matrices), pairs=tuple(pairs), alone=alone)


def compare_pair(old: Matrix, new: Matrix, again: Again | None = None) -> Pair:
    """Compare two runs of one kind of device."""
    obstacles = tuple(of_runs(old, new))
    before, after = ({row.row.key: row for row in one.rows} for one in (old, new))

    def judged(was: MatrixRow | None, row: MatrixRow | None) -> Change:
        """Say what became of a row that at least one run has."""
        if was is None or row is None:
            one, other = (old, new) if was is None else (new, old)
            known = row or was
            if known is not None and (absence := of_absence(one, other, known.row)) is not None:
                return Change(kind="not_comparable", reason=absence.reason, detail=absence.detail)
            return Change(kind="added" if was is None else "removed")
        sides = old, new, was, row
        obstacle = next(iter(obstacles), None) or of_machines(*sides) or of_rows(was, row) or of_draws(*sides)
        if obstacle is not None:
            return blocked(was, row, obstacle)
        return settle(judge(was, row), was, row, again)

    # Those that are gone last.
    both = ((before.get(key), after.get(key)) for key in {**after, **before})
    changes = tuple(
        replace(one, of_flag=one.of_flag or one.kind, old=was, new=row)
        for was, row in both
        for one in [judged(was, row)]
    )
    lists = old.lists, new.lists
    claims = compare_claims(lists[0].claims, lists[1].claims, changes)
    # A build for CUDA is compiled otherwise for the CPU, too.
    builds = {torch_versions.build_kind(one.torch) for one in (old, new)}
    timed_alike = not obstacles and len(builds) == 1
    return Pair(
        old=old,
        new=new,
        lists=lists,
        obstacles=obstacles,
        changes=changes,
        claims=claims,
        undocumented=undocumented(claims, changes),
        cost=compare_costs(change for change in changes if change.alike) if timed_alike else None,
        again=again,
    )


def measure_again(
    comparison: Comparison,
    pythons: Sequence[str],
    runs: int | None,
    rounds: int | None,
    spec_files: Sequence[str],
) -> dict[tuple[str, str], Again]:
    """Measure the rows again that seem to differ, and return them by the names of the two runs.

    *pythons* is an interpreter for each run, in their order; *runs* are executions per process, by default as many as the scans
    had, *rounds* processes of each run in each mode, by default as many as the test takes. Of the user's own specs those run that
    the command line names, *spec_files*; those of run files do not.

    Raises:
        UsageError: There is not one interpreter for each run, or one of them cannot measure its run again.
    """
    matrices = comparison.matrices
    if len(pythons) != len(matrices):
        raise UsageError(
            f"--confirm needs one --python for each run, in their order: {len(matrices)} runs, "
            f"{len(pythons)} --python"
        )
    found = {}
    with ImportSandbox() as sandbox:
        # All are examined before the first is measured: what is wrong is told at once.
        sides = {
            one.name: Side(one.run, python, _examined(one, python, sandbox))
            for one, python in zip(matrices, pythons, strict=True)
            if one not in comparison.alone
        }
        for pair in comparison.pairs:
            both = sides[pair.old.name], sides[pair.new.name]
            rows, left, between = _doubtful(pair, spec_files)
            old, new = (one.run.header.settings for one in (pair.old, pair.new))
            times = rounds or rounds_for(old, new, between=between)
            told = f", in {times} rounds" if rows[0] else ""
            click.echo(
                f"compare: {pair.name}: {several(len(rows[0]), 'row')} to measure again{told}", err=True
            )
            for why, count in Counter(left.values()).items():
                are = f"{several(count, 'row')} {'is' if count == 1 else 'are'}"
                click.echo(f"compare: {are} not: {one_line(why)}", err=True)
            progress = progress_for(command="compare")
            measured = measure(both, rows, sandbox, progress, rounds=times, runs=runs, spec_files=spec_files)
            was, now = (
                matrix_of(one.name, run) for one, run in zip((pair.old, pair.new), measured, strict=True)
            )
            found[was.name, now.name] = Again(old=was, new=now, left=left)
    return found


def _examined(one: Matrix, python: str, sandbox: ImportSandbox) -> Environment:
    """Return what an interpreter is here, if it and this machine can measure a run again."""
    here = examine(one.run, python, sandbox)
    for part in parts_of(one.run.header):
        for obstacle in of_environments(one.kind, part.environment, here):
            raise UsageError(
                f"--confirm: {one.name} cannot be measured again here, {obstacle.reason}: {obstacle.detail}; "
                f"compare without --confirm, or scan here"
            )
    return here


def _doubtful(
    pair: Pair, spec_files: Sequence[str]
) -> tuple[tuple[list[Row], list[Row]], dict[Key, str], bool]:
    """Return the rows of both runs that seem to differ, why others cannot be measured, and whether only processes differ in one."""
    doubtful = {change.row.key: change for change in pair.changes if open_to_doubt(change)}
    (old, left), (new, also_left) = (
        rows_here(one.run, [*doubtful], spec_files) for one in (pair.old, pair.new)
    )
    there = [key for key in doubtful if key in old and key in new]
    between = any(test.unit == "processes" for key in there for test in doubtful[key].tests)
    return ([old[key] for key in there], [new[key] for key in there]), left | also_left, between
