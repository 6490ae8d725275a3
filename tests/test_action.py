"""The action that projects scan their ops with: its script does what its inputs say, and ends with the code of the check."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.commands import Command
from tests.stand_in import StandIn

ROOT = Path(__file__).parent.parent
ACTION = (ROOT / ".github/actions/scan/action.yml").read_text(encoding="utf-8")
GUIDE = (ROOT / "reports" / "README.md").read_text(encoding="utf-8")
INPUTS = set(re.findall(r"^  ([\w-]+):$", ACTION.split("inputs:\n")[1].split("runs:\n")[0], re.MULTILINE))


def _script() -> str:
    """Return what the action runs."""
    return textwrap.dedent(ACTION.split("      run: |\n")[1].split("    - name:")[0])


@pytest.fixture
def runner(tmp_path: Path) -> dict[str, str]:
    """Return the variables of a runner on which detmatrix is installed."""
    command = tmp_path / "bin" / "detmatrix"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m detmatrix "$@"\n')
    command.chmod(0o755)
    return os.environ | {
        "PATH": f"{command.parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
        "NAME": "detmatrix",
    }


DEFAULT = ACTION.split("  fail-on:\n")[1].split("default: ")[1].split("\n")[0]


@pytest.mark.parametrize(("fail_on", "code"), [(DEFAULT, 1), ("", 0)])
def test_the_action_scans_tells_and_fails(
    runner: dict[str, str], tmp_path: Path, fail_on: str, code: int
) -> None:
    """An op that is silent: annotations, a summary, the files of the artifact, and the exit code that was asked for."""
    standing = StandIn(tmp_path, {"do": "observe", "mode": "on", "spec": "torch.bmm", "then": "vary"})
    options = f"--device cpu --python {standing.python} --no-overloads --no-cost"
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", _script()],
        cwd=tmp_path, env=runner | {"OPS": "torch.bmm", "OPTIONS": options, "FAIL_ON": fail_on, "EXCEPT": ""},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    notes = done.stdout.rpartition("::detmatrix-")[2].splitlines()[1:]

    assert done.returncode == code, done.stderr
    assert {line.split(" ")[0] for line in notes} == {"::error"}
    assert all("silent%3A torch.bmm" in line for line in notes)
    assert "torch.bmm" in (tmp_path / "summary.md").read_text()
    assert {path.suffix for path in tmp_path.glob("detmatrix.*")} == {".jsonl", ".html", ".xml"}
    assert "<failure" in (tmp_path / "detmatrix.xml").read_text()


def test_wrong_results_fail_without_being_asked_for(detmatrix: Command) -> None:
    """They are worse than what is silent, and rows are named for what they are."""
    done = detmatrix(
        "report", ROOT / "tests/data/simulated.jsonl.gz", "--rows", "ReflectionPad2d", "--fail-on", DEFAULT
    )

    assert done.returncode == 1
    assert "wrong_with_flag: torch.nn.ReflectionPad2d" in done.stderr


def test_the_lines_that_use_the_action_name_inputs_it_has() -> None:
    """What reports/README.md shows can be pasted."""
    (example,) = re.findall(r"```yaml\n(.*?)```", GUIDE, flags=re.DOTALL)
    used = set(re.findall(r"^ {4}([\w-]+):", example, flags=re.MULTILINE))

    assert "/.github/actions/scan@" in example
    assert len(example.splitlines()) == 5
    assert used
    assert used <= INPUTS
    assert set(re.findall(r"\binputs\.([\w-]+)", ACTION)) == INPUTS


def test_a_job_that_is_run_again_keeps_its_files() -> None:
    """GitHub refuses a second artifact of one name in a run, whose failed jobs may be run again, unless it is to replace the first."""
    files = [
        path for path in (ROOT / ".github").rglob("*.yml") if "actions/upload-artifact" in path.read_text()
    ]
    steps = [
        step.partition("- name:")[0]
        for path in files
        for step in path.read_text().split("actions/upload-artifact")[1:]
    ]

    assert len(files) == 3
    assert len(steps) == 4
    assert all("overwrite: true" in step for step in steps)


def test_rows_that_are_allowed_are_allowed_wherever_it_checks(runner: dict[str, str], tmp_path: Path) -> None:
    """Patterns on several lines; the scan itself is asked for no check."""
    command, log = tmp_path / "bin" / "detmatrix", tmp_path / "log"
    command.write_text(f'#!/bin/sh\necho "$@" >> {log}\n')
    given = {"OPS": "a*", "OPTIONS": "", "FAIL_ON": "raises", "EXCEPT": "put_\ntake"}
    script = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", _script()]
    subprocess.run(script, cwd=tmp_path, env=runner | given, check=True, capture_output=True)
    lines = log.read_text().splitlines()

    assert lines[0].endswith("-- a*")
    assert [line for line in lines if "--fail-on" in line] == [
        line for line in lines if "--fail-on raises --except put_ --except take" in line
    ]
    assert sum("--except" in line for line in lines) == 2
