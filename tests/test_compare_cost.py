"""The cost of the flag in two runs: ratios within each, told apart or not."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from detmatrix.reports.matrix.model import Matrix
from tests.compared import pair_of, run_of, shows
from tests.evidence_runs import cost
from tests.runs import row

PLANNED = row("torch.Tensor.scatter_add_")
DETERMINISTIC = shows("deterministic")


def _timed(off: float, on: float, *, name: str, **environment: Any) -> Matrix:
    return run_of(DETERMINISTIC, name=name, costs=[cost(PLANNED, off, on)], **environment)


@pytest.mark.parametrize(
    ("before", "after", "factor"),
    [
        ((1e-5, 1e-5), (1e-5, 3e-5), 3.0),  # a cost that came
        ((1e-5, 3e-5), (1e-5, 1e-5), 1 / 3),  # one that went
        ((1e-5, 3e-5), (7e-5, 21e-5), None),  # slower in all, at the same ratio
        ((1e-5, 1e-5), (1e-5, 1.45e-5), None),  # not by more than 1.5 times
        ((1e-5, 1e-5), (1e-5, 1.6e-5), 1.6),
    ],
)
def test_cost_is_compared_as_ratios(
    before: tuple[float, float], after: tuple[float, float], factor: float | None
) -> None:
    """A row is listed if its ratio changed by more than 1.5 times, whatever the times."""
    found = pair_of(_timed(*before, name="a"), _timed(*after, name="b")).cost

    assert found is not None
    assert found["rows"] == 1
    assert [pytest.approx(factor)] * (factor is not None) == [one["factor"] for one in found.listed]


def test_cost_needs_ratios_told_apart_from_their_spread() -> None:
    """Quartiles so wide that both runs could have one ratio are no change of cost."""
    wide = replace(cost(PLANNED, 1e-5, 2e-5), on=replace(cost(PLANNED, 2e-5, 2e-5).on, low=0.9e-5))  # type: ignore[type-var]
    found = pair_of(_timed(1e-5, 1e-5, name="a"), run_of(DETERMINISTIC, name="b", costs=[wide])).cost

    assert found is not None
    assert (found["rows"], found.listed) == (1, [])


def test_cost_needs_the_same_hardware_and_inputs() -> None:
    """Ratios on another machine or of other inputs are not held against each other."""
    other = DETERMINISTIC[0], [replace(one, inputs_digest="other") for one in DETERMINISTIC[1]]
    later = run_of(other, name="b", costs=[cost(PLANNED, 1e-5, 9e-5)])
    found = pair_of(_timed(1e-5, 1e-5, name="a"), later).cost

    assert found is not None
    assert found["rows"] == 0
    assert None is pair_of(_timed(1e-5, 1e-5, name="a"), _timed(1e-5, 9e-5, name="b", cpu="Other")).cost
