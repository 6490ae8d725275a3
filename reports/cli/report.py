"""The ``report`` command: run files in, one report out, written whole or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import click

from reports.matrix.model import FINDINGS, Matrix, load, parse_findings
from reports.render import blocks
from reports.render.browse import open_option, place_of, write_page
from reports.render.output import form_of, write_report, write_to_stdout
from reports.report import export, html, markdown
from reports.report.expected_files import with_builds
from scanner.cli.options import block_check_option, format_option, into_option, output_option, runs_argument
from scanner.errors import EXIT_DONE, UsageError

Renderer = Callable[[Sequence[Matrix]], Iterator[str]]

BLOCK = "matrix"
RENDERERS: dict[str, Renderer] = {
    "md": markdown.render,
    "html": html.render,
    "csv": export.render_csv,
    "json": export.render_json,
}


@click.command()
@runs_argument
@format_option(
    RENDERERS,
    "Markdown, a web page that works offline, or a table for machines. Default: what the name given with -o ends in, "
    "else md.",
    default=None,
)
@output_option
@open_option
@click.option(
    "--only",
    metavar="FINDING,...",
    multiple=True,
    help=f"Only the rows with these findings: {', '.join(FINDINGS)}.",
)
@click.option(
    "--rows",
    "patterns",
    metavar="PATTERN",
    multiple=True,
    help="Only the rows whose id, spec:case:direction:dtype, matches; * and ? match as in a shell. May be given "
    "more than once.",
)
@into_option(BLOCK, ": the counts and the rows, without environment and words.")
@click.option(
    "--census",
    "censuses",
    metavar="FILE",
    multiple=True,
    help="Say beside each row what this census of its build says, which is expected and not measured. May be given "
    "more than once.",
)
@click.option(
    "--trace",
    "traces",
    metavar="FILE",
    multiple=True,
    help="Say beside each row what its case reaches in this trace, likewise. May be given more than once.",
)
@block_check_option
def report(
    runs: tuple[str, ...],
    form: str | None,
    output: str | None,
    opens: bool,
    only: tuple[str, ...],
    patterns: tuple[str, ...],
    into: str | None,
    censuses: tuple[str, ...],
    traces: tuple[str, ...],
    check: bool,
) -> int:
    """Say what run files mean: the matrix of verdicts and findings.

    RUN is a file that scan wrote, or one compressed with gzip (.gz). Several of them make one report.
    """
    findings = parse_findings(only)
    if opens and (form not in {None, "html"} or into is not None):
        raise UsageError("--open shows the web page; give it without --into, and with no other --format")
    if opens:
        form, output = "html", output or place_of(runs)
    form = form or form_of(output or "", RENDERERS)
    if into is not None and (output is not None or form != "md"):
        raise UsageError("--into writes Markdown into a file of its own; give it without -o and --format")
    if check and into is None:
        raise UsageError("--check says whether the block in a file is stale; name the file with --into")
    matrices = load(runs, findings, patterns)
    if censuses or traces:
        matrices = with_builds(matrices, censuses, traces)
    if into is not None:
        options = [*(["--only", ",".join(findings)] if findings else [])]
        options += [word for pattern in patterns for word in ("--rows", pattern)]
        options += [word for path in censuses for word in ("--census", blocks.shown(path))]
        options += [word for path in traces for word in ("--trace", blocks.shown(path))]
        command = blocks.command_words("report", runs, [*options, "--into", Path(into).name])
        body = "".join(markdown.excerpt(matrices))
        return blocks.update(Path(into), BLOCK, command, body, runs, check=check)
    pieces = RENDERERS[form](matrices)
    if output is None:
        write_to_stdout(pieces)
    elif form == "html":
        write_page(Path(output), pieces, (*runs, *censuses, *traces), opens=opens)
    else:
        write_report(Path(output), pieces, (*runs, *censuses, *traces))
    return EXIT_DONE
