"""What the commands that read files share: a format, a place, writing there, and refusing options that do not fit."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from pathlib import Path, PurePath
from typing import Any

import click
from msgspec import Struct

from detmatrix.reports.render import check_place, write_report, write_to_stdout, write_whole
from detmatrix.scanner.cli.options import form_of, format_option, output_option
from detmatrix.scanner.errors import EXIT_CHECK_FAILED, EXIT_DONE, UsageError

DEFAULT_RUN = Path("detmatrix.jsonl")
CHECK_WITHOUT_INTO = "--check says whether the block in a file is stale; name the file with --into"

Renderers = Mapping[str, Callable[[Any], Iterable[str]]]


class Place(Struct, frozen=True):
    """Where a report goes, and in which format."""

    renderers: Renderers
    form: str
    path: str | None  # None: standard output

    def check(self, sources: Sequence[str] = ()) -> None:
        """Refuse a place that cannot be written, before what takes long is done for it.

        Raises:
            UsageError: It cannot be written, or one of the sources lies there.
        """
        if self.path is not None:
            check_place(Path(self.path), sources)

    def write(self, shown: Any, sources: Sequence[str] = ()) -> int:
        """Render what is shown, write it, and return the exit code of a command that did what it was asked for."""
        deliver(self.renderers[self.form](shown), self.form, self.path, sources)
        return EXIT_DONE


def refuse(*wrong: tuple[object, str]) -> None:
    """Refuse options that have no meaning together: the message of the first condition that holds.

    Raises:
        UsageError: One holds.
    """
    for is_so, message in wrong:
        if is_so:
            raise UsageError(message)


def deliver(pieces: Iterable[str], form: str, path: str | None, sources: Sequence[str] = ()) -> None:
    """Write a report to standard output, or into a file, which no source may be; of a page it is said where it is."""
    if path is None:
        write_to_stdout(pieces)
    else:
        write_report(Path(path), pieces, sources, page=form == "html")


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


def is_rst(path: Path, name: str) -> bool:
    """Tell whether a block stands in RST: by the file's suffix, and in other files by its marker.

    Raises:
        UsageError: The file cannot be read, or does not hold exactly one such block.
    """
    lines = _read(path).splitlines()
    begin, _ = _place(path, name, lines)
    if path.suffix.lower() in {".rst", ".md", ".markdown"}:
        return path.suffix.lower() == ".rst"
    return (_marker(name, "begin", lines[begin]) or ("", False))[1]


def update(
    path: Path, name: str, command: str, body: str, runs: Sequence[str] = (), *, check: bool = False
) -> int:
    """Regenerate a block in place, or with *check* only say whether it is stale; return the exit code.

    The file is replaced whole or not at all.

    Raises:
        UsageError: The file cannot be read or written, or does not hold exactly one such block.
    """
    before = _read(path)
    lines = before.splitlines(keepends=True)
    begin, end = _place(path, name, lines)
    indent, rst = _marker(name, "begin", lines[begin]) or ("", False)
    made = [
        _comment(f"detmatrix {name}:begin {command}", rst=rst),
        "",
        *textwrap.dedent(body).strip("\n").split("\n"),
        "",
        lines[end].strip(),
    ]
    if any(_marker(name, which, line) for which in ("begin", "end") for line in made[1:-1]):
        raise UsageError(
            f"{path}: the block {name!r} would hold a marker of its own; name the run files otherwise"
        )
    newline = "\r\n" if lines[begin].endswith("\r\n") else "\n"
    block = newline.join(indent + line if line else "" for line in made)
    # What ended the end marker's line stays, and so does a file without a last newline.
    tail = lines[end][len(lines[end].rstrip("\r\n")) :]
    after = "".join([*lines[:begin], block, tail, *lines[end + 1 :]])
    if before == after:
        return EXIT_DONE
    if check:
        click.echo(f"{path}: the block {name!r} is stale; regenerate it with {command}")
        return EXIT_CHECK_FAILED
    mode = path.stat().st_mode
    write_whole(path, [after], runs)
    path.chmod(mode)
    return EXIT_DONE


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode()
    except OSError as error:
        raise UsageError(
            f"{path}: cannot be read ({error.strerror}); name a file that has the markers"
        ) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: is no UTF-8 text; name a Markdown or RST file") from error


def _place(path: Path, name: str, lines: Sequence[str]) -> tuple[int, int]:
    """Return the lines of the two markers."""
    begins, ends = (
        [place for place, line in enumerate(lines) if _marker(name, which, line)]
        for which in ("begin", "end")
    )
    example = _comment(f"detmatrix {name}:begin", rst=path.suffix == ".rst")
    if not begins and not ends:
        raise UsageError(
            f"{path}: has no block {name!r}; put the lines {example!r} and "
            f"{example.replace(':begin', ':end')!r} where it is to stand"
        )
    if len(begins) > 1 or len(ends) > 1:
        which, places = ("begin", begins) if len(begins) > 1 else ("end", ends)
        text = " and ".join(str(place + 1) for place in places[:2])
        raise UsageError(
            f"{path}: the {which} marker of the block {name!r} stands twice (lines {text}); remove one"
        )
    if not begins or not ends or ends[0] < begins[0]:
        missing = "end" if begins and not ends else "begin"
        line = (begins if missing == "end" else ends)[0] + 1
        raise UsageError(
            f"{path}, line {line}: the block {name!r} has no {missing} marker "
            f"{'behind' if missing == 'end' else 'before'} this line; add it"
        )
    return begins[0], ends[0]


def _marker(name: str, which: str, line: str) -> tuple[str, bool] | None:
    """Return a marker's indentation and whether it is an RST comment, or ``None`` if the line is none."""
    said = rf"detmatrix {re.escape(name)}:{which}(?: .*?)?"
    found = re.fullmatch(rf"([ \t]*)(?:<!-- *{said} *-->|(\.\.) +{said})\s*", line)
    return (found[1], found[2] is not None) if found else None


def _comment(text: str, *, rst: bool) -> str:
    return f".. {text}" if rst else f"<!-- {text} -->"
