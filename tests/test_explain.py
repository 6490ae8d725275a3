"""``detmatrix explain``: all that is known of one op, under the name that its user types."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.commands import Command
from tests.compared import shows
from tests.conftest import refused
from tests.runs import row, write_run

ROOT = Path(__file__).parent.parent
SIMULATED = ROOT / "tests" / "data" / "simulated.jsonl.gz"
RUN = ROOT / "reports" / "runs" / "torch-2.13.0-cpu.jsonl.gz"


def explained(detmatrix: Command, *arguments: object) -> dict[str, Any]:
    done = detmatrix("explain", *arguments, "--format", "json")
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    "name", ["conv2d", "torch.nn.functional.conv2d", "nn.Conv2d", "torch.nn.Conv2d", "F.conv2d"]
)
def test_every_name_of_an_op_tells_the_same(detmatrix: Command, name: str) -> None:
    """What lists, runs and builds say is of one op, whatever it was asked by."""
    found = explained(detmatrix, name, RUN)

    assert found["op"] == "torch.nn.Conv2d"
    assert {"torch.nn.Conv2d", "opinfo:nn.functional.conv2d", "module:nn.Conv2d"} == set(found["specs"])
    assert [bullet["releases"] for bullet in found["documented"]] == [found["releases"]]
    assert found["unmeasured"] == {"cuda": 1}
    assert {row for case in found["measured"][0]["cases"]["backward"] for row in case["rows"]} >= {
        "torch.nn.Conv2d:weight_grad:backward:float32"
    }


_WRONG = "On CUDA, simulated, in 1 row: With the flag on the result is not the CPU's"


@pytest.mark.parametrize(
    ("op", "runs", "expected"),
    [
        ("ReflectionPad2d", (RUN, SIMULATED), ["On CPU: Nothing to do", _WRONG]),
        ("ReflectionPad2d", (SIMULATED, "other.jsonl"), ["On CPU: not scanned.", _WRONG]),
        ("MaxPool3d", (), ["On CPU: ", "On CUDA, simulated: Cases that raise with the flag on: overlapping"]),
        ("sum", (), ["On CPU: No difference", "On CUDA, simulated: No difference"]),
    ],
)
def test_each_device_is_told_apart(
    detmatrix: Command, tmp_path: Path, op: str, runs: tuple[object, ...], expected: list[str]
) -> None:
    """What is wrong on one kind of device hides nothing of another, nor what raises; recorded runs of all ops stand in for the CPU."""
    write_run(tmp_path / "other.jsonl", [shows("deterministic", row("torch.cumsum"))])
    action = explained(detmatrix, op, *runs)["action"]

    assert [text for text in expected if text in action] == expected


def test_no_line_of_a_run_file_leaves_the_code_of_markdown(detmatrix: Command, tmp_path: Path) -> None:
    """A carriage return ends a line of Markdown too, and with it the code that commands stand in."""
    path = write_run(tmp_path / "run.jsonl", [shows("silent", row("torch.take", "a\r<b>c"))])

    shown = detmatrix("explain", "take", path, "--format", "md").stdout
    assert "\r" not in shown
    assert f"    detmatrix repro {path} 'torch.take:a <b>c:forward:float32'" in shown


def test_a_run_file_here_goes_before_those_recorded(detmatrix: Command, tmp_path: Path) -> None:
    """``explain-everywhere.*`` shows what is told without one."""
    (tmp_path / "detmatrix.jsonl").write_bytes(b"no run file\n")

    assert "detmatrix.jsonl: not a detmatrix run file" in refused(detmatrix("explain", "take"), 3)


def test_a_name_that_is_one_ops_own_means_that_op(detmatrix: Command) -> None:
    """Though another op is called so, too: it is what a user is asked to type."""
    told = refused(detmatrix("explain", "F.batch_norm", RUN))
    names = told.partition("give one of them: ")[2].split(", ")

    assert "torch.nn.functional.batch_norm" in names
    assert {explained(detmatrix, name, RUN)["op"] for name in names} == set(names)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Dropot", "no op is called 'Dropot'; did you mean dropout or dropout3d or dropout2d?"),
        ("pad", "'pad' means 7 ops; give one of them: torch.nn.ReflectionPad1d, torch.nn.ReflectionPad2d, "),
        ("pooling", "no op is called 'pooling'; it is a family, whose ops detmatrix list shows"),
        ("", "no op is called ''; detmatrix list shows what there is"),
        ("zzzzzz", "no op is called 'zzzzzz'; detmatrix list shows what there is"),
    ],
)
def test_names_that_mean_no_op(detmatrix: Command, name: str, expected: str) -> None:
    """One line, which names what is meant."""
    assert refused(detmatrix("explain", name, RUN)).startswith(expected)
