"""Orders of blocks, warps, lanes and paths: each class changes its own alone, the same seed gives the same, and who spins ends."""

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np
import pytest

from detmatrix.scanner.gpu.engine import LaunchError, orders_of
from tests.gpu_machine import ARCHITECTURES, recorded, run

_, PROGRAMS = recorded("programs")
FREE = ("resident-blocks", "warps", "both", "any-blocks", "lanes", "divergence")
CLASSES = ("canonical", "memory", *FREE)
# Sums of these depend on their order, also of three: the ends cancel, and 1 is lost beside them.
TERMS = np.array([2.0**24, 1.0, -(2.0**24), 3.0, 2.0**-3, 7.0, 2.0**25, -5.0], np.float32)


def orders(name: str, number: int, seed: int = 5, ordinal: int = 0) -> dict[str, int]:
    """Return the orders of an execution of a class."""
    return orders_of(name, number, seed, ordinal)._asdict()


def memory_after(name: str, of: dict[str, int], grid: int, block: int, resident: int = 1 << 20) -> bytes:
    """Return what a kernel leaves in memory that its parameters b and c are."""
    given, found = np.resize(TERMS, 256), np.zeros(256, np.uint32)
    if name.startswith("order_of"):
        given = np.zeros(1, np.float32)
    run(PROGRAMS, name, given, found, grid=grid, block=block, orders=of, resident=resident)
    return found.tobytes()


def first(name: str, of: dict[str, int], grid: int, block: int, count: int) -> list[int]:
    """Return the first words that a kernel leaves."""
    found: list[int] = np.frombuffer(memory_after(name, of, grid, block), np.uint32)[:count].tolist()
    return found


# Kernels by what alone decides their result, with grid and block.
DEPENDS: dict[str, tuple[set[str], int, int]] = {
    "sum_of_blocks": ({"resident-blocks", "both", "any-blocks"}, 3, 32),
    "sum_of_warps": ({"warps", "both"}, 1, 96),
    "sum_of_lanes": ({"lanes"}, 1, 32),
    "last_block": ({"resident-blocks", "both", "any-blocks"}, 3, 32),
    "last_warp": ({"warps", "both"}, 1, 96),
    "last_lane": ({"lanes"}, 1, 32),
    "last_path": ({"divergence"}, 1, 32),
    "unwritten": ({"memory"}, 1, 32),
}


@pytest.mark.parametrize("kernel", DEPENDS)
def test_each_class_changes_its_own_order_alone(kernel: str) -> None:
    """A kernel differs in exactly the classes whose order it depends on."""
    classes, grid, block = DEPENDS[kernel]
    canonical = memory_after(kernel, orders("canonical", 0), grid, block)

    differs = {
        name
        for name in CLASSES
        for number in range(8)
        if memory_after(kernel, orders(name, number), grid, block) != canonical
    }

    assert differs == classes


ODD = [*range(1, 40, 2), *range(0, 40, 2)]


@pytest.mark.parametrize(
    ("kernel", "name", "number", "grid", "block", "expected"),
    [
        ("order_of_blocks", "canonical", 0, 200, 64, range(200)),
        ("order_of_warps", "canonical", 0, 1, 1024, range(32)),
        ("last_lane", "canonical", 0, 2, 64, [63]),
        ("order_of_blocks", "resident-blocks", 0, 40, 32, range(39, -1, -1)),
        ("order_of_warps", "warps", 0, 1, 1024, range(31, -1, -1)),
        ("last_lane", "lanes", 0, 1, 32, [0]),
        ("order_of_blocks", "resident-blocks", 1, 40, 32, ODD),
        ("order_of_warps", "warps", 1, 1, 1024, [one for one in ODD if one < 32]),
        ("last_lane", "lanes", 1, 1, 32, [30]),
        ("order_of_blocks", "resident-blocks", 3, 40, 32, [*range(1, 40), 0]),
        ("order_of_warps", "warps", 3, 1, 1024, [*range(1, 32), 0]),
        ("last_lane", "lanes", 3, 1, 32, [0]),
    ],
)
def test_directed_executions_come_before_those_that_draw(
    kernel: str, name: str, number: int, grid: int, block: int, expected: Sequence[int]
) -> None:
    """The canonical order ascends; the first execution of a class swaps every pair, so that accesses in conflict are seen at once.

    Then come odd ones before even ones, switches, for a lost update shows in them alone, and the first behind all others.
    """
    assert first(kernel, orders(name, number), grid, block, len(expected)) == [*expected]


