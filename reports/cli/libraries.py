"""The ``libraries`` command: what the libraries below PyTorch document of reproducibility."""

from __future__ import annotations

from pathlib import Path

import click

from reports.libraries import RENDERERS, documented_libraries, libraries_view
from reports.render.output import write_report, write_to_stdout
from scanner.cli.options import form_of, format_option, output_option
from scanner.errors import EXIT_DONE


@click.command()
@click.argument("names", metavar="[LIBRARY]...", nargs=-1)
@format_option(RENDERERS, "Text for a terminal, Markdown, JSON, or a web page.", default="text")
@output_option
def libraries(names: tuple[str, ...], form: str | None, output: str | None) -> int:
    """Say what cuBLAS, cuDNN, MKL and others document of reproducibility: documented, not measured.

    Each entry has the condition, the setting that changes it, a quotation with its link, and the ops that call the
    routine. LIBRARY is a name such as cuDNN; without one all are told.
    """
    view = libraries_view(documented_libraries(), names)
    pieces = RENDERERS[form_of(form, output, RENDERERS, "text")](view)
    if output is None:
        write_to_stdout(pieces)
    else:
        write_report(Path(output), pieces)
    return EXIT_DONE
