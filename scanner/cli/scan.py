"""``detmatrix scan``: options in, a run file out."""

from __future__ import annotations

import re
import shlex
import signal
import sys
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from detmatrix.opspecs.pytorch.sources import databases
from detmatrix.scanner.cases.plan import NOT_SIMULATED, Plan, Shard, asked_for
from detmatrix.scanner.cli.main import SUMMARY, load
from detmatrix.scanner.cli.options import DEFAULTS, Whole, patterns_argument, refuse_report_name
from detmatrix.scanner.cli.setting_options import except_option, fail_on_option, settings_options
from detmatrix.scanner.cluster import how_to_go_on, scan_on_cluster
from detmatrix.scanner.errors import EXIT_CHECK_FAILED, EXIT_DONE, EXIT_INTERRUPTED, EXIT_UNTRUSTED, one_line
from detmatrix.scanner.modes import MODE_TABLE
from detmatrix.scanner.observations.records import MOST_SHARDS
from detmatrix.scanner.observations.runfile import UNTRUSTED, Run
from detmatrix.scanner.observations.settings import SETTINGS
from detmatrix.scanner.processes.process import ENDS_ALL
from detmatrix.scanner.run.progress import progress_for
from detmatrix.scanner.run.scan import scan
from detmatrix.scanner.verdicts.controls import distrust

DEFAULT_OUTPUT = "detmatrix.jsonl"
_HOST_AND_PORT = re.compile(r"[^\s/@]+:[0-9]{1,5}")
_SHARD = re.compile(r"([1-9][0-9]{0,4})/([1-9][0-9]{0,4})")


def _address(value: str) -> str:
    """Return ``HOST:PORT`` of a Ray cluster, or a word; refuse what is more likely a pattern: the address may be left out."""
    if value in {"auto", "local"} or _HOST_AND_PORT.fullmatch(value):
        return value
    raise click.BadParameter(
        f"{value!r} is no address; give HOST:PORT, auto for the cluster of this machine, or nothing to start Ray here, "
        "with patterns before it"
    )


def _shard(value: str) -> Shard:
    """Return what ``I/N`` says, one of N shards."""
    numbers = _SHARD.fullmatch(value)
    shard = Shard(*map(int, numbers.groups())) if numbers else Shard(2, 1)
    if not shard.number <= shard.total <= MOST_SHARDS:
        raise click.BadParameter(
            f"{value!r} is no shard; give I/N with I from 1 to N, and N up to {MOST_SHARDS}"
        )
    return shard


@click.command(name="scan")
@patterns_argument
@settings_options
@click.option("--python", default=sys.executable, metavar="PATH",
              help="The interpreter whose torch is scanned; it needs only torch. Default: this one, with --ray the one that Ray has.")  # fmt: skip
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), metavar="RUN.jsonl",
              help=f"The run file. Default: {DEFAULT_OUTPUT}, or detmatrix-I-of-N.jsonl with --shard.")  # fmt: skip
@click.option("--shard", type=_shard, metavar="I/N",
              help="Scan only shard I of N: every Nth op, so that N machines share the work. detmatrix merge joins their run files.")  # fmt: skip
@click.option("--ray", type=_address, is_flag=False, flag_value="local", metavar="[ADDRESS]",
              help="Scan the shards on a Ray cluster, and merge them. ADDRESS is HOST:PORT or auto; without it Ray is started on this "
              "machine.")  # fmt: skip
@click.option("--shards", type=Whole(1, MOST_SHARDS), metavar="N",
              help="With --ray: divide the ops among N shards. Default: as many as nodes or GPUs scan side by side.")  # fmt: skip
@click.option("--resume", is_flag=True, help="Go on with the unfinished scan in the run file.")
@click.option("--force", is_flag=True, help="Overwrite whatever the run file holds.")
@fail_on_option
@except_option
def command(
    output: Path | None,
    python: str,
    fail_on: tuple[str, ...] | None,
    excepted: tuple[str, ...],
    shard: Shard | None,
    ray: str | None,
    shards: int | None,
    *,
    resume: bool,
    force: bool,
    **options: Any,
) -> int:
    """Run the ops that match the PATTERNs (default: all) again and again, with the flag off and on.

    A PATTERN is the name of an op, as torch.nn.Conv2d, Conv2d or conv2d, a family, or a row id spec:case:direction:dtype
    of which trailing parts may be left out; * and ? match as in a shell. A name that only PyTorch's databases have adds
    its --source. Observations go into the run file as they come:
    a scan that was stopped goes on with --resume. Progress goes to standard error.
    """
    if resume and force:
        raise click.UsageError(
            "--resume keeps what the run file holds, --force throws it away; give one of them"
        )
    _check_cluster(shard, ray, shards)
    if ray is not None and options.get("simulate"):
        raise click.UsageError("--ray scans devices of its nodes, --simulate has none; give one of them")
    if excepted and not fail_on:
        raise click.UsageError("--except says which rows --fail-on lets pass; give both")
    # Shards that nobody began have no settings of their own.
    said, tabled = _said(options, resume=resume and ray is None)
    if output is None:
        output = Path(f"detmatrix-{shard.number}-of-{shard.total}.jsonl" if shard else DEFAULT_OUTPUT)
    if not output.name:
        raise click.UsageError("-o needs the name of a file")
    refuse_report_name(str(output))
    plan = Plan(
        output=output,
        settings=asked_for(**said),
        said=frozenset(said),
        resume=resume,
        force=force,
        shard=shard,
        python=python,
    )
    # A batch system that ends the job gives it time to say how to go on.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        progress = progress_for()
        if tabled:
            words = " ".join(word for name in tabled for word in SETTINGS[name].words(said[name]))
            progress.note(f"{click.get_current_context().meta[DEFAULTS]} says {words}")
        run = scan_on_cluster(plan, ray, shards, progress) if ray else scan(plan, progress)
    except KeyboardInterrupt:
        again = how_to_go_on(plan, ray, shards) if ray else _how_to_go_on(plan)
        click.echo(f"detmatrix: interrupted; {again}", err=True)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # Nobody reads the progress any more, so nobody can be told; the file is valid.
        return EXIT_INTERRUPTED
    return _tell(run, fail_on or (), excepted)


