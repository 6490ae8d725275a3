"""The ``compare`` command: runs in, what changed between them out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

import click

from reports import blocks, compare_excerpt, compare_html, compare_json, compare_markdown
from reports.compare import Comparison
from reports.compare import compare as compare_runs
from reports.compare_rows import CHANGES
from reports.compare_words import failing
from reports.matrix import load
from reports.output import write_report, write_to_stdout
from scanner.errors import EXIT_CHECK_FAILED, EXIT_DONE, UsageError

BLOCK = "compare"
RENDERERS: dict[str, Callable[[Comparison], Iterator[str]]] = {
    "md": compare_markdown.render,
    "html": compare_html.render,
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
    help="Tables for people, a web page that works offline, or JSON.",
)
@click.option(
    "--fail-on",
    type=click.Choice(list(FAILS)),
    help="Exit 1 when a row regressed, or changed in any way, and print those rows first, one line each; also when "
    "two runs could not be compared in any row. Unconfirmed changes count.",
)
@click.option("-o", "--output", metavar="FILE", help="Write to FILE instead of standard output.")
@click.option(
    "--into",
    metavar="FILE",
    help="Regenerate the block between the markers '<!-- detmatrix compare:begin -->' and "
    "'<!-- detmatrix compare:end -->' of a Markdown file: a line for each step from one run to the next, and for each "
    "op that changed.",
)
@click.option("--check", is_flag=True, help="With --into: exit 1 when the block is stale, and write nothing.")
def compare(
    runs: tuple[str, ...], form: str, fail_on: str | None, output: str | None, into: str | None, check: bool
) -> int:
    """Say what changed between runs: which ops improved, regressed, or cannot be compared, and why.

    RUN is a file that scan wrote, or one compressed with gzip (.gz). Each is compared with the one before it on the
    same kind of device; more than two make a timeline.
    """
    if len(runs) == 1:
        raise UsageError(f"{runs[0]}: one run has nothing to be compared with; give at least two")
    if into is not None and (output is not None or fail_on is not None or form != "md"):
        raise UsageError(
            "--into writes Markdown into a file of its own; give it without -o, --format and --fail-on"
        )
    if check and into is None:
        raise UsageError("--check says whether the block in a file is stale; name the file with --into")
    comparison = compare_runs(load(runs))
    if into is not None:
        command = blocks.command_words("compare", runs, ["--into", Path(into).name])
        body = "".join(compare_excerpt.render(comparison))
        return blocks.update(Path(into), BLOCK, command, body, runs, check=check)
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
