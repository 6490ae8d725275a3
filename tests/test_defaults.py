"""Defaults of options from pyproject.toml: what they may choose, and what only the command line may."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from detmatrix.reports.matrix.words import rerun_options
from detmatrix.scanner.cases.settings import Plan, asked_for, settings_for
from detmatrix.scanner.cli import scan as scan_command
from detmatrix.scanner.cli.main import COMMANDS, load
from detmatrix.scanner.errors import UsageError
from detmatrix.scanner.modes import with_chosen
from detmatrix.scanner.observations.runfile import read_run
from detmatrix.scanner.observations.settings import SETTINGS
from detmatrix.scanner.run.resume import begun
from tests import tied
from tests.commands import Command
from tests.conftest import refused
from tests.runs import write_run
from tests.stand_in import StandIn

SPECS = Path(__file__).with_name("quick.py")
ROOT = Path(__file__).parent.parent


def test_scan_takes_them(detmatrix: Command, tmp_path: Path) -> None:
    """The nearest file above counts, says so, and gives way to the command line."""
    (tmp_path / "pyproject.toml").write_text(
        '[tool.detmatrix.scan]\ndevice = "cpu"\nruns = 3\nprocesses = 1\ncost = false\nperturb = ["quiet", "poison"]\n'
    )
    command = ("scan", "quick.cumsum", "--specs", SPECS, "--python", StandIn(tmp_path).python)

    done = detmatrix(*command)

    assert done.returncode == 0, done.stderr
    settings = read_run(tmp_path / "detmatrix.jsonl").header.settings
    assert (settings.runs, settings.processes, settings.cost, settings.perturb) == (
        3,
        1,
        False,
        ("quiet", "poison"),
    )
    said = f"scan: {tmp_path / 'pyproject.toml'} says --device cpu --runs 3 --processes 1 --perturb quiet,poison --no-cost"
    assert said in done.stderr
    done = detmatrix(*command, "--runs", "4", "--force")
    assert done.returncode == 0, done.stderr
    assert read_run(tmp_path / "detmatrix.jsonl").header.settings.runs == 4


def test_resuming_asks_for_nothing_of_them(detmatrix: Command, tmp_path: Path) -> None:
    """A scan that goes on has the settings that it began with."""
    command = ("scan", "quick.cumsum", "--specs", SPECS, "--python", StandIn(tmp_path).python, "--runs", 2)
    assert detmatrix(*command).returncode == 0
    (tmp_path / "pyproject.toml").write_text("[tool.detmatrix.scan]\nseed = 3\n")

    assert detmatrix(*command, "--resume").returncode == 0


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ('.scan]\npython = "./evil"', "[tool.detmatrix.scan] python: is taken from the command line alone; numbers, "),
        (
            '.scan]\nspecs = ["evil.py"]',
            "[tool.detmatrix.scan] specs: is taken from the command line alone; numbers, ",
        ),
        ('.scan]\noutput = "x"', "[tool.detmatrix.scan] output: is taken from the command line alone; numbers, "),
        (".scan]\nforce = true", "[tool.detmatrix.scan] force: is taken from the command line alone; numbers, "),
        (".scan]\nrun = 3", "[tool.detmatrix.scan] run: is no option of detmatrix scan; did you mean runs?"),
        (".scan]\nruns = 0", "[tool.detmatrix.scan] runs: 0 is not in the range 1<=x<=1000000"),
        (".scan]\ncost = 3", "[tool.detmatrix.scan] cost: 3 is no value of it"),
        (
            '.scan]\ndevice = "tpu"',
            "[tool.detmatrix.scan] device: 'tpu' is not a device; give auto, cpu, cuda, xpu, mps, or one of them as cuda:N",
        ),
        (".scn]\nruns = 3", "[tool.detmatrix.scn] is no command; did you mean scan?"),
        ('.scan]\nruns = "x"', "[tool.detmatrix.scan] runs: 'x' is not a valid whole number"),
        (".scan]\nruns = ", "cannot be read (Invalid value (at end of document))"),
        ("]\nruns = 3\n", "[tool.detmatrix] runs: belongs to no command; put it into [tool.detmatrix.COMMAND]"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_them(detmatrix: Command, tmp_path: Path, table: str, expected: str) -> None:
    """One line that names the file, before anything runs."""
    path = tmp_path / "pyproject.toml"
    path.write_text(f"[tool.detmatrix{table}")

    assert refused(detmatrix("scan", "quick.cumsum")).startswith(f"{path}: {expected}")


def test_no_default_names_what_runs_or_where_it_goes() -> None:
    """Of all options of all commands only those may be chosen that choose among what there is."""
    import click  # noqa: PLC0415

    from detmatrix.scanner.cli.main import _is_harmless  # noqa: PLC0415

    allowed = set()
    for place, _ in COMMANDS.values():
        command: click.Command = load(place)
        options = [one for one in command.params if isinstance(one, click.Option)]
        allowed |= {one.opts[-1] for one in options if _is_harmless(one)}

    assert {"--runs", "--device", "--format", "--cost", "--source"} <= allowed
    paths = {"--python", "--specs", "--inputs", "--output", "--into", "--read"}
    assert allowed.isdisjoint({*paths, "--force", "--resume", "--confirm", "--check"})


@pytest.mark.parametrize(
    ("words", "expected"),
    [("detmatrix expl", "plain,explain"), ("detmatrix explain torch.tak", "plain,torch.take")],
)
def test_shell_completes_commands_and_ops(words: str, expected: str) -> None:
    """As a shell asks for it."""
    asked = {"_DETMATRIX_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    done = tied.run([sys.executable, "-m", "detmatrix"], cwd=ROOT, env=os.environ | asked)

    assert done.returncode == 0, done.stderr
    assert expected in done.stdout.splitlines()


# One table of settings: what it says of a setting holds on the command line, in a run file, on resuming, in reports.

OPTIONS = [name for name, setting in SETTINGS.items() if setting.option]
# Other than the default, as the command line writes it and as a run file holds it.
OTHER: dict[str, tuple[str, Any]] = {
    "device": ("cuda:1", "cuda:1"),
    "runs": ("7", 7),
    "processes": ("3", 3),
    "timeout": ("1.5", 1.5),
    "seed": ("9", 9),
    "modes": ("on,cudnn_both,backward_only", with_chosen(("backward_only", "cudnn_both"))),
    "perturb": ("threads,poison", ("poison", "threads")),
    "max_time": ("0.25", 0.25),
    "specs": ("my specs.py", ("my specs.py",)),
    "sources": ("all", ("documented", "opinfo", "modules")),
    "dtypes": ("float64,int8", ("float64", "int8")),
    "samples": ("5", 5),
}


def asked(monkeypatch: pytest.MonkeyPatch, options: Sequence[str]) -> Plan:
    """Return what ``detmatrix scan`` with some options would set out to do."""
    plans: list[Plan] = []

    def note(plan: Plan, _: object) -> None:
        plans.append(plan)
        raise KeyboardInterrupt

    monkeypatch.setattr(scan_command, "scan", note)
    scan_command.command.main(list(options), standalone_mode=False)
    (plan,) = plans
    return plan


def test_settings_that_are_not_asked_for_are_the_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bare command asks for nothing, and names all there is in its help."""
    plan = asked(monkeypatch, [])
    text = scan_command.command.get_help(scan_command.command.make_context("scan", []))

    assert (plan.settings, plan.said) == (asked_for(), frozenset())
    for name in OPTIONS:
        assert f"  {SETTINGS[name].option}" in text
        assert SETTINGS[name].label


