"""The ``docs`` command: the documented lists held against run files, and written again."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import click

from detmatrix.reports.commands import DEFAULT_RUN, Block, command_words, deliver, refuse
from detmatrix.reports.docs.evidence import Evidence
from detmatrix.reports.docs.judge import Docs, join
from detmatrix.reports.docs.view import PATH, RENDERERS, drift_lines, patch_lines, pull_requests, read_source
from detmatrix.reports.matrix.model import load, recorded
from detmatrix.reports.matrix.run_words import states
from detmatrix.reports.render import literal, write_to_stdout
from detmatrix.scanner.cli.options import form_of, format_option, into_option, output_option, python_option
from detmatrix.scanner.errors import EXIT_CHECK_FAILED, EXIT_DONE, UsageError, one_line
from detmatrix.scanner.repro.script import InputSource

BLOCK = "docs"
FORMS = (*RENDERERS, "patch", "pr")


@click.command()
@click.argument("runs", metavar="[RUN]...", nargs=-1)
@format_option(
    FORMS,
    "A table for people, a web page that works offline, the two lists as the docstring has them, what would change in them, "
    "the same as a patch for git apply, a report of each op for PyTorch's maintainers, or JSON.",
)
@click.option(
    "--check",
    is_flag=True,
    help="Exit 1 when a run is not trustworthy or anything is contradicted, undocumented, self-contradictory, not "
    "understood or not covered, and print that alone, one line each; with --format or -o the document, too. With --into: "
    "exit 1 when a run is not trustworthy or the block is stale, and write nothing.",
)
@click.option(
    "--recorded",
    "release",
    metavar="VERSION",
    help="Read the recorded runs of this release of torch, such as 2.15, in place of RUN.",
)
@click.option(
    "--source",
    metavar="FILE",
    help="With --format patch or pr: the torch/__init__.py of a checkout of PyTorch, whose lists are held against the evidence. "
    "It is read, not run.",
)
@click.option(
    "--op",
    "ops",
    multiple=True,
    metavar="OP",
    help="With --format pr: report these ops alone, as torch.cumprod, or by one of their cases, torch.cumprod:long_flat.",
)
@python_option(
    "With --format pr: the interpreter whose torch draws the inputs of the repro; it needs only torch."
)
@output_option
@into_option(BLOCK, ", or '.. detmatrix docs:begin' and '.. detmatrix docs:end' of an RST file.")
def docs(
    runs: tuple[str, ...],
    form: str | None,
    check: bool,
    release: str | None,
    source: str | None,
    ops: tuple[str, ...],
    python: str,
    output: str | None,
    into: str | None,
) -> int:
    """Check the op lists that PyTorch documents against run files, and regenerate them.

    RUN is a file that scan wrote, or one compressed with gzip (.gz). Several of them, of one torch release, are
    joined: a CPU run and a CUDA run fill different cells. By default it is detmatrix.jsonl, or without one the runs of the newest
    release that are recorded with detmatrix. An entry changes on evidence alone.
    """
    # What is wrong with the lists, without the lists.
    alone = check and form is None and output is None
    form = form_of(form, output, FORMS)
    patched = form in {"patch", "pr"} if source is not None else form != "patch"
    refuse(
        (into is not None and output is not None, "--into and -o both say where to write; give one of them"),
        (ops and form != "pr", "--op chooses the ops of --format pr; give both"),
        (
            into is not None and form in {"html", "patch", "pr"},
            f"--format {form} is a file of its own; write it with -o",
        ),
        (
            not patched,
            f"--format patch changes the {PATH} of a checkout of PyTorch, which --source names; give both",
        ),
        (runs and release is not None, "--recorded names runs, and so does RUN; give one of them"),
    )
    runs = runs or given_or_recorded("docs", release)
    checkout = None if source is None else read_source(source)
    joined = join(load(runs), None if checkout is None else checkout.claims)
    sources = [*runs, *([source] if source is not None else [])]
    # What cannot be rendered is told before anything is printed.
    if form == "pr":
        pieces = list(pull_requests(joined, ops, checkout, lambda one: _drawn(joined, one, python)))
    else:
        pieces = list(RENDERERS[form](joined)) if checkout is None else patch_lines(checkout, joined)
    if not any(pieces):
        click.echo(one_line(f"{source or 'docs'}: nothing to change by what these runs show"), err=True)
    state = [
        f"{one_line(f'{state}: {one.name}: {text}')}\n"
        for one in (joined.matrices if check else ())
        for state, text in states(one)
    ]
    untrusted = check and any(one.distrust for one in joined.matrices)
    if into is not None:
        block, body = Block(Path(into), BLOCK), "".join(pieces)
        command = command_words("docs", runs, ["--format", form, "--into", Path(into).name])
        if block.rst and form == "md":
            raise UsageError(
                f"{into}: is RST, which a Markdown table does not fit; choose --format rst, diff or json"
            )
        if form != ("rst" if block.rst else "md"):
            body = literal(body, form, rst=block.rst)
        write_to_stdout(state)
        code = block.update(command, body, runs, check=check)
        return code or (EXIT_CHECK_FAILED if untrusted else EXIT_DONE)
    drift = [f"{one_line(line)}\n" for line in drift_lines(joined)] if check else []
    gap = ["\n"] if (state or drift) and pieces and output is None and not alone else []
    write_to_stdout(chain(state, drift, gap))
    if not alone:
        deliver(pieces, form, output, sources)
    return EXIT_CHECK_FAILED if drift or untrusted else EXIT_DONE


def given_or_recorded(command: str, release: str | None = None) -> tuple[str, ...]:
    """Return the run in this folder, or the recorded ones of the newest release, and say which these are.

    With a *release*, such as "2.15", those of the newest that begins so. Those of all of PyTorch's databases are left out.

    Raises:
        UsageError: None is recorded.
    """
    runs: tuple[str, ...] = (str(DEFAULT_RUN),)
    if release is not None or not DEFAULT_RUN.exists():
        known = [Path(path).name.split("-")[1] for path in recorded(what="cpu")]
        fitting = [one for one in known if release is None or f"{one}.".startswith(f"{release}.")]
        if not fitting:
            raise UsageError(f"--recorded {release}: no run of it is recorded; {', '.join(known)} are")
        runs = tuple(path for path in recorded(fitting[-1]) if not path.endswith("-all.jsonl.gz"))
        if command == "docs" and any("-cuda" in Path(path).name for path in runs):
            # What was measured on CUDA judges the lists, or what was simulated, not both.
            runs = tuple(path for path in runs if "-simulated-" not in Path(path).name)
    click.echo(f"{command}: {', '.join(runs)}", err=True)
    return runs


def _drawn(joined: Docs, one: Evidence, python: str) -> InputSource:
    """Have another process find out how the inputs of a row are made."""
    # The catalog is loaded where it is needed.
    from detmatrix.scanner.cli.repro import input_source_of  # noqa: PLC0415

    header = next(it.run.header for it in joined.matrices if it.name == one.run)
    return input_source_of(one.row.row, header, (), python)
