"""``detmatrix locate`` as a user calls it: programs run as Python would, reports, exit codes, mistakes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from detmatrix.reports import locate as command
from detmatrix.scanner.locate import program
from detmatrix.scanner.locate.mode import LocateSettings
from detmatrix.scanner.locate.session import Session
from detmatrix.scanner.located import Located, Parting, SentinelSeen, replays_for
from detmatrix.scanner.programs.process import Program
from tests.commands import Command
from tests.conftest import table
from tests.found import FOUND, SITE
from tests.locating import marked
from tests.programs import behind, transformer, unseeded
from tests.programs.planted import planted

ROOT = Path(__file__).parent.parent


@pytest.fixture
def observed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """Let programs not run, and be said to have shown what is in this list; in it stands then what was asked for."""
    shown: list[Any] = [FOUND]

    def observe(program: Program, settings: Any, runs: int) -> Located:
        shown[1:] = [program, settings, runs]
        located: Located = shown[0]
        return located

    monkeypatch.setattr(command, "observe_program", observe)
    (tmp_path / "train.py").write_text("", encoding="utf-8")
    return shown


def _sentinel(differing: int, device: str = "cpu") -> SentinelSeen:
    return SentinelSeen("aten::index_put", device, 32, differing)


# What is found where no root is -> the exit code.
EXITS: dict[str, tuple[dict[str, Any], int]] = {
    "a root": ({"roots": FOUND.roots}, 1),
    "none": ({}, 0),
    "runs that part": ({"runs": 2, "partings": (Parting(SITE, None, 1, 0, 2),)}, 1),
    "nothing could race": ({"sentinels": (_sentinel(0),)}, 4),
    "raced too rarely": ({"sentinels": (_sentinel(8),)}, 4),
    "executed often enough": ({"sentinels": (_sentinel(8),), "replays": 12}, 0),
    "nothing raced on the GPU": ({"sentinels": (_sentinel(30), _sentinel(0, "cuda:0"))}, 4),
    "the CPU is not asked beside a GPU": ({"sentinels": (_sentinel(30, "cuda:0"), _sentinel(0))}, 0),
    "the program failed": ({"ended": "ValueError: no"}, 4),
    "nothing was executed again": ({"replayed": 0}, 4),
    "nothing was compared": ({"runs": 2, "compared": 0}, 4),
}


@pytest.mark.parametrize("name", EXITS)
def test_exit_codes_tell_what_was_found(detmatrix: Command, observed: list[Any], name: str) -> None:
    """None found is worth something only where one could have been."""
    changes, code = EXITS[name]
    observed[0] = replace(FOUND, **{"roots": (), **changes})
    done = detmatrix("locate", "train.py", "--epochs", "1")

    assert observed[1] == Program("script", "train.py", ("--epochs", "1"))
    assert done.returncode == code
    assert done.stdout.startswith("Nothing was judged: ") == (name.startswith("nothing was"))


@pytest.mark.parametrize(("differing", "replays"), [(16, 4), (9, 4), (8, 5), (4, 11), (2, 16), (0, 4)])
def test_ops_are_executed_as_often_as_the_sentinel_asks_for(differing: int, replays: int) -> None:
    """So that a race as frequent is missed once in 20 times; more than 16 must be asked for."""
    assert replays_for(SentinelSeen("aten::index_put", "cpu", 16, differing)) == replays


@pytest.mark.parametrize(("attack", "text", "message"), table("locate.txt", "attacks"))
def test_a_hostile_program_is_one_line(
    detmatrix: Command, tmp_path: Path, attack: str, text: str, message: str
) -> None:
    """Whatever it leaves where its process was to write: in bounded time, with a code of its own."""
    (tmp_path / "train.py").touch()
    fake = tmp_path / "python"
    fake.write_text(
        f"#!{sys.executable}\nimport json, os, shutil, sys\nplace = json.loads(sys.argv[2])['located']\n{text}\n",
        encoding="utf-8",
    )
    fake.chmod(0o755)
    done = detmatrix("locate", "--python", str(fake), "train.py")

    assert done.returncode == 4
    assert done.stderr.count("\n") == 1
    assert message in done.stderr
    if attack == "nothing there":
        done = detmatrix("locate", "--record", "a.ops", "--python", str(fake), "train.py")
        assert done.stderr.endswith(f"{message}; what it recorded is in {tmp_path / 'a.ops'}\n")


def test_a_record_that_the_program_removed_is_told(detmatrix: Command, observed: list[Any]) -> None:  # noqa: ARG001
    """Nothing is said of a file that is not there."""
    done = detmatrix("locate", "--record", "a.ops", "train.py")

    assert (done.returncode, done.stderr.count("\n")) == (4, 1)
    assert "a.ops: is not there any more; the program has removed it" in done.stderr


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda place: place.symlink_to("/dev/full")])
def test_the_process_of_a_program_writes_where_something_lies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], make: Any
) -> None:
    """The program has put it there; writing neither waits for a reader nor follows a link."""
    make(tmp_path / "place")
    program.write_whole(str(tmp_path / "place"), "text")
    told = capsys.readouterr().err

    if told:
        assert told == "locate: what was found cannot be written (Is a directory)\n"
    else:
        assert (tmp_path / "place").read_text(encoding="utf-8") == "text"


def test_ops_that_are_only_counted_are_executed_once() -> None:
    """What the program computes is what it computes without us."""
    session = Session(LocateSettings(replays=0))
    session.start()
    try:
        first, second = (planted.add_count(torch.ones(1)) for _ in range(2))
    finally:
        found = session.stop()

    assert float(second - first) == 1
    assert {site.op: calls for site, calls in found.called}["detmatrix_planted::add_count"] == 2


SEEDED = """
import torch, random
torch.manual_seed(0)
torch.backends.cudnn.benchmark = True
random.random()
list(torch.utils.data.DataLoader([1, 2], shuffle=True))
torch.utils.data.DataLoader([1])
torch.randn(3, generator=torch.Generator().manual_seed(3))
torch.compile(lambda x: x)
"""
NEARLY = """
import torch, os
os.environ["PYTHONHASHSEED"] = "0"
torch.manual_seed(0)
torch.seed()
generator = torch.Generator()
generator.seed()
torch.randn(3, generator=generator)
torch.use_deterministic_algorithms(True, warn_only=True)
torch.compile(lambda x: x, mode="max-autotune")
"""


@pytest.mark.parametrize(("program", "section"), [(SEEDED, "seeded"), (NEARLY, "nearly")])
def test_the_environment_of_a_program_is_told(
    detmatrix: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, section: str
) -> None:
    """As it stands at the end; what a program sets is told from what it leaves, and from what only looks set."""
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    (tmp_path / "train.py").write_text(program, encoding="utf-8")
    done = detmatrix("env", "--format", "json", "train.py")
    told = [
        [row["name"], row["value"], "yes" if row["write"] else "no"]
        for row in json.loads(done.stdout)["settings"]
    ]

    assert done.returncode == 0
    assert [row for row in table("locate.txt", section) if row not in told] == [], told


SCRIPT = """
import sys, scanner
print(__name__, sys.argv, sys.path[0], __file__, scanner.OWN, sys.modules["__main__"].__dict__ is globals())
def fail():
    raise ValueError("mine")
