"""compare --confirm: a change that is there is confirmed, one that only seemed so is dropped, by measuring again."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from detmatrix.scanner.observations.records import Source
from detmatrix.scanner.run.remeasure import rows_here
from tests.commands import command_in
from tests.compared import run_of
from tests.conftest import lines, refused, write_lines
from tests.runs import ALERT, row
from tests.stand_in import QUICK, StandIn


def _row(direction: str, dtype: str) -> dict[str, str]:
    return {"spec": "quick.cumsum", "case": "small", "direction": direction, "dtype": dtype}


# Of the later torch one row raises and one differs; one differs each time, whatever the torch; one is as it was.
RAISES, DIFFERS, NOISE, STILL = (
    _row(way, dtype) for way in ("forward", "backward") for dtype in ("float32", "float64")
)


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Scan twice, by interpreters in the folders ``old`` and ``new``, the second of a torch that has changed; return where the files are.

    An op that differs each time looks in the file of the second scan as if it had not.
    """
    folder = tmp_path_factory.mktemp("planted")
    noise = {"do": "observe", **NOISE, "then": "vary"}
    alert = {"outcome": "raised", "exception": "RuntimeError", "message": ALERT.format("cumsum_planted")}
    changes = (
        {"do": "observe", **RAISES, "mode": "on", "then": alert},
        {"do": "observe", **DIFFERS, "then": "vary"},
    )
    options = ("quick.cumsum", *QUICK, "--runs", 20, "--processes", 2, "--max-time", 0.5)
    for name, rules in (("old", (noise,)), ("new", (noise, *changes))):
        (folder / name).mkdir()
        python = StandIn(folder / name, *rules).python
        done = command_in(folder)(
            "scan", *options, "--no-cost", "--no-overloads", "--python", python, "-o", f"{name}.jsonl"
        )
        assert done.returncode == 0, done.stderr
    _still(folder / "new.jsonl")
    return folder


def _still(path: Path) -> Path:
    """Make a row that differs each time look as if it had not in a run file."""
    changed = lines(path)
    for line in changed:
        if line["kind"] == "observation" and line.items() >= NOISE.items():
            line |= {"executions": 20, "digests": {"still": 20}, "first_differing": None}
            line["outputs"] = [one | {"differing": 0, "severity": None} for one in line["outputs"]]
            line["groups"] = [{"perturbation": "quiet", "executions": 20, "differing": 0}]
    return write_lines(path, changed)


@pytest.fixture(scope="module")
def confirmed(planted: Path) -> tuple[dict[str, Any], str]:
    """Return the comparison as JSON after measuring again, and what was printed meanwhile."""
    done = command_in(planted)(
        *("compare", "old.jsonl", "new.jsonl", "--confirm", "--format", "json", "--runs", 30),
        *QUICK[:2],
        *(word for name in ("old", "new") for word in ("--python", planted / name / "python")),
    )
    assert done.returncode == 0, done.stderr
    (pair,) = json.loads(done.stdout)["pairs"]
    return pair, done.stderr


@pytest.mark.parametrize(
    ("row", "kind", "proved", "again", "detail"),
    [
        # It varies in every round of the second interpreter and in none of the first.
        (DIFFERS, "regressed", True, ["deterministic", "silent"], "measured again in turns"),
        # What one scan saw differ and the other did not differs in both when both are measured in turns.
        (NOISE, "same", None, ["silent", "silent"], "the scans suggest improved; measured again in turns"),
        # Proof needs no confirmation, and what is the same no second look.
        (RAISES, "regressed", True, None, ""),
        (STILL, "same", None, None, ""),
    ],
)
def test_what_is_there_is_confirmed_and_what_seems_so_is_dropped(
    confirmed: tuple[dict[str, Any], str],
    row: dict[str, str], kind: str, proved: bool | None, again: list[str] | None, detail: str,
) -> None:  # fmt: skip
    """Only what seems to differ is measured."""
    found = next(one for one in confirmed[0]["rows"] if one.items() >= row.items())

    assert (found["class"], found["confirmed"]) == (kind, proved)
    assert again == (found["again"] and [found["again"][side]["finding"] for side in ("from", "to")])
    assert detail in str(found["detail"])


def test_the_report_says_how_often_it_looked(planted: Path, confirmed: tuple[dict[str, Any], str]) -> None:
    """A second look has its time."""
    pair, text = confirmed

    looked = {"rows": 2, "rounds": 7, "executions": 210, "left": {}, "distrust": []}
    assert looked.items() <= pair["again"].items()
    assert pair["again"]["outcome"] == {"confirmed": 1, "same": 1, "undecided": 0, "left": 0}
    asked = [json.loads(line) for line in (planted / "old" / "stand_in.log").read_text().splitlines()]
    assert {one["max_time"] for one in asked if one.get("runs") == 30} == {5.0}
    assert text.startswith("compare: old.jsonl → new.jsonl: 2 rows to measure again, in 7 rounds\ncompare: ")


