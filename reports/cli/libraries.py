"""The ``libraries`` command: what the libraries below PyTorch document of reproducibility."""

from __future__ import annotations

import click

from reports.cli.writing import Place, writes
from reports.libraries import RENDERERS, documented_libraries, libraries_view


@click.command()
@click.argument("names", metavar="[LIBRARY]...", nargs=-1)
@writes(RENDERERS, "Text for a terminal, Markdown, JSON, or a web page.", default="text")
def libraries(names: tuple[str, ...], to: Place) -> int:
    """Say what cuBLAS, cuDNN, MKL and others document of reproducibility: documented, not measured.

    Each entry has the condition, the setting that changes it, a quotation with its link, and the ops that call the
    routine. LIBRARY is a name such as cuDNN; without one all are told.
    """
    return to.write(libraries_view(documented_libraries(), names))
