"""The command line as a user meets it: exit codes, one line per error, and never a traceback."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import pytest
import torch
from msgspec.structs import replace

from detmatrix.reports.matrix.run_words import rerun_options
from detmatrix.scanner.cases.plan import Plan, asked_for, settings_for
from detmatrix.scanner.cli import scan as scan_command
from detmatrix.scanner.cli.main import COMMANDS, _is_harmless, cli, load
from detmatrix.scanner.errors import UsageError
from detmatrix.scanner.modes import with_chosen
from detmatrix.scanner.observations.runfile import read_run
from detmatrix.scanner.observations.settings import SETTINGS, Settings
from detmatrix.scanner.run.resume import begun
from tests import tied
from tests.commands import Command, command_in
from tests.conftest import approved_lines, is_approved, refused, table
from tests.large import write_shard
from tests.runs import write_run
from tests.stand_in import QUICK, StandIn

ROOT = Path(__file__).parent.parent
RUN = ROOT / "reports" / "runs" / "torch-2.13.0-cpu.jsonl.gz"
CHECKED = ROOT / "tests" / "checked.py"

# Usage


@pytest.mark.parametrize(("words", "expected"), approved_lines("refusals.txt"))
def test_usage_errors_are_one_line(detmatrix: Command, tmp_path: Path, words: str, expected: str) -> None:
    """What was not understood, and where to look or what was meant; nothing is started, and no file made."""
    if "{TORCH}" in expected and torch.cuda.is_available():
        pytest.skip("there is a CUDA device here")
    built = f"(CUDA {torch.version.cuda})" if torch.version.cuda else "(built without CUDA)"
    here = {"RUN": RUN, "CHECKED": CHECKED, "HERE": tmp_path, "TORCH": f"torch {torch.__version__} {built}"}
    for name, told in here.items():
        words, expected = (text.replace(f"{{{name}}}", str(told)) for text in (words, expected))
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("precious")

    assert is_approved(refused(detmatrix(*shlex.split(words))), expected)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]
    assert (tmp_path / "file").read_text() == "precious"


@pytest.mark.parametrize(
    ("redirection", "code", "text"),
    [
        ("| head -1 | grep -q .; exit ${PIPESTATUS[0]}", 0, ""),
        ("| true; exit ${PIPESTATUS[0]}", 0, ""),
        # A check fails though nobody reads why.
        (f"> nothing; $0 report {RUN} --fail-on raises 2> nothing | true; exit ${{PIPESTATUS[0]}}", 1, ""),
        (f"> nothing; $0 docs {RUN} --check 2> nothing | true; exit ${{PIPESTATUS[0]}}", 1, ""),
        (">&-", 0, ""),
        ("2>&-", 0, ""),
        (">/dev/full", 2, "detmatrix: standard output: No space left on device\n"),
    ],
)
def test_output_that_goes_nowhere_gives_no_traceback(
    tmp_path: Path, redirection: str, code: int, text: str
) -> None:
    """A reader that has seen enough, a closed stream and a full disk end a command quietly or in one line."""
    if "/dev/full" in redirection and not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    command = f"{sys.executable} -m detmatrix"
    words = f"{command} list --format json {redirection.replace('$0', command)}"

    done = subprocess.run(["bash", "-c", words], capture_output=True, text=True, cwd=tmp_path, check=False)

    assert (done.returncode, done.stderr) == (code, text)


# Each command as a process

SMOKE = {
    name: (words.replace("none", "").split(), shown) for name, words, shown in table("commands.txt", "smoke")
}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_runs_as_a_process(detmatrix_process: Command, tmp_path: Path, name: str) -> None:
    """Nothing that a command needs is there only because a test has loaded it."""
    words, expected = SMOKE[name]
    made = {
        "STANDS_IN": StandIn(tmp_path).python,
        "SHARD": write_shard(tmp_path / "shard.jsonl", 100, 1, 1),
        "SMALL": write_run(tmp_path / "run.jsonl"),
    }

    done = detmatrix_process(name, *(word.format(RUN=RUN, ROOT=ROOT, **made) for word in words))

    # The program that is looked at has roots.
    assert done.returncode == (1 if name == "locate" else 0), done.stderr
    assert "Traceback" not in done.stderr
    assert expected.replace("nothing", "") in done.stdout


# Help


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_help_names_every_command_and_exit_code(detmatrix: Command, arguments: list[str]) -> None:
    """Help is what a bare command shows too; the version is that of the checkout, or the installed one."""
    done = detmatrix(*arguments)

    assert re.fullmatch(r"detmatrix \d+\.\d+\.\d+\n", detmatrix("--version").stdout)
    assert (done.returncode, done.stderr) == (0, "")
    for name, (_, message) in COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(message[:40])}", done.stdout, re.MULTILINE)
    text = " ".join(done.stdout.split())
    for code in ("0 done", "1 a check you asked for failed", "2 usage", "3 unreadable",
                 "4 the scan cannot be trusted", "130 interrupted"):  # fmt: skip
        assert code in text


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_explains_every_option(detmatrix: Command, name: str) -> None:
    """No option without a sentence."""
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]

    done = detmatrix(name, "--help")

    assert (done.returncode, done.stderr) == (0, "")
    shown = " ".join(done.stdout.split())
    assert options
    for option in options:
        assert option.help, option.name
        assert option.help.endswith((".", "]")), option.help
        for spelled in option.opts:
            assert spelled in shown


# Where a scan writes: what it refuses, what it overwrites, what it goes on with.

OPTIONS = ("quick.cumsum", *QUICK, "--runs", 2, "--processes", 1)


@pytest.fixture
def scan(detmatrix: Command, tmp_path: Path) -> Command:
    """Return a function that scans, or tries to, with stand-ins for workers."""
    python = StandIn(tmp_path).python
    return lambda *options: detmatrix("scan", *OPTIONS, "--python", python, *options)


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Scan a case in both modes, and return the run file."""
    folder = tmp_path_factory.mktemp("complete")
    done = command_in(folder)("scan", *OPTIONS, "--python", StandIn(folder).python, "-o", "run.jsonl")
    assert done.returncode == 0, done.stderr
    # What came out is shown at once.
    assert done.stdout.startswith("1 op, ")
    assert done.stderr.endswith("detmatrix report run.jsonl --open\n")
    return (folder / "run.jsonl").read_bytes()


