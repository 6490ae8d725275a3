"""The ``report`` command: run files in, one report out, written whole or not at all."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import click

from detmatrix.reports import checks
from detmatrix.reports.cli.docs import given_or_recorded
from detmatrix.reports.commands import CHECK_WITHOUT_INTO, Block, command_words, deliver, refuse
from detmatrix.reports.matrix.model import Matrix, load, matrix_of, parse_findings, without
from detmatrix.reports.render import columns, write_to_stdout
from detmatrix.reports.report import page, text
from detmatrix.reports.report.view import markdown, render_csv, render_json, report_view
from detmatrix.scanner.cli.options import (
    block_check_option,
    form_of,
    format_option,
    into_option,
    output_option,
)
from detmatrix.scanner.cli.setting_options import FINDINGS_HELP, except_option, fail_on_option
from detmatrix.scanner.errors import EXIT_CHECK_FAILED, EXIT_DONE, one_line
from detmatrix.scanner.observations.runfile import Run

# What a check fails on decides in these what an error is.
FOR_CI = {"junit": checks.render_junit, "github": checks.render_github}
Renderer = Callable[[Sequence[Matrix]], Iterator[str]]

BLOCK = "matrix"
RENDERERS: dict[str, Renderer] = {
    "text": lambda matrices: text.shown(report_view(matrices)),
    "md": markdown,
    "html": page.render,
    "csv": render_csv,
    "json": render_json,
    **FOR_CI,
}
# The long form of those that leave out what needs nobody's attention.
LONG: dict[str, Renderer] = {
    "text": lambda matrices: text.shown(report_view(matrices), whole=True),
    "md": partial(markdown, whole=True),
}


@click.command()
@click.argument("runs", metavar="[RUN]...", nargs=-1)
@format_option(
    RENDERERS,
    "Text for a terminal, Markdown, a web page that works offline, a table for machines, or what CI systems read: JUnit "
    "XML and annotations of GitHub.",
    default="text on a terminal and md elsewhere",
)
@output_option
@click.option(
    "--open",
    "opens",
    is_flag=True,
    help="Open the page in a web browser; implies --format html. Without -o it is written into this folder, named after "
    "the run.",
)
@click.option(
    "--only",
    metavar="FINDING,...",
    multiple=True,
    help=f"Only the rows with these findings: {FINDINGS_HELP}.",
)
@click.option(
    "--rows",
    "patterns",
    metavar="PATTERN",
    multiple=True,
    help="Only the rows that PATTERN selects, as in scan: the name of an op, a family, or a row id "
    "spec:case:direction:dtype. May be given more than once.",
)
@click.option(
    "--all",
    "whole",
    is_flag=True,
    help="In text every op, those with nothing to do too; in Markdown also every row and what lies behind it.",
)
@click.option(
    "--level",
    type=click.Choice(["ops", "rows"]),
    help="Of csv: a line for each op in each release, or for each row. Default: rows. JSON has both.",
)
@into_option(BLOCK, ": the counts and the ops, with --all their rows too.")
@fail_on_option
@except_option
@block_check_option
def report(
    runs: tuple[str, ...],
    form: str | None,
    output: str | None,
    only: tuple[str, ...],
    patterns: tuple[str, ...],
    into: str | None,
    *,
    opens: bool,
    whole: bool,
    level: str | None,
    fail_on: tuple[str, ...] | None,
    excepted: tuple[str, ...],
    check: bool,
) -> int:
    """Say what run files mean: the worst case of each op, the worst first, and what to do about it.

    RUN is a file that scan wrote, or one compressed with gzip (.gz). Several of them make one report. By default it is
    detmatrix.jsonl, or without one the runs of the newest release that are recorded with detmatrix.
    """
    runs = runs or given_or_recorded("report")
    findings = parse_findings(only)
    refuse(
        (
            opens and (form not in {None, "html"} or into is not None),
            "--open shows the web page; give it without --into, and with no other --format",
        )
    )
    if opens:
        # Named after the run.
        name = Path(runs[0]).name if len(runs) == 1 else "detmatrix"
        form = "html"
        output = output or f"{name.removesuffix('.gz').removesuffix('.jsonl')}.html"
    on_terminal = output is None and into is None and sys.stdout.isatty()
    form = form_of(form, output, RENDERERS, "text" if on_terminal else "md")
    refuse(
        (whole and form not in LONG, f"--all is for {' and '.join(LONG)}: {form} leaves nothing out"),
        (level and form != "csv", "--level says what a line of csv is about; give it with --format csv"),
        (
            into is not None and (output is not None or form != "md"),
            "--into writes Markdown into a file of its own; give it without -o and --format",
        ),
        (into is not None and fail_on, "--into keeps a block up to date; give --fail-on without it"),
        (check and into is None, CHECK_WITHOUT_INTO),
        (excepted and not fail_on, "--except says which rows --fail-on lets pass; give both"),
    )
    matrices = load(runs, findings, patterns)
    judged = without(matrices, excepted)
    if into is not None:
        options = [*["--all"] * whole, *(["--only", ",".join(findings)] if findings else [])]
        options += [word for pattern in patterns for word in ("--rows", pattern)]
        command = command_words("report", runs, [*options, "--into", Path(into).name])
        body = "".join(markdown(matrices, whole=whole, excerpt=True))
        return Block(Path(into), BLOCK).update(command, body, runs, check=check)
    render = partial(render_csv, level=level) if level else (LONG if whole else RENDERERS)[form]
    if form in FOR_CI and fail_on:
        render = partial(FOR_CI[form], fails=fail_on)
    if output is None and form == "text":
        show(matrices, whole=whole)
    else:
        deliver(render(judged if form in FOR_CI else matrices), form, output, runs, opens=opens)
    failure = checks.failing_line(judged, fail_on) if fail_on else None
    if failure is not None:
        click.echo(one_line(f"detmatrix: {failure}"), err=True)
    return EXIT_DONE if failure is None else EXIT_CHECK_FAILED


def summarize(run: Run, fails: Sequence[str] = (), excepted: Sequence[str] = ()) -> str | None:
    """Show what a scan came to; return in a line what a check of findings fails on, if there is any."""
    matrices = [matrix_of(Path(run.path).name, run)]
    show(matrices)
    return checks.failing_line(without(matrices, excepted), fails) if fails else None


def show(matrices: Sequence[Matrix], *, whole: bool = False) -> None:
    """Write what run files mean to a terminal, in colour if it has any, and behind it what to do next."""
    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    shown = report_view(matrices)
    write_to_stdout(text.shown(shown, whole=whole, colour=colour, width=columns()))
    click.echo(text.following(shown), err=True)
