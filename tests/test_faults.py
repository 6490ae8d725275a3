"""A case that misbehaves costs its own cell and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.commands import command_in

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
