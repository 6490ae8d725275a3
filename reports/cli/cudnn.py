"""The ``cudnn`` command: a cuDNN in, its engines and their numerical notes out."""

from __future__ import annotations

from pathlib import Path

import click

from reports.cudnn.render import RENDERERS
from reports.render.output import check_place, write_report, write_to_stdout
from scanner.cli.options import Names, form_of, format_option, output_option
from scanner.cudnn.enums import DATA_TYPES
from scanner.cudnn.gpus import GPUS, PRESENT
from scanner.cudnn.record import read_table
from scanner.cudnn.take import driver_is_there, find_library, take
from scanner.errors import EXIT_DONE, UsageError, one_line

_LAYOUTS = ("contiguous", "channels_last")


@click.command()
@click.option(
    "--library",
    metavar="PATH",
    help="The libcudnn.so.9 to ask. Default: the one that pip installed beside this Python.",
)
@click.option("--arch", type=Names(), metavar="NAME[,NAME...]",
              help=f"GPUs to ask about: {', '.join(GPUS)}, which are described to cuDNN, and {PRESENT}, the one that is "
              "there. Default: all that can be asked about.")  # fmt: skip
@click.option("--read", "recorded", metavar="TABLE.json", multiple=True,
              help="Render this recorded table (.gz too) instead; of several, what changed from one to the next.")  # fmt: skip
@format_option(RENDERERS, "Text, tables, a page, or JSON: the record, to be read again.", "text")
@output_option
def cudnn(
    library: str | None,
    arch: tuple[str, ...] | None,
    recorded: tuple[str, ...],
    form: str | None,
    output: str | None,
) -> int:
    """Ask cuDNN which of its engines are nondeterministic, and where PyTorch tries one first.

    No GPU is needed: GPUs are described to cuDNN (9.8 or newer), and without NVIDIA's driver a stub of it is compiled
    into a temporary folder. No engine is run: what cuDNN says is expected, not measured, and an engine
    that it accepts may still not run.
    """
    if output is not None and output.endswith(".gz"):
        raise UsageError(f"{output}: a table is written plain; choose a name without .gz, compress it later")
    if recorded and (library is not None or arch is not None):
        raise UsageError("--read renders a recorded table; leave --library and --arch out")
    render = RENDERERS[form_of(form, output, RENDERERS, "text")]
    if output is not None:
        check_place(Path(output), recorded)
    if recorded:
        tables = [read_table(path) for path in recorded]
    else:
        gpus = arch or (*GPUS, *([PRESENT] if driver_is_there() else []))
        unknown = [name for name in gpus if name not in (*GPUS, PRESENT)]
        if unknown:
            raise UsageError(
                f"--arch: no GPU {unknown[0]!r} is described; choose: {', '.join((*GPUS, PRESENT))}"
            )
        tables = [take(library or find_library(), gpus, tuple(DATA_TYPES), _LAYOUTS, _say)]
    if output is None:
        write_to_stdout(render(tables))
    else:
        write_report(Path(output), render(tables), recorded)
    return EXIT_DONE


def _say(what: str) -> None:
    """Say on standard error what is being done."""
    click.echo(f"cudnn: {one_line(what)}", err=True)
