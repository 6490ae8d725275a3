"""Options that more than one command has, and their types; they load fast."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from opspecs.pytorch.sources import SOURCES

if TYPE_CHECKING:
    ParamType = click.ParamType[str]
else:
    # Generic for type checkers only: older releases of click cannot be subscripted.
    ParamType = click.ParamType

_Command = TypeVar("_Command", bound=Callable[..., Any])

runs_argument = click.argument("runs", metavar="RUN...", nargs=-1, required=True)
output_option = click.option(
    "-o", "--output", metavar="FILE", help="Write to FILE instead of standard output."
)
block_check_option = click.option(
    "--check", is_flag=True, help="With --into: exit 1 when the block is stale, and write nothing."
)


def format_option(
    forms: Iterable[str], text: str, default: str | None = "md"
) -> Callable[[_Command], _Command]:
    """Offer the *forms* a command can write, as its parameter ``form``."""
    choice = click.Choice(list(forms))
    return click.option("--format", "form", type=choice, default=default, show_default=True, help=text)


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


class Names(ParamType):
    """Names, separated by commas, each once."""

    name = "list"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Refuse an empty list."""
        if isinstance(value, tuple):
            return value
        names = tuple(dict.fromkeys(name.strip() for name in str(value).split(",") if name.strip()))
        return names or self.fail("none given", param, ctx)


class Sources(Names):
    """Names of sources of specs; ``all`` is all of them."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Refuse names that do not exist."""
        names = super().convert(value, param, ctx)
        for name in names:
            if name not in (*SOURCES, "all"):
                self.fail(f"unknown source {name!r}; choose: {', '.join(SOURCES)}, all", param, ctx)
        return SOURCES if "all" in names else tuple(name for name in SOURCES if name in names)
