"""Memory, atomics, warps, control, barriers and tensor cores do what PTX says, and what no kernel may is an error with its place."""

import math
import re
from collections.abc import Callable, Iterable
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest

from detmatrix.scanner.gpu import sass
from detmatrix.scanner.gpu.engine import LaunchError, Result
from tests.gpu_machine import ARCHITECTURES, instructions, recorded, run
from tests.gpu_numbers import (
    FORMATS,
    M32,
    TYPES,
    Array,
    converted,
    decoded,
    encoded,
    highest,
    lookup,
    permuted,
    rounded,
    wrapped,
)

PROGRAMS = recorded("programs")[1]
RANDOM = np.random.default_rng(36)
LANES = range(32)


@pytest.fixture(autouse=True, params=ARCHITECTURES)
def architecture(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Let each test execute what ptxas makes for one architecture."""
    number: int = request.param
    monkeypatch.setitem(globals(), "PROGRAMS", recorded("programs", number)[1])
    return number


def words(count: int | tuple[int, ...], low: int = 0, high: int = 1 << 32) -> Array:
    """Return random words."""
    return RANDOM.integers(low, high, count, np.int64).astype(np.uint32)


def gives(
    expected: Any, name: str, *given: Any, behind: tuple[Any, ...] = (), kind: str = "u32", **options: Any
) -> Result:
    """Run a kernel whose results lie behind what it is given, and hold them against what is expected of it."""
    wanted = np.array(expected, TYPES[kind])
    found = np.zeros_like(wanted)
    result = run(PROGRAMS, name, *given, found, *behind, **options)
    assert found.tolist() == wanted.tolist()
    return result


def fault(name: str, *parameters: Any, **options: Any) -> LaunchError:
    """Return what is said of a launch that fails."""
    with pytest.raises(LaunchError) as caught:
        run(PROGRAMS, name, *parameters, **options)
    return caught.value


# ---- memory ----


def test_counts_in_shared_memory() -> None:
    """What ptxas makes of additions of 1: each lane counts at its place; barriers order them with what reads and clears it."""
    given = words(64, 0, 20)

    result = gives(np.bincount(given, minlength=64), "increments", given, block=64, log=True)

    assert result.pairs == (0, 0, 0)


# ---- warps ----


@pytest.mark.parametrize("mode", ["idx", "up", "down", "bfly"])
@pytest.mark.parametrize("width", [32, 16, 8, 4])
def test_shuffles(mode: str, width: int) -> None:
    """A lane gets another's value within its segment, its own beyond it, and is told which."""
    given, by, expected = words(32), words(32, 0, 40), []
    for lane in LANES:
        k, first = int(by[lane]) & 31, lane // width * width
        source = {"idx": first + k % width, "up": lane - k, "down": lane + k, "bfly": lane ^ k}[mode]
        # By PTX a butterfly may reach back beyond its segment, and an index is taken within it.
        inside = source >= first if mode == "up" else source < first + width
        expected.append([given[source if inside else lane], inside])

    gives(expected, f"shuffle_{mode}_{width}", given, by)


def mask(lanes: Iterable[int]) -> int:
    """Return the bits of lanes."""
    return sum(1 << lane for lane in lanes)


@pytest.mark.parametrize("given", [RANDOM.integers(-20, 80, 32), np.full(32, 6), np.full(32, -1)])
def test_votes(given: Array) -> None:
    """Ballot, all, any and uniform of all lanes, and those of each side of a branch."""
    yes, expected = given > 5, []
    for lane in LANES:
        side = [one for one in LANES if yes[one] == yes[lane]]
        inner = mask(one for one in side if (given[one] > 50 if yes[lane] else given[one] < 0))
        uniform = yes.all() or not yes.any()
        expected.append(
            [mask(np.flatnonzero(yes)), M32, yes.all(), yes.any(), uniform, mask(side), inner, inner]
        )

    gives(expected, "votes", given.astype(np.int32))


@pytest.mark.parametrize("same", [False, True])
def test_matches(same: bool) -> None:
    """Lanes with the same value, of all lanes and of a half of them."""
    given, wide = words(32, 0, 4), words(32, 0, 3).astype(np.uint64) << np.uint64(40)
    if same:
        given[:], wide[:] = 7, 1 << 50
    expected = []
    for lane in LANES:
        narrow, other = (mask(np.flatnonzero(of == of[lane])) for of in (given, wide))
        half, whole = narrow & (0xFFFF if lane < 16 else 0xFFFF0000), M32 * same
        expected.append([narrow, whole, other, whole, same, same, half, half])

    gives(expected, "matches", given, behind=(wide,))


def test_reductions_of_a_warp() -> None:
    """Redux of all kinds."""
    given = words(32)
    signed = given.view(np.int32)
    expected = [signed.sum(), signed.min(), signed.max(), given.min(), given.max()]
    expected += [one.reduce(given) for one in (np.bitwise_and, np.bitwise_or, np.bitwise_xor)]

    gives([[int(one) & M32 for one in expected]] * 32, "reductions", given)


def test_special_registers() -> None:
    """Where a thread is: in its block, the grid and the warp."""
    expected = []
    for at, thread in product(range(12), range(60)):
        lane = thread % 32
        place = [thread % 5, thread // 5 % 4, thread // 20, at % 3, at // 3 % 2, at // 6, lane]
        masks = [1 << lane, (1 << lane) - 1, (2 << lane) - 1, -(2 << lane) & M32, -(1 << lane) & M32]
        expected.append([*place, *masks, 0, 0, 0, 0])

    gives(expected, "specials", grid=(3, 2, 2), block=(5, 4, 3))


def test_clocks_are_told() -> None:
    """They count what was executed, and who reads one is told of."""
    found = np.zeros(4, np.uint32)

    result = run(PROGRAMS, "clocks", found)

    assert "reads a clock" in result.doubts
    assert 0 < found[0] < 100
    assert found.tolist() == sorted(found.tolist())


def test_the_first_lane_reads_what_lanes_that_are_absent_never_wrote() -> None:
    """A lane that has ended has no value: PTX leaves it undefined, so it is what nobody wrote, which the class memory changes."""
    for fill in (0x7FBA7FBA, 5):
        found = np.zeros(16, np.uint32)

        run(PROGRAMS, "from_absent_lanes", words(32), found, orders={"registers": fill})

        assert found.tolist() == [fill] * 16


# ---- control ----


# What a thread makes of its word, by kernel, and what it leaves if it ends before. Words of a switch are small.
ENDED = 123456


def _switched(k: int, value: int) -> int:
    of = [3 * k, k ^ 77, k << 5, 5 - k, k * k, ~k, k.bit_count(), int(f"{k:032b}"[::-1], 2), 99 + k]
    return of[value] & M32


def _looped(_: int, value: int) -> int:
    outer, inner, total = value & 15, value >> 4 & 7, 0
    for _ in range(outer):
        for k in range(inner + 1):
            total = (total * 3 + k) & M32
            if total == 40:
                return total
            if total & 63 == 5:
                break
        if total & 1023 == 1022:
            return ENDED
    return total


def _folded(value: int) -> int:
    signed = value - (1 << 32) if value >> 31 else value
    if signed <= 1:
        return 3
    return M32 & (_folded(value - 3 & M32) * 3 + value if value & 1 else _folded(value >> 1) - value)


def _predicated(_: int, value: int) -> int:
    total: int = sum(3 ** (k % 15) + k for k in range(24) if value >> k & 1)
    for k in range(24):
        total = total if value >> k & 1 else total * 3 + k
    return total & M32


THREADS: dict[str, tuple[int, Callable[[int, int], int]]] = {
    "switch": (96, _switched),
    "loops": (256, _looped),
    "calls": (64, lambda _, value: 7 if value >> 31 else _folded(value)),
    "predicates": (64, _predicated),
}


@pytest.mark.parametrize("paths", range(4))
@pytest.mark.parametrize("name", THREADS)
def test_what_threads_compute_on_ways_of_their_own(name: str, paths: int) -> None:
    """Under every order of paths.

    A table of branches; loops of which each lane takes its own number, leaves early or ends within; functions that call
    themselves, with barriers of convergence that are saved on a stack; more predicates than there are, kept in registers
    meanwhile.
    """
    count, of = THREADS[name]
    given, found = words(count + 1, 0, 9 if name == "switch" else 1 << 32), np.full(count, ENDED, np.uint32)
    orders = {"paths": paths, "seed": 7}

    run(PROGRAMS, name, given, found, np.zeros(1, np.uint32), block=count, orders=orders, local=4096)

    assert found.tolist() == [of(k, value) for k, value in enumerate(given[:count].tolist())]


def test_bits_to_predicates() -> None:
    """Seven bits of a register become seven predicates at once."""
    given = words(32)
    expected = [[(k + 10) * (value >> k & 1) if k < 7 else 0 for k in range(8)] for value in given.tolist()]

    gives(expected, "few_predicates", given)


@pytest.mark.parametrize("given", [*words(6).tolist(), 0, 1, M32])
def test_uniform_registers(given: int) -> None:
    """What is the same in all lanes is computed once: the value is that of the last block."""
    x = 4
    r7 = (given + x) * x & M32
    a = (r7 << 3) + given & M32
    masked = (1 << x) - 1 << min(a, 32) & M32
    turned = int(f"{masked:032b}"[::-1], 2)
    count, low = turned.bit_count(), a & 15
    sa, sm = (wrapped(one, "s32") for one in (a, masked))
    total = a * masked + sa * sm
    d8 = total << 5 & (1 << 64) - 1
    small = count ^ turned ^ highest(a, signed=False) & M32 ^ low ^ (low - 16 if low & 8 else low) & M32
    small ^= permuted(a, masked, 0x4321) ^ (a if sa > sm and r7 < count else masked)
    small ^= lookup(0xCA, a, masked, turned)
    expected = (small ^ wrapped(d8, "s64") >> 3 ^ d8 >> x) & (1 << 64) - 1

    found = np.zeros(32, np.uint64)
    run(PROGRAMS, "uniform", found, found, given, grid=x + 1)
    assert found.tolist() == [expected] * 32


@pytest.mark.parametrize("paths", range(4))
def test_lanes_wait_for_one_another(paths: int) -> None:
    """What lanes hand over behind a synchronization is what all have then; under every order of paths."""
    given = np.random.default_rng(4).integers(-9, 9, 64, np.int32)
    held = np.where(given < 0, 7, 8 + ((given & 3) + 1) * given)

    orders = {"paths": paths, "seed": 7}
    gives(held[np.arange(64) ^ 1], "meets", given, kind="s32", block=64, orders=orders)


# ---- barriers ----


def test_barriers_that_reduce() -> None:
    """A count, all and any over a block; and a count of the two warps of a barrier by number."""
    given = RANDOM.integers(-20, 80, 128).astype(np.int32)
    yes = given > 5
    expected = [[yes.sum(), yes.all(), not yes.all(), yes[k // 64 * 64 :][:64].sum()] for k in range(128)]

    gives(expected, "barriers", given, block=128)


@pytest.mark.parametrize("orders", [{}, {"warps": 1}, {"warps": 3, "seed": 5}])
def test_barriers_of_some_warps(orders: dict[str, int]) -> None:
    """Numbered barriers with counts; who has ended is not waited for; warps that come by different ways meet."""
    given = words(128)

    gives([*given[:31:-1], *[0] * 32], "staged", given, block=128, orders=orders)


# ---- what no kernel may ----


# Kernel, what it is given, threads, what is said of it; and what lets it run instead: other numbers, or fewer threads.
FAULTS: dict[str, tuple[str, tuple[Any, ...], int, str, tuple[Any, ...] | int | None]] = {
    "a word behind the last": (
        "outside", (words(31), np.zeros(4, np.uint32)), 32,
        r"^4 bytes at {end:#x} are no memory of the device \(instruction 0x", 31,
    ),
    "the last words of a vector": ("specials", (np.zeros(32 * 16 - 5, np.uint32),), 32, "no memory of the device", None),
    "a word at an odd address": ("misaligned", (words(4), np.zeros(4, np.uint32), 2), 32, "are not aligned", (4,)),
    # From sm_90 on shared memory begins with 1024 bytes of the driver.
    **{
        f"{space} memory": (f"outside_{space}", (np.zeros(4, np.uint32),) * 2 + (64 + 4096,), 32, "of (64|1088) that there are", (60,))
        for space in ("shared", "local")
    },
    "a trap": ("trap", (0,), 32, "a trap", 5),
    "an assertion": ("asserts", (0,), 32, "^an assertion failed, a call of the driver's function __assertfail", 5),
    "two barriers": ("never_met", (np.zeros(96, np.uint32),), 96, "deadlock.*barrier of the block", None),
    "two counts of threads": ("disagree", (np.zeros(96, np.uint32),), 96, "disagree about barrier 1", None),
    "one that waits and one that counts": (
        "shared_barrier_kinds", (np.zeros(64, np.uint32),) * 2, 64, "disagree about barrier 0", None,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("name", "given", "threads", "said", "instead"), FAULTS.values(), ids=FAULTS)
def test_what_no_kernel_may_do(
    name: str, given: tuple[Any, ...], threads: int, said: str, instead: tuple[Any, ...] | int | None
) -> None:
    """It is told with its place; just short of it a kernel runs."""
    own: list[Any] = [one if isinstance(one, int) else one.copy() for one in given]
    error = fault(name, *own, block=threads)

    assert error.kind == "fault"
    end = 0 if isinstance(own[0], int) else own[0].ctypes.data + own[0].nbytes
    assert re.search(said.format(end=end), str(error), re.DOTALL)
    own = [one if isinstance(one, int) else one.copy() for one in given]
    if isinstance(instead, int):
        run(PROGRAMS, name, *own, block=instead)
    elif instead:
        run(PROGRAMS, name, *own[:-1], *instead)
        assert name != "misaligned" or own[1][0] == own[0][1]


def test_an_instruction_that_is_unknown(architecture: int) -> None:
    """It is refused where it is executed; the interpreter names it by its place."""
    error = fault("tensor_cores", np.zeros(32, np.float32))

    assert error.kind == "unknown"
    assert error.line is not None
    assert instructions(PROGRAMS)["tensor_cores"][error.line][4].startswith("IMMA")
    code = PROGRAMS.kernel("tensor_cores").code
    assert sass.text_of(code, architecture, error.line).startswith("IMMA.16816.S8.S8 R")


@pytest.mark.parametrize("name", ["forever", "forever_counting"])
def test_a_kernel_that_never_ends(name: str) -> None:
    """It runs out of its time, whether it only waits or does something."""
    memory = np.zeros(4, np.uint32)

    error = fault(name, memory, memory[1:], seconds=0.3)

    assert error.kind == "timeout"
    assert re.search(r"warp \d+ of block \d+ runs, of 1 warps that have begun 0 wait for others", str(error))


# ---- tensor cores, bit for bit as they were found to compute ----


def product_of(depth: int, kind: str, added: str, *given: Array) -> Array:
    """Return what lanes are given of a product, as PTX's pictures of fragments place what they hold."""
    a, b, c = (Array.copy(one) for one in given)  # 16 x depth, depth x 8, 16 x 8, bits
    each, group = (1, 4) if kind == "tf32" else (2, 8)
    row, at = np.divmod(np.arange(32), 4)

    def held(of: Array, places: list[tuple[Array, Array]], halves: bool) -> Array:
        taken = np.stack([of[place].astype(np.uint32) for place in places], 1)
        return np.ascontiguousarray(taken[:, ::2] | taken[:, 1::2] << 16 if halves else taken)

    starts, steps = range(0, depth, group), range(each)
    left = [(row + below, each * at + k + start) for start in starts for below in (0, 8) for k in steps]
    right = [(each * at + k + start, row) for start in starts for k in steps]
    sums = [(row + below, 2 * at + k) for below in (0, 8) for k in (0, 1)]
    words = held(c, sums, added != "f32")
    given = held(a, left, each == 2), held(b, right, each == 2)
    run(PROGRAMS, f"product_{depth}_{kind}_{added}", *given, words)
    for n, place in enumerate(sums):
        c[place] = words[:, n] if added == "f32" else words[:, n // 2] >> 16 * (n % 2) & 0xFFFF
    return c


def published(terms: list[tuple[float, float]], c: float, added: str, kind: str, architecture: int) -> float:
    """Return what MMA-Sim (arXiv 2511.10909) says of a row and a column, by fractions."""
    below, block = (25, 32) if architecture >= 90 else (24, 16)
    block //= 4 if kind == "tf32" else 2
    lowest = FORMATS.get(kind, FORMATS["f32"])[1]
    for start in range(0, len(terms), block):
        part = terms[start : start + block]
        exponents = [sum(max(math.frexp(one)[1] - 1, lowest) for one in pair) for pair in part if all(pair)]
        exponents += [max(math.frexp(c)[1] - 1, FORMATS[added][1])] if c else []
        last = Fraction(2) ** (max([*exponents, -126]) - below)
        values = [Fraction(c), *(Fraction(x) * Fraction(y) for x, y in part)]
        total = sum(math.trunc(one / last) for one in values) * last
        c = rounded(total, added, "rz" if added == "f32" else "rn")
    return c


def matrix(rows: int, columns: int, kind: str, spread: int) -> Array:
    """Return bits of random numbers of both signs, whose exponents differ by so much."""
    numbers = RANDOM.normal(size=(rows, columns)) * np.exp2(RANDOM.integers(-spread, 1, (rows, columns)))
    numbers[RANDOM.random((rows, columns)) < 0.1] = 0
    of = "f32" if kind == "tf32" else kind
    bits = np.array([encoded(converted(one, of), of) for one in numbers.ravel().tolist()])
    found: Array = bits.astype(TYPES[of]).reshape(rows, columns)
    return found & np.uint32(M32 << 13 & M32) if kind == "tf32" else found


@pytest.mark.parametrize("spread", [2, 30])
@pytest.mark.parametrize("name", [one for one in PROGRAMS.kernels if one.startswith("product_")])
def test_products_of_tensor_cores(architecture: int, name: str, spread: int) -> None:
    """Bit for bit what was published of the A100, the H100 and the B200."""
    _, columns_of_a, kind, added = name.split("_")
    depth = int(columns_of_a)
    of = "f32" if kind == "tf32" else kind
    a, b, c = (matrix(*shape, spread) for shape in ((16, depth, kind), (depth, 8, kind), (16, 8, added)))

    found = product_of(depth, kind, added, a, b, c)

    rows, columns = ([decoded(one.astype(TYPES[of]), of) for one in of_one] for of_one in (a, b.T))
    for row, column in product(range(16), range(8)):
        terms = list(zip(rows[row], columns[column], strict=True))
        old = decoded(c[row, column : column + 1].astype(TYPES[added]), added)[0]
        assert found[row, column] == encoded(published(terms, old, added, kind, architecture), added)


def test_what_tensor_cores_cut_off(architecture: int) -> None:
    """One bit below the last of the result on an A100, two on an H100 or a B200, which adds sixteen products at once; and no number is made canonical."""
    ones, tiny = np.full((16, 16), 0x3C00, np.uint16), np.zeros((16, 8), np.uint16)
    c = np.full((16, 8), 0x3F800000, np.uint32)
    tiny[[0, 1], 0] = tiny[[0, 8], 1] = 1  # each 2^-24
    ones[1, 0], ones[2, 0] = 0x7C00, 0x7E00  # an infinity, which meets 0 in the other columns, and a NaN

    found = product_of(16, "f16", "f32", ones, tiny, c)

    assert found[0].tolist() == [0x3F800001, 0x3F800000 + (architecture >= 90), *[0x3F800000] * 6]
    assert found[1].tolist() == [0x7F800000, 0x7F800000, *[0x7FFFFFFF] * 6]
    assert set(found[2].tolist()) == {0x7FFFFFFF}


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("across", ["", "_trans"])
def test_matrices_of_shared_memory(count: int, across: str) -> None:
    """A lane gets two neighbours of a row, or of a column, of each matrix."""
    given, found = RANDOM.integers(0, 1 << 16, (4, 8, 8), np.uint16), np.zeros((32, 4), np.uint32)

    run(PROGRAMS, f"matrices_{count}{across}", given, found)

    of = given.transpose(0, 2, 1) if across else given
    pairs = np.ascontiguousarray(of).view(np.uint32).reshape(4, 32)
    assert found[:, :count].tolist() == pairs[:count].T.tolist()
