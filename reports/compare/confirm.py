"""Measure again what seems to differ between runs, with the interpreters that have their torch."""

from __future__ import annotations

from collections.abc import Sequence

import click

from reports.compare.remeasured import Again, open_to_doubt
from reports.compare.rows.comparable import kind_of, of_environments
from reports.compare.runs import Comparison, Pair
from reports.matrix.model import Matrix, matrix_of
from scanner.errors import UsageError, one_line
from scanner.observations.parts import parts_of
from scanner.plurals import several
from scanner.processes.sandbox import ImportSandbox
from scanner.run.progress import progress_for
from scanner.run.remeasure import Side, examine, measure, rounds_for, rows_here


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
    keys = [change.row.row.key for change in doubtful]
    (old, left), (new, also_left) = (rows_here(side.run, keys, spec_files) for side in sides)
    there = [key for key in keys if key in old and key in new]
    rows = [old[key] for key in there], [new[key] for key in there]
    text = f"{pair.old.name} → {pair.new.name}"
    old_settings, new_settings = (side.run.header.settings for side in sides)
    between = any(
        test.unit == "processes"
        for change in doubtful
        for test in change.judged.tests
        if change.row.row.key in there
    )
    rounds = rounds or rounds_for(old_settings, new_settings, between=between)
    click.echo(
        f"compare: {text}: {several(len(there), 'row')} to measure again"
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
        old=matrix_of(pair.old.name, measured[0]),
        new=matrix_of(pair.new.name, measured[1]),
        left=left,
    )
