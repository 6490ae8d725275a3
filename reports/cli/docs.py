"""The ``docs`` command: the documented lists held against run files, and written again."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import click

from reports.docs.agreement import Docs, join
from reports.docs.builds import BuildFiles, read_files
from reports.docs.render import RENDERERS, drift_lines, state_lines
from reports.matrix.model import load
from reports.render import blocks
from reports.render.output import write_report, write_to_stdout
from scanner.cli.options import form_of, format_option, into_option, output_option
from scanner.errors import EXIT_CHECK_FAILED, EXIT_DONE, UsageError, one_line

BLOCK = "docs"


@click.command()
@click.argument("runs", metavar="[RUN]...", nargs=-1)
@click.option(
    "--census",
    "censuses",
    metavar="FILE",
    multiple=True,
    help="Say beside each bullet what this census says of its build. May be given more than once.",
)
@click.option(
    "--trace",
    "traces",
    metavar="FILE",
    multiple=True,
    help="Say beside each bullet what its cases reach in this trace. May be given more than once.",
)
@format_option(
    RENDERERS,
    "A table for people, the two lists as the docstring has them, what would change in them, or JSON.",
)
@click.option(
    "--check",
    is_flag=True,
    help="Exit 1 when a run is not trustworthy or anything is contradicted, undocumented, self-contradictory, not "
    "understood or not covered, and print that first, one line each. With --into: exit 1 when a run is not "
    "trustworthy or the block is stale, and write nothing.",
)
@output_option
@into_option(BLOCK, ", or '.. detmatrix docs:begin' and '.. detmatrix docs:end' of an RST file.")
def docs(
    runs: tuple[str, ...],
    censuses: tuple[str, ...],
    traces: tuple[str, ...],
    form: str | None,
    check: bool,
    output: str | None,
    into: str | None,
) -> int:
    """Check the op lists that PyTorch documents against run files, and regenerate them.

    RUN is a file that scan wrote, or one compressed with gzip (.gz). Several of them, of one torch release, are
    joined: a CPU run and a CUDA run fill different cells. An entry changes on evidence alone. What a census or a
    trace of the same build says is shown beside it as expected; both need no run, and no GPU.
    """
    if into is not None and output is not None:
        raise UsageError("--into and -o both say where to write; give one of them")
    form = form_of(form, output, RENDERERS)
    if censuses or traces:
        if form in {"rst", "diff"}:
            raise UsageError(
                f"--format {form} writes the lists, which change on what was measured alone; leave --census and "
                f"--trace out, or choose --format md or json"
            )
        if not runs and (check or into is not None):
            raise UsageError("--check and --into speak of runs; give a run file too")
    elif not runs:
        raise UsageError("nothing to check the lists against; give run files, or --census or --trace")
    joined = join(load(runs)) if runs else None
    files = read_files(censuses, traces, joined) if censuses or traces else None
    if joined is None:
        pieces = _rendered(joined, files, form)
        if output is None:
            write_to_stdout(pieces)
        else:
            write_report(Path(output), pieces, [*censuses, *traces])
        return EXIT_DONE
    sources = (*runs, *censuses, *traces)
    state = [f"{one_line(line)}\n" for line in state_lines(joined)] if check else []
    untrusted = check and any(one.distrust for one in joined.matrices)
    if into is not None:
        body = "".join(_rendered(joined, files, form))
        named = [option for path in censuses for option in ("--census", blocks.shown(path))]
        named += [option for path in traces for option in ("--trace", blocks.shown(path))]
        return _into(Path(into), body, runs, [*named, "--format", form], form, check=check, state=state) or (
            EXIT_CHECK_FAILED if untrusted else EXIT_DONE
        )
    drift = [f"{one_line(line)}\n" for line in drift_lines(joined)] if check else []
    # What cannot be rendered is told before anything is printed.
    pieces = _rendered(joined, files, form)
    gap = ["\n"] if (state or drift) and pieces and output is None else []
    if output is not None:
        write_report(Path(output), pieces, sources)
    write_to_stdout(chain(state, drift, gap, pieces if output is None else []))
    return EXIT_CHECK_FAILED if drift or untrusted else EXIT_DONE


def _rendered(joined: Docs | None, files: BuildFiles | None, form: str) -> list[str]:
    """Render the runs, and after them what files of builds say."""
    return list(RENDERERS[form](joined) if files is None else RENDERERS[form](joined, files))


def _into(
    path: Path,
    body: str,
    runs: tuple[str, ...],
    options: list[str],
    form: str,
    *,
    check: bool,
    state: list[str],
) -> int:
    """Regenerate the block of a file, or tell whether it is stale."""
    command = blocks.command_words("docs", runs, [*options, "--into", path.name])
    rst = blocks.is_rst(path, BLOCK)
    if rst and form == "md":
        raise UsageError(
            f"{path}: is RST, which a Markdown table does not fit; choose --format rst, diff or json"
        )
    if form != ("rst" if rst else "md"):
        body = blocks.literal(body, form, rst=rst)
    write_to_stdout(state)
    return blocks.update(path, BLOCK, command, body, runs, check=check)
