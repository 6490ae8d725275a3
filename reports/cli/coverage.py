"""The ``coverage`` command: which of PyTorch's overloads the rows of run files reach."""

from __future__ import annotations

from pathlib import Path

import click

from reports.coverage import RENDERERS, coverages
from reports.matrix.model import load
from reports.render.output import write_report, write_to_stdout
from scanner.cli.options import form_of, format_option, output_option, runs_argument
from scanner.errors import EXIT_DONE


@click.command()
@runs_argument
@format_option(RENDERERS, "Markdown, in which long lists are cut, or JSON, which has all of them.")
@output_option
def coverage(runs: tuple[str, ...], form: str | None, output: str | None) -> int:
    """Say which of PyTorch's overloads the rows of run files reach, and which they never do.

    RUN is a file that scan wrote, or one compressed with gzip (.gz). Runs of one build on one kind of device are
    joined.
    """
    pieces = RENDERERS[form_of(form, output, RENDERERS)](coverages(load(runs)))
    if output is None:
        write_to_stdout(pieces)
    else:
        write_report(Path(output), pieces, runs)
    return EXIT_DONE
