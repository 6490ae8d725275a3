"""The ``site`` command: run files in, a folder of pages out, for a web server or to be opened from a disk."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import click

from detmatrix.reports.matrix.model import RECORDED, recorded
from detmatrix.reports.render import write_whole
from detmatrix.reports.site import FRONT, site
from detmatrix.scanner.errors import EXIT_DONE, UsageError, one_line
from detmatrix.scanner.observations.runfile import read_run
from detmatrix.scanner.observations.writer import cannot_write
from detmatrix.scanner.plurals import several

# What tells a folder that this command has written from one that it must not touch.
_MARK = ".detmatrix-site"


@click.command(name="site")
@click.argument("runs", metavar="[RUN]...", nargs=-1)
@click.option(
    "-o",
    "--output",
    "folder",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    default=Path("detmatrix-site"),
    show_default=True,
    help="Where to write it: a new or empty folder, or one that this command wrote.",
)
def command(runs: tuple[str, ...], folder: Path) -> int:
    """Make a site of run files: the newest release's ops, a page for each op, each release's matrix, and the files themselves.

    RUN is a file that scan wrote; by default those that are recorded with detmatrix. The pages need no server: open FOLDER/index.html.
    """
    own = {} if runs else {path.stem: path.read_text(encoding="utf-8") for path in _reports()}
    read = {path: read_run(path) for path in runs or recorded()}
    _check(folder)
    for name, count in Counter(Path(path).name for path in read).items():
        if count > 1:
            raise UsageError(
                f"{name}: {count} runs have this name, and lie in one folder of the site; rename them"
            )
    written = 0
    try:
        for place in ("ops", "releases", "reports", "runs"):
            (folder / place).mkdir(parents=True, exist_ok=True)
        (folder / _MARK).touch()
        for path in read:
            shutil.copyfile(path, folder / "runs" / Path(path).name)
        for place, pieces in site(read, own):
            write_whole(folder / place, pieces, ())
            written += 1
    except OSError as error:
        raise cannot_write(folder, error) from None
    click.echo(one_line(f"Wrote {several(written, 'page')}; open {folder / FRONT}"), err=True)
    return EXIT_DONE


def _reports() -> list[Path]:
    """Return the reports for PyTorch of a checkout; there are none where detmatrix is installed."""
    return sorted(path for path in (RECORDED.parent / "upstream").glob("*.md") if path.stem != "README")


def _check(folder: Path) -> None:
    if folder.exists() and (
        not folder.is_dir() or (any(folder.iterdir()) and not (folder / _MARK).is_file())
    ):
        raise UsageError(f"{folder}: is there, and no site of ours; choose another folder with -o")
