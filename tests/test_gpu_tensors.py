"""Tensor cores, bit for bit as they were found to compute, and the matrices that they take from shared memory."""

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from tests.gpu_machine import ARCHITECTURES, recorded, run
from tests.gpu_numbers import FORMATS, TYPES, Array, converted, decoded, encoded, rounded
from tests.gpu_programs import PRODUCTS

RANDOM = np.random.default_rng(46)
pytestmark = pytest.mark.parametrize("architecture", ARCHITECTURES)


def product_of(architecture: int, depth: int, kind: str, added: str, *given: Array) -> Array:
    """Return what lanes are given of a product, as PTX's pictures of fragments place what they hold."""
    a, b, c = (Array.copy(one) for one in given)  # 16 x depth, depth x 8, 16 x 8, bits
    lanes, steps = np.arange(32), (1, 4) if kind == "tf32" else (2, 8)
    row, at = lanes // 4, lanes % 4

    def held(of: Array, places: list[tuple[Array, Array]], each: int) -> Array:
        taken = np.stack([of[place].astype(np.uint32) for place in places], 1)
        return np.ascontiguousarray(taken if each == 1 else taken[:, ::2] | taken[:, 1::2] << 16)

    each, group = steps
    within = [(k, start) for start in range(0, depth, group) for k in range(each)]
    left = [
        (row + below, each * at + k + start)
        for start in range(0, depth, group)
        for below in (0, 8)
        for k in range(each)
    ]
    right = [(each * at + k + start, row) for k, start in within]
    sums = [(row + below, 2 * at + k) for below in (0, 8) for k in (0, 1)]
    words = held(c, sums, 1 if added == "f32" else 2)
    _, programs = recorded("programs", architecture)
    run(programs, f"product_{depth}_{kind}_{added}", held(a, left, each), held(b, right, each), words)
    for n, place in enumerate(sums):
        c[place] = words[:, n] if added == "f32" else words[:, n // 2] >> 16 * (n % 2) & 0xFFFF
    return c


def published(terms: list[tuple[float, float]], c: float, added: str, kind: str, architecture: int) -> float:
    """Return what MMA-Sim (arXiv 2511.10909) says of a row and a column, by fractions."""
    below, block = (25, 32) if architecture >= 90 else (24, 16)
    block //= 4 if kind == "tf32" else 2
    lowest = FORMATS.get(kind, FORMATS["f32"])[1]
    for start in range(0, len(terms), block):
        exponents = [
            sum(max(math.frexp(one)[1] - 1, lowest) for one in pair)
            for pair in terms[start : start + block]
            if all(pair)
        ]
        exponents += [max(math.frexp(c)[1] - 1, FORMATS[added][1])] if c else []
        last = Fraction(2) ** (max([*exponents, -126]) - below)
        values = [Fraction(x) * Fraction(y) for x, y in terms[start : start + block]]
        c = rounded(
            sum(math.trunc(one / last) for one in [*values, Fraction(c)]) * last,
            added,
            "rz" if added == "f32" else "rn",
        )
    return c


def matrix(rows: int, columns: int, kind: str, spread: int) -> Array:
    """Return bits of random numbers of both signs, whose exponents differ by so much."""
    numbers = RANDOM.normal(size=(rows, columns)) * np.exp2(RANDOM.integers(-spread, 1, (rows, columns)))
    numbers[RANDOM.random((rows, columns)) < 0.1] = 0
    of = "f32" if kind == "tf32" else kind
    bits = np.array([encoded(converted(one, of), of) for one in numbers.ravel().tolist()])
    found: Array = bits.astype(TYPES[of]).reshape(rows, columns) & TYPES[of].type(
        -1 << 13 & 0xFFFFFFFF if kind == "tf32" else (1 << 8 * TYPES[of].itemsize) - 1
    )
    return found


@pytest.mark.parametrize("spread", [2, 30])
@pytest.mark.parametrize(("depth", "kind", "added"), PRODUCTS)
def test_products_of_tensor_cores(architecture: int, depth: int, kind: str, added: str, spread: int) -> None:
    """Bit for bit what was published of the A100, the H100 and the B200."""
    of = "f32" if kind == "tf32" else kind
    a, b, c = (matrix(*shape, spread) for shape in ((16, depth, kind), (depth, 8, kind), (16, 8, added)))

    found = product_of(architecture, depth, kind, added, a, b, c)

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

    found = product_of(architecture, 16, "f16", "f32", ones, tiny, c)

    assert found[0].tolist() == [
        0x3F800001,
        0x3F800001 if architecture >= 90 else 0x3F800000,
        *[0x3F800000] * 6,
    ]
    assert found[1].tolist() == [0x7F800000, 0x7F800000, *[0x7FFFFFFF] * 6]
    assert set(found[2].tolist()) == {0x7FFFFFFF}


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("across", ["", "_trans"])
def test_matrices_of_shared_memory(architecture: int, count: int, across: str) -> None:
    """A lane gets two neighbours of a row, or of a column, of each matrix."""
    given, found = RANDOM.integers(0, 1 << 16, (4, 8, 8), np.uint16), np.zeros((32, 4), np.uint32)

    run(recorded("programs", architecture)[1], f"matrices_{count}{across}", given, found)

    of = given.transpose(0, 2, 1) if across else given
    pairs = np.ascontiguousarray(of).view(np.uint32).reshape(4, 32)
    assert found[:, :count].tolist() == pairs[:count].T.tolist()
