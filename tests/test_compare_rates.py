"""Whether two rates differ: the exact test against brute force, and what is counted."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import pytest
from msgspec.structs import replace

from reports.compare.rates import LEVEL, Rate, fisher, rate_test
from scanner.observations.records import Group
from tests.runs import RUNS, drifting, ran, row, stable


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


def test_executions_are_held_against_their_own_process() -> None:
    """The first execution of a process cannot differ from itself, and the two processes' firsts are no matter."""
    planned = row("torch.cumsum")
    test = rate_test(
        "on", ran(planned, "on", {"a": 40, "b": 10}, {"c": 45, "d": 5}), ran(planned, "on", *stable())
    )

    assert ("on", "executions", Rate(15, 98), Rate(0, 98)) == (test.mode, test.unit, test.old, test.new)


@pytest.mark.parametrize(
    "digests", [{"a": 40, "b": 10}, {"b": 10, "a": 40}, {"a": 9, "overwritten": 30, "b": 11}]
)
def test_what_came_first_is_no_matter(digests: dict[str, int]) -> None:
    """Ten of fifty differ, whether the rare output or the frequent one was the first, and those that are gone differ all."""
    planned = row("torch.cumsum")
    test = rate_test("on", ran(planned, "on", digests, {"a": 50}), ran(planned, "on", *stable()))

    assert (Rate(39 if "overwritten" in digests else 10, 98), Rate(0, 98)) == (test.old, test.new)


@pytest.mark.parametrize("odd", [0, 3, 5])
def test_one_odd_process_is_one_wherever_it_stands(odd: int) -> None:
    """One process of six with another output is one of five, also where it is the first; an early end is no matter."""
    planned = row("torch.nn.Conv2d")
    group = (Group(perturbation="threads=1", executions=10, differing=0, digests={"t": 10}),)
    old = ran(planned, "off", *({"x" if place == odd else "a": RUNS} for place in range(6)), groups=group)
    old[0] = replace(old[0], groups=())
    test = rate_test("off", old, ran(planned, "off", *[{"a": RUNS}] * 6))

    assert ("processes", Rate(1, 5), Rate(0, 5)) == (test.unit, test.old, test.new)


def test_processes_are_counted_where_only_they_differ() -> None:
    """A process that chose another algorithm is one event, however often it executed: no proof against 0 of 1."""
    planned = row("torch.nn.Conv2d")
    test = rate_test("off", ran(planned, "off", {"a": RUNS}, {"b": RUNS}), ran(planned, "off", *stable()))

    assert ("processes", Rate(1, 1), Rate(0, 1), 1.0) == (test.unit, test.old, test.new, test.p)


def test_many_processes_are_proof() -> None:
    """Twelve of twelve further processes against none are told apart."""
    planned = row("torch.nn.Conv2d")
    old = ran(planned, "off", *({f"x{place}": RUNS} for place in range(13)))
    test = rate_test("off", old, ran(planned, "off", *[{"a": RUNS}] * 13))

    assert ("processes", Rate(12, 12), Rate(0, 12)) == (test.unit, test.old, test.new)
    assert test.differ


@pytest.mark.parametrize(
    ("digests", "unit", "rate"),
    [
        # Another thread count gives other bits, which is no difference.
        (({"t": 10}, {"t": 10}), "executions", Rate(3, 116)),
        # Within it executions differ among themselves.
        (({"t": 8, "u": 2}, {"t": 10}), "executions", Rate(5, 116)),
    ],
)
def test_thread_counts_are_sets_of_their_own(
    digests: tuple[dict[str, int], ...], unit: str, rate: Rate
) -> None:
    """Executions under another thread count are held against the first of these."""
    planned = row("torch.cumsum")
    old = [
        one
        for place, apart in enumerate(digests)
        for one in ran(
            planned,
            "off",
            drifting(4)[place],
            groups=(Group(perturbation="threads=1", executions=10, differing=0, digests=apart),),
        )
    ]
    test = rate_test("off", old, ran(planned, "off", *stable()))

    assert (unit, rate) == (test.unit, test.old)


def test_a_process_may_differ_in_a_thread_count_alone() -> None:
    """Where processes agree but under another thread count, that counts as a process that differs."""
    planned = row("torch.cumsum")
    old = [
        one
        for digest in ("t", "u")
        for one in ran(
            planned,
            "off",
            {"a": RUNS},
            groups=(Group(perturbation="threads=1", executions=10, differing=0, digests={digest: 10}),),
        )
    ]
    test = rate_test("off", old, ran(planned, "off", *stable()))

    assert ("processes", Rate(1, 1), Rate(0, 1)) == (test.unit, test.old, test.new)
