"""Options that more than one command has, and their types; they load fast."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, TypeVar

import click

from detmatrix.opspecs.pytorch.sources import SOURCES
from detmatrix.scanner.errors import UsageError

if TYPE_CHECKING:
    ParamType = click.ParamType[str]
else:
    # Generic for type checkers only: older releases of click cannot be subscripted.
    ParamType = click.ParamType

_Command = TypeVar("_Command", bound=Callable[..., Any])

# What the ending of a file's name may ask for, and endings that say it otherwise.
_FORMS = ("csv", "diff", "github", "html", "json", "junit", "md", "patch", "rst", "table", "text")
_ENDINGS = {"txt": "text", "htm": "html", "markdown": "md", "xml": "junit"}
_ENDING_OF = {"text": "txt", "junit": "xml", "github": ""}  # of the others it is their name
# Endings of what no command writes: Markdown under such a name helps nobody.
_FOREIGN = ("docx", "jpg", "ods", "odt", "pdf", "png", "svg", "tsv", "xlsx", "yaml", "yml")

# Of a longer table not all names are told beside one that may have been meant.
_MOST_NAMED = 30
# Where a context holds the path of the file that defaults come from.
DEFAULTS = "detmatrix.scanner.cli.main"

runs_argument = click.argument("runs", metavar="RUN...", nargs=-1, required=True)
output_option = click.option(
    "-o", "--output", metavar="FILE", help="Write to FILE instead of standard output."
)
block_check_option = click.option(
    "--check", is_flag=True, help="With --into: exit 1 when the block is stale, and write nothing."
)


def format_option(forms: Iterable[str], text: str, default: str = "md") -> Callable[[_Command], _Command]:
    """Offer the *forms* a command can write, as its parameter ``form``, for ``form_of``."""
    text = f"{text} Default: what the name given with -o ends in, else {default}."
    return click.option("--format", "form", type=click.Choice(list(forms)), help=text)


def form_of(form: str | None, output: str | None, forms: Iterable[str], default: str = "md") -> str:
    """Return the format asked for, else that of the file's ending, else the default; refuse an ending that the command does not write."""
    ending = "" if output is None else _ending(output)
    if form is not None or ending not in (*_FORMS, *_FOREIGN):
        return form or default
    if ending not in forms:
        endings = " or ".join(f".{one}" for form in forms if (one := _ENDING_OF.get(form, form)))
        raise UsageError(
            f"{output}: this is not written as {ending}; choose a name that ends in {endings}, or give --format"
        )
    return ending


def refuse_report_name(output: str) -> None:
    """Refuse the name of a report, but for JSON, for a run file."""
    ending = _ending(output)
    if ending != "json" and ending in (*_FORMS, *_FOREIGN):
        raise UsageError(
            f"{output}: -o names the run file, which is not written as {ending}; choose a name that ends in .jsonl: "
            f"detmatrix report makes other files of it"
        )


def _ending(path: str) -> str:
    """Return what a name says of the format of its file."""
    ending = os.path.splitext(path)[1].removeprefix(".").lower()  # noqa: PTH122 - fast
    return _ENDINGS.get(ending, ending)


def into_option(block: str, text: str) -> Callable[[_Command], _Command]:
    """Offer to regenerate the *block* of a Markdown file; *text* goes on after those words."""
    markers = f"'<!-- detmatrix {block}:begin -->' and '<!-- detmatrix {block}:end -->'"
    text = f"Regenerate the block between the markers {markers} of a Markdown file{text}"
    return click.option("--into", metavar="FILE", help=text)


def python_option(text: str) -> Callable[[_Command], _Command]:
    """Ask for an interpreter that has a torch; without one it is this one."""
    text = f"{text} Default: this one."
    return click.option("--python", default=sys.executable, metavar="PATH", help=text)


def specs_option(text: str) -> Callable[[_Command], _Command]:
    """Ask for files of specs, as the parameter ``spec_files``."""
    text = f"{text} May be given more than once."
    return click.option("--specs", "spec_files", multiple=True, metavar="FILE.py", help=text)


def tell(text: str) -> None:
    """Say to whoever waits at a terminal what takes seconds; logs are left alone."""
    if sys.stderr.isatty():
        click.echo(text, err=True)


def complete_op(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of ops that begin like this, for a shell that completes words."""
    from detmatrix.opspecs.patterns import recorded_names  # noqa: PLC0415 - only shells ask
    from detmatrix.opspecs.registry import SPECS, names_of  # noqa: PLC0415

    names = (name for one in (*map(names_of, SPECS), *recorded_names()) for name in one.own)
    return sorted({name for name in names if name.startswith(incomplete)})


patterns_argument = click.argument("patterns", nargs=-1, metavar="[PATTERN]...", shell_complete=complete_op)


class Whole(click.IntRange):
    """A range of whole numbers; click calls it an integer range where it refuses a word."""

    name = "whole number"


class Names(ParamType):
    """Names, separated by commas, each once."""

    name = "list"
    chooses = True  # a default may come from a file

    def __init__(
        self,
        what: str = "",
        known: Iterable[str] = (),
        arranged: Callable[[tuple[str, ...]], Any] = tuple,
        retired: Mapping[str, str] | None = None,
    ) -> None:
        """Say which names there are of *what* ("mode"), any if none are known; *arranged* puts them into order, or adds what follows.

        *retired* are names that there were, and what is in their place.
        """
        self._what, self._known, self._arranged = what, tuple(known), arranged
        self._retired = retired or {}

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Refuse an empty list, and names that there are not."""
        if isinstance(value, tuple):
            return value
        names = tuple(dict.fromkeys(name.strip() for name in str(value).split(",") if name.strip()))
        if not names:
            self.fail("none given; separate names by commas", param, ctx)
        for name in names if self._known else ():
            if name in self._retired:
                self.fail(f"{self._what} {name!r} is {self._retired[name]}", param, ctx)
            if name not in self._known:
                near = get_close_matches(name, self._known, n=2)
                hints = [f"did you mean {' or '.join(near)}?"] * bool(near)
                hints += [f"choose: {', '.join(self._known)}"] * (len(self._known) <= _MOST_NAMED or not near)
                self.fail(f"unknown {self._what} {name!r}; {' '.join(hints)}", param, ctx)
        return self._arranged(names)


source_names = Names(
    "source",
    (*SOURCES, "all"),
    lambda names: tuple(
        one for one in SOURCES if one in names or ("all" in names and one not in ("gradgrad", "instead"))
    ),
)
