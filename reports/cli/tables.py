"""The commands ``libraries``, ``cudnn`` and ``coverage``: what is documented, what cuDNN says, which overloads rows reach."""

from __future__ import annotations

import click

from detmatrix.reports import coverage as overloads
from detmatrix.reports import cudnn as engines
from detmatrix.reports import libraries as documented
from detmatrix.reports.cli.writing import Place, writes
from detmatrix.reports.matrix.model import load
from detmatrix.scanner.cli.options import Names, runs_argument
from detmatrix.scanner.cudnn.gpus import GPUS, PRESENT
from detmatrix.scanner.cudnn.probe import DATA_TYPES
from detmatrix.scanner.cudnn.record import read_table
from detmatrix.scanner.cudnn.take import driver_is_there, find_library, take
from detmatrix.scanner.errors import UsageError, one_line


@click.command()
@click.argument("names", metavar="[LIBRARY]...", nargs=-1)
@writes(documented.RENDERERS, "Text for a terminal, Markdown, JSON, or a web page.", default="text")
def libraries(names: tuple[str, ...], to: Place) -> int:
    """Say what cuBLAS, cuDNN, MKL and others document of reproducibility: documented, not measured.

    Each entry has the condition, the setting that changes it, a quotation with its link, and the ops that call the
    routine. LIBRARY is a name such as cuDNN; without one all are told.
    """
    return to.write(documented.libraries_view(names))


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
@writes(engines.RENDERERS, "Markdown, a page, or JSON: the record, to be read again.")
def cudnn(library: str | None, arch: tuple[str, ...] | None, recorded: tuple[str, ...], to: Place) -> int:
    """Ask cuDNN which of its engines are nondeterministic, and where PyTorch tries one first.

    No GPU is needed: GPUs are described to cuDNN (9.8 or newer), and without NVIDIA's driver a stub of it is compiled
    into a temporary folder. No engine is run: what cuDNN says is expected, not measured, and an engine
    that it accepts may still not run.
    """
    if to.path is not None and to.path.endswith(".gz"):
        raise UsageError(f"{to.path}: a table is written plain; choose a name without .gz, compress it later")
    if recorded and (library is not None or arch is not None):
        raise UsageError("--read renders a recorded table; leave --library and --arch out")
    to.check(recorded)

    def said(what: str) -> None:
        click.echo(f"cudnn: {one_line(what)}", err=True)

    if recorded:
        tables = [read_table(path) for path in recorded]
    else:
        gpus = arch or (*GPUS, *([PRESENT] if driver_is_there() else []))
        unknown = [name for name in gpus if name not in (*GPUS, PRESENT)]
        if unknown:
            raise UsageError(
                f"--arch: no GPU {unknown[0]!r} is described; choose: {', '.join((*GPUS, PRESENT))}"
            )
        tables = [take(library or find_library(), gpus, tuple(DATA_TYPES), _LAYOUTS, said)]
    return to.write(tables, recorded)


@click.command()
@runs_argument
@writes(overloads.RENDERERS, "Markdown, in which long lists are cut, or JSON, which has all of them.")
def coverage(runs: tuple[str, ...], to: Place) -> int:
    """Say which of PyTorch's overloads the rows of run files reach, and which they never do.

    RUN is a file that scan wrote, or one compressed with gzip (.gz). Runs of one build on one kind of device are
    joined.
    """
    return to.write(overloads.coverages(load(runs)), runs)
