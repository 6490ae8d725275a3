"""Option types that more than one command has; they load fast."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from opspecs.database import SOURCES

if TYPE_CHECKING:
    ParamType = click.ParamType[str]
else:
    # Generic for type checkers only: older releases of click cannot be subscripted.
    ParamType = click.ParamType


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
                self.fail(f"{name!r} is none; the sources: {', '.join(SOURCES)}, all", param, ctx)
        return SOURCES if "all" in names else tuple(name for name in SOURCES if name in names)
