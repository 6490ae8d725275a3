"""A row of a simulated run once more: in each mode the canonical schedule, and the one that gave other bits, on any machine."""

from __future__ import annotations

import argparse
import pprint
import shlex
import sys
from collections.abc import Iterator, Mapping

import msgspec
from msgspec.structs import replace

from detmatrix.opspecs.pytorch.sources import databases
from detmatrix.opspecs.registry import SPECS
from detmatrix.opspecs.user import resolved
from detmatrix.scanner.cases.catalog import named_files
from detmatrix.scanner.cases.plan import asked_for
from detmatrix.scanner.errors import EXIT_CHECK_FAILED, EXIT_DONE, DetmatrixError, UsageError, one_line
from detmatrix.scanner.observations.records import Header, Mode, Observation, Record, Row, Schedule, Settings
from detmatrix.scanner.processes.process import ImportSandbox, WorkerSupervisor
from detmatrix.scanner.repro.script import WIDTH, finding_comment, rendered
from detmatrix.scanner.run.passes import PATIENCE, ask, place_of
from detmatrix.scanner.run.progress import progress_for
from detmatrix.scanner.run.simulation import described, simulation_for
from detmatrix.scanner.schedules import CANONICAL
from detmatrix.scanner.verdicts.findings import MatrixRow


class ReplayedMode(Record, frozen=True):
    """What a mode gave: the digest of the canonical execution, and that under the schedule that gave other bits."""

    digests: tuple[str, ...]
    schedule: Schedule | None = None


class ReplaySource(Record, frozen=True):
    """What a replay needs of a run."""

    torch: str
    build: str  # of the simulation
    settings: dict[str, str | int | float]  # that an execution rests on
    row: dict[str, str]
    specs: tuple[str, ...]  # files of specs that the row is of; they run only where a command line names them
    inputs: str | None  # digest
    modes: dict[Mode, ReplayedMode]


def witness_of(row: MatrixRow, header: Header) -> ReplaySource:
    """Return what replays a row.

    Raises:
        UsageError: Nothing was simulated, or nothing ran.
    """
    of = header.environment.simulated
    if of is None:
        raise UsageError(
            f"{row.row.id}: was measured, and --replay repeats what a simulated GPU showed; leave it out"
        )
    seen = [one for one in row.observations if one.outcome == "ran"]
    if not seen:
        raise UsageError(f"{row.row.id}: nothing to replay, it ran in no mode ({row.reason})")
    names = ("simulate", "multiprocessors", "runs", "seed", "timeout")
    return ReplaySource(
        torch=header.environment.torch,
        build=of.build,
        settings={name: getattr(header.settings, name) for name in names},
        row=place_of(row.row) | ({"enlargement": row.row.enlargement} if row.row.enlargement else {}),
        specs=specs_of(row.row, header),
        inputs=seen[0].inputs_digest,
        modes={one.mode: _mode(one) for one in seen},
    )


def specs_of(row: Row, header: Header) -> tuple[str, ...]:
    """Return the files of specs of a run that a row needs; one of the catalog needs none, wherever those of its run are now."""
    if row.spec in {spec.name for spec in SPECS} or databases((row.source,)):
        return ()
    return header.settings.specs


def replay_script(row: MatrixRow, header: Header) -> str:
    """Return the script that replays a row; whatever a run file says stands in quotes there."""
    of = witness_of(row, header)
    literal = pprint.pformat(msgspec.to_builtins(of), width=WIDTH - 4, sort_dicts=False)
    witness = "\n".join(f"    {line}" for line in literal.splitlines())
    comment = "\n".join(finding_comment(row, header))
    specs = "".join(f" {one_line(f'--specs {shlex.quote(path)}')}" for path in of.specs)
    torch = one_line(header.environment.torch)
    return rendered("replay", comment=comment, torch=torch, witness=witness, specs=specs)


def told(witness: ReplaySource, python: str, spec_files: tuple[str, ...] = ()) -> int:
    """Replay, and print what was seen; return the exit code.

    Raises:
        UsageError: This machine, or the build in that interpreter, cannot have the simulated GPU, or files of specs are not
            named.
        UntrustedScanError: No worker could start.
    """
    same = True
    text = f"{':'.join(witness.row[part] for part in ('spec', 'case'))}: cannot be replayed: its spec is none of ours"
    files = tuple(map(resolved, named_files(spec_files, witness.specs, text)))
    for line, is_same in _replayed(witness, python, files):
        print(one_line(line), flush=True)
        same = same and is_same
    print("reproduced" if same else "NOT reproduced")
    return EXIT_DONE if same else EXIT_CHECK_FAILED


