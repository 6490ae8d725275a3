"""Measure again, both runs in turns, what seems to differ between them, and what that makes of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import click
from msgspec import Struct
from msgspec.structs import replace

from reports.compare.comparable import Reason, kind_of, of_environments, of_rows, of_runs
from reports.compare.judge import Change, JudgedRow, carrying_modes, doubted, few_processes, judge
from reports.matrix.model import Matrix, matrix_of
from scanner.errors import UsageError, one_line
from scanner.observations.parts import parts_of
from scanner.observations.records import MODES, Mode
from scanner.plurals import several
from scanner.processes.sandbox import ImportSandbox
from scanner.run.progress import progress_for
from scanner.run.remeasure import Side, examine, measure, rounds_for, rows_here
from scanner.verdicts.findings import MatrixRow

if TYPE_CHECKING:
    from reports.compare.runs import Comparison, Pair

Key = tuple[str, str, str, str]

# Reasons for which the runs suggest a change and cannot prove it, and which measuring again may remove.
_OPEN: tuple[Reason, ...] = ("low_power", "too_few_executions", "warn_only_missing")


class Again(Struct, frozen=True, kw_only=True):
    """Rows of two runs that were measured again in turns, as two runs of their own."""

    old: Matrix
    new: Matrix
    left: Mapping[Key, str]  # rows that should have been, and why they could not

    @property
    def rows(self) -> dict[Key, tuple[MatrixRow, MatrixRow]]:
        """What was measured, by what joins it."""
        after = {row.row.key: row for row in self.new.rows}
        return {row.row.key: (row, after[row.row.key]) for row in self.old.rows}

    @property
    def rounds(self) -> int:
        """How many processes of each mode each run had."""
        return self.new.run.header.settings.processes


def open_to_doubt(change: Change) -> bool:
    """Tell whether a row seems to differ between two runs, in its class or in its rates, without proof."""
    judged = change.judged
    if change.old is None or change.new is None:
        return False
    if judged.kind == "same":
        return any(test.differ for test in judged.tests)
    return judged.confirmed is False or (judged.apparent is not None and judged.reason in _OPEN)


def settle(first: JudgedRow, before: MatrixRow, after: MatrixRow, again: Again | None) -> JudgedRow:
    """Join what the scans suggest of a row with what measuring both again in turns shows.

    Args:
        first: What ``judge`` made of the rows of the scans.
        before: The row of the earlier scan.
        after: That of the later one.
        again: What was measured again.
    """
    if again is None:
        return first
    if why := again.left.get(after.row.key):
        return _unsettled(first, f"not measured again: {why}")
    measured = again.rows.get(after.row.key)
    if measured is None:
        return first
    found = _judge_in_turns(measured)
    if vain := _in_vain(before, after, measured, found, again):
        return _unsettled(first, f"measured again without result, {vain}")
    return confirm(first, found)


def confirm(first: JudgedRow, again: JudgedRow) -> JudgedRow:
    """Join what the scans suggest of a row with what measuring both again in turns shows: the latter decides.

    Args:
        first: What ``judge`` made of the rows of the scans.
        again: What it made of those that were measured again.
    """
    seemed = first.apparent or first.kind
    if again.kind == "same":
        text = f"the scans suggest {seemed if seemed != 'same' else 'unequal rates'}"
        return replace(
            again, detail=f"{text}; measured again in turns, {again.detail or 'both show the same'}"
        )
    if again.kind == "not_comparable":
        # What was seen to differ in the scans is not undone by a measurement that saw too little of it.
        if again.reason == "too_few_executions" and first.confirmed is None:
            return again
        return _unsettled(first, f"measured again without result, {again.reason}: {again.detail}")
    if again.kind != seemed:
        text = f"the scans suggest {seemed}, measured again it is {again.kind}: {again.detail}"
        if again.confirmed:
            return replace(again, detail=text)
        # Without proof the worse one stands, so that no check for regressions passes because of it.
        stays = first.confirmed is False and again.kind != "regressed"
        unsettled = _unsettled(first, f"not_reproduced: {text}")
        return unsettled if stays else doubted(again.kind, "not_reproduced", text, again.tests)
    return replace(again, confirmed=True, detail=f"{again.detail}; measured again in turns")


def _unsettled(first: JudgedRow, why: str) -> JudgedRow:
    """Leave a row as the scans show it, and say why."""
    return replace(first, detail=f"{first.detail}; {why}" if first.detail else why)


def _in_vain(
    before: MatrixRow, after: MatrixRow, measured: tuple[MatrixRow, MatrixRow], found: JudgedRow, again: Again
) -> str | None:
    """Say why a measurement neither confirms nor drops anything; ``None`` if nothing is against it."""
    obstacle = (
        next(of_runs(again.old, again.new), None)
        or of_rows(before, measured[0])
        or of_rows(after, measured[1])
    )
    if obstacle is not None:
        return f"{obstacle.reason}: {obstacle.detail}"
    if found.kind == "same" and (fewer := _fewer(before, after, measured)):
        return f"too_few_executions: {fewer}"
    if found.kind == "same" and (weak := _unproven(before, after, measured)):
        return f"low_power: {weak}"
    return few_processes(*measured) if found.confirmed is False else None


def _judge_in_turns(measured: tuple[MatrixRow, MatrixRow]) -> JudgedRow:
    """Judge rows that were measured in turns: where one differed, the other could have, whatever the sentinels saw."""
    found = judge(*measured)
    raising = {row.on.verdict == "raises" for row in measured}
    # Rows of which both show the same are left to ``_unproven``.
    alike = measured[0].finding == measured[1].finding
    if found.reason != "low_power" or len(raising) > 1 or not (alike or carrying_modes(*measured)):
        return found
    old, new = (
        replace(row, weak=None, cells={mode: replace(it, weak=None) for mode, it in row.cells.items()})
        for row in measured
    )
    return judge(old, new)


def _fewer(before: MatrixRow, after: MatrixRow, measured: tuple[MatrixRow, MatrixRow]) -> str | None:
    """Say where a row did not differ in fewer executions than a scan made of it; ``None`` if it does not say less."""
    for mode in carrying_modes(before, after) or MODES:
        had = max(row.cell(mode).runs for row in (before, after))
        for cell in (row.cell(mode) for row in measured):
            if cell.verdict == "deterministic" and cell.runs < had:
                return f"{mode}: 0 of {cell.runs}, and the scans made {had} executions"
    return None


def _unproven(before: MatrixRow, after: MatrixRow, measured: tuple[MatrixRow, MatrixRow]) -> str | None:
    """Say why it proves little that both did not differ; ``None`` if nothing is against it.

    Where both differ in the modes in which the scans disagree, that is proof whatever could race elsewhere.
    """
    modes = carrying_modes(before, after)
    if modes and all(row.cell(mode).verdict == "nondeterministic" for mode in modes for row in measured):
        return None
    return next((weak for row in measured for weak in _weak(row, modes) if weak is not None), None)


def _weak(row: MatrixRow, modes: Sequence[Mode]) -> Iterator[str | None]:
    """Yield why it says little that a row did not differ in some modes: in each that was chosen, and in those of the flag."""
    yield from (row.chosen[mode].weak for mode in modes if mode in row.chosen)
    if not modes or not set(modes) <= row.chosen.keys():
        yield row.weak


def measure_again(
    comparison: Comparison,
    pythons: Sequence[str],
    runs: int | None,
    rounds: int | None = None,
    spec_files: Sequence[str] = (),
) -> dict[tuple[str, str], Again]:
    """Measure the rows again that seem to differ, and return them by the names of the two runs.

    Args:
        comparison: What the runs show.
        pythons: An interpreter for each run, in their order.
        runs: Executions per process; ``None``: as many as the scans had.
        rounds: Processes of each run in each mode; ``None``: as many as the test takes.
        spec_files: Files of the user's own specs that the command line names; those of run files do not run.

    Raises:
        UsageError: There is not one interpreter for each run, or one of them cannot measure its run again.
    """
    matrices = comparison.matrices
    if len(pythons) != len(matrices):
        raise UsageError(
            f"--confirm needs one --python for each run, in their order: {len(matrices)} runs, "
            f"{len(pythons)} --python"
        )
    alone = {one.name for one in comparison.alone}
    with ImportSandbox() as sandbox:
        # All are examined before the first is measured: what is wrong is told at once.
        sides = {
            one.name: _side(one, python, sandbox)
            for one, python in zip(matrices, pythons, strict=True)
            if one.name not in alone
        }
        return {
            (pair.old.name, pair.new.name): _again(
                pair, (sides[pair.old.name], sides[pair.new.name]), sandbox, runs, rounds, spec_files
            )
            for pair in comparison.pairs
        }


def _side(one: Matrix, python: str, sandbox: ImportSandbox) -> Side:
    """Return a run with its interpreter.

    Raises:
        UsageError: The interpreter, or this machine, is another than that of the run.
    """
    here = examine(one.run, python, sandbox)
    machines = [part.environment for part in parts_of(one.run.header)]
    for obstacle in (it for machine in machines for it in of_environments(kind_of(one), machine, here)):
        raise UsageError(
            f"--confirm: {one.name} cannot be measured again here, {obstacle.reason}: {obstacle.detail}; compare "
            f"without --confirm, or scan here"
        )
    return Side(one.run, python, here)


def _again(
    pair: Pair,
    sides: tuple[Side, Side],
    sandbox: ImportSandbox,
    runs: int | None,
    rounds: int | None,
    spec_files: Sequence[str],
) -> Again:
    """Measure the rows of one pair again that seem to differ."""
    doubtful = [change for change in pair.changes if open_to_doubt(change)]
    keys = [change.key for change in doubtful]
    (old, left), (new, also_left) = (rows_here(side.run, keys, spec_files) for side in sides)
    there = [key for key in keys if key in old and key in new]
    rows = [old[key] for key in there], [new[key] for key in there]
    old_settings, new_settings = (side.run.header.settings for side in sides)
    between = any(
        test.unit == "processes" for change in doubtful for test in change.judged.tests if change.key in there
    )
    rounds = rounds or rounds_for(old_settings, new_settings, between=between)
    click.echo(
        f"compare: {pair.name}: {several(len(there), 'row')} to measure again"
        + (f", in {rounds} rounds" if there else ""),
        err=True,
    )
    left |= also_left
    for why in dict.fromkeys(left.values()):
        count = sum(one == why for one in left.values())
        click.echo(
            f"compare: {several(count, 'row')} {'is' if count == 1 else 'are'} not: {one_line(why)}", err=True
        )
    progress = progress_for(command="compare")
    measured = measure(
        sides, (rows[0], rows[1]), sandbox, progress, rounds=rounds, runs=runs, spec_files=spec_files
    )
    return Again(
        old=matrix_of(pair.old.name, measured[0]), new=matrix_of(pair.new.name, measured[1]), left=left
    )
