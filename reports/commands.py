"""What the commands that read files share: a format, a place, writing there, and refusing options that do not fit."""

from __future__ import annotations

import re
import shlex
import sys
import textwrap
import webbrowser
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import wraps
from pathlib import Path, PurePath
from typing import Any

import click
from msgspec import Struct

from detmatrix.reports.render import check_place, write_to_stdout, write_whole
from detmatrix.scanner.cli.options import form_of, format_option, output_option
from detmatrix.scanner.errors import EXIT_CHECK_FAILED, EXIT_DONE, UsageError, one_line

DEFAULT_RUN = Path("detmatrix.jsonl")
CHECK_WITHOUT_INTO = "--check says whether the block in a file is stale; name the file with --into"

Renderers = Mapping[str, Callable[[Any], Iterable[str]]]


class Place(Struct, frozen=True):
    """Where a report goes, and in which format."""

    renderers: Renderers
    form: str
    path: str | None  # None: standard output

    def check(self, sources: Sequence[str] = ()) -> None:
        """Refuse a place that cannot be written, or where a source lies, before what takes long is done for it."""
        if self.path is not None:
            check_place(Path(self.path), sources)

    def write(self, shown: Any, sources: Sequence[str] = ()) -> int:
        """Render what is shown, write it, and return the exit code of a command that did what it was asked for."""
        deliver(self.renderers[self.form](shown), self.form, self.path, sources)
        return EXIT_DONE


def refuse(*wrong: tuple[object, str]) -> None:
    """Refuse options that have no meaning together: the message of the first condition that holds is the error."""
    for is_so, message in wrong:
        if is_so:
            raise UsageError(message)


def deliver(
    pieces: Iterable[str], form: str, path: str | None, sources: Sequence[str] = (), *, opens: bool = False
) -> None:
    """Write a report to standard output, or into a file, which no source may be.

    It says where the file is: of a page always, of others to whoever waits at a terminal. If it *opens* it, a browser shows it.
    """
    if path is None:
        write_to_stdout(pieces)
        return
    write_whole(Path(path), pieces, sources)
    if form == "html" or sys.stderr.isatty():
        click.echo(one_line(f"Wrote {path}"), err=True)
    if opens:
        address, shown = Path(path).resolve().as_uri(), False
        with suppress(webbrowser.Error, OSError):
            shown = webbrowser.open(address)
        if not shown:
            click.echo(f"detmatrix: no web browser was found; open {address}", err=True)


def writes(
    renderers: Renderers, text: str, default: str = "md"
) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Offer the formats of a command and a file to write to; the command is handed a ``Place`` as ``to``."""

    def offered(command: Callable[..., int]) -> Callable[..., int]:
        @format_option(renderers, text, default)
        @output_option
        @wraps(command)
        def asked(*, form: str | None, output: str | None, **options: Any) -> int:
            return command(to=Place(renderers, form_of(form, output, renderers, default), output), **options)

        return asked

    return offered


# --- Blocks of a Markdown or RST file that a command regenerates in place, between two markers
#
#     <!-- detmatrix NAME:begin COMMAND -->          .. detmatrix NAME:begin COMMAND
#     <!-- detmatrix NAME:end -->                    .. detmatrix NAME:end
#
# The begin marker names the command that made the block; whoever adds a block writes it without. A block is
# indented like its markers, so that it can stand in a docstring.


def command_words(command: str, paths: Iterable[str], options: Sequence[str]) -> str:
    """Return a command as its marker shows it: its name, the files it reads, and its options.

    Of an absolute path, which names a machine, it shows the last part.
    """
    shown = [PurePath(path).name if PurePath(path).is_absolute() else path for path in paths]
    text = " ".join(shlex.join(["detmatrix", command, *shown, *options]).split())
    return text.replace("-->", "--\\>").replace("--!>", "--!\\>")  # These would end the comment.


class Block:
    """A block of a file, which is replaced whole or not at all."""

    def __init__(self, path: Path, name: str) -> None:
        """Find the block.

        Raises:
            UsageError: The file cannot be read, or does not hold exactly one such block.
        """
        self._path, self._name = path, name
        try:
            self._lines = path.read_bytes().decode().splitlines(keepends=True)
        except OSError as error:
            raise UsageError(
                f"{path}: cannot be read ({error.strerror}); name a file that has the markers"
            ) from error
        except UnicodeDecodeError as error:
            raise UsageError(f"{path}: is no UTF-8 text; name a Markdown or RST file") from error
        begins, ends = (
            [place for place, line in enumerate(self._lines) if self._marker(which, line)]
            for which in ("begin", "end")
        )
        if not (len(begins) == len(ends) == 1 and begins < ends):
            begin, end = (
                _comment(f"detmatrix {name}:{it}", rst=path.suffix == ".rst") for it in ("begin", "end")
            )
            found, also = (
                ", ".join(f"line {place + 1}" for place in places) or "none" for places in (begins, ends)
            )
            raise UsageError(
                f"{path}: the block {name!r} needs one line {begin!r} and below it one line {end!r}; found begin: {found}; "
                f"end: {also}"
            )
        (self._begin,), (self._end,) = begins, ends
        marker = self._marker("begin", self._lines[self._begin])
        assert marker is not None
        self._indent, self._commented = marker[1], marker[2] is not None

    @property
    def rst(self) -> bool:
        """Whether it stands in RST: by the file's suffix, and in other files by its marker."""
        suffix = self._path.suffix.lower()
        return suffix == ".rst" or (self._commented and suffix not in {".md", ".markdown"})

    def update(self, command: str, body: str, runs: Sequence[str] = (), *, check: bool = False) -> int:
        """Regenerate it in place, or with *check* only say whether it is stale; return the exit code.

        Raises:
            UsageError: The file cannot be written, or the block would hold a marker.
        """
        path, name, before = self._path, self._name, self._lines[self._begin : self._end + 1]
        made = [
            _comment(f"detmatrix {name}:begin {command}", rst=self._commented),
            "",
            *textwrap.dedent(body).strip("\n").split("\n"),
            "",
            before[-1].strip(),
        ]
        if any(self._marker(which, line) for which in ("begin", "end") for line in made[1:-1]):
            raise UsageError(
                f"{path}: the block {name!r} would hold a marker of its own; name the run files otherwise"
            )
        newline = "\r\n" if before[0].endswith("\r\n") else "\n"
        # What ended the end marker's line stays, and so does a file without a last newline.
        tail = before[-1][len(before[-1].rstrip("\r\n")) :]
        block = newline.join(self._indent + line if line else "" for line in made) + tail
        if block == "".join(before):
            return EXIT_DONE
        if check:
            click.echo(f"{path}: the block {name!r} is stale; regenerate it with {command}")
            return EXIT_CHECK_FAILED
        mode = path.stat().st_mode
        write_whole(path, [*self._lines[: self._begin], block, *self._lines[self._end + 1 :]], runs)
        path.chmod(mode)
        return EXIT_DONE

    def _marker(self, which: str, line: str) -> re.Match[str] | None:
        """Match a marker: its indentation, and the dots of an RST comment."""
        said = rf"detmatrix {re.escape(self._name)}:{which}(?: .*?)?"
        return re.fullmatch(rf"([ \t]*)(?:<!-- *{said} *-->|(\.\.) +{said})\s*", line)


def _comment(text: str, *, rst: bool) -> str:
    return f".. {text}" if rst else f"<!-- {text} -->"