def test_command_that_reruns_a_row_asks_for_what_was_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every setting that decides what an execution is stands in the command, and is read back as it was."""
    given = asked_for(**{name: value for name, (_, value) in OTHER.items()})

    again = asked(monkeypatch, shlex.split(rerun_options(given)))

    # Those of a simulated GPU stand in place of others.
    reruns = {name for name, setting in SETTINGS.items() if setting.reruns}
    assert reruns - {"simulate", "multiprocessors"} == OTHER.keys()
    assert replace(again.settings, patterns=()) == given


@pytest.mark.parametrize("name", sorted(OTHER.keys() - {"specs"}))
def test_scan_goes_on_only_with_the_settings_it_has(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    """What is asked for anew is refused, what is asked for as it was is not, nor what is not asked for."""
    path = tmp_path / "run.jsonl"
    option, (text, value) = SETTINGS[name].option, OTHER[name]
    at_first = settings_for(asked_for(sources=("opinfo",)), "cpu")
    command = ["--resume", "-o", str(path)]

    write_run(path, [], closing=None, settings=at_first)
    assert begun(asked(monkeypatch, command)) is not None
    with pytest.raises(UsageError, match=f"cannot be resumed, {option} is not the one it began with"):
        begun(asked(monkeypatch, [option, text, *command]))
    path.unlink()
    write_run(path, [], closing=None, settings=replace(at_first, **{name: value}))
    assert begun(asked(monkeypatch, [option, text, *command])) is not None
