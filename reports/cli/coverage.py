"""The ``coverage`` command: which of PyTorch's overloads the rows of run files reach."""

from __future__ import annotations

import click

from reports.cli.writing import Place, writes
from reports.coverage import RENDERERS, coverages
from reports.matrix.model import load
from scanner.cli.options import runs_argument


@click.command()
@runs_argument
@writes(RENDERERS, "Markdown, in which long lists are cut, or JSON, which has all of them.")
def coverage(runs: tuple[str, ...], to: Place) -> int:
    """Say which of PyTorch's overloads the rows of run files reach, and which they never do.

    RUN is a file that scan wrote, or one compressed with gzip (.gz). Runs of one build on one kind of device are
    joined.
    """
    return to.write(coverages(load(runs)), runs)
