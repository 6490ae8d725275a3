"""The ``compare`` command: runs in, what changed between them out."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path

import click

from detmatrix.reports.commands import CHECK_WITHOUT_INTO, command_words, deliver, refuse, update
from detmatrix.reports.compare.judge import CHANGES, Kind
from detmatrix.reports.compare.page import FAILS, failures, render_github, render_junit
from detmatrix.reports.compare.page import RENDERERS as FOR_PEOPLE
from detmatrix.reports.compare.page import block as compare_block
from detmatrix.reports.compare.runs import compare as compare_runs
from detmatrix.reports.compare.runs import measure_again
from detmatrix.reports.compare.view import build_notes
from detmatrix.reports.matrix.model import load
from detmatrix.reports.render import check_place, write_to_stdout
from detmatrix.scanner.cli.options import (
    Names,
    Whole,
    block_check_option,
    form_of,
    format_option,
    into_option,
    specs_option,
    tell,
)
from detmatrix.scanner.errors import EXIT_CHECK_FAILED, EXIT_DONE, one_line
from detmatrix.scanner.observations.settings import MOST_RUNS

BLOCK = "compare"
FOR_CI = {"junit": render_junit, "github": render_github}
RENDERERS: dict[str, Callable[..., Iterator[str]]] = {**FOR_PEOPLE, **FOR_CI}


@click.command()
@click.argument("runs", metavar="RUN RUN...", nargs=-1, required=True)
@format_option(
    RENDERERS,
    "Tables for people, a web page that works offline, JSON, or what CI systems read: JUnit XML and annotations of GitHub.",
)
@click.option(
    "--fail-on",
    # In the order in which checks tell them.
    type=Names(
        "class", FAILS, lambda names: tuple(it for it in CHANGES if any(it in FAILS[one] for one in names))
    ),
    metavar="CLASS,...",
    help=f"Exit 1 when a row is of one of these classes, and print those rows first, one line each: {', '.join(FAILS)}, "
    "where change is any of them; also when two runs could not be compared in any row. Unconfirmed changes count. So do "
    "apparent changes of rows that cannot be compared, unless Fisher's exact test gives p > 0.05, and those of all rows "
    "of an op together if it gives p < 0.01. Samples of PyTorch's databases that came or went count once, last.",
)
@click.option(
    "--confirm",
    is_flag=True,
    help="Re-measure rows that appear to differ, both runs in turns, before calling them changed.",
)
@click.option(
    "--python",
    "pythons",
    multiple=True,
    metavar="PATH",
    help="With --confirm: the interpreter that has the torch of a run. Once for each run, in their order.",
)
@specs_option(
    "With --confirm: a file of specs that the runs used. It is Python, and runs only if it is named here."
)
@click.option(
    "--runs",
    "executions",
    type=Whole(2, MOST_RUNS),
    metavar="N",
    help="With --confirm: executions per process. Default: as in the scans. If the total is smaller than in the scans, no "
    "change is dismissed.",
)
@click.option(
    "--rounds",
    type=Whole(2),
    metavar="N",
    help="With --confirm: processes of each run in each mode. Default: twice those of the scans, at least 7, or 16 where "
    "a row seems to differ between processes only.",
)
@click.option(
    "-o",
    "--output",
    "outputs",
    metavar="FILE",
    multiple=True,
    help="Write to FILE instead of standard output. May be given more than once: -o changes.md -o changes.html.",
)
@into_option(BLOCK, ": a line for each step from one run to the next, and for each op that changed.")
@block_check_option
def compare(
    runs: tuple[str, ...],
    form: str | None,
    fail_on: tuple[Kind, ...] | None,
    confirm: bool,
    pythons: tuple[str, ...],
    spec_files: tuple[str, ...],
    executions: int | None,
    rounds: int | None,
    outputs: tuple[str, ...],
    into: str | None,
    check: bool,
) -> int:
    """Say what changed between runs: which ops improved, regressed, or cannot be compared, and why.

    RUN is a file that scan wrote, or one compressed with gzip (.gz). Each is compared with the one before it on the
    same kind of device; more than two make a timeline.
    """
    of_confirm = {"--python": pythons, "--specs": spec_files, "--runs": executions, "--rounds": rounds}
    refuse(
        (len(runs) == 1, f"{runs[0]}: one run has nothing to be compared with; give at least two"),
        *((given and not confirm, f"{it} is for --confirm; give both") for it, given in of_confirm.items()),
        (check and into is None, CHECK_WITHOUT_INTO),
        (
            into is not None and (outputs or fail_on or confirm or form not in {None, "md"}),
            "--into writes Markdown into a file of its own; give it without -o, --format, --fail-on and --confirm",
        ),
    )
    matrices = load(runs)
    comparison = compare_runs(matrices)
    if into is not None:
        command = command_words("compare", runs, ["--into", Path(into).name])
        body = "".join(compare_block(comparison))
        return update(Path(into), BLOCK, command, body, runs, check=check)
    for output in outputs:
        check_place(Path(output), runs)
    if confirm:
        # A batch system that ends the job gives it time to stop its workers.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        tell(f"compare: starting torch: {', '.join(pythons)}")
        again = measure_again(comparison, pythons, executions, rounds, spec_files)
        comparison = compare_runs(matrices, again)
    for text in build_notes(comparison):
        click.echo(one_line(f"detmatrix: warning: {text}"), err=True)
    failed = [f"{one_line(str(one))}\n" for one in failures(comparison, fail_on)] if fail_on else []
    # The failures of a check go first, but to where a machine reads.
    renderers = RENDERERS | {
        name: partial(render, kinds=fail_on or FAILS["regression"]) for name, render in FOR_CI.items()
    }
    for output in outputs:
        chosen = form_of(form, output, renderers)
        deliver(renderers[chosen](comparison), chosen, output, runs)
    if outputs:
        write_to_stdout(failed)
    elif form in {"json", "html", *FOR_CI}:
        click.echo("".join(failed), nl=False, err=True)
        write_to_stdout(renderers[form](comparison))
    else:
        write_to_stdout(chain(failed, ["\n"] if failed else [], renderers["md"](comparison)))
    return EXIT_CHECK_FAILED if failed else EXIT_DONE
