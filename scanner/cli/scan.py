"""``detmatrix scan``: options in, a run file out."""

from __future__ import annotations

import math
import shlex
import signal
import sys
from collections import Counter
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click

from opspecs.pytorch.database import SOURCES, databases
from scanner.cases.settings import (
    DEFAULT_CONFIDENCE,
    DEFAULT_PROCESSES,
    DEFAULT_RUNS,
    DEFAULT_SAMPLES,
    DEFAULT_SEED,
    DEFAULT_SOURCES,
    DEFAULT_TIMEOUT,
    DTYPES,
    MOST_RUNS,
    Plan,
)
from scanner.cli.options import Names, ParamType, Sources, python_option, specs_option
from scanner.errors import EXIT_DONE, EXIT_INTERRUPTED, EXIT_UNTRUSTED
from scanner.observations.runfile import Run
from scanner.run.progress import progress_for
from scanner.run.scan import scan
from scanner.verdicts.findings import FINDING_MEANING, matrix
from scanner.worker.perturb import DEFAULT as DEFAULT_PERTURB
from scanner.worker.perturb import PERTURBATIONS

DEFAULT_OUTPUT = "detmatrix.jsonl"


class Device(ParamType):
    """``auto``, ``cpu``, ``cuda`` or ``cuda:N``."""

    name = "device"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Refuse anything else before a worker starts."""
        kind, colon, index = str(value).partition(":")
        if value in {"auto", "cpu", "cuda"} or (
            kind == "cuda" and colon and index.isdecimal() and index.isascii()
        ):
            return str(value)
        return self.fail(f"{value!r} is not a device; give auto, cpu, cuda or cuda:N", param, ctx)


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
                self.fail(f"{name!r} is none; the perturbations: {', '.join(PERTURBATIONS)}", param, ctx)
        return names or self.fail(f"none given; the perturbations: {', '.join(PERTURBATIONS)}", param, ctx)


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


@click.command(name="scan")
@click.argument("patterns", nargs=-1, metavar="[PATTERN]...")
@click.option(
    "--device",
    type=Device(),
    default="auto",
    metavar="auto|cpu|cuda|cuda:N",
    help="Where to run; auto takes CUDA if torch sees it. Default: auto.",
)
@click.option(
    "--runs",
    type=click.IntRange(1, MOST_RUNS),
    metavar="N",
    help=f"Executions per process. Default: {DEFAULT_RUNS}.",
)
@click.option(
    "--processes",
    type=click.IntRange(1, 100),
    metavar="P",
    help=f"Worker processes per mode. Default: {DEFAULT_PROCESSES}.",
)
@click.option(
    "--max-rate",
    type=Finite(0, 1, min_open=True, max_open=True),
    metavar="R",
    help="Choose N so that a difference in a share R of the executions would be seen, with --confidence.",
)
@click.option(
    "--confidence",
    type=Finite(0, 1, min_open=True, max_open=True),
    metavar="C",
    help=f"How probably it would be seen. Default: {DEFAULT_CONFIDENCE:g}.",
)
@click.option(
    "--max-time",
    type=Finite(0, 86400, min_open=True),
    metavar="S",
    help="Seconds of executions a case gets in one process; the n it reached is recorded. Default: no limit.",
)
@click.option(
    "--perturb",
    type=Perturbations(),
    metavar="LIST",
    help=f"Circumstances that share the executions, of {', '.join(PERTURBATIONS)}. "
    f"Default: {','.join(DEFAULT_PERTURB)}.",
)
@click.option(
    "--cost/--no-cost", default=None, help="Time each row with the flag off and on. Default: --cost."
)
@click.option(
    "--overloads/--no-overloads",
    default=None,
    help="Record which overloads of PyTorch each row reaches, for coverage. Default: --overloads.",
)
@click.option(
    "--timeout",
    type=Finite(0, 86400, min_open=True),
    metavar="S",
    help=f"Seconds a case may take in one process. Default: {DEFAULT_TIMEOUT:g}.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**63 - 1),
    metavar="S",
    help=f"Seed of inputs and random ops. Default: {DEFAULT_SEED}.",
)
@specs_option("Scan the SPECS of this file too.")
@click.option(
    "--source",
    "sources",
    type=Sources(),
    metavar="LIST",
    help=f"What is scanned, of {', '.join(SOURCES)} and all: the hand-written specs, and the databases of operators and "
    f"modules that come with the scanned torch. Default: {','.join(DEFAULT_SOURCES)}.",
)
@click.option(
    "--dtypes",
    type=Dtypes(),
    metavar="LIST",
    help="Dtypes of the databases' entries, or all that each declares. Default: float32, or the first that it has.",
)
@click.option(
    "--samples",
    type=click.IntRange(1, 1000),
    metavar="N",
    help=f"Samples of each of the databases' entries and dtypes. Default: {DEFAULT_SAMPLES}.",
)
@python_option("The interpreter whose torch is scanned; it needs a torch and nothing of ours.")
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
def command(**options: Any) -> int:  # fmt: skip
    """Run the ops that match the PATTERNs (default: all) again and again, with the flag off and on.

    A PATTERN is an op's name or the last part of it, a family, or a row id spec:case:direction:dtype of which
    trailing parts may be left out; * and ? match as in a shell. Observations go into the run file as they come:
    a scan that was stopped goes on with --resume. Progress goes to standard error.
    """
    if options["resume"] and options["force"]:
        raise click.UsageError(
            "--resume keeps what the run file holds, --force throws it away; give one of them"
        )
    if options["max_rate"] is not None and options["runs"] is not None:
        raise click.UsageError("--max-rate chooses how many executions, --runs says it; give one of them")
    if options["confidence"] is not None and options["max_rate"] is None:
        raise click.UsageError("--confidence says how probably --max-rate would be seen; give both")
    if not databases(options["sources"]) and not options["resume"]:
        for name in ("dtypes", "samples"):
            if options[name] is not None:
                raise click.UsageError(
                    f"--{name} is said of the databases; add --source opinfo, modules or all"
                )
    if not options["output"].name:
        raise click.UsageError("-o needs the name of a file")
    plan = Plan(**options)
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
    again = shlex.join(["detmatrix", "scan", "--resume", *python, "-o", str(plan.output)])
    return f"{plan.output} is valid, go on with: {again}"


def _tell(run: Run) -> int:
    """Say what came out, and whether it can be trusted."""
    rows = list(matrix(run.header, run.observations, closed=True, sentinels=run.sentinels, costs=run.costs))
    counts = Counter(row.finding for row in rows)
    text = ", ".join(f"{counts[finding]} {finding}" for finding in FINDING_MEANING if counts[finding])
    click.echo(f"{run.path}: {counts.total()} rows on {run.header.settings.device}: {text}", err=True)
    if weak := sum(row.weak is not None for row in rows):
        reason = next(row.weak for row in rows if row.weak is not None)
        click.echo(f"{run.path}: {weak} rows are of low power: {reason}", err=True)
    if serial := sum(row.serial for row in rows):
        click.echo(
            f"{run.path}: {serial} rows are serial: one thread did their work, nothing could race", err=True
        )
    distrust = run.closing.distrust if run.closing else ()
    if distrust:
        click.echo(f"detmatrix: the scan cannot be trusted: {distrust[0]} ({len(distrust)} such)", err=True)
        return EXIT_UNTRUSTED
    click.echo(f"Render it with: detmatrix report {shlex.quote(run.path)}", err=True)
    return EXIT_DONE