def test_complete_run_is_kept_under_a_number(scan: Command, tmp_path: Path, complete: bytes) -> None:
    """The next scan of the same name goes on as the guide says; only --force throws a run away."""
    path = tmp_path / "run.jsonl"
    path.write_bytes(complete)
    (tmp_path / "run.jsonl.1").write_text("precious")

    done = scan("--seed", 1, "-o", "run.jsonl")

    assert done.returncode == 0, done.stderr
    assert "scan: run.jsonl: the earlier run is kept as run.jsonl.2\n" in done.stderr
    assert (tmp_path / "run.jsonl.2").read_bytes() == complete
    assert (tmp_path / "run.jsonl.1").read_text() == "precious"
    assert read_run(path).header.settings.seed == 1
    done = scan("--seed", 2, "-o", "run.jsonl", "--force")
    assert done.returncode == 0, done.stderr
    assert read_run(path).header.settings.seed == 2
    assert not (tmp_path / "run.jsonl.3").exists()


def test_unfinished_or_damaged_run_is_left_as_it_is(scan: Command, tmp_path: Path, complete: bytes) -> None:
    """It is neither overwritten nor gone on with unasked, nor resumed if a line of it is damaged, which is exit 3."""
    unfinished, before = tmp_path / "run.jsonl", complete[: complete.rindex(b'{"kind":"observation"')]
    unfinished.write_bytes(before)
    damaged = before.replace(b'"outcome":"ran"', b'"outcome":"fun"', 1)

    assert refused(scan("-o", "run.jsonl")) == (
        "run.jsonl: holds an unfinished scan (7 of 8 observations); go on with --resume, or start over with --force"
    )
    assert unfinished.read_bytes() == before
    unfinished.write_bytes(damaged)
    assert refused(scan("--resume", "-o", "run.jsonl"), 3) == (
        "run.jsonl, line 3: Invalid enum value 'fun' - at `$.outcome`; restore the file, or cut it before this line "
        "and scan --resume"
    )
    assert unfinished.read_bytes() == damaged


# The format of a report is what the name of its file ends in, in every command that writes one.


@pytest.mark.parametrize("command", ["report", "docs", "coverage", "compare", "explain", "libraries"])
def test_name_says_the_format(detmatrix: Command, tmp_path: Path, command: str) -> None:
    """JSON into .json, Markdown into .md, and what --format says into either."""
    run = write_run(tmp_path / "run.jsonl")
    words = [word.format(SMALL=run) for word in SMOKE[command][0]]
    written = {}
    for name, *options in map(str.split, ("a.json", "b.md", "c.json --format md", "d.md --format json")):
        done = detmatrix(command, *words, "-o", name, *options)
        assert done.returncode == 0, done.stderr
        written[name] = (tmp_path / name).read_text(encoding="utf-8")

    assert json.loads(written["a.json"]) == json.loads(written["d.md"])
    assert written["b.md"] == written["c.json"]
    assert written["b.md"].startswith("#") or "|" in written["b.md"]


# Defaults of options from pyproject.toml: what they may choose, and what only the command line may.


