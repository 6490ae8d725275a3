"""The ``compare`` command: runs in, what changed between them out."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

import click

from reports import compare_json, compare_markdown
from reports.compare import Comparison
from reports.compare import compare as compare_runs
from reports.compare_confirm import measure_again
from reports.compare_rows import CHANGES
from reports.compare_words import failing
from reports.matrix import load
from reports.output import write_report, write_to_stdout
from scanner.errors import EXIT_CHECK_FAILED, EXIT_DONE, UsageError
from scanner.plan import MOST_RUNS

RENDERERS: dict[str, Callable[[Comparison], Iterator[str]]] = {
    "md": compare_markdown.render,
    "json": compare_json.render,
}
# What a check fails on, the worst first.
FAILS: dict[str, tuple[str, ...]] = {"regression": ("regressed",), "change": CHANGES}


@click.command()
@click.argument("runs", metavar="RUN RUN...", nargs=-1, required=True)
@click.option(
    "--format",
    "form",
    type=click.Choice(list(RENDERERS)),
    default="md",
    show_default=True,
    help="Tables for people, or JSON.",
)
@click.option(
    "--fail-on",
    type=click.Choice(list(FAILS)),
    help="Exit 1 when a row regressed, or changed in any way, and print those rows first, one line each; also when "
    "two runs could not be compared in any row. Unconfirmed changes count.",
)
@click.option(
    "--confirm",
    is_flag=True,
    help="Measure the rows that seem to differ again, both runs in turns, and only then call them changed.",
)
@click.option(
    "--python",
    "pythons",
    multiple=True,
    metavar="PATH",
    help="With --confirm: the interpreter that has the torch of a run. Once for each run, in their order.",
)
@click.option(
    "--runs",
    "executions",
    type=click.IntRange(2, MOST_RUNS),
    metavar="N",
    help="With --confirm: executions per process, of which there are at least twice as many as the scans had. "
    "Default: as many as the scans had.",
)
@click.option("-o", "--output", metavar="FILE", help="Write to FILE instead of standard output.")
def compare(
    runs: tuple[str, ...],
    form: str,
    fail_on: str | None,
    confirm: bool,
    pythons: tuple[str, ...],
    executions: int | None,
    output: str | None,
) -> int:
    """Say what changed between runs: which ops improved, regressed, or cannot be compared, and why.

    RUN is a file that scan wrote, or one compressed with gzip (.gz). Each is compared with the one before it on the
    same kind of device; more than two make a timeline.
    """
    if len(runs) == 1:
        raise UsageError(f"{runs[0]}: one run has nothing to be compared with; give at least two")
    if not confirm and (pythons or executions):
        raise click.UsageError(f"{'--python' if pythons else '--runs'} is for --confirm; give both")
    matrices = load(runs)
    comparison = compare_runs(matrices)
    if confirm:
        # A batch system that ends the job gives it time to stop its workers.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        comparison = compare_runs(matrices, measure_again(comparison, pythons, executions))
    failures = [f"{_one_line(line)}\n" for line in failing(comparison, FAILS[fail_on])] if fail_on else []
    pieces = RENDERERS[form](comparison)
    if output is not None:
        write_report(Path(output), pieces, runs)
        write_to_stdout(failures)
    elif form == "json":
        # What goes to standard output is read by a machine.
        click.echo("".join(failures), nl=False, err=True)
        write_to_stdout(pieces)
    else:
        write_to_stdout(chain(failures, ["\n"] if failures else [], pieces))
    return EXIT_CHECK_FAILED if failures else EXIT_DONE


def _one_line(text: str) -> str:
    """Join lines, and spell out what a terminal could take for a command: errors of ops are quoted."""
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode() for c in " ".join(text.split())
    )
