"""The options that ask for settings of a scan, made of their table, and the types of their values."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, TypeVar, get_type_hints

import click

from detmatrix.scanner.accelerators import MEASURED
from detmatrix.scanner.cases.plan import DTYPES
from detmatrix.scanner.cli.options import Names, ParamType, Whole, source_names
from detmatrix.scanner.invariance import PROPERTIES
from detmatrix.scanner.modes import DEFAULT_MODES, MODES, OFFERED_MODES, with_chosen
from detmatrix.scanner.observations.settings import SETTINGS, Setting, Settings
from detmatrix.scanner.perturbations import OFFERED, PERTURBATIONS
from detmatrix.scanner.verdicts.vocabulary import DOUBTS, FINDING_MEANING, FINDING_WORDS

_Command = TypeVar("_Command", bound=Callable[..., Any])


class Device(ParamType):
    """``auto``, ``cpu``, a kind of accelerator such as ``cuda``, or ``cuda:N``."""

    name = "device"
    chooses = True

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Refuse anything else before a worker starts."""
        kind, colon, index = str(value).partition(":")
        numbered = colon and index.isdecimal() and index.isascii()
        if value in {"auto", "cpu"} or (kind in MEASURED and (numbered or not colon)):
            return str(value)
        kinds = ", ".join(MEASURED)
        return self.fail(
            f"{value!r} is not a device; give auto, cpu, {kinds}, or one of them as cuda:N", param, ctx
        )


def architecture(value: str) -> str:
    """Return an architecture of a GPU; refuse anything else before a worker starts."""
    if re.fullmatch(r"sm_[0-9]{2,3}", value) is None:
        raise click.BadParameter(f"{value!r} is not an architecture; give one such as sm_80")
    return value


class Finite(click.FloatRange):
    """A range of real numbers; click's own lets NaN through, which compares with nothing."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Refuse NaN."""
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a number", param, ctx)
        return number


# What --only and --fail-on may name.
FINDINGS_HELP = (
    f"{', '.join(FINDING_MEANING)}; of columns that --modes or --invariance chose these too, and "
    + ", ".join(name for name in FINDING_WORDS if name not in (*FINDING_MEANING, *DOUBTS))
    + f"; of weak evidence {', '.join(DOUBTS)}"
)
fail_on_option = click.option(
    "--fail-on", type=Names("finding", FINDING_WORDS), metavar="FINDING,...",
    help=f"Exit 1 when a row has one of these findings, or when nothing was settled, and say in a line which rows of which "
    f"ops: {FINDINGS_HELP}.",
)  # fmt: skip
except_option = click.option(
    "--except", "excepted", metavar="PATTERN", multiple=True,
    help="With --fail-on: rows that PATTERN selects do not fail; their findings are known and allowed. May be given more than once.",
)  # fmt: skip

# Of the settings that are neither numbers nor switches.
TYPES: dict[str, Any] = {
    "device": Device(),
    "simulate": architecture,
    "perturb": Names(
        "perturbation",
        OFFERED,
        retired={name: it.meaning for name, it in PERTURBATIONS.items() if it.retired},
    ),
    "modes": Names("mode", (*MODES, *OFFERED_MODES, *DEFAULT_MODES[len(MODES) :]), with_chosen),
    "sources": source_names,
    "dtypes": Names("dtype", (*DTYPES, "all")),
    "invariance": Names(
        "property", PROPERTIES, lambda names: tuple(name for name in PROPERTIES if name in names)
    ),
}


def _option(name: str, setting: Setting) -> Callable[[_Command], _Command]:
    """Return the option that asks for a setting; without it there is no value, and the default is said in its help."""
    text, default, limits = setting.help, setting.default, setting.limits
    if default not in {None, (), ""} and setting.words(default):
        text += f" Default: {setting.words(default)[-1]}."
    if isinstance(default, bool):
        return click.option(f"{setting.option}/{setting.negated}", name, default=None, help=text)
    kind = TYPES.get(name)
    if limits is not None:
        least: Any = limits.ge if limits.gt is None else limits.gt
        most: Any = limits.le if limits.lt is None else limits.lt
        if get_type_hints(Settings)[name] is int:
            kind = Whole(least, most)
        else:
            kind = Finite(least, most, min_open=limits.gt is not None, max_open=limits.lt is not None)
    return click.option(
        setting.option, name, type=kind, multiple=setting.several, metavar=setting.metavar, help=text
    )


def settings_options(command: _Command) -> _Command:
    """Give a command an option for each setting that has one, in the order of the table."""
    for name, setting in reversed(SETTINGS.items()):
        if setting.option:
            command = _option(name, setting)(command)
    return command
