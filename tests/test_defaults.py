"""Defaults of options from pyproject.toml: what they may choose, and what only the command line may."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from detmatrix.scanner.cli.main import COMMANDS
from detmatrix.scanner.observations.runfile import read_run
from tests import tied
from tests.commands import Command
from tests.conftest import refused
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
    done = detmatrix(*command, "--max-rate", "0.5", "--confidence", "0.5", "--force")
    assert done.returncode == 0, done.stderr
    assert read_run(tmp_path / "detmatrix.jsonl").header.settings.max_rate == 0.5


def test_resuming_asks_for_nothing_of_them(detmatrix: Command, tmp_path: Path) -> None:
    """A scan that goes on has the settings that it began with."""
    command = ("scan", "quick.cumsum", "--specs", SPECS, "--python", StandIn(tmp_path).python, "--runs", 2)
    assert detmatrix(*command).returncode == 0
    (tmp_path / "pyproject.toml").write_text("[tool.detmatrix.scan]\nseed = 3\n")

    assert detmatrix(*command, "--resume").returncode == 0


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ('scan]\npython = "./evil"', "[tool.detmatrix.scan] python: is taken from the command line alone; numbers, "),
        (
            'scan]\nspecs = ["evil.py"]',
            "[tool.detmatrix.scan] specs: is taken from the command line alone; numbers, ",
        ),
        ('scan]\noutput = "x"', "[tool.detmatrix.scan] output: is taken from the command line alone; numbers, "),
        ("scan]\nforce = true", "[tool.detmatrix.scan] force: is taken from the command line alone; numbers, "),
        ("scan]\nrun = 3", "[tool.detmatrix.scan] run: is no option of detmatrix scan; did you mean runs?"),
        ("scan]\nruns = 0", "[tool.detmatrix.scan] runs: 0 is not in the range 1<=x<=1000000"),
        ("scan]\ncost = 3", "[tool.detmatrix.scan] cost: 3 is no value of it"),
        (
            'scan]\ndevice = "tpu"',
            "[tool.detmatrix.scan] device: 'tpu' is not a device; give auto, cpu, cuda, xpu, mps, or one of them as cuda:N",
        ),
        ("scn]\nruns = 3", "[tool.detmatrix.scn] is no command; did you mean scan?"),
        ('scan]\nruns = "x"', "[tool.detmatrix.scan] runs: 'x' is not a valid whole number"),
        ("scan]\nruns = ", "cannot be read (Invalid value (at end of document))"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_them(detmatrix: Command, tmp_path: Path, table: str, expected: str) -> None:
    """One line that names the file, before anything runs."""
    path = tmp_path / "pyproject.toml"
    path.write_text(f"[tool.detmatrix.{table}")

    assert refused(detmatrix("scan", "quick.cumsum")).startswith(f"{path}: {expected}")


def test_what_stands_in_no_table_of_a_command(detmatrix: Command, tmp_path: Path) -> None:
    """It would be ignored without a word."""
    path = tmp_path / "pyproject.toml"
    path.write_text("[tool.detmatrix]\nruns = 3\n")

    assert refused(detmatrix("scan", "quick.cumsum")) == (
        f"{path}: [tool.detmatrix] runs: belongs to no command; put it into [tool.detmatrix.COMMAND]"
    )


def test_no_default_names_what_runs_or_where_it_goes() -> None:
    """Of all options of all commands only those may be chosen that choose among what there is."""
    import importlib  # noqa: PLC0415

    import click  # noqa: PLC0415

    from detmatrix.scanner.cli.defaults import _is_harmless  # noqa: PLC0415

    allowed = set()
    for place, _ in COMMANDS.values():
        module, _, attribute = place.partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        options = [one for one in command.params if isinstance(one, click.Option)]
        allowed |= {one.opts[-1] for one in options if _is_harmless(one)}

    assert {"--runs", "--device", "--format", "--cost", "--source"} <= allowed
    paths = {
        "--python",
        "--specs",
        "--inputs",
        "--output",
        "--into",
        "--read",
    }
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
