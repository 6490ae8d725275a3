"""``detmatrix scan``: options in, a run file out."""

from __future__ import annotations

import math
import shlex
import signal
import sys
from collections import Counter
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import click

from opspecs.pytorch.sources import databases
from scanner.accelerators import ACCELERATORS
from scanner.cases.settings import DTYPES, Plan, asked_for, ordered
from scanner.cli.options import Names, ParamType, Sources, python_option
from scanner.errors import EXIT_DONE, EXIT_INTERRUPTED, EXIT_UNTRUSTED, one_line
from scanner.observations.runfile import UNTRUSTED, Run
from scanner.observations.settings import SETTINGS, Setting, Settings
from scanner.perturbations import PERTURBATIONS
from scanner.processes.process import ENDS_ALL
from scanner.run.progress import progress_for
from scanner.run.scan import scan
from scanner.verdicts.findings import FINDING_MEANING, matrix

DEFAULT_OUTPUT = "detmatrix.jsonl"
_Command = TypeVar("_Command", bound=Callable[..., Any])


class Device(ParamType):
    """``auto``, ``cpu``, a kind of accelerator such as ``cuda``, or ``cuda:N``."""

    name = "device"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Refuse anything else before a worker starts."""
        kind, colon, index = str(value).partition(":")
        numbered = colon and index.isdecimal() and index.isascii()
        if value in {"auto", "cpu"} or (kind in ACCELERATORS and (numbered or not colon)):
            return str(value)
        kinds = ", ".join(ACCELERATORS)
        return self.fail(
            f"{value!r} is not a device; give auto, cpu, {kinds}, or one of them as cuda:N", param, ctx
        )


class Finite(click.FloatRange):
    """A range of real numbers; click's own lets NaN through, which compares with nothing."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Refuse NaN."""
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a number", param, ctx)
        return number


class Perturbations(ParamType):
    """Names of perturbations, separated by commas, each once."""

    name = "list"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Refuse names that do not exist."""
        if isinstance(value, tuple):
            return value
        names = tuple(dict.fromkeys(name.strip() for name in str(value).split(",") if name.strip()))
        for name in names:
            if name not in PERTURBATIONS:
                self.fail(f"unknown perturbation {name!r}; choose: {', '.join(PERTURBATIONS)}", param, ctx)
        if not names:
            self.fail(f"none given; the perturbations: {', '.join(PERTURBATIONS)}", param, ctx)
        return ordered(names)


class Dtypes(Names):
    """Names of dtypes, or ``all``."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Refuse a name that no torch has."""
        names = super().convert(value, param, ctx)
        for name in names:
            if name not in (*DTYPES, "all"):
                near = get_close_matches(name, DTYPES)
                hint = f"did you mean {' or '.join(near)}?" if near else "give names such as float32, or all"
                self.fail(f"{name!r} is no dtype; {hint}", param, ctx)
        return names


# Of the settings that are neither numbers nor switches.
TYPES: dict[str, Any] = {
    "device": Device(),
    "perturb": Perturbations(),
    "sources": Sources(),
    "dtypes": Dtypes(),
}


def _option(name: str, setting: Setting) -> Callable[[_Command], _Command]:
    """Return the option that asks for a setting; without it there is no value, and the default is said in its help."""
    text, default, limits = setting.help, setting.default, setting.limits
    if default not in {None, ()}:
        text += f" Default: {setting.words(default)[-1]}."
    if isinstance(default, bool):
        return click.option(f"{setting.option}/{setting.negated}", name, default=None, help=text)
    kind = TYPES.get(name)
    if limits is not None:
        least: Any = limits.ge if limits.gt is None else limits.gt
        most: Any = limits.le if limits.lt is None else limits.lt
        if get_type_hints(Settings)[name] is int:
            kind = click.IntRange(least, most)
        else:
            kind = Finite(least, most, min_open=limits.gt is not None, max_open=limits.lt is not None)
    return click.option(
        setting.option, name, type=kind, multiple=setting.several, metavar=setting.metavar, help=text
    )


def _options(command: _Command) -> _Command:
    """Give a command an option for each setting that has one, in the order of the table."""
    for name, setting in reversed(SETTINGS.items()):
        if setting.option:
            command = _option(name, setting)(command)
    return command