def test_scan_takes_them(detmatrix: Command, tmp_path: Path) -> None:
    """The nearest file above counts, says so, gives way to the command line, and says nothing to a scan that goes on."""
    path = tmp_path / "pyproject.toml"
    path.write_text(
        '[tool.detmatrix.scan]\ndevice = "cpu"\nruns = 3\nprocesses = 1\ncost = false\nperturb = ["quiet", "poison"]\n'
    )

    def settings_of(*options: object) -> tuple[Settings, str]:
        python = StandIn(tmp_path).python
        done = detmatrix("scan", "quick.cumsum", *QUICK[:2], "--python", python, *options)
        assert done.returncode == 0, done.stderr
        return read_run(tmp_path / "detmatrix.jsonl").header.settings, done.stderr

    settings, said = settings_of()
    found = settings.runs, settings.processes, settings.cost, settings.perturb
    assert found == (3, 1, False, ("quiet", "poison"))
    assert f"scan: {path} says --device cpu --runs 3 --processes 1 --perturb quiet,poison --no-cost" in said
    assert settings_of("--runs", "4", "--force")[0].runs == 4
    path.write_text("[tool.detmatrix.scan]\nseed = 3\n")
    assert settings_of("--resume")[0].seed == 0


@pytest.mark.parametrize(("default", "expected"), approved_lines("refusals-pyproject.txt", r"(tool\..*)"))
def test_what_is_wrong_with_them(detmatrix: Command, tmp_path: Path, default: str, expected: str) -> None:
    """One line that names the file, before anything runs."""
    path = tmp_path / "pyproject.toml"
    path.write_text(default)

    assert is_approved(refused(detmatrix("scan", "quick.cumsum")), f"{path}: {expected}")


def test_no_default_names_what_runs_or_where_it_goes() -> None:
    """Of all options of all commands only those may be chosen that choose among what there is."""
    params = [one for place, _ in COMMANDS.values() for one in load(place).params]
    allowed = {one.opts[-1] for one in params if isinstance(one, click.Option) and _is_harmless(one)}

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

# Other than the default, as the command line writes it and as a run file holds it.
OTHER: dict[str, tuple[str, Any]] = {
    "device": ("cuda:1", "cuda:1"),
    "runs": ("7", 7),
    "processes": ("3", 3),
    "timeout": ("1.5", 1.5),
    "seed": ("9", 9),
    "modes": ("on,cudnn_both,backward_only", with_chosen(("backward_only", "cudnn_both"))),
    "perturb": ("poison,quiet", ("poison", "quiet")),
    "max_time": ("0.25", 0.25),
    "specs": ("my specs.py", ("my specs.py",)),
    "sources": ("all", ("documented", "opinfo", "modules")),
    "dtypes": ("float64,int8", ("float64", "int8")),
    "samples": ("5", 5),
    "as_simulated": ("", True),  # a switch
}


def planned_by(monkeypatch: pytest.MonkeyPatch, options: Sequence[str]) -> Plan:
    """Return what ``detmatrix scan`` with some options would set out to do."""
    plans: list[Plan] = []

    def note(plan: Plan, _: object) -> None:
        plans.append(plan)
        raise KeyboardInterrupt

    monkeypatch.setattr(scan_command, "scan", note)
    scan_command.command.main(list(options), standalone_mode=False)
    (plan,) = plans
    return plan


@pytest.mark.parametrize(("options", "runs", "seconds"), table("commands.txt", "seconds"))
def test_a_row_has_less_time_where_whole_databases_are_scanned(
    monkeypatch: pytest.MonkeyPatch, options: str, runs: str, seconds: str
) -> None:
    """Thousands of rows are to end within minutes; whoever names ops, or a number, gets what is asked for, whoever does not the defaults."""
    words = [] if options == "none" else options.split()
    plan = planned_by(monkeypatch, words)

    assert [str(plan.settings.runs), str(plan.settings.max_time)] == [runs, seconds]
    assert words or (plan.settings, plan.said) == (asked_for(), frozenset())


def test_command_that_reruns_a_row_asks_for_what_was_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every setting that decides what an execution is stands in the command, and is read back as it was."""
    given = asked_for(**{name: value for name, (_, value) in OTHER.items()})

    again = planned_by(monkeypatch, shlex.split(rerun_options(given)))

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
    command, asked = ["--resume", "-o", str(path)], [word for word in (option, text) if word]

    write_run(path, [], closing=None, settings=at_first)
    assert begun(planned_by(monkeypatch, command)) is not None
    with pytest.raises(UsageError, match=f"cannot be resumed, {option} is not the one it began with"):
        begun(planned_by(monkeypatch, [*asked, *command]))
    path.unlink()
    write_run(path, [], closing=None, settings=replace(at_first, **{name: value}))
    assert begun(planned_by(monkeypatch, [*asked, *command])) is not None
