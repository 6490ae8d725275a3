"""The ``report`` command: run files in, one report out, written whole or not at all."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

import click

from reports import data, html, markdown
from reports.matrix import FINDINGS, Matrix, load, parse_findings
from scanner.errors import UsageError
from scanner.runfile import cannot_write

Renderer = Callable[[Sequence[Matrix]], Iterator[str]]

RENDERERS: dict[str, Renderer] = {
    "md": markdown.render,
    "html": html.render,
    "csv": data.render_csv,
    "json": data.render_json,
}
_PIECE = 1 << 16  # bytes per write, roughly


@click.command()
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@click.option(
    "--format",
    "form",
    type=click.Choice(list(RENDERERS)),
    default="md",
    show_default=True,
    help="Markdown, a web page that works offline, or a table for machines.",
)
@click.option("-o", "--output", metavar="FILE", help="Write to FILE instead of standard output.")
@click.option(
    "--only",
    metavar="FINDING,...",
    multiple=True,
    help=f"Only the rows with these findings: {', '.join(FINDINGS)}.",
)
def report(runs: tuple[str, ...], form: str, output: str | None, only: tuple[str, ...]) -> None:
    """Say what run files mean: the matrix of verdicts and findings.

    RUN is a file that scan wrote, or one compressed with gzip (.gz). Several of them make one report.
    """
    findings = parse_findings(only)
    pieces = RENDERERS[form](load(runs, findings))
    if output is None:
        write_to_stdout(pieces)
    else:
        write_report(Path(output), pieces, runs)


def write_report(path: Path, pieces: Iterable[str], runs: Sequence[str] = ()) -> None:
    """Write a report through a temporary file beside it, so that a failure leaves what was there before.

    Args:
        path: Where to. A link is followed; a device such as ``/dev/null`` is written directly.
        pieces: The text.
        runs: The run files it was made from, which it must not replace.

    Raises:
        UsageError: The place cannot be written, or a run file lies there.
    """
    if any(path.exists() and Path(run).exists() and path.samefile(run) for run in runs):
        raise UsageError(f"{path}: is one of the run files reported on; choose another place with -o")
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise UsageError(f"{path}: is a folder; name a file in it with -o")
    direct = target.exists() and not target.is_file()
    beside = target if direct else target.with_name(f".detmatrix-{os.getpid()}.part")
    try:
        with beside.open("wb") as file:
            _write(file, pieces)
        if not direct:
            beside.replace(target)
    except OSError as error:
        raise cannot_write(path, error) from error
    finally:
        if not direct:
            with suppress(OSError):
                beside.unlink(missing_ok=True)


def write_to_stdout(pieces: Iterable[str]) -> None:
    """Write to standard output, in UTF-8 whatever the terminal's encoding, so that bytes are the same."""
    try:
        _write(sys.stdout.buffer, pieces)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise cannot_write(Path("standard output"), error) from error


def _write(file: IO[bytes], pieces: Iterable[str]) -> None:
    """Write *pieces* in larger ones."""
    waiting: list[str] = []
    size = 0
    for piece in pieces:
        waiting.append(piece)
        size += len(piece)
        if size >= _PIECE:
            file.write("".join(waiting).encode())
            waiting, size = [], 0
    file.write("".join(waiting).encode())
    file.flush()
