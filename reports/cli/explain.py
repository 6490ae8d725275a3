"""The ``explain`` command: all that is known of one op."""

from __future__ import annotations

from pathlib import Path

import click

from detmatrix.reports.cli.writing import Place, writes
from detmatrix.reports.explain import RENDERERS, explained
from detmatrix.reports.libraries import libraries_of
from detmatrix.reports.matrix.model import Matrix, is_about, narrowed, recorded
from detmatrix.reports.render.json import View
from detmatrix.scanner.cases.known import KnownOp, op_called
from detmatrix.scanner.claims.matching import device_kind
from detmatrix.scanner.claims.tables import documented_claims, documented_versions
from detmatrix.scanner.cli.options import complete_op
from detmatrix.scanner.observations import versions
from detmatrix.scanner.observations.records import Claim
from detmatrix.scanner.observations.runfile import read_run

DEFAULT_RUN = Path("detmatrix.jsonl")


@click.command()
@click.argument("op", metavar="OP", shell_complete=complete_op)
@click.argument("runs", metavar="[RUN]...", nargs=-1)
@writes(RENDERERS, "Text for a terminal, Markdown, or JSON.", default="text")
def explain(op: str, runs: tuple[str, ...], to: Place) -> int:
    """Say all that is known of one op: documented, measured, simulated, why, what to do, what it costs.

    OP is a name as you type it: conv2d, torch.nn.functional.conv2d, nn.Conv2d, Dropout. RUN is a file that scan wrote; by
    default detmatrix.jsonl, or without one the runs that are recorded with detmatrix, which the text names.
    """
    view, paths = view_of(op, runs or ((str(DEFAULT_RUN),) if DEFAULT_RUN.exists() else ()))
    return to.write(view, paths)


def view_of(op: str, paths: tuple[str, ...]) -> tuple[View, tuple[str, ...]]:
    """Return what is known of one op, and the run files it is from: those named, or without any the recorded ones."""
    lists = {it: documented_claims(it) for it in sorted(documented_versions(), key=versions.key)}
    targets = [name for claims in lists.values() for claim in claims for name in claim.targets]
    given = [read_run(path) for path in paths]
    known = op_called(op, [row for run in given for row in run.header.planned], targets)
    if paths:
        matrices = narrowed(paths, given, known.is_about)
    else:
        paths, matrices = _recorded(known)
    about: dict[str, list[Claim]] = {
        version: [claim for claim in claims if is_about(claim, known.names)]
        for version, claims in lists.items()
    }
    view = explained(
        known.name, known.specs, known.why, about, matrices, paths, libraries=libraries_of(known.names)
    )
    return view, paths


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
