"""The ``check`` command: a function of the user's in, what a scan shows of it out."""

from __future__ import annotations

import shlex
import signal
import tempfile
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from detmatrix.reports import checks
from detmatrix.reports.explain import RENDERERS as EXPLAINED
from detmatrix.reports.explain import explained
from detmatrix.reports.matrix.model import Matrix, load
from detmatrix.reports.render import View, write_to_stdout
from detmatrix.scanner.alerts import alert_caller
from detmatrix.scanner.cases.catalog import function_named, line_of
from detmatrix.scanner.cases.known import KnownOp
from detmatrix.scanner.cases.plan import Plan, asked_for
from detmatrix.scanner.cli.options import Whole, python_option, refuse_report_name
from detmatrix.scanner.cli.setting_options import Device, architecture, fail_on_option
from detmatrix.scanner.errors import EXIT_CHECK_FAILED, EXIT_DONE, EXIT_UNTRUSTED, one_line
from detmatrix.scanner.observations.settings import MOST_RUNS
from detmatrix.scanner.run.progress import progress_for
from detmatrix.scanner.run.scan import scan
from detmatrix.scanner.verdicts.cells import COMPARED
from detmatrix.scanner.verdicts.findings import MatrixRow

# What a worker says of such a row (`Execution.upstream`).
_NO_GRADIENT = "the output does not depend on any leaf, so there is nothing to differentiate"
_SERIAL = "serial: one thread did all the work, so nothing could race; larger inputs may use several threads"

# What a function showed, for people and programs; and what CI systems read.
FORMS = (*EXPLAINED, "junit", "github")


@click.command()
@click.argument("function", metavar="FILE.py:FUNCTION")
@click.option("--inputs", metavar="FILE.py:FUNCTION",
              help="A function that returns the arguments: a tuple, a dict of keywords, or a single one. Default: no "
              "arguments.")  # fmt: skip
@click.option("--device", type=Device(), default="auto", metavar="auto|cpu|cuda|cuda:N", help="Where to run.")
@click.option("--simulate", type=architecture, metavar="ARCH",
              help="Simulate a GPU of this architecture, such as sm_80, as scan --simulate does.")  # fmt: skip
@click.option("--runs", type=Whole(2, MOST_RUNS), metavar="N",
              help="Executions per process. Default: 50, in two processes per mode; with --simulate 8, in one.")  # fmt: skip
@python_option("The interpreter whose torch runs it; it needs only torch and what the file imports.")
@click.option("--format", "form", type=click.Choice(FORMS), default="text", show_default=True,
              help="Text for a terminal, Markdown, JSON, JUnit XML, or annotations of GitHub.")  # fmt: skip
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), metavar="RUN.jsonl",
              help="Keep the run file, for report and repro. Default: it is thrown away.")  # fmt: skip
@fail_on_option
def check(
    function: str,
    inputs: str | None,
    device: str,
    simulate: str | None,
    runs: int | None,
    python: str,
    form: str,
    output: Path | None,
    fail_on: tuple[str, ...] | None,
) -> int:
    """Run one function of yours again and again, with the flag off and on: does it give the same bits?

    The file is executed, in the process of this command and in workers. Where an input requires grad, the gradients are
    compared too. Exits with 1 where a row has no verdict, or with a finding that --fail-on names, and else with 0.
    """
    if output is not None:
        refuse_report_name(str(output))
    if simulate and device != "auto":
        raise click.UsageError("--simulate is a device of its own; leave --device out")
    named, name = function_named(function, inputs)
    # A batch system that ends the job gives it time to stop its workers.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="detmatrix-check-") as folder:
        said: dict[str, Any] = {"patterns": (name,), "specs": (named,), "overloads": False, "max_time": None}
        said |= {"simulate": simulate} if simulate else {"device": device}
        said |= {} if runs is None else {"runs": runs}
        plan = Plan(
            output=output or Path(folder, "run.jsonl"),
            settings=asked_for(**said),
            said=frozenset(said),
            python=python,
        )
        run = scan(plan, progress_for("check"))
        matrices = [with_gradients(one) for one in load([run.path])]
    view = view_of_function(matrices[0], output, scripted=named if not inputs else None)
    if form == "junit":
        write_to_stdout(checks.render_junit(matrices, fail_on or checks.FAILS))
    elif form == "github":
        write_to_stdout(checks.render_github(matrices, fail_on or checks.FAILS, line_of(named)))
    else:
        write_to_stdout(EXPLAINED[form](view))
    if fail_on and (failure := checks.failing_line(matrices, fail_on)):
        click.echo(one_line(f"detmatrix: {failure}"), err=True)
        return EXIT_UNTRUSTED if matrices[0].distrust else EXIT_CHECK_FAILED
    if matrices[0].distrust:
        click.echo(f"detmatrix: the scan cannot be trusted: {one_line(matrices[0].distrust[0])}", err=True)
        return EXIT_UNTRUSTED
    settled = all(row.finding != "inconclusive" for row in matrices[0].rows)
    return EXIT_DONE if settled else EXIT_CHECK_FAILED


def with_gradients(one: Matrix) -> Matrix:
    """Return the matrix without rows of gradients that there are none of: a function may return what does not require grad."""

    def has_some(row: MatrixRow) -> bool:
        return not row.observations or any(_NO_GRADIENT not in str(it.message) for it in row.observations)

    return replace(one, rows=tuple(filter(has_some, one.rows)), scanned=tuple(filter(has_some, one.scanned)))


def view_of_function(one: Matrix, output: str | Path | None, scripted: str | None) -> View:
    """Return what a function of the user's shows, which can be mended, and is the only one that was run.

    *output* is where its run file is kept, *scripted* how a script names the function if its inputs can be written into one.
    """
    name = one.run.header.planned[0].spec
    kept_as = replace(one, run=replace(one.run, path=str(output or "not kept")))
    view = explained(KnownOp(name, (name,), (), ()), {}, [kept_as])
    # Without a run file there is nothing to make a script of.
    kept = view["commands"] if output and scripted else []
    view["commands"] = [text.replace("FILE.py", shlex.quote(scripted or "")) for text in kept]
    if view["finding"] == "inconclusive":
        failed = any(
            seen.exception and not alert_caller(seen.exception, seen.message) for seen in one.run.observations
        )
        todo = "Fix the exception" if failed else "Not settled: see the reasons"
        view["action"] = f"{todo}, then run check again."
        vars(view)["actions"] = [view["action"]]
    if not any(row.off.verdict in COMPARED and row.on.verdict in COMPARED for row in one.rows):
        view["cost"] = {}
    for found in (it for run in view["measured"] for some in run["cases"].values() for it in some):
        if found["doubts"].get("serial") == len(found["rows"]) and not found.differ:
            found["reasons"].append(_SERIAL)
    return view