def main(witness: Mapping[str, object]) -> None:
    """Replay what a script holds, as its options say."""
    parser = argparse.ArgumentParser(description="Replay what a simulated GPU showed.")
    parser.add_argument("--python", default=sys.executable, help="the interpreter whose torch is replayed")
    parser.add_argument("--specs", action="append", default=[], help="a file of specs that the row is of")
    options = parser.parse_args()
    try:
        sys.exit(told(msgspec.convert(witness, ReplaySource), options.python, tuple(options.specs)))
    except DetmatrixError as error:
        print(f"detmatrix: {one_line(str(error))}", file=sys.stderr)
        sys.exit(error.exit_code)


def _replayed(witness: ReplaySource, python: str, spec_files: tuple[str, ...]) -> Iterator[tuple[str, bool]]:
    """Yield a line for each thing seen, and whether it is what the run saw."""
    settings = asked_for(**witness.settings)
    progress = progress_for("replay")
    simulation = simulation_for(settings, python, progress)
    build = described(settings)
    if build and build.build != witness.build:
        yield f"recorded with another build of the simulation: {witness.build}, here {build.build}", True
    with ImportSandbox() as sandbox:
        supervisor = WorkerSupervisor(
            python, sandbox.path, spec_files, settings.device, simulation=simulation
        )
        try:
            for number, (mode, before) in enumerate(witness.modes.items()):
                progress.doing(f"starting torch with the flag {mode}: {python}")
                supervisor.retire()
                torch = supervisor.first(mode).build["torch"]
                if torch != witness.torch and not number:
                    yield f"recorded with torch {witness.torch}, here {torch}", True
                after = _again(supervisor, settings, witness.row, mode, before)
                yield from ((f"{mode}: {line}", same) for line, same in _compared(witness, before, after))
        finally:
            progress.end()
            supervisor.retire()


def _again(
    supervisor: WorkerSupervisor, settings: Settings, row: Mapping[str, str], mode: Mode, before: ReplayedMode
) -> Observation:
    """Execute the row as the run did, under the canonical schedule and the class that gave other bits."""
    perturb = (CANONICAL, before.schedule.name) if before.schedule else (CANONICAL,)
    request = dict(row) | {"do": "observe", "device": settings.device, "seed": settings.seed}
    request |= {"runs": settings.runs, "perturbations": perturb, "seconds": settings.timeout}
    place = {name: value for name, value in row.items() if name != "enlargement"} | {
        "mode": mode,
        "process": 0,
    }
    limits = replace(settings, perturb=perturb)
    return ask(supervisor, Observation, place, mode, request, settings.timeout + PATIENCE, limits)


def _mode(one: Observation) -> ReplayedMode:
    schedule = one.simulated.schedule if one.simulated else None
    # Behind the first execution that differs the class goes on.
    return ReplayedMode(digests=tuple(one.digests)[:2], schedule=schedule)


def _compared(witness: ReplaySource, before: ReplayedMode, seen: Observation) -> Iterator[tuple[str, bool]]:
    """Yield what a mode gave, and whether the run saw the same."""
    if seen.outcome != "ran":
        yield f"{seen.outcome}: {seen.message}", False
        return
    if seen.inputs_digest != witness.inputs:
        yield (
            "the inputs are not those of the run; its case, or the generator of torch, is another one here",
            False,
        )
    after = _mode(seen)
    words = seen.simulated.cpu.words if seen.simulated and seen.simulated.cpu else "not compared with the CPU"
    yield f"{CANONICAL}: {after.digests[0]}, {words}", True
    if it := after.schedule:
        yield f"{it.name}, number {it.number}, seed {it.seed}: {after.digests[1]}", True
    for output in seen.outputs:
        if far := output.severity:
            most = "" if far.max_abs is None else f", by {far.max_abs:.3g} at most"
            yield f"{output.name}: {far.differing_elements} of {far.elements} elements differ{most}", True
    same = after == before
    yield f"{'the same as' if same else 'NOT what is'} recorded: {', '.join(before.digests)}", same