def _confirm(planted: Path, *pythons: object, runs: Sequence[object] = ()) -> str:
    options = [part for python in pythons for part in ("--python", python)]
    runs = runs or ("old.jsonl", "new.jsonl")
    return refused(command_in(planted)("compare", *runs, "--confirm", *options))


def _edited(planted: Path, name: str, environment: dict[str, Any], device: str = "cpu") -> Path:
    """Return the earlier run as one of another machine or build."""
    header, *rest = lines(planted / "old.jsonl")
    header["environment"] |= environment
    header["settings"]["device"] = device
    for planned in (*header["planned"], *header["controls"]):
        planned["device"] = device
    return write_lines(planted / f"{name}.jsonl", (header, *rest))


@pytest.mark.parametrize(
    ("environment", "device", "begins", "ends"),
    [
        ({"torch": "2.0.0", "torch_git": "f" * 40}, "cpu", "--python {python}: has torch ",
         "run of torch 2.0.0 (git ffffffffffff); give one --python for each run, in the order of the runs"),
        ({"gpu": "Example GPU"}, "cuda:7", "--python {python}: {run} is a run on cuda:7, and torch ",
         "compare without --confirm"),
        ({"cpu": "Example CPU", "cpu_model": None}, "cpu", "--confirm: other.jsonl cannot be measured again here, other_device: Example CPU → ",
         "or scan here"),
    ],
)  # fmt: skip
def test_only_its_own_torch_and_machine_measure_a_run_again(
    planted: Path, environment: dict[str, Any], device: str, begins: str, ends: str
) -> None:
    """What another build or processor does says nothing of a run; it is compared all the same."""
    other = _edited(planted, "other", environment, device)
    python = planted / "old" / "python"
    text = _confirm(planted, python, python, runs=(other, other))

    assert text.startswith(begins.format(python=python, run=other))
    assert text.endswith(ends)
    assert command_in(planted)("compare", other, other).returncode == 0


# Of a shell script, or of a python that is none: what follows its name.
WILL_NOT_DO = {
    "missing": (None, "no worker could be started (No such file or directory)"),
    "not executable": ("", "no worker could be started (Permission denied)"),
    "exits": ("exit 3", "no worker could be started (exited with code 3)"),
    "too old": (
        '[ "$1" = -c ] && echo 3.8.18 || exit 1',
        "is Python 3.8.18, and a worker needs 3.10 or newer; give an interpreter that is, with a torch for it",
    ),
    "folder": (None, "is a folder; give the interpreter itself, such as {python}/bin/python"),
    "no torch": (None, "has no torch; install it there (pip install torch)"),
}


@pytest.mark.parametrize("command", ["scan", "compare"])
@pytest.mark.parametrize("broken", WILL_NOT_DO)
def test_interpreters_that_will_not_do(planted: Path, tmp_path: Path, command: str, broken: str) -> None:
    """Both commands say the same of an interpreter, in one line, and exit with 2."""
    (script, expected), python = WILL_NOT_DO[broken], tmp_path / "python"
    if script is not None:
        python.write_text(f"#!/bin/sh\n{script}\n")
        python.chmod(0o755 if script else 0o644)
    elif broken == "folder":
        python.mkdir()
    elif broken == "no torch":
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
        python = tmp_path / "bare" / "bin" / "python"
    if command == "compare":
        text = _confirm(planted, python, python)
    else:
        run = tmp_path / "run.jsonl"
        text = refused(command_in(tmp_path)("scan", "torch.cumsum", "--python", python, "-o", run))
        assert not run.exists()

    assert text == f"--python {python}: {expected.format(python=python)}"


@pytest.mark.parametrize(("source", "there"), [("opinfo", True), ("modules", True), ("documented", False)])
def test_rows_of_databases_are_asked_of_the_torch(source: Source, *, there: bool) -> None:
    """PyTorch's own entries are measured again as they were recorded, with their recipes; others the catalog must have."""
    planned = replace(
        row("opinfo.cumsum", "sample_0"), source=source, provoked="enlarged", enlargement="of the scan"
    )
    found, left = rows_here(run_of((planned, [])).run, [planned.key])

    assert found == ({planned.key: planned} if there else {})
    assert left == ({} if there else {planned.key: "the catalog of this detmatrix has no such row"})