fail()
"""


def test_a_script_runs_as_python_runs_it(detmatrix_process: Command, tmp_path: Path) -> None:
    """Arguments, path, main module, a module called as ours is, and its exception, without a frame of ours."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "scanner.py").write_text("OWN = 'own'\n", encoding="utf-8")
    script = tmp_path / "folder" / "train.py"
    script.write_text(SCRIPT, encoding="utf-8")
    plain = subprocess.run(
        [sys.executable, script, "--a"], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    done = detmatrix_process("locate", str(script), "--a", env=os.environ | {"PYTHONPATH": str(ROOT)})

    assert plain.stdout.startswith("__main__")
    assert done.stdout.startswith(plain.stdout)
    assert done.stderr == plain.stderr
    assert "The program ended early: ValueError: mine" in done.stdout
    assert done.returncode == 4


PROGRAM = """
import multiprocessing, os, sys, torch
def work(number):
    assert (torch.ones(3) * number).sum() == 3 * number
def step():
    torch.ones(3).sum()
    print(__name__, sys.argv[1:], flush=True)
def spawn():
    other = multiprocessing.get_context("spawn").Process(target=work, args=(2,))
    other.start()
    other.join()
    print(other.exitcode)
if __name__ == "__main__":
    step()
    sys.exit(3) if "-m" in sys.argv else os._exit(5)
"""
SLOW = {"mine.py:spawn"}
# What is asked for of this program -> what it prints, and what is told of it.
REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "-m mine -m": ("__main__ ['-m']\n", {"ops": 2, "ended": "exit code 3"}),
    "mine.py": ("__main__ []\n", {"ops": 2, "ended": "exit code 5"}),
    "--calls 4 --steps 1:3 mine.py:step -x": ("mine ['-x']\n" * 4, {"steps": 4, "ops": 4, "ended": None}),
    "mine.v2.py:step": ("mine.v2 []\n", {"ops": 2}),
    "mine.py:spawn": ("0\n", {"processes": 1}),
}


@pytest.mark.parametrize(
    "words", [pytest.param(one, marks=[pytest.mark.nightly] * (one in SLOW)) for one in REQUESTS]
)
def test_programs_of_all_kinds_run_as_python_runs_them(
    detmatrix_process: Command, tmp_path: Path, words: str
) -> None:
    """What was found is told behind ``os._exit``; spawned processes find the module of a function, not ours."""
    printed, expected = REQUESTS[words]
    for name in ("mine.py", "mine.v2.py"):
        (tmp_path / name).write_text(PROGRAM, encoding="utf-8")
    done = detmatrix_process(
        "locate", "--format", "json", *words.split(), env=os.environ | {"PYTHONPATH": str(ROOT)}
    )
    told = json.loads(done.stdout)

    assert done.stderr == printed
    assert {field: told[field] for field in expected} == expected


@pytest.mark.alone
def test_a_transformer_races_at_its_gather(detmatrix_process: Command) -> None:
    """On two threads; the root is the backward phase of the line that reads the table."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OMP_")}
    environment |= {"PYTHONPATH": str(ROOT)}
    done = detmatrix_process("locate", "--format", "json", transformer.__file__, env=environment)
    told = json.loads(done.stdout)

    assert done.returncode == 1
    assert [root["site"]["line"]["line"] for root in told["roots"]] == [*marked(transformer)]
    (root,) = told["roots"]
    assert (root["site"]["module"], root["site"]["phase"]) == ("Net.gather", "backward")
    assert root["flag"] == "cured"


@pytest.mark.nightly
def test_two_fresh_processes_are_held_against_each_other(detmatrix_process: Command) -> None:
    """A program that nobody has seeded, and one that threads write behind."""
    for module, cause in ((unseeded, "generator"), (behind, "changed")):
        done = detmatrix_process(
            *("locate", "--runs", 2, "--format", "json", module.__file__),
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )
        (root,) = json.loads(done.stdout)["roots"]

        assert done.returncode == 1
        assert root["cause"] == cause
        assert [root["site"]["line"]["line"]] == [*marked(module)]
