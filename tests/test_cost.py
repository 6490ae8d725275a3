"""What the flag costs: facts about the timings and what is refused, never an absolute time."""

from __future__ import annotations

import gc
import json
import sys
import time
from typing import Any

import msgspec
import pytest
import torch

from detmatrix.opspecs.model import OpSpec, call
from detmatrix.scanner.observations import records
from detmatrix.scanner.worker import cost
from detmatrix.scanner.worker.cost import measure
from tests.observed import spec_of

_FLOATS = 1 << 22
_FILLS = pytest.mark.skipif(not cost._FILLS, reason="this torch never fills memory")


def _measure(spec: OpSpec, direction: str = "forward", **options: Any) -> dict[str, Any]:
    options = {"dtype": "float32", "device": "cpu", "seed": 0, "max_seconds": 0.05, **options}
    return measure(spec, next(iter(spec.cases)), direction=direction, **options)


def _flags() -> tuple[Any, ...]:
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.utils.deterministic.fill_uninitialized_memory if cost._FILLS else None,
        gc.isenabled(),
    )


def _record(measured: dict[str, Any]) -> records.Cost:
    """Return the record of a run file that *measured* becomes."""
    row = {"spec": "planted.op", "case": "one", "direction": "forward", "dtype": "float32"}
    return msgspec.convert(json.loads(json.dumps({**row, **measured}, allow_nan=False)), records.Cost)


def _sleeps_when_on(x: Any) -> Any:
    if torch.are_deterministic_algorithms_enabled():
        time.sleep(0.003)
    return x * 2


def _raises(*_: Any) -> Any:
    raise ValueError("no\nnever")


def test_an_op_that_the_flag_slows_down_costs_more() -> None:
    """Each variant is timed under its own setting: only the two with the flag on sleep."""
    measured = _measure(spec_of(_sleeps_when_on))

    assert _record(measured).outcome == "ran"
    assert measured["on"]["median"] / measured["off"]["median"] > 1.5
    # A sleep is never shorter than asked for, whatever else the machine does.
    assert measured["on"]["low"] > 0.003
    assert not cost._FILLS or measured["unfilled"]["low"] > 0.003


@_FILLS
def test_a_fill_that_was_off_stays_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Costs are measured where a file of specs has changed the setting, which is then as it was."""
    monkeypatch.setattr("torch.utils.deterministic.fill_uninitialized_memory", False)

    assert _measure(spec_of(torch.sin))["outcome"] == "ran"
    assert not torch.utils.deterministic.fill_uninitialized_memory


@_FILLS
def test_filling_memory_is_told_apart_from_the_rest() -> None:
    """Memory that is only allocated is filled with the flag on, unless the setting says not to."""
    spec = spec_of("torch.empty", lambda t: call(_FLOATS, dtype=t.dtype, device=t.device))
    measured = _measure(spec)

    assert measured["on"]["median"] > 4 * measured["unfilled"]["median"]
    assert measured["on"]["median"] > 4 * measured["off"]["median"]


def test_variants_take_turns_and_none_always_goes_first() -> None:
    """Behind warm-up and calibration each round runs every variant once, and each comes first in its turn."""
    seen: list[bool] = []

    def watches(x: Any) -> Any:
        seen.append(torch.are_deterministic_algorithms_enabled())
        # Long enough for one call a sample, so that a call is a sample.
        time.sleep(0.0005)
        return x

    measured = _measure(spec_of(watches), max_seconds=10.0)
    each = 3 if cost._FILLS else 2

    assert (measured["calls"], measured["samples"]) == (1, 9)
    rounds = [seen[start : start + each] for start in range(len(seen) - 9 * each, len(seen), each)]
    assert all(one.count(False) == 1 for one in rounds)
    assert {one.index(False) for one in rounds[:each]} == set(range(each))


CHANGED = "changed global state ("


@pytest.mark.parametrize(
    ("spec", "outcome", "message"),
    [
        (spec_of(lambda x: x.clone().put_(torch.zeros(2, dtype=torch.int64), x[:2])), "raised", "RuntimeError: put_ does not have a deterministic implementation, but you set"),
        (spec_of(_raises), "raised", "ValueError: no"),
        (spec_of(lambda _: sys.exit(3)), "raised", "SystemExit: 3"),
        (spec_of("torch.no_such_op"), "not_run", f"torch {torch.__version__} has no torch.no_such_op"),
        (spec_of("torch.add", lambda t: call(t.no_such)), "invalid", "its inputs could not be drawn (AttributeError: "),  # type: ignore[attr-defined]
        # The words by which a worker knows that it must end: so too of the very flags that are put back.
        (spec_of(lambda _: torch._C._set_deterministic_algorithms(True, warn_only=True)), "invalid",
         f"{CHANGED}use_deterministic_algorithms: False -> True; warn_only: False -> True)"),
        # What it raised matters less than that the next case would run in another process than it thinks.
        (spec_of(lambda _: _raises(torch.set_default_dtype(torch.float64))), "invalid",
         f"{CHANGED}default dtype: torch.float32 -> torch.float64)"),
    ],
    ids=["alert", "error", "exit", "missing", "no inputs", "flag", "raises and changes"],
)  # fmt: skip
def test_a_case_that_raises_or_changes_its_process_has_no_cost(
    spec: OpSpec, outcome: str, message: str
) -> None:
    """It says why in one line, and nothing else; the flags are as they were."""
    before = _flags()
    try:
        measured = _measure(spec)
    finally:
        torch.set_default_dtype(torch.float32)

    assert measured.keys() == {"outcome", "message"}
    assert measured["outcome"] == outcome
    assert measured["message"].startswith(message)
    assert "\n" not in measured["message"]
    assert _record(measured).off is None
    assert _flags() == before
