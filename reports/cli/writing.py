"""What the commands that read files share: a format, a place, writing there, and refusing options that do not fit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

from msgspec import Struct

from detmatrix.reports.render.output import check_place, write_report, write_to_stdout
from detmatrix.scanner.cli.options import form_of, format_option, output_option
from detmatrix.scanner.errors import EXIT_DONE, UsageError

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
