"""``detmatrix repro``: a row of a run file in, a script that needs only torch out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
import msgspec
from msgspec.structs import replace

from detmatrix.opspecs.user import file_of, resolved
from detmatrix.scanner.accelerators import ACCELERATORS, SIMULATED, kind_of
from detmatrix.scanner.cases.catalog import named_files
from detmatrix.scanner.cases.known import selected_rows
from detmatrix.scanner.cli.options import python_option, specs_option, tell
from detmatrix.scanner.errors import EXIT_DONE, UntrustedScanError, UsageError
from detmatrix.scanner.invariance import PROPERTIES, Property
from detmatrix.scanner.observations.parts import machine_of
from detmatrix.scanner.observations.records import MODES, Header, Row, digest_kind
from detmatrix.scanner.observations.runfile import read_run
from detmatrix.scanner.observations.writer import cannot_write
from detmatrix.scanner.processes.process import ImportSandbox, WorkerEndedError, WorkerSupervisor
from detmatrix.scanner.repro.replay import replay_script, specs_of, told, witness_of
from detmatrix.scanner.repro.script import InputSource, invariance_script, rendered, script, tried_of
from detmatrix.scanner.run.passes import place_of
from detmatrix.scanner.verdicts.findings import MatrixRow, matrix

# Drawing takes a moment, a database seconds to import.
_TIMEOUT = 300.0


@click.command(name="repro")
@click.argument("run", metavar="[RUN]", required=False)
@click.argument("row", metavar="[ROW]", required=False)
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE.py",
              help="Where to write the script. Default: standard output.")  # fmt: skip
@click.option("--invariance", "what", type=click.Choice(list(PROPERTIES)),
              help="Show what the row's bits depend on, at the values at which the scan tried it, in place of "
              "verdicts.")  # fmt: skip
@click.option("--compile-cache", is_flag=True,
              help="Write the script that fills torch.compile's cache with the flag off in backward, and then shows what a process "
              "with the flag on throughout takes from it; no RUN is needed.")  # fmt: skip
@click.option("--replay", "replays", is_flag=True,
              help="Replay what a simulated GPU showed, from its schedule, without a GPU; with -o write the script that "
              "does.")  # fmt: skip
@specs_option(
    "A file of specs that the row is of, which is Python: without this option none of a run file's runs."
)
@python_option("The interpreter whose torch draws the inputs, or is replayed; it needs only torch.")
def command(
    run: str | None,
    row: str | None,
    output: Path | None,
    what: Property | None,
    compile_cache: bool,
    replays: bool,
    spec_files: tuple[str, ...],
    python: str,
) -> int:
    """Write a script that needs only torch and shows what a row of a run file showed.

    ROW is a pattern as scan takes it that only one row of RUN matches: a row id spec:case:direction:dtype, of which
    trailing parts may be left out, or the name of an op. The
    script draws the same inputs, runs both modes in processes of their own, and prints verdicts and finding.

    RUN may be a file that detmatrix locate --save wrote, FILE.pt, which holds the inputs of one op; it has no rows.
    """
    if compile_cache:
        if run is not None:
            raise UsageError(f"--compile-cache: its script is of no run; leave {run!r} out")
        _out(rendered("compile_cache"), output)
        return EXIT_DONE
    if run is None:
        raise UsageError("give a run file RUN and a ROW of it; detmatrix repro --help shows the rest")
    if run.endswith(".pt"):
        _out(_of_saved_inputs(run, row), output, run)
        return EXIT_DONE
    if row is None:
        raise UsageError(f"{run}: give a ROW of it too; detmatrix report shows what there is")
    read = read_run(run)
    chosen = _row(row, read.header.planned, run)
    rows = matrix(
        read.header, read.observations, closed=read.closing is not None, invariances=read.invariances
    )
    seen = next(one for one in rows if one.row.key == chosen.key)
    if replays and output is None:
        return told(witness_of(seen, read.header), python, spec_files)
    if replays:
        _out(replay_script(seen, read.header), output, run)
        return EXIT_DONE
    written, note = _of_row(seen, read.header, what, spec_files, python)
    _out(written, output, run)
    if note:
        click.echo(f"detmatrix: {note}", err=True)
    return EXIT_DONE


def _of_row(
    seen: MatrixRow, header: Header, what: Property | None, spec_files: Sequence[str], python: str
) -> tuple[str, str | None]:
    """Return the script of a row, and what is to be said of it."""
    chosen = seen.row
    if what is not None:
        tried_of(seen, what)
    tell("repro: starting torch, which draws the inputs")
    input_source = input_source_of(chosen, header, spec_files, python)
    # Of the machines of a merged file it is the one that observed the row.
    header = replace(header, environment=machine_of(header, chosen))
    written = (
        invariance_script(input_source, seen, header, what) if what else script(input_source, seen, header)
    )
    # A case or the generator of torch has changed if these are others; what an older file holds is of another kind.
    digests = {one.inputs_digest for one in seen.observations if one.inputs_digest is not None}
    here = input_source.digest
    unknown = here is None or not digests or {*map(digest_kind, digests)} != {digest_kind(here)}
    note = f"{chosen.id}: the inputs drawn here are not those of the run; its case, or torch, is another one here"
    return written, None if unknown or digests == {here} else note


def _of_saved_inputs(path: str, row: str | None) -> str:
    """Return the script for inputs that were kept; nothing that the file says is in it."""
    if row is not None:
        raise UsageError(f"{path}: holds the inputs of one op; leave {row!r} out")
    if not Path(path).is_file():
        raise UsageError(f"{path}: there is no such file; detmatrix locate --save DIR writes some")
    return rendered("saved", path=repr(str(Path(path).resolve())))


def _row(asked: str, planned: Sequence[Row], path: str) -> Row:
    """Return the only row that is meant."""
    ids = selected_rows([asked], planned, f"no row of {path} is called")
    found = [row for row in planned if row.id in ids]
    if len(found) == 1:
        return found[0]
    text = ", ".join(row.id for row in found[:3])
    more = ", ..." if len(found) > 3 else ""  # noqa: PLR2004
    raise UsageError(f"{asked!r} means {len(found)} rows of {path}; give one of them: {text}{more}")


def input_source_of(row: Row, header: Header, spec_files: Sequence[str], python: str) -> InputSource:
    """Have another process find out how the inputs are made.

    Raises:
        UsageError: It cannot be found out.
    """
    text = f"{row.id}: no script can be written"
    if kind_of(row.device) not in ("cpu", *ACCELERATORS):
        raise UsageError(
            f"{text}: it ran on {row.device}, and scripts are written for cpu, {', '.join(ACCELERATORS)} alone"
        )
    recorded = specs_of(row, header)
    named = named_files(spec_files, recorded, f"{text}: its spec is none of ours") if recorded else ()
    for path in map(resolved, named):
        if not file_of(path).is_file():
            raise UsageError(f"{text}: {path} is not there; say where it is now with --specs")
    drawn_for = SIMULATED if header.settings.as_simulated else row.device
    request = {"do": "source", **place_of(row), "device": kind_of(drawn_for)}
    request |= {"seed": header.settings.seed, "grown": row.enlargement}
    with ImportSandbox() as sandbox:
        supervisor = WorkerSupervisor(python, sandbox.path, named, "cpu")
        try:
            supervisor.first(MODES[0])
            answer = supervisor.ask(MODES[0], request, _TIMEOUT)
        except (WorkerEndedError, UntrustedScanError) as error:
            raise UsageError(f"{text}: the worker that draws its inputs: {error}") from error
        finally:
            supervisor.retire()
    if "failed" in answer:
        raise UsageError(f"{text}: {answer['failed']}")
    return msgspec.convert(answer, InputSource)


def _out(written: str, output: Path | None, run: str | None = None) -> None:
    if output is None:
        click.echo(written, nl=False)
        return
    if run is not None and output.exists() and output.samefile(run):
        raise UsageError(f"{output}: is the run file; choose another place with -o")
    try:
        output.write_text(written, encoding="utf-8")
    except OSError as error:
        raise cannot_write(output, error) from error
