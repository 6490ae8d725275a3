"""The ``trace`` command: cases in, the overloads they reach with fake tensors out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from reports.builds import render
from reports.render.output import write_report, write_to_stdout
from scanner.cli.options import (
    form_of,
    format_option,
    output_option,
    patterns_argument,
    python_option,
    specs_option,
    tell,
)
from scanner.errors import EXIT_DONE, UsageError
from scanner.observations.trace.files import read_trace, trace_text
from scanner.observations.trace.records import TraceFile
from scanner.run.trace import DEFAULT_TIMEOUT
from scanner.run.trace import trace as trace_rows

RENDERERS: dict[str, Callable[[TraceFile], Iterator[str]]] = {
    "md": render.trace,
    "json": lambda traced: iter([trace_text(traced)]),
}
# Between two lines of progress.
_TELL_SECONDS = 10.0


@click.command()
@patterns_argument
@click.option(
    "--device",
    type=click.Choice(["cuda", "cpu"]),
    default="cuda",
    show_default=True,
    help="Device of the fake tensors; it does not have to exist on this machine.",
)
@python_option("The interpreter whose torch is traced; for CUDA one with a CUDA build.")
@specs_option("Trace the SPECS of this file too.")
@click.option(
    "--timeout",
    type=click.FloatRange(0, 86400, min_open=True),
    default=DEFAULT_TIMEOUT,
    show_default=True,
    metavar="S",
    help="Seconds a case may take.",
)
@click.option(
    "--read",
    "recorded",
    metavar="TRACE.json",
    help="Render a recorded trace (.gz too) instead of making one.",
)
@format_option(RENDERERS, "Tables of what is rerouted, or JSON: the record, to be read again.")
@output_option
def trace(
    patterns: tuple[str, ...],
    device: str,
    python: str,
    spec_files: tuple[str, ...],
    timeout: float,
    recorded: str | None,
    form: str | None,
    output: str | None,
) -> int:
    """Run the cases that match the PATTERNs (default: all) with fake tensors, with the flag off and on.

    Lists the ATen overloads each mode reaches, forward and backward apart, and so where the flag leads to others, and
    whether that is decided in the forward phase. No kernel runs and no GPU is needed: what a trace shows is expected,
    never measured, and what a kernel decides by itself is not in it.
    """
    if output is not None and output.endswith(".gz"):
        raise UsageError(f"{output}: a trace is written plain; choose a name without .gz, compress it later")
    if recorded is not None:
        if patterns or spec_files:
            raise UsageError("--read renders a whole trace; leave the patterns and --specs out")
        traced = read_trace(recorded)
    else:
        tell(f"trace: starting torch: {python}")
        traced = trace_rows(
            patterns, device, python=python, spec_files=spec_files, timeout=timeout, tell=_Progress().tell
        )
    pieces = RENDERERS[form_of(form, output, RENDERERS)](traced)
    if output is None:
        write_to_stdout(pieces)
    else:
        write_report(Path(output), pieces, [recorded] if recorded else [])
    return EXIT_DONE


class _Progress:
    """A line on standard error every few seconds."""

    def __init__(self) -> None:
        self._shown_at = time.monotonic()

    def tell(self, place: int, total: int, row: str) -> None:
        """Say how far it is, if it is time."""
        if time.monotonic() - self._shown_at < _TELL_SECONDS:
            return
        self._shown_at = time.monotonic()
        click.echo(f"trace: {place}/{total}; at {row}", err=True)