@pytest.mark.parametrize("name", FREE)
def test_the_same_seed_gives_the_same(name: str) -> None:
    """Whatever is drawn is drawn from class, number, seed and launch alone."""
    kernel, grid, block = ("order_of_warps", 1, 1024) if name == "warps" else ("order_of_blocks", 60, 64)
    for number in range(4):
        once, again = (memory_after(kernel, orders(name, number), grid, block) for _ in range(2))
        assert once == again
    if name in {"resident-blocks", "warps", "both", "any-blocks"}:
        drawn = [orders(name, 4, seed, ordinal) for seed in range(3) for ordinal in range(2)]
        assert len({memory_after(kernel, of, grid, block) for of in drawn}) == 6


def test_orders_that_are_drawn_reach_every_pair() -> None:
    """Within a few executions each of two blocks has been before the other."""
    found = [first("order_of_blocks", orders("resident-blocks", number), 6, 32, 6) for number in range(12)]

    before = {(a, b) for order in found for at, a in enumerate(order) for b in order[at + 1 :]}
    assert len(before) == 30


# ---- blocks ----


def test_more_blocks_than_65536_threads() -> None:
    """Each knows its own number, far beyond the first ones."""
    found = np.zeros(70000 * 2, np.uint32)

    run(PROGRAMS, "everybody", found, grid=70000, block=2, resident=216)

    assert (found == np.repeat(np.arange(70000), 2)).all()


@pytest.mark.parametrize("limit", [1, 3, 8])
@pytest.mark.parametrize("name", ["canonical", "resident-blocks", "both"])
def test_no_more_blocks_are_resident_than_the_device_holds(limit: int, name: str) -> None:
    """They enter in the order of their number as others end, and as many as there is room for are there at once."""
    most = 0
    for number in range(6):
        counts = np.zeros(2, np.uint32)
        of: dict[str, Any] = {"orders": orders(name, number), "resident": limit}
        run(PROGRAMS, "residents", counts, np.zeros(1, np.uint32), grid=30, **of)
        assert counts[0] == 0
        assert counts[1] <= limit
        most = max(most, int(counts[1]))
    assert most == 1 if name == "canonical" or limit == 1 else most > limit // 2


@pytest.mark.parametrize("number", range(4))
def test_blocks_become_resident_in_the_order_of_their_numbers(number: int) -> None:
    """A block begins only when no more than the limit of those before it have not ended; under any-blocks that is free."""

    def came(name: str) -> list[int]:
        found, of = np.zeros(60, np.uint32), orders(name, number)
        run(PROGRAMS, "order_of_blocks", np.zeros(1, np.uint32), found, grid=60, orders=of, resident=5)
        blocks: list[int] = found.tolist()
        return blocks

    assert all(block <= at + 4 for at, block in enumerate(came("resident-blocks")))
    assert any(block > at + 4 for at, block in enumerate(came("any-blocks")))


