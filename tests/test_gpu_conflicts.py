"""The conflict log of the simulated GPU, and one pair of accesses swapped: on kernels whose answer is known."""

from __future__ import annotations

import ctypes
import struct
from functools import cache
from typing import Any

import numpy as np
import pytest

from detmatrix.scanner.gpu.cubin import Cubin, cubins
from detmatrix.scanner.gpu.engine import Conflict, Orders, Result
from tests.conftest import table
from tests.gpu_machine import DATA
from tests.gpu_machine import run as execute

FLOATS = [1.0, 1e7, -1e7, 0.5, 3.25, 1e-3, 7.0, -2.5]
REVERSED, FIRST_LAST = 1, 3


@cache
def module() -> Cubin:
    (found,) = cubins((DATA / "conflicts.fatbin").read_bytes(), 80)
    found.place(0)
    return found


def run(
    name: str,
    grid: int,
    block: int,
    values: list[float],
    *,
    orders: Orders = Orders(),  # noqa: B008 - a tuple
    log: bool = True,
    swap: Conflict | None = None,
    watch: tuple[Conflict, ...] = (),
    start: float = 0.0,
) -> tuple[bytes, Result]:
    """Launch a kernel with a few floats, and return what it left in its first argument."""
    out = np.zeros(max(64, grid), np.float32)
    out[0] = start
    where: dict[str, Any] = {"grid": grid, "block": block, "orders": orders._asdict()}
    given = np.array(values, np.float32)
    result = execute(module(), name, out, given, **where, log=log, swap=swap, watch=watch)
    return out.tobytes(), result


RACING = {
    name: (int(grid), int(block), scope) for name, grid, block, scope in table("gpu/tables.txt", "racing")
}


@pytest.mark.parametrize("name", RACING)
def test_accesses_that_nothing_orders_are_found(name: str) -> None:
    """Each kernel has conflicts between the threads that its name says."""
    grid, block, scope = RACING[name]
    _, result = run(name, grid, block, (FLOATS * 16)[: max(grid, block)])

    found = dict(zip(("blocks", "warps", "lanes"), result.pairs, strict=True))
    assert found[scope] > 0
    assert {one.scope for one in result.conflicts} >= {scope}


@pytest.mark.parametrize(
    "values", [[1.5 * 2.0**-126, -(2.0**-126), 2.0**-126], [2.0**127, 2.0**127, -(2.0**127)]]
)
def test_sums_beyond_the_normal_numbers_are_not_exact(values: list[float]) -> None:
    """Terms of few digits: what is flushed, or infinite, on the way is lost in one order and not in another."""
    bits, result = run("add_by_blocks", 3, 32, values)

    assert result.pairs[0] > 0
    assert run("add_by_blocks", 3, 32, values, orders=Orders(blocks=REVERSED))[0] != bits


@pytest.mark.parametrize(
    ("name", "grid", "block", "values"),
    [
        ("reduce", 2, 256, FLOATS * 32),
        ("exchange", 1, 32, FLOATS * 4),
        ("count", 1, 64, FLOATS * 8),
        ("halves", 1, 64, [float(one) for one in range(64)]),
        ("add_by_blocks", 8, 32, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]),
        ("store_by_blocks", 8, 32, [2.5] * 8),
    ],
)
def test_what_is_ordered_or_commutes_is_no_conflict(
    name: str, grid: int, block: int, values: list[float]
) -> None:
    """Barriers, integers nobody reads, sums that are exact in every order, equal stores, neighbours in a word."""
    bits, result = run(name, grid, block, values)

    assert result.pairs == (0, 0, 0)
    assert result.conflicts == ()
    for orders in (Orders(blocks=REVERSED), Orders(warps=REVERSED), Orders(lanes=REVERSED)):
        assert run(name, grid, block, values, orders=orders)[0] == bits


def test_what_came_long_ago_is_known() -> None:
    """Of more accesses than the log has room for it keeps those that a place was last reached by: the last block reads of the first."""
    _, result = run("read_and_write", 25_000, 32, [float(one) for one in range(25_000)])

    assert result.pairs == (25_000, 0, 0)


def test_two_additions_onto_zero_are_too_few_to_show_an_order() -> None:
    """They commute; onto anything else they do not."""
    _, onto_zero = run("add_by_blocks", 2, 32, [0.1, 0.7])
    _, onto_one = run("add_by_blocks", 2, 32, [0.1, 0.7], start=1.0)

    assert (onto_zero.pairs, onto_zero.tame) == ((0, 0, 0), 1)
    assert (onto_one.pairs, onto_one.tame) == ((1, 0, 0), 0)


@pytest.mark.parametrize("name", [*RACING][:6])
def test_one_swapped_pair_gives_other_bits(name: str) -> None:
    """The log names two accesses; these alone in the other order change what comes out, the same way each time."""
    grid, block, _ = RACING[name]
    bits, result = run(name, grid, block, FLOATS)

    found, again = (
        {run(name, grid, block, FLOATS, log=False, swap=one)[0] for one in result.conflicts} for _ in range(2)
    )

    assert found - {bits}
    assert found == again


@pytest.mark.parametrize("name", ["add_by_blocks", "add_by_warps", "add_by_lanes", "read_and_write"])
def test_it_is_told_which_pairs_came_in_the_other_order(name: str) -> None:
    """All of them in the reverse order, some with the first held up, none canonically; and a pair that is swapped, alone."""
    grid, block, free = RACING[name]
    pairs = run(name, grid, block, FLOATS)[1].conflicts

    def came(order: int) -> list[bool]:
        orders = Orders(**{free: order})
        found = run(name, grid, block, FLOATS, orders=orders, log=False, watch=pairs)[1]
        return [swapped for swapped, _ in found.watched]

    assert came(0) == [False] * len(pairs)
    assert all(came(REVERSED))
    assert any(came(FIRST_LAST)) is (name == "read_and_write")
    for one in pairs:
        ((swapped, _),) = run(name, grid, block, FLOATS, log=False, swap=one)[1].watched
        assert swapped


def test_values_of_a_swapped_pair_are_held_to_the_log() -> None:
    """It is alone if the second finds what the first had found; behind others that came in between it is not."""
    _, result = run("add_by_blocks", 8, 32, FLOATS)
    (pair,) = result.conflicts

    apart = pair._replace(blocks=(pair.blocks[0] - 2, pair.blocks[1]), old=pair.old + 1)
    assert run("add_by_blocks", 8, 32, FLOATS, log=False, swap=pair)[1].watched == ((True, True),)
    assert run("add_by_blocks", 8, 32, FLOATS, log=False, swap=apart)[1].watched == ((True, False),)


def test_a_swap_that_cannot_happen_ends() -> None:
    """The second of a chain of blocks waits for the first, which is held up for it."""
    bits, result = run("chain", 8, 32, FLOATS)

    for one in result.conflicts:
        assert run("chain", 8, 32, FLOATS, log=False, swap=one)[0] == bits


def test_values_of_a_pair_can_be_computed_by_hand() -> None:
    """What the first found, and what both added, stand in the log."""
    bits, result = run("add_by_blocks", 3, 32, [6.88, 0.12, 4.06])

    (pair,) = result.conflicts
    old, first, second = (struct.unpack("<f", struct.pack("<I", one))[0] for one in (pair.old, *pair.values))

    assert pair.kinds == ("float add", "float add")
    assert (
        struct.unpack("<f", bits[:4])[0] == ctypes.c_float(ctypes.c_float(old + first).value + second).value
    )
