"""Pages that are written: where they are, and in a web browser if that is asked for."""

from __future__ import annotations

import webbrowser
from collections.abc import Iterable, Sequence
from pathlib import Path

import click

from reports.render.output import write_whole
from scanner.errors import one_line

open_option = click.option(
    "--open",
    "opens",
    is_flag=True,
    help="Open the page in a web browser; implies --format html. Without -o it is written into this folder, named after "
    "the run.",
)


def place_of(runs: Sequence[str]) -> str:
    """Return where a page goes that was given no place."""
    name = Path(runs[0]).name if len(runs) == 1 else "detmatrix"
    return f"{name.removesuffix('.gz').removesuffix('.jsonl')}.html"


def write_page(path: Path, pieces: Iterable[str], runs: Sequence[str] = (), *, opens: bool = False) -> None:
    """Write a page whole, say where it is, and open it if that is asked for.

    Args:
        path: Where to.
        pieces: The text.
        runs: The files it was made from, which it must not replace.
        opens: Whether a browser is to show it; that there is none is told, and no failure.

    Raises:
        UsageError: The place cannot be written, or a run file lies there.
    """
    write_whole(path, pieces, runs)
    click.echo(one_line(f"Wrote {path}"), err=True)
    if opens and not _opened(path.resolve().as_uri()):
        click.echo(f"detmatrix: no web browser was found; open {path.resolve().as_uri()}", err=True)


def _opened(address: str) -> bool:
    try:
        return webbrowser.open(address)
    except (webbrowser.Error, OSError):
        return False
