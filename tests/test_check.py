"""``detmatrix check``: a function of the user's becomes the same row as any other."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from detmatrix.opspecs.user import load_specs
from detmatrix.reports.cli.check import view_of_function
from detmatrix.reports.explain import RENDERERS as EXPLAINED
from detmatrix.reports.matrix.model import load
from detmatrix.scanner.observations.records import MODES
from detmatrix.scanner.worker.execution import describe
from tests.commands import Command
from tests.conftest import refused
from tests.runs import ran, row, stable, write_run
from tests.stand_in import StandIn

FILE = Path(__file__).with_name("checked.py")


@pytest.fixture
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An interpreter whose workers say what those of torch say of the function below."""
    described = {"do": "describe", "then": {"directions": ["forward", "backward"]}}
    varies = {"do": "observe", "spec": "checked.varies", "direction": "forward", "then": "vary"}
    return str(StandIn(tmp_path_factory.mktemp("python"), described, varies).python)


def test_function_is_scanned_like_an_op(detmatrix: Command, tmp_path: Path, python: str) -> None:
    """It differs with the flag on and says nothing: silent. Its gradients are compared too; the run is kept if asked for."""
    done = detmatrix(
        *("check", f"{FILE}:varies", "--inputs", f"{FILE}:pair", "--device", "cpu", "--runs", 2),
        *("--format", "json", "-o", "run.jsonl", "--python", python),
    )

    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    (run,) = found["measured"]
    assert found["finding"] == "silent"
    assert [case["finding"] for case in run["cases"]["forward"]] == ["silent"]
    assert [row for case in run["cases"]["backward"] for row in case["rows"]] == [
        "checked.varies:inputs:backward:float32"
    ]
    report = json.loads(detmatrix("report", "run.jsonl", "--format", "json").stdout)
    assert {row["source"] for row in report["rows"]} == {"own"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.jsonl"]


@pytest.mark.nightly
def test_what_needs_the_flag_and_the_fill_is_told_by_output(detmatrix: Command, tmp_path: Path) -> None:
    """What the flag fixes is not put down to the memory that nobody wrote beside it; the script says no other thing."""
    function, inputs = f"{FILE}:needs_both", f"{FILE}:constant"
    done = detmatrix(
        "check", function, "--inputs", inputs, "--device", "cpu", "--runs", 20, "-o", "run.jsonl"
    )
    assert done.returncode == 0, done.stderr
    text = " ".join(done.stdout.split())
    assert "forward: fixed_by_mode" in text
    assert "nothing filled output[1] still differed, output[0] did not: both are needed" in text
    assert "Leave torch.utils.deterministic.fill_uninitialized_memory on: inputs needs both." in text

    row = "checked.needs_both:inputs:forward:float32"
    done = detmatrix("repro", "run.jsonl", row, "--specs", f"{function}({inputs})", "-o", "repro.py")
    assert done.returncode == 0, done.stderr
    assert "both are needed." in " ".join(
        (tmp_path / "repro.py").read_text().partition("import")[0].split("\n# ")
    )
    said = subprocess.run(
        [sys.executable, "repro.py"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "finding: fixed_by_mode" in said.stdout


def test_function_that_fails_has_no_verdict(detmatrix: Command, tmp_path: Path) -> None:
    """Exit 1, with the error and the line of the user's file."""
    failed = {"outcome": "raised", "exception": "ValueError", "message": "no such luck, checked.py, line 28"}
    standing = StandIn(tmp_path, {"do": "observe", "spec": "checked.broken", "then": failed})

    done = detmatrix("check", f"{FILE}:broken", "--python", standing.python, "--runs", 2)

    assert done.returncode == 1
    text = " ".join(done.stdout.split())
    assert "forward: inconclusive" in text
    assert "ValueError: no such luck, checked.py, line 28" in text
    assert "WHAT TO DO Fix the exception, then run check again." in text
    assert "COST OF THE FLAG" not in text


def test_serial_function_has_no_bound(tmp_path: Path) -> None:
    """Where one thread did all the work nothing could race: n says nothing, and the text says why."""
    function = row("checked.constant")
    seen = [one for mode in MODES for one in ran(function, mode, *stable(), threads=1)]
    (one,) = load([str(write_run(tmp_path / "run.jsonl", [(function, seen)]))])
    view = view_of_function(one, "run.jsonl", None)

    text = " ".join("".join(EXPLAINED["text"](view)).split())
    assert (
        "no difference in 1 row; 1 serial serial: one thread did all the work, so nothing could race" in text
    )
    assert "rate <" not in text


def test_what_only_the_workers_can_import(detmatrix: Command, tmp_path: Path) -> None:
    """A file that imports what this interpreter lacks is executed by the workers' alone; its functions are found all the same."""
    standing, path = StandIn(tmp_path), tmp_path / "away.py"
    path.write_text("import not_here_at_all\ndef kernel(): pass\n", encoding="utf-8")

    assert detmatrix("check", f"{path}:kernel", "--python", standing.python, "--runs", 2).returncode == 0
    assert "did you mean kernel?" in refused(
        detmatrix("check", f"{path}:kernal", "--python", standing.python)
    )


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        ("constant", {"directions": ["forward"], "dtype": "float32"}),
        (f"varies({FILE}:pair)", {"directions": ["forward", "backward"], "dtype": "float32"}),
        (f"varies({FILE}:keywords)", {"directions": ["forward"], "dtype": "float32"}),
        (f"varies({FILE}:nested)", {"directions": ["forward", "backward"], "dtype": "float32"}),
        (f"constant({FILE}:broken)", {"directions": ["forward"], "dtype": "float32"}),
    ],
)
def test_rows_are_those_of_the_inputs(function: str, expected: dict[str, object]) -> None:
    """Backward is run where an input requires grad, and the dtype is that of what can be differentiated."""
    (spec,) = load_specs(f"{FILE}:{function}")

    assert describe(spec, "inputs", device="cpu", seed=0) == expected


def test_example_of_the_guide(tmp_path: Path) -> None:
    """The function of the guide is called with what the one above it returns, and differentiated."""
    guide = (FILE.parent.parent / "opspecs" / "README.md").read_text(encoding="utf-8")
    example, arguments = re.findall(
        r"```python\n(.*?)```\n\n +detmatrix check (.+?) #", guide, flags=re.DOTALL
    )[0]
    path = tmp_path / "my.py"
    path.write_text(example, encoding="utf-8")
    function, _, inputs = arguments.split()

    (spec,) = load_specs(f"{path}{function.removeprefix('my.py')}({path}{inputs.removeprefix('my.py')})")
    answer = describe(spec, "inputs", device="cpu", seed=0)

    assert answer == {"directions": ["forward", "backward"], "dtype": "float32"}
