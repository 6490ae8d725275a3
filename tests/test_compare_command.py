"""The compare command: the same bytes every time, checks for CI, and errors of one line each."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from detmatrix.scanner.verdicts.vocabulary import Finding
from tests.commands import Command
from tests.compared import OPS, VERSIONS, shows
from tests.conftest import one_line
from tests.runs import CLOSING, ENVIRONMENT, row, write_run


def write(folder: Path, version: str, findings: Iterable[Finding], **fields: Any) -> Path:
    """Write a run of a torch that shows findings, one op each."""
    rows = [shows(finding, row(op)) for op, finding in zip(OPS, findings, strict=False)]
    return write_run(
        folder / f"{version}.jsonl", rows, environment=replace(ENVIRONMENT, torch=version), **fields
    )


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    """Return the runs of three versions: one op stopped raising, one became silent, one deterministic."""
    return [write(tmp_path, version, findings) for version, findings in VERSIONS.items()]


@pytest.mark.parametrize("check", ["regression", "change"])
def test_a_run_with_itself_passes_every_check(detmatrix: Command, runs: list[Path], check: str) -> None:
    """The same run twice is the same in every row."""
    done = detmatrix("compare", runs[1], runs[1], "--fail-on", check, "--format", "json")
    (pair,) = json.loads(done.stdout)["pairs"]

    assert (done.returncode, done.stderr) == (0, "")
    assert len(pair["rows"]) == pair["counts"]["same"] == sum(pair["counts"].values()) > 0


def test_improvements_are_no_regressions(detmatrix: Command, runs: list[Path]) -> None:
    """--fail-on regression passes what improved; --fail-on change does not."""
    codes = [
        detmatrix("compare", *runs[:2], "--fail-on", check).returncode for check in ("regression", "change")
    ]

    assert codes == [0, 1]


def test_a_check_that_could_compare_nothing_fails(detmatrix: Command, runs: list[Path]) -> None:
    """An untrusted run, or one of another machine, is no all-clear; JSON on standard output stays JSON."""
    closing = replace(CLOSING, distrust=("the control varies shows nothing",))
    void = write(runs[0].parent, "void", VERSIONS["2.13.0"], closing=closing)
    done = detmatrix("compare", runs[1], void, "--fail-on", "regression", "--format", "json")

    assert done.returncode == 1
    assert (
        one_line(done.stderr)
        == "nothing compared: 2.13.0.jsonl → void.jsonl: untrusted_run: void.jsonl: the control varies shows nothing"
    )
    assert {"untrusted_run"} == {one["reason"] for one in json.loads(done.stdout)["pairs"][0]["rows"]}


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ("", 2, "Missing argument 'RUN RUN...' (see detmatrix compare --help)"),
        ("2.11.0.jsonl", 2, "2.11.0.jsonl: one run has nothing to be compared with; give at least two"),
        ("2.11.0.jsonl gone.jsonl", 3, "gone.jsonl: cannot be read (No such file or directory); give a file that"),
        ("2.11.0.jsonl 2.13.0.jsonl --check", 2, "--check says whether the block in a file is stale; name the file with"),
        ("2.11.0.jsonl 2.13.0.jsonl --into A.md --format html", 2, "--into writes Markdown into a file of its own; give"),
        ("2.11.0.jsonl 2.13.0.jsonl -o 2.11.0.jsonl", 2, "2.11.0.jsonl: is one of the run files reported on; choose"),
        # Before anything is measured: there are no such interpreters.
        ("2.11.0.jsonl 2.13.0.jsonl --confirm --python a --python b -o no/a.md", 2, "no/a.md: cannot be written (No such"),
        ("2.11.0.jsonl \x1b]0;title\x07.jsonl", 3, "\\x1b]0;title\\x07.jsonl: cannot be read (No such file or directory)"),
    ],
)  # fmt: skip
def test_errors_are_one_line(
    detmatrix: Command, runs: list[Path], arguments: str, code: int, message: str
) -> None:
    """What a user can get wrong ends in one line and its exit code."""
    assert runs
    done = detmatrix("compare", *arguments.split())

    assert (code, "") == (done.returncode, done.stdout)
    assert one_line(done.stderr).startswith(f"detmatrix: {message}")