# ---- kernels that spin ----


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("name", CLASSES)
def test_kernels_that_spin_end(name: str, seed: int) -> None:
    """A look-back by flags, locks within a warp and across blocks, a barrier of the whole grid, flags between warps."""
    for number in range(3):
        of: dict[str, Any] = {"orders": orders(name, number, seed), "seconds": 20.0}
        for blocks in (1, 40):
            flags = np.zeros((blocks, 2), np.uint32)
            run(PROGRAMS, "look_back", flags, grid=blocks, block=64, **of)
            assert flags[-1].tolist() == [1, blocks * (blocks - 1) // 2]
        for kernel in ("lock", "patient_lock"):
            lock, count = np.zeros(1, np.uint32), np.zeros(1, np.uint32)
            run(PROGRAMS, kernel, lock, count, grid=4, block=40, **of)
            assert (lock[0], count[0]) == (0, 160)
        arrived, left = np.zeros(1, np.uint32), np.zeros(1, np.uint32)
        run(PROGRAMS, "grid_barrier", arrived, left, grid=20, block=64, **of)
        assert (arrived[0], left[0]) == (20, 1280)
        woken = np.zeros(1, np.uint32)
        run(PROGRAMS, "warp_flags", woken, block=256, **of)
        assert woken[0] == 7


def test_who_waits_by_the_clock_ends() -> None:
    """It never comes back to its state, and gives way after its turn, which is long."""
    flag, seen = np.zeros(1, np.uint32), np.zeros(1, np.uint32)

    run(PROGRAMS, "by_the_clock", flag, seen, grid=2, block=1, seconds=60.0)

    assert seen[0] == 7


def test_who_spins_costs_little() -> None:
    """A warp that waits is seen to wait, and does not use up its turn: reverse order is the worst for a look-back."""
    flags = np.zeros((400, 2), np.uint32)

    result: Any = run(PROGRAMS, "look_back", flags, grid=400, block=32, orders=orders("resident-blocks", 0))

    assert flags[-1, 1] == 400 * 399 // 2
    assert result.steps < 2_000_000


def test_256_bits() -> None:
    """The B200 reads and writes twice as much, held against what is allocated and aligned to its size."""
    _, programs = recorded("programs", 100)
    memory = np.zeros((2, 64 * 8 + 8), np.float32)
    given, found = (one[-one.ctypes.data % 32 // 4 :][: 64 * 8].reshape(64, 8) for one in memory)
    given[:] = np.random.default_rng(46).normal(size=(64, 8))

    run(programs, "wide", given, found, 0, block=64)

    assert (found == given).all()
    with pytest.raises(LaunchError, match=r"32 bytes at global address .* are not aligned"):
        run(programs, "wide", given.reshape(-1)[4:], found, 0, block=1)
    with pytest.raises(LaunchError, match=r"32 bytes at .* are no memory of the device"):
        run(programs, "wide", given.reshape(-1)[:4], found, 0, block=1)


@pytest.mark.parametrize("architecture", ARCHITECTURES[1:])
def test_additions_of_what_shared_memory_holds(architecture: int) -> None:
    """The H100 and the B200 copy to shared memory and add to global memory by themselves; blocks do so in any order."""
    _, programs = recorded("programs", architecture)
    random = np.random.default_rng(46)
    given = random.normal(size=(3, 128)).astype(np.float32)
    start = random.normal(size=128).astype(np.float32)
    for order, of in ((0, given), (1, given[::-1])):
        added, copied = start.copy(), np.zeros((3, 128), np.float32)

        how: dict[str, Any] = {"grid": 3, "block": 128, "orders": {"blocks": order}}
        result = run(programs, "bulk", given, added, copied, log=True, **how)

        assert (copied == given).all()
        assert (added == reduce(np.add, of, start)).all()
        assert result.pairs == (256, 0, 0)
        assert result.conflicts[0].kinds == ("float add", "float add")
        assert result.doubts == ("copies asynchronously",)

    by_warp = given.reshape(-1, 32)[:4]
    added, copied = start[:32].copy(), np.zeros((4, 32), np.float32)
    run(programs, "bulk_of_warps", by_warp, added, copied, block=128)
    assert (copied == by_warp).all()
    assert (added == reduce(np.add, by_warp, start[:32])).all()
