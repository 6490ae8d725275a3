"""A case that misbehaves costs its own cell and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from detmatrix.scanner.observations.records import Dispatch, Mode
from detmatrix.scanner.observations.runfile import Run, read_run
from detmatrix.scanner.worker.overloads import Overloads
from tests.commands import Command, command_in
from tests.stand_in import StandIn

# What each planted case must read as in both modes, and a word of its reason in mode off.
EXPECTED = {
    "segfault": ("crash", "crash", "SIGSEGV"),
    "abort": ("crash", "crash", "SIGABRT"),
    "hang": ("timeout", "timeout", "longer than 4 s"),
    "killed": ("crash", "crash", "SIGKILL (out of memory?)"),
    "leave": ("error", "error", "SystemExit: 3"),
    "leave_at_once": ("crash", "crash", "exited with code 0"),
    "fork": ("crash", "crash", "exited with code 7"),
    "returns_twice": ("deterministic", "deterministic", None),
    "answers": ("crash", "crash", "wrote something that is no reply into the reply pipe"),
    "close_pipes": ("crash", "crash", ""),
    "prints": ("deterministic", "deterministic", None),
    "sets_default_dtype": ("error", "error", "default dtype: torch.float32 -> torch.float64"),
    "sets_threads": ("error", "error", "thread count"),
    "sets_flag": ("error", "error", "warn_only: False -> True"),
    # With the flag on it sets it to what it is.
    "sets_debug_mode": ("error", "deterministic", "use_deterministic_algorithms: False -> True"),
    "toggles_flag": ("error", "error", "and put it back"),
    "seeds": ("deterministic", "deterministic", None),
    "changes_input": ("error", "error", "changed its inputs"),
    "unlike_alert": ("error", "error", "RuntimeError: x does not have a deterministic implementation"),
    "alerts_in_either_mode": ("deterministic", "raises", None),
    "compiled_backward": ("deterministic", "error", None),
    "as_referred": ("deterministic", "deterministic", None),
    "not_as_referred": ("deterministic", "error", None),
    "unknown_reference": ("deterministic", "deterministic", None),
    "failing_reference": ("deterministic", "error", None),
    "random_alert": ("error", "raises", "RuntimeError: planted does not have"),
    "nothing": ("error", "error", "no output has elements"),
    "empty": ("error", "error", "no output has elements"),
    "noise": ("nondeterministic", "nondeterministic", None),
    "draws": ("deterministic", "deterministic", None),
    "drops_half": ("nondeterministic", "nondeterministic", None),
    "independent": ("error", "error", "nothing to differentiate"),
    "doubles": ("deterministic", "deterministic", None),
    "missing": ("not_run", "not_run", "has no torch.no_such_op"),
    "no_inputs": ("error", "error", "could not be drawn (AttributeError"),
    "healthy": ("deterministic", "deterministic", None),
}


@pytest.fixture(scope="module")
def planted(real_scan: Path) -> dict[str, Any]:
    """Return the JSON report of a scan of every planted case, with healthy ops between and behind them."""
    shown = command_in(real_scan.parent)("report", real_scan, "--format", "json").stdout
    report: dict[str, Any] = json.loads(shown)
    report["rows"] = [row for row in report["rows"] if row["family"] == "planted"]
    return report


def _rows(report: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return [row for row in report["rows"] if row["spec"] == f"planted.{name}"]


@pytest.mark.parametrize("name", EXPECTED)
def test_each_fault_costs_its_own_cell(planted: dict[str, Any], name: str) -> None:
    """Every planted case gets the verdict and the reason that describe it, in both modes."""
    off, on, reason = EXPECTED[name]
    for row in _rows(planted, name):
        assert (row["off"]["verdict"], row["on"]["verdict"]) == (off, on)
        if reason is None:
            assert row["off"]["reason"] is None
        else:
            assert reason in row["off"]["reason"]


def test_every_planted_case_is_expected(planted: dict[str, Any]) -> None:
    """No planted spec goes unchecked."""
    assert {row["spec"].removeprefix("planted.") for row in planted["rows"]} == set(EXPECTED)


def test_cases_behind_a_fault_keep_their_bits(planted: dict[str, Any]) -> None:
    """The healthy op gives the same output in every cell, though flags and threads were changed before it."""
    rows = _rows(planted, "healthy")

    assert [(row["finding"], row["off"]["runs"], row["off"]["distinct"]) for row in rows] == [
        ("deterministic", 6, 1),
        ("deterministic", 6, 1),
    ]


@pytest.mark.parametrize(
    ("name", "finding", "reason"),
    [
        ("compiled_backward", "inconclusive", "RuntimeError: This compiled backward function is being run with"),
        ("not_as_referred", "inconclusive", "with the flag on the result is not that of the reference of its case"),
        ("failing_reference", "inconclusive", "its reference failed (IndexError"),
        # The alert's own words prove nothing when the flag is off.
        ("random_alert", "inconclusive", ""),
        ("alerts_in_either_mode", "over_alert", ""),
    ],
)  # fmt: skip
def test_what_goes_wrong_with_the_flag_on_says_why(
    planted: dict[str, Any], name: str, finding: str, reason: str
) -> None:
    """A guard of the compiler is no alert, and a result that repeats may still be the wrong one."""
    (row,) = _rows(planted, name)

    assert row["finding"] == finding
    assert reason in str(row["on"]["reason"])
    assert finding != "over_alert" or row["on"]["alert"] == "put_"


def test_an_op_that_draws_is_told_as_seeded(planted: dict[str, Any]) -> None:
    """A random op repeats because it was seeded, and the row says so."""
    assert [_rows(planted, name)[0]["off"]["seeded"] for name in ("draws", "doubles")] == [True, False]


# Which overloads a scan records: those the case reaches and no others, beside the evidence and never at its cost.


@pytest.fixture(scope="module")
def run(real_scan: Path) -> Run:
    """Return a scan of ops that behave, alert, fail and crash under the recorder."""
    return read_run(real_scan)


def _dispatch(run: Run, name: str) -> Dispatch:
    return next(one for one in run.dispatches if one.spec == f"recorded.{name}")


def _reached(run: Run, name: str, mode: Mode) -> tuple[str, ...]:
    return _dispatch(run, name).modes[mode].overloads


def test_overloads_of_forward_and_backward(run: Run) -> None:
    """The backward pass counts, and drawing inputs and upstream gradients does not."""
    for mode in ("off", "on"):
        assert _reached(run, "cumsum", mode) == ("aten::cumsum", "aten::flip")


def test_alerts_name_the_overload_that_raised(run: Run) -> None:
    """With the flag on what ran before the alert is kept; run under warn_only, all of it."""
    modes = _dispatch(run, "unpool").modes
    alert = ("max_unpooling2d_forward_out", "aten::max_unpool2d")

    assert {mode: it.alerts for mode, it in modes.items()} == {
        "off": (),
        "on": (alert,),
        "warn_only": (alert,),
    }
    assert modes["on"].overloads[-1] == "aten::max_unpool2d"
    assert len(modes["on"].overloads) < len(modes["warn_only"].overloads) == len(modes["off"].overloads)
    assert {it.message for it in modes.values()} == {None}


def test_every_overload_of_the_build_is_listed_once(run: Run) -> None:
    """The run file says which there are, where their kernels come from and what they write into."""
    assert run.kernels is not None
    listed = {name: (it.kernel, it.writes) for it in run.kernels.groups for name in it.names}

    assert {name: listed[name] for name in ("aten::add.Tensor", "aten::add_.Tensor", "aten::add.out")} == {
        "aten::add.Tensor": ("device", "new"),
        "aten::add_.Tensor": ("device", "in_place"),
        "aten::add.out": ("device", "out"),
    }
    assert listed["aten::conv2d"] == ("decomposed", "new")
    assert listed["aten::new_zeros"] == ("composite", "new")
    assert sum(len(it.names) for it in run.kernels.groups) == len(listed)
    assert {
        name for reached in run.dispatches for it in reached.modes.values() for name in it.overloads
    } <= set(listed)


def test_alerts_of_the_build_are_found_in_its_bytes(run: Run) -> None:
    """Also those that no row of the run meets."""
    assert run.kernels is not None

    assert {"put_", "max_unpooling2d_forward_out", "quantized_resize_cpu_"} <= {*run.kernels.alerts}


def test_what_the_flag_warns_of_is_known_by_its_overload() -> None:
    """Under warn_only an overload that alerts is called again, and gives what it gives anyway."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with Overloads() as recorder, pytest.warns(UserWarning, match="put_ does not have"):
            result = torch.zeros(3).put_(torch.tensor([0, 2]), torch.tensor([1.0, 2.0]))
        assert torch.is_deterministic_algorithms_warn_only_enabled()
    finally:
        torch.use_deterministic_algorithms(False)

    assert list(recorder.alerts) == [("put_", "aten::put_")]
    assert result.tolist() == [1.0, 0.0, 2.0]


def test_nothing_is_recorded_if_not_asked_for(detmatrix: Command, tmp_path: Path) -> None:
    """--no-overloads leaves out the list and the lines, and the coverage says so."""
    standing = StandIn(tmp_path)
    options = ("--device", "cpu", "--processes", 1, "--no-overloads", "--python", standing.python)
    assert detmatrix("scan", "torch.cumsum", *options, "-o", "run.jsonl").returncode == 0
    run = read_run(tmp_path / "run.jsonl")
    text = detmatrix("coverage", "run.jsonl")

    assert (run.kernels, run.dispatches) == (None, ())
    assert not {one["do"] for one in standing.noted} & {"kernels", "dispatch"}
    assert text.returncode == 0
    assert "Overloads are not recorded: run.jsonl was scanned with --no-overloads." in text.stdout
    assert "0 of" not in text.stdout
