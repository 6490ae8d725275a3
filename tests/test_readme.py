"""What the README tells users is so."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from detmatrix.scanner import errors
from detmatrix.scanner.observations.runfile import read_run
from detmatrix.scanner.schedules import CANONICAL, FREEDOMS
from detmatrix.scanner.verdicts.findings import matrix
from detmatrix.scanner.verdicts.recall import recall_words
from detmatrix.scanner.verdicts.vocabulary import FINDING_MEANING, VERDICT_MEANING
from tests.commands import Command

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
OWN_SPECS = (ROOT / "opspecs" / "README.md").read_text(encoding="utf-8")
EVIDENCE = (ROOT / "scanner" / "README.md").read_text(encoding="utf-8")


def _table(heading: str, page: str = README) -> list[list[str]]:
    """Return the rows of the tables below a heading, header lines left out."""
    section = page.split(f"## {heading}\n")[1].split("\n## ", maxsplit=1)[0]
    rows = [line.strip("|").split(" | ") for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows if not set(row[0]) <= set("-|")]


@pytest.mark.alone
def test_own_specs_scan_as_shown(detmatrix: Command, tmp_path: Path) -> None:
    """The example file scans by the command below it: the op with a race differs, the one without does not."""
    # The other one needs Triton (tests/test_triton.py).
    example, _ = re.findall(r"```python\n((?:(?!```).)*SPECS.*?)```", OWN_SPECS, flags=re.DOTALL)
    (tmp_path / "my_ops.py").write_text(example, encoding="utf-8")
    (command,) = re.findall(r"detmatrix (scan --specs my_ops\.py) '(mine\.\*)'", OWN_SPECS)

    done = detmatrix(
        *command[0].split(), command[1], "--device", "cpu", "--processes", 1, "--no-cost", "--no-overloads"
    )

    assert done.returncode == 0, done.stderr
    report = json.loads(detmatrix("report", "detmatrix.jsonl", "--format", "json").stdout)
    assert [(row["spec"], row["finding"]) for row in report["rows"]] == [
        ("mine.racy_sum", "silent"),
        ("mine.ordered_sum", "deterministic"),
    ]


def test_every_exit_code_is_told() -> None:
    """The table holds the codes that commands end with, and no other."""
    codes = {value for name, value in vars(errors).items() if name.startswith("EXIT_")}

    assert {int(row[0]) for row in _table("Exit codes", EVIDENCE)[1:]} == codes


def test_every_word_of_the_matrix_is_told() -> None:
    """Every verdict and every finding has its line."""
    words = {word for row in _table("Read a cell") for word in row[0].split(", ")}

    assert words - {"verdict", "finding"} == set(VERDICT_MEANING) | set(FINDING_MEANING)


def test_every_class_of_schedules_is_told() -> None:
    """In their order, weakest first, and which of them no known GPU takes."""
    classes = {row[0]: row[2] for row in _table("CUDA without a GPU: simulated") if len(row) == 3}
    told = {name: "no known GPU" not in standing for name, standing in classes.items() if name != "class"}

    assert list(told.items()) == [(name, it.headline) for name, it in FREEDOMS.items() if name != CANONICAL]


def test_ci_runs_the_command_the_readme_gives() -> None:
    """CI calls the very test command a user is told."""
    (command,) = re.findall(
        r"^    (python3 -m pip install nox && python3 -m nox -s tests) ", README, re.MULTILINE
    )

    assert command in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()


def test_first_screen_shows_the_matrix() -> None:
    """An excerpt of a recorded run holds all three verdicts by their signs, and every picture is there."""
    excerpt = README.split("<!-- detmatrix matrix:begin")[1].split("<!-- detmatrix matrix:end")[0]
    rows = [line for line in excerpt.splitlines() if line.startswith("| `")]

    assert len(rows) >= 3
    for verdicts in ("| ≠/! ", "| ≠/= ", "| =/= "):
        assert verdicts in excerpt
    assert [path for path in re.findall(r"!\[.*?\]\((.+?)\)", README) if not (ROOT / path).exists()] == []


def test_no_change_is_told_twice() -> None:
    """No two bullets of one release begin with the same sentence."""
    changes = (
        (ROOT / "CHANGELOG.md")
        .read_text(encoding="utf-8")
        .partition("\n## [Unreleased]")[2]
        .partition("\n## ")[0]
    )
    bullets = [" ".join(bullet.split()).partition(". ")[0] for bullet in changes.split("\n- ")[1:]]

    assert bullets
    assert [text for text, count in Counter(bullets).items() if count > 1] == []


def test_the_recall_of_schedules_is_that_of_the_recorded_run() -> None:
    """How many cells differ, in which classes, and with how many executions."""
    run = read_run(ROOT / "reports" / "runs" / "torch-2.15.0-simulated-sm_80.jsonl.gz")
    rows = matrix(run.header, run.observations, closed=True)

    assert recall_words(rows, run.header)[0] in " ".join(README.split())
