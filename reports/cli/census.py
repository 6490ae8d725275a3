"""The ``census`` command: what a build says of determinism, without running it."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from reports.builds import render
from reports.render.output import write_report, write_to_stdout
from scanner.census.record import Census, encode, read_census
from scanner.cli.options import form_of
from scanner.errors import EXIT_CHECK_FAILED, EXIT_DONE, UsageError, one_line
from scanner.observations.runfile import read_run


@click.command()
@click.option(
    "--python", metavar="PATH", help="Read the torch beside this interpreter, instead of this one's."
)
@click.option("--wheel", metavar="FILE", help="Read the torch in this wheel; nothing is installed.")
@click.option("--census", "recorded", metavar="FILE", help="Show this recorded census (.json or .json.gz).")
@click.option("--format", "form", type=click.Choice(["md", "json"]),
              help="Tables for people, or the record. Default: what the name given with -o ends in, else the record; md "
              "without -o.")  # fmt: skip
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="Write to FILE, and one sentence to the terminal.",
)
@click.option(
    "--check",
    metavar="RUN",
    help="Exit 1 when an alert that the scan in RUN met is missing from the census, one line for each.",
)
@click.option(
    "--sass", is_flag=True, help="Look for floating-point atomics in the CUDA kernels too; takes minutes."
)
@click.option("--arch", metavar="ARCH", help="With --sass: the architecture to look at, such as sm_90.")
@click.option("--cuobjdump", metavar="PATH", help="With --sass: NVIDIA's cuobjdump, with nvdisasm beside it.")
def census(
    python: str | None,
    wheel: str | None,
    recorded: str | None,
    form: str | None,
    output: str | None,
    check: str | None,
    sass: bool,
    arch: str | None,
    cuobjdump: str | None,
) -> int:
    """Read who raises alerts and who checks the flag out of a build of torch, without running it.

    Builds for Linux on x86-64, with the symbol tables that wheels on PyPI have. Without an option, the torch of the
    interpreter that runs detmatrix.
    """
    if output is not None and output.endswith(".gz"):
        raise UsageError(f"{output}: a census is written plain; choose a name without .gz, compress it later")
    if sum(one is not None for one in (python, wheel, recorded)) > 1:
        raise UsageError("--python, --wheel and --census each say what to read; give one of them")
    if not sass and (arch is not None or cuobjdump is not None):
        raise UsageError("--arch and --cuobjdump say how --sass looks at kernels; give --sass too")
    if sass and recorded is not None:
        raise UsageError("--sass looks at a build, and --census names a record; give --python or --wheel")
    run = None if check is None else read_run(check)
    found = (
        read_census(recorded)
        if recorded is not None
        else _take(python, wheel, sass=sass, arch=arch, cuobjdump=cuobjdump)
    )
    if output is not None:
        form = form_of(form, output, ("md", "json"), "json")
        write_report(Path(output), render.census(found) if form == "md" else [encode(found)])
        write_to_stdout([f"{one_line(render.summary(found))}\n"])
    elif run is None:
        write_to_stdout([encode(found)] if form == "json" else render.census(found))
    if run is None:
        return EXIT_DONE
    from scanner.census.check import met, missing_alerts  # noqa: PLC0415 - as the rest of the census

    missing = missing_alerts(found, run)
    write_to_stdout(f"{one_line(line)}\n" for line in missing)
    if not missing:
        name = one_line(Path(run.path).name)
        write_to_stdout([f"Every alert that {name} met ({len(met(run))} callers) is in the census.\n"])
    return EXIT_CHECK_FAILED if missing else EXIT_DONE


def _take(
    python: str | None, wheel: str | None, *, sass: bool, arch: str | None, cuobjdump: str | None
) -> Census:
    """Take a census; pyelftools and capstone are loaded here.

    Raises:
        UsageError: They are not installed, or there is no such build.
    """
    try:
        from scanner.census.build import open_build  # noqa: PLC0415
        from scanner.census.sass import kernels, tools  # noqa: PLC0415
        from scanner.census.take import take  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in {"capstone", "elftools"}:
            raise
        raise UsageError(
            f"census: reading a build needs {error.name.partition('.')[0]}; install it with pip install "
            f"'detmatrix[census]'"
        ) from error
    programs = tools(python or sys.executable, cuobjdump) if sass else None
    with open_build(python or sys.executable, wheel) as build:
        return take(
            build,
            _described,
            None if programs is None else lambda build: kernels(build, programs, arch, _described),
        )


def _described(what: str) -> None:
    """Say on standard error what is being read."""
    click.echo(f"reading {one_line(what)}", err=True)
