"""The ``explain`` command: all that is known of one op."""

from __future__ import annotations

from pathlib import Path

import click

from detmatrix.reports.cli.writing import Place, writes
from detmatrix.reports.explain import RENDERERS, known_op, lists_by_release, view_of_known
from detmatrix.reports.instead import instead_of
from detmatrix.reports.matrix.model import Matrix, narrowed, recorded
from detmatrix.reports.render import View
from detmatrix.scanner.cases.known import KnownOp
from detmatrix.scanner.claims.matching import device_kind
from detmatrix.scanner.cli.options import complete_op
from detmatrix.scanner.observations.runfile import read_run

DEFAULT_RUN = Path("detmatrix.jsonl")


@click.command()
@click.argument("op", metavar="OP", shell_complete=complete_op)
@click.argument("runs", metavar="[RUN]...", nargs=-1)
@writes(RENDERERS, "Text for a terminal, Markdown, a web page, or JSON.", default="text")
def explain(op: str, runs: tuple[str, ...], to: Place) -> int:
    """Say all that is known of one op: documented, measured, simulated, why, what to do, what it costs.

    OP is a name as you type it: conv2d, torch.nn.functional.conv2d, nn.Conv2d, Dropout. RUN is a file that scan wrote; by
    default detmatrix.jsonl, or without one the runs that are recorded with detmatrix, which the text names.
    """
    view, paths = view_of(op, runs or ((str(DEFAULT_RUN),) if DEFAULT_RUN.exists() else ()))
    return to.write(view, paths)


def view_of(op: str, paths: tuple[str, ...]) -> tuple[View, tuple[str, ...]]:
    """Return what is known of one op, and the run files it is from: those named, or without any the recorded ones."""
    lists = lists_by_release()
    given = [read_run(path) for path in paths]
    known = known_op(op, given, lists)
    spellings = narrowed(paths, given, lambda row: row.source == "instead")
    instead = instead_of(known.specs, [*zip(paths, spellings, strict=True)])
    if paths:
        matrices = narrowed(paths, given, known.is_about)
    else:
        paths, matrices = _recorded(known)
    return view_of_known(known, lists, matrices, paths, instead), paths


def _recorded(known: KnownOp) -> tuple[tuple[str, ...], list[Matrix]]:
    """Return the recorded runs of the documented ops, and those of all ops where the CPU has no row in them."""
    whole = recorded(what="cpu-all")
    documented = [path for path in recorded() if path not in whole]
    runs = {path: read_run(path) for path in documented}
    matrices = narrowed(documented, [*runs.values()], known.is_about)
    found = [one for one in matrices if one.rows]
    if not any(device_kind(one.run.header.settings.device) == "cpu" for one in found):
        runs = (runs if found else {}) | {path: read_run(path) for path in whole}
        matrices = narrowed([*runs], [*runs.values()], known.is_about)
    return (tuple(runs), matrices) if any(one.rows for one in matrices) else ((), [])
