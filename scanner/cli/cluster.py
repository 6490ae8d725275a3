"""The options of a scan on a Ray cluster."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

import click

from detmatrix.scanner.cli.options import ParamType, Whole
from detmatrix.scanner.observations.records import MOST_SHARDS

_Command = TypeVar("_Command", bound=Callable[..., Any])
_HOST_AND_PORT = re.compile(r"[^\s/@]+:[0-9]{1,5}")


class _Address(ParamType):
    """``HOST:PORT`` of a Ray cluster, or one of two words."""

    name = "address"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Refuse what is more likely a pattern: the address may be left out."""
        if value in {"auto", "local"} or _HOST_AND_PORT.fullmatch(str(value)):
            return str(value)
        return self.fail(
            f"{value!r} is no address; give HOST:PORT, auto for the cluster of this machine, or nothing to start Ray here, "
            "with patterns before it",
            param,
            ctx,
        )


def ray_options(command: _Command) -> _Command:
    """Offer to scan on a Ray cluster, as the parameters ``ray`` and ``shards``."""
    for option in (
        click.option(
            "--shards",
            type=Whole(1, MOST_SHARDS),
            metavar="N",
            help="With --ray: divide the ops of each run among N shards. Default: as many as nodes or GPUs scan side by side, but no "
            "more than ops.",
        ),
        click.option(
            "--ray",
            type=_Address(),
            is_flag=False,
            flag_value="local",
            metavar="[ADDRESS]",
            help="Scan on a Ray cluster, with one run file for each interpreter and kind of GPU. ADDRESS is HOST:PORT or auto; "
            "without it Ray is started on this machine.",
        ),
    ):
        command = option(command)
    return command