def _check_cluster(shard: Shard | None, ray: str | None, shards: int | None) -> None:
    """Refuse options that belong to a scan on a cluster, or to none."""
    if ray is not None and shard is not None:
        raise click.UsageError("--ray gives out all shards, --shard scans one; give one of them")
    # A file of defaults may say how many.
    said = click.get_current_context().get_parameter_source("shards") is ParameterSource.COMMANDLINE
    if ray is None and shards is not None and said:
        raise click.UsageError(
            "--shards says how --ray divides the ops; give both, or --shard I/N for one shard"
        )


def _said(options: dict[str, Any], *, resume: bool) -> tuple[dict[str, Any], list[str]]:
    """Return the settings that were given, and which of them a file of defaults says.

    What the command line says goes before a default that would contradict it; a scan that goes on has settings.
    """
    source = click.get_current_context().get_parameter_source
    given = {name: value for name, value in options.items() if value not in {None, ()}}
    tabled = {name for name in given if source(name) is ParameterSource.DEFAULT_MAP}
    asked = given.keys() - tabled
    idle = set(tabled) if resume else set[str]()
    if given.get("simulate"):
        idle |= {*NOT_SIMULATED}
        if wrong := [name for name in NOT_SIMULATED if name in asked and given[name] not in {"auto", False}]:
            raise click.UsageError(
                f"--simulate and {SETTINGS[wrong[0]].option}: give one of them, a simulation has no such"
            )
    needing = _needing(given)
    said = {name: value for name, value in given.items() if name not in (idle | needing.keys()) & tabled}
    for name, what in needing.items():
        if said.get(name) and not resume:
            raise click.UsageError(f"{SETTINGS[name].option} applies to {what}")
    return said, [name for name in said if name in tabled]


def _needing(given: dict[str, Any]) -> dict[str, str]:
    """Return the settings that do nothing beside those that were given, with what they apply to and how to ask for it."""
    needing = {}
    if not databases(given.get("sources")):
        needing = dict.fromkeys(
            ("dtypes", "samples"), "PyTorch's databases; add --source opinfo, modules or all"
        )
    if not any(MODE_TABLE[mode].compiles for mode in given.get("modes", ())):
        needing["compile_all"] = "modes under torch.compile; add --modes compile_off,compile_on"
    if not given.get("simulate"):
        needing["multiprocessors"] = "a simulated GPU; add --simulate sm_80"
    return needing


def _how_to_go_on(plan: Plan) -> str:
    """Say what an interrupted scan left, and the command that goes on with it."""
    if not plan.output.exists() or not plan.output.stat().st_size:
        return "nothing was observed yet, start again"
    python = [] if plan.python == sys.executable else ["--python", plan.python]
    specs = [word for path in plan.settings.specs for word in ("--specs", path)]
    again = shlex.join(["detmatrix", "scan", "--resume", *specs, *python, "-o", str(plan.output)])
    return f"{plan.output} is valid, go on with: {again}"


def _tell(run: Run, fails: tuple[str, ...], excepted: tuple[str, ...]) -> int:
    """Show what came out, say whether it can be trusted, and whether it is what a check fails on."""
    failure = load(SUMMARY)(run, fails, excepted)
    voided = [one for one in run.observations if str(one.message).startswith(UNTRUSTED)]
    rows = len({one.key for one in voided})
    if voided:
        _say(f"{run.path}: {rows} row{'s are' if rows > 1 else ' is'} {voided[0].message}")
    if not ENDS_ALL:
        _say("Processes that an op starts in a session of their own are ended on Linux alone")
    # A merged file has the controls of scans that never came to their closing lines.
    if reasons := distrust(run):
        _say(f"detmatrix: the scan cannot be trusted: {reasons[0]} ({len(reasons)} such)")
        return EXIT_UNTRUSTED
    if voided and len(voided) == len(run.observations):
        _say("detmatrix: the scan cannot be trusted: no control vouches for any of its rows")
        return EXIT_UNTRUSTED
    if failure is not None:
        _say(f"detmatrix: {failure}")
        return EXIT_CHECK_FAILED
    return EXIT_DONE


def _say(text: str) -> None:
    """Print a line on standard error; what ops and workers say may hold anything."""
    click.echo(one_line(text), err=True)
