"""Where reports go: a file that is replaced whole or not at all, standard output, a web browser, or a terminal of some width."""

from __future__ import annotations

import errno
import os
import re
import shutil
import sys
import textwrap
import webbrowser
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

import click

from detmatrix.scanner.errors import UsageError, one_line
from detmatrix.scanner.observations.writer import cannot_write

_PIECE = 1 << 16  # bytes per write, roughly


def write_whole(path: Path, pieces: Iterable[str], runs: Sequence[str] = ()) -> None:
    """Write a report through a temporary file beside it, so that a failure leaves what was there before.

    Args:
        path: Where to. A link is followed; a device such as ``/dev/null`` is written directly.
        pieces: The text.
        runs: The run files it was made from, which it must not replace.

    Raises:
        UsageError: The place cannot be written, or a run file lies there.
    """
    check_place(path, runs)
    target = Path(os.path.realpath(path))
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


def check_place(path: Path, runs: Sequence[str] = (), option: str = "-o") -> None:
    """Refuse a place that a report cannot be written to, before what takes long is done for it.

    Raises:
        UsageError: The place cannot be written, or a run file lies there.
    """
    if any(path.exists() and Path(run).exists() and path.samefile(run) for run in runs):
        raise UsageError(f"{path}: is one of the run files reported on; choose another place with -o")
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise UsageError(f"{path}: is a folder; name a file in it with {option}")
    for missing, number in (
        (not target.parent.exists(), errno.ENOENT),
        (not target.parent.is_dir(), errno.ENOTDIR),
        (not os.access(target if target.exists() else target.parent, os.W_OK), errno.EACCES),
    ):
        if missing:
            raise cannot_write(path, OSError(number, os.strerror(number)), option)


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


def write_report(
    path: Path, pieces: Iterable[str], runs: Sequence[str] = (), *, page: bool = False, opens: bool = False
) -> None:
    """Write a report whole, and say where it is: of a page always, of others to whoever waits at a terminal.

    Args:
        path: Where to.
        pieces: The text.
        runs: The files it was made from, which it must not replace.
        page: Whether it is a web page.
        opens: Whether a browser is to show it; that there is none is told, and no failure.

    Raises:
        UsageError: The place cannot be written, or a run file lies there.
    """
    write_whole(path, pieces, runs)
    if page or sys.stderr.isatty():
        click.echo(one_line(f"Wrote {path}"), err=True)
    if opens and not _opened(path.resolve().as_uri()):
        click.echo(f"detmatrix: no web browser was found; open {path.resolve().as_uri()}", err=True)


def _opened(address: str) -> bool:
    try:
        return webbrowser.open(address)
    except (webbrowser.Error, OSError):
        return False


# --- Text for a terminal: as wide as that is, and 80 columns where nobody looks at one

NARROW, _WIDE = 80, 160


def columns() -> int:
    """Return how many columns a text may take."""
    if not sys.stdout.isatty():
        return NARROW
    return min(max(shutil.get_terminal_size((NARROW, 24)).columns, NARROW // 2), _WIDE)


def wrapped(text: str, indent: str = "", width: int | None = None) -> list[str]:
    """Break a text into lines; what goes on stands further in. Names and options stay whole."""
    return textwrap.wrap(
        one_line(text),
        columns() if width is None else width,
        initial_indent=indent,
        subsequent_indent=f"{indent}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def fitted(names: Iterable[str], width: int, most: int = 0) -> dict[str, str]:
    """Return each name on one line; one that is too wide without what stands before a dot or a colon of it.

    Two names do not read the same: what would stays whole. That, or a last part that is too wide, may take *most* columns.
    """
    texts: dict[str, str] = {}
    most = max(width, most)
    for name in dict.fromkeys(names):
        whole = one_line(name)
        ends = [f"…{whole[dot.end() :]}" for dot in re.finditer(r"[.:]", whole)]
        texts[name] = next((text for text in (whole, *ends) if len(text) <= width), (whole, *ends)[-1])
    counts = Counter(texts.values())
    chosen = {name: text if counts[text] == 1 else one_line(name) for name, text in texts.items()}
    return {
        name: text if len(text) <= most else f"…{text[len(text) - most + 1 :]}"
        for name, text in chosen.items()
    }