@click.command(name="scan")
@click.argument("patterns", nargs=-1, metavar="[PATTERN]...")
@_options
@python_option("The interpreter whose torch is scanned; it needs only torch.")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path(DEFAULT_OUTPUT),
    metavar="RUN.jsonl",
    help=f"The run file. Default: {DEFAULT_OUTPUT}.",
)
@click.option("--resume", is_flag=True, help="Go on with the unfinished scan in the run file.")
@click.option("--force", is_flag=True, help="Overwrite whatever the run file holds.")
def command(output: Path, python: str, *, resume: bool, force: bool, **options: Any) -> int:
    """Run the ops that match the PATTERNs (default: all) again and again, with the flag off and on.

    A PATTERN is an op's name or the last part of it, a family, or a row id spec:case:direction:dtype of which
    trailing parts may be left out; * and ? match as in a shell. Observations go into the run file as they come:
    a scan that was stopped goes on with --resume. Progress goes to standard error.
    """
    if resume and force:
        raise click.UsageError(
            "--resume keeps what the run file holds, --force throws it away; give one of them"
        )
    said = {name: value for name, value in options.items() if value not in {None, ()}}
    if {"max_rate", "runs"} <= said.keys():
        raise click.UsageError("--max-rate chooses how many executions, --runs says it; give one of them")
    if "confidence" in said and "max_rate" not in said:
        raise click.UsageError("--confidence says how probably --max-rate would be seen; give both")
    if not databases(said.get("sources")) and not resume:
        for name in ("dtypes", "samples"):
            if name in said:
                raise click.UsageError(
                    f"--{name} is said of the databases; add --source opinfo, modules or all"
                )
    if not output.name:
        raise click.UsageError("-o needs the name of a file")
    plan = Plan(
        output=output,
        settings=asked_for(**said),
        said=frozenset(said),
        resume=resume,
        force=force,
        python=python,
    )
    # A batch system that ends the job gives it time to say how to go on.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        run = scan(plan, progress_for())
    except KeyboardInterrupt:
        click.echo(f"detmatrix: interrupted; {_how_to_go_on(plan)}", err=True)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # Nobody reads the progress any more, so nobody can be told; the file is valid.
        return EXIT_INTERRUPTED
    return _tell(run)


def _how_to_go_on(plan: Plan) -> str:
    """Say what an interrupted scan left, and the command that goes on with it."""
    if not plan.output.exists() or not plan.output.stat().st_size:
        return "nothing was observed yet, start again"
    python = [] if plan.python == sys.executable else ["--python", plan.python]
    specs = [word for path in plan.settings.specs for word in ("--specs", path)]
    again = shlex.join(["detmatrix", "scan", "--resume", *specs, *python, "-o", str(plan.output)])
    return f"{plan.output} is valid, go on with: {again}"


def _tell(run: Run) -> int:
    """Say what came out, and whether it can be trusted."""
    rows = list(matrix(run.header, run.observations, closed=True, sentinels=run.sentinels, costs=run.costs))
    counts = Counter(row.finding for row in rows)
    text = ", ".join(f"{counts[finding]} {finding}" for finding in FINDING_MEANING if counts[finding])
    _say(f"{run.path}: {counts.total()} rows on {run.header.settings.device}: {text}")
    if weak := sum(row.weak is not None for row in rows):
        reason = next(row.weak for row in rows if row.weak is not None)
        _say(f"{run.path}: {weak} {'row is' if weak == 1 else 'rows are'} of low power: {reason}")
    if serial := sum(row.serial for row in rows):
        are = "row is" if serial == 1 else "rows are"
        _say(f"{run.path}: {serial} {are} serial: one thread did the work, nothing could race")
    voided = [
        [text for one in row.observations if (text := str(one.message)).startswith(UNTRUSTED)] for row in rows
    ]
    if any(voided):
        count, reason = sum(map(bool, voided)), next(texts[0] for texts in voided if texts)
        _say(f"{run.path}: {count} row{'s are' if count > 1 else ' is'} {reason}")
    if not ENDS_ALL:
        _say("Processes that an op starts in a session of their own are ended on Linux alone")
    distrust = run.closing.distrust if run.closing else ()
    if distrust:
        _say(f"detmatrix: the scan cannot be trusted: {distrust[0]} ({len(distrust)} such)")
        return EXIT_UNTRUSTED
    click.echo(f"Render it with: detmatrix report {shlex.quote(run.path)}", err=True)
    return EXIT_DONE


def _say(text: str) -> None:
    """Print a line on standard error; what ops and workers say may hold anything."""
    click.echo(one_line(text), err=True)
