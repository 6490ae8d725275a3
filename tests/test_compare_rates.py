"""Whether two rates differ: the exact test against brute force, and what is counted."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product
from typing import Any

import pytest
from msgspec.structs import replace

from detmatrix.reports.compare.comparable import LEVEL, Rate, fisher, rate_test
from detmatrix.reports.matrix.model import Matrix
from detmatrix.scanner.observations.records import Group
from tests.compared import pair_of, run_of, shows
from tests.evidence_runs import cost
from tests.runs import RUNS, drifting, ran, row


def _brute_force(one: Rate, other: Rate) -> Fraction:
    """Return the p-value from the choice of every single table with these margins, in exact fractions."""
    total = one.differing + other.differing
    weights = {
        (k, total - k): Fraction(
            math.comb(one.compared, k) * math.comb(other.compared, total - k),
            math.comb(one.compared + other.compared, total),
        )
        for k in range(total + 1)
        if k <= one.compared and total - k <= other.compared
    }
    seen = weights[one.differing, other.differing]
    assert sum(weights.values()) == 1
    return sum((weight for weight in weights.values() if weight <= seen), Fraction())


def _rates(most: int) -> list[Rate]:
    return [Rate(k, n) for n in range(most + 1) for k in range(n + 1)]


def test_every_small_table_is_exact() -> None:
    """For every two samples of up to nine the p-value is the one that counting all tables gives."""
    for one, other in product(_rates(9), repeat=2):
        assert fisher(one, other) == float(_brute_force(one, other)), (one, other)


@pytest.mark.parametrize(
    ("one", "other", "p"),
    [
        (Rate(3, 4), Rate(1, 4), 34 / 70),  # Fisher's tea: no more likely tables on both sides
        (Rate(1, 12), Rate(9, 12), 0.002759456185220083),  # "studying", of the usual textbook example
        (Rate(2, 5), Rate(7, 8), 0.21678321678321677),  # one side doubled would be another number
        (Rate(1, 98), Rate(0, 98), 1.0),
        (Rate(98, 98), Rate(0, 98), 2 / math.comb(196, 98)),
    ],
)
def test_known_values(one: Rate, other: Rate, p: float) -> None:
    """Values that are known from elsewhere, in either order."""
    assert fisher(one, other) == pytest.approx(p, rel=1e-12)
    assert fisher(one, other) == fisher(other, one)


@pytest.mark.parametrize(("differing", "apart"), [(1, False), (6, False), (7, False), (8, True), (49, True)])
def test_how_many_must_differ(differing: int, *, apart: bool) -> None:
    """Against 0 of 98 it takes eight: the level is 1 %."""
    planned = row("torch.cumsum")
    old = ran(planned, "off", {"a": 99 - differing, "b": differing})
    test = rate_test("off", old, ran(planned, "off", {"a": 99}))

    assert (Rate(differing, 98), Rate(0, 98)) == (test.old, test.new)
    assert apart == test.differ == (test.p < LEVEL)


def test_counts_of_a_hostile_file_take_no_time() -> None:
    """A file may hold any number; what it proves does not grow with it."""
    assert fisher(Rate(10**18, 10**18), Rate(0, 10**18)) < LEVEL
    assert fisher(Rate(1, 10**18), Rate(0, 10**18)) == 1.0


STILL = {"a": RUNS}
ODD = [{"x": RUNS}, *[STILL] * 5]


@pytest.mark.parametrize(
    ("processes", "threads", "others", "unit", "rate"),
    [
        # The first execution of a process cannot differ from itself, and the two processes' firsts are no matter.
        ([{"a": 40, "b": 10}, {"c": 45, "d": 5}], [], [STILL] * 2, "executions", Rate(15, 98)),
        # Nor is it whether the rare output or the frequent one was the first; those that are gone differ all.
        ([{"a": 40, "b": 10}, STILL], [], [STILL] * 2, "executions", Rate(10, 98)),
        ([{"b": 10, "a": 40}, STILL], [], [STILL] * 2, "executions", Rate(10, 98)),
        ([{"a": 9, "overwritten": 30, "b": 11}, STILL], [], [STILL] * 2, "executions", Rate(39, 98)),
        # A process that chose another algorithm is one event, however often it executed, also where it is the first.
        ([STILL, {"b": RUNS}], [], [STILL] * 2, "processes", Rate(1, 1)),
        (ODD, [{}, *[{"t": 10}] * 5], [STILL] * 6, "processes", Rate(1, 5)),
        (ODD[::-1], [{}, *[{"t": 10}] * 5], [STILL] * 6, "processes", Rate(1, 5)),
        ([{f"x{place}": RUNS} for place in range(13)], [], [STILL] * 13, "processes", Rate(12, 12)),
        # Another thread count gives other bits, which is no difference; within it executions may differ, or processes.
        (drifting(4), [{"t": 10}] * 2, [STILL] * 2, "executions", Rate(3, 116)),
        (drifting(4), [{"t": 8, "u": 2}, {"t": 10}], [STILL] * 2, "executions", Rate(5, 116)),
        ([STILL] * 2, [{"t": 10}, {"u": 10}], [STILL] * 2, "processes", Rate(1, 1)),
    ],
)
def test_what_is_counted(
    processes: list[dict[str, int]],
    threads: list[dict[str, int]],
    others: list[dict[str, int]],
    unit: str,
    rate: Rate,
) -> None:
    """Executions of a process are held against its most frequent output; where none differ, processes are."""
    planned = row("torch.cumsum")
    old = ran(planned, "off", *processes)
    old = [
        replace(one, groups=(Group(perturbation="threads=1", executions=10, differing=0, digests=digests),))
        if digests
        else one
        for one, digests in zip(old, threads or [{}] * len(old), strict=True)
    ]
    test = rate_test("off", old, ran(planned, "off", *others))

    assert (test.unit, test.old, test.new.differing) == (unit, rate, 0)


# --- The cost of the flag in two runs: ratios within each, told apart or not.

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
