"""``detmatrix merge``: the run files of one plan in, one run file out."""

from __future__ import annotations

import os
from pathlib import Path

import click

from detmatrix.scanner.cli.options import refuse_report_name, runs_argument
from detmatrix.scanner.errors import EXIT_DONE, UsageError, one_line
from detmatrix.scanner.observations.merge import merged_beside
from detmatrix.scanner.observations.writer import cannot_write


@click.command(name="merge")
@runs_argument
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), required=True, metavar="ALL.jsonl",
              help="The merged run file; compressed if its name ends in .gz.")  # fmt: skip
@click.option("--force", is_flag=True, help="Overwrite whatever is there.")
def command(runs: tuple[str, ...], output: Path, *, force: bool) -> int:
    """Join run files of one plan into one, which all commands take.

    RUN is a file that scan --shard wrote. The builds of torch, the settings and the catalogs must be the
    same; machines may differ. The order does not matter.
    """
    refuse_report_name(str(output.with_suffix("") if output.suffix == ".gz" else output))
    paths = [Path(run) for run in runs]
    if any(output.exists() and path.exists() and output.samefile(path) for path in paths):
        raise UsageError(f"{output}: is one of the files to merge; choose another place with -o")
    if output.exists() and not force:
        raise UsageError(
            f"{output}: is there already; choose another place with -o, or overwrite it with --force"
        )
    try:
        with merged_beside(paths, output) as (beside, missing):
            # Where a link leads; a failure leaves what was there before.
            beside.replace(os.path.realpath(output))
    except OSError as error:
        raise cannot_write(output, error) from error
    if missing:
        click.echo(one_line(f"{output}: {missing}"), err=True)
    return EXIT_DONE
