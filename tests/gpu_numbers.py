"""What an operation of a GPU should give, by Python's integers and fractions: numbers as bits, edges, rounding.

For the tables of operations (``tests/data/gpu/opcodes.txt``) and of programs.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from itertools import product
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
THREADS = 1024
M32 = 0xFFFFFFFF
TABLE = [(37 * k + 11 + k * k) % 256 for k in range(128)]  # bytes of constants
# By PTX's name: how it lies in memory.
_INTEGERS = {
    f"{kind}{bits}": f"{sign}int{bits}" for kind, sign in (("s", ""), ("u", "u")) for bits in (8, 16, 32, 64)
}
_BITS = {"f16": 16, "f32": 32, "f64": 64, "bf16": 16} | dict.fromkeys(
    ("f16x2", "bf16x2", "s16x2", "u16x2"), 32
)
TYPES = {
    kind: np.dtype(name) for kind, name in (_INTEGERS | {one: f"uint{_BITS[one]}" for one in _BITS}).items()
}
# Bits of the fraction, least and greatest exponent.
FORMATS = {"f16": (10, -14, 15), "bf16": (7, -126, 127), "f32": (23, -126, 127), "f64": (52, -1022, 1023)}
_NUMPY = {"f16": "float16", "f32": "float32", "f64": "float64"}
ROUND: dict[str, Callable[[Any], int]] = {
    "rni": round,
    "rzi": math.trunc,
    "rmi": math.floor,
    "rpi": math.ceil,
}
# What an operation yields that has no number for a result; the engine keeps no payload of a double's NaN.
NAN = {"f16": 0x7FFF, "bf16": 0x7FFF, "f32": 0x7FFFFFFF, "f64": 0x7FFFFFFFFFFFFFFF}


# ---- numbers ----


def decoded(bits: Array, kind: str) -> list[Any]:
    """Return Python's numbers of an array; of packed types pairs."""
    if kind.endswith("x2"):
        words = bits.view(np.uint32)
        return [
            *zip(
                *(decoded(one.astype(np.uint16), kind[:-2]) for one in (words & 0xFFFF, words >> 16)),
                strict=True,
            )
        ]
    if kind == "bf16":
        found: list[Any] = (bits.astype(np.uint32) << 16).view(np.float32).tolist()
    else:
        found = bits.view(np.dtype(_NUMPY.get(kind, TYPES[kind]))).tolist()
    return found


def encoded(value: Any, kind: str) -> int:
    """Return the bits of a number, or of a pair, that a type holds exactly."""
    if kind.endswith("x2"):
        return encoded(value[0], kind[:-2]) | encoded(value[1], kind[:-2]) << 16
    if kind not in FORMATS:
        return int(value) & (1 << bits(kind)) - 1
    if math.isnan(value):
        return NAN[kind]
    if kind == "bf16":
        return int(np.float32(value).view(np.uint32)) >> 16
    with np.errstate(all="ignore"):
        return int(np.dtype(_NUMPY[kind]).type(value).view(TYPES[kind]))


def _integers(bits: int) -> Array:
    found = {*range(4), 5, 7, *range(31, 34), *range(63, 66), 127, 128, 255}
    found |= {0x7FFF, 0x8000, 0xFFFF, 0x10000, 0x55555555, 0xAAAAAAAA}
    found |= {(1 << bits) - 1 - one for one in (0, 1, 2, 31, 32)}
    found |= {(1 << (bits - 1)) + one for one in (-1, 0, 1)}
    # In the middle between two numbers of bfloat16, but for the last bit.
    middles = [(top << bits >> 16) + one for top in (0x8080, 0x4040, 0x40C0) for one in (-1, 0, 1)]
    found |= {*middles, *(-one for one in middles)}
    found |= {0xFFFFFFFF, 0x100000000, 0x123456789ABCDEF, 0x7FFFFFFFFFFFFFFF}
    return np.array(sorted({one & (1 << bits) - 1 for one in found}), f"uint{bits}")


@cache
def edges(kind: str) -> Array:
    """Return the bits at which operations on a type go wrong."""
    if kind.endswith("x2"):
        half = edges(kind[:-2]).astype(np.uint32)
        return half | half[::-1] << 16
    if kind not in FORMATS:
        return _integers(8 * TYPES[kind].itemsize).view(TYPES[kind])
    fraction, least, most = FORMATS[kind]
    values = [*(one / 2 for one in range(7)), 7, 1 / 3, 0.1, math.pi, 126, 127.5, 128, 255, 256]
    values += [32767.5, 65504, 65519.99, 65520]
    powers = (-24, -25, -40, 15, 16, 24, 31, 32, 53, 63, 64, 100, -100)
    values += [2.0**one for one in powers if least < one <= most]
    values += [2.0**24 + 1, 2.0**31 - 1, 2.0**53 + 1, 1e-7, 1e-5, 1e-38, 1e38, 1e300, 1e-300]
    normal, denormal = 2.0**least, 2.0 ** (least - fraction)
    values += [normal, denormal, normal - denormal, 1 + 2.0**-fraction, largest(kind)]
    found = [encoded(converted(value, kind), kind) for value in values]
    found += [encoded(math.inf, kind), NAN[kind]]
    sign = 1 << (8 * TYPES[kind].itemsize - 1)
    return np.unique(np.array([*found, *(one | sign for one in found)], TYPES[kind]))


@cache
def inputs(kinds: tuple[str, ...]) -> tuple[Array, ...]:
    """Return the inputs of a signature: edges with one another, and random bits, and random numbers of ordinary size."""
    random = np.random.default_rng(sum(map(ord, "".join(kinds))))
    pairs = list(product(*(range(len(edges(kind))) for kind in kinds))) if len(kinds) <= 2 else []
    random.shuffle(pairs)
    found = []
    for place, kind in enumerate(kinds):
        dtype = TYPES[kind]
        bits = np.frombuffer(random.bytes(THREADS * dtype.itemsize), dtype).copy()
        if kind in FORMATS:
            ordinary = random.normal(size=THREADS) * 10.0 ** random.integers(-3, 4, THREADS)
            ordinary = np.array([encoded(converted(one, kind), kind) for one in ordinary.tolist()], dtype)
            bits = np.where(random.random(THREADS) < 0.5, ordinary, bits)
        elif dtype.itemsize >= 4 and not kind.endswith("x2"):
            small = random.integers(0, 100, THREADS).astype(dtype)
            bits = np.where(random.random(THREADS) < 0.3, small, bits)
        edge, count = edges(kind), 2 * THREADS // 3
        chosen = [pair[place] for pair in pairs[:count]] or random.integers(0, len(edge), count).tolist()
        bits[: len(chosen)] = edge[chosen]
        found.append(bits)
    return tuple(found)


# ---- what IEEE 754 says ----


def largest(kind: str) -> float:
    """Return the largest number of a format."""
    fraction, _, most = FORMATS[kind]
    return float((2 - Fraction(2) ** -fraction) * Fraction(2) ** most)


def rounded(value: Fraction, kind: str, how: str = "rn") -> float:
    """Return a number that is not 0 rounded once to a format, as PTX names the direction."""
    fraction, least, most = FORMATS[kind]
    exponent = abs(value.numerator).bit_length() - value.denominator.bit_length() - 1
    exponent += abs(value) >= Fraction(2) ** (exponent + 1)
    unit = Fraction(2) ** (max(exponent, least) - fraction)
    found, sign = ROUND[f"{how}i"](value / unit) * unit, 1 if value > 0 else -1
    if abs(found) >= Fraction(2) ** (most + 1):
        stays = how == "rz" or (how == "rm" and value > 0) or (how == "rp" and value < 0)
        return sign * (largest(kind) if stays else math.inf)
    return math.copysign(float(found), sign)


def fused(a: float, b: float, c: float, kind: str, how: str = "rn") -> float:
    """Return a * b + c rounded once."""
    if math.isnan(a) or math.isnan(b) or math.isnan(c):
        return math.nan
    sign = math.copysign(1, a) * math.copysign(1, b)
    if math.isinf(a) or math.isinf(b):
        return math.nan if 0 in {a, b} or c == -sign * math.inf else sign * math.inf
    if math.isinf(c):
        return c
    value = Fraction(a) * Fraction(b) + Fraction(c)
    if value:
        return rounded(value, kind, how)
    if not c and sign == math.copysign(1, c):
        return c
    return -0.0 if how == "rm" else 0.0


def added(a: float, b: float, kind: str, how: str = "rn") -> float:
    """Return a + b rounded once."""
    return fused(a, 1.0, b, kind, how)


def multiplied(a: float, b: float, kind: str, how: str = "rn") -> float:
    """Return a * b rounded once."""
    return fused(a, b, math.copysign(0.0, math.copysign(1, a) * math.copysign(1, b)), kind, how)


def converted(value: float, kind: str, how: str = "rn") -> float:
    """Return a number rounded to another format."""
    return rounded(Fraction(value), kind, how) if value and math.isfinite(value) else float(value)


def divided(a: float, b: float, kind: str, how: str = "rn") -> float:
    """Return a / b rounded once."""
    if a and b and math.isfinite(a) and math.isfinite(b):
        return rounded(Fraction(a) / Fraction(b), kind, how)
    with np.errstate(all="ignore"):  # NaN, infinities and zeros are exact
        return float(np.float64(a) / b)


def root(a: float, kind: str) -> float:
    """Return the square root rounded to nearest."""
    if not 0 < a < math.inf:
        with np.errstate(all="ignore"):
            return float(np.sqrt(np.float64(a)))
    value = Fraction(a) * Fraction(4) ** 1200
    whole = math.isqrt(value.numerator // value.denominator)  # 64 bits more than any format has
    sticky = whole * whole != value
    return rounded(Fraction(2 * whole + sticky, 2) / Fraction(2) ** 1200, kind)


def flush(value: float, kind: str = "f32") -> float:
    """Return zero for a denormal."""
    return math.copysign(0.0, value) if abs(value) < 2.0 ** FORMATS[kind][1] else value


def least(a: float, b: float) -> float:
    """Return the smaller number; -0 lies below 0, and a NaN yields."""
    if math.isnan(a) or math.isnan(b):
        return b if math.isnan(a) else a
    return min(a, b, key=lambda one: (one, math.copysign(1, one)))


def most(a: float, b: float) -> float:
    """Return the larger number likewise."""
    return -least(-a, -b)


def strict(choose: Callable[[float, float], float], a: float, b: float) -> float:
    """Return a choice of which a NaN is the result if there is one."""
    return math.nan if math.isnan(a) or math.isnan(b) else choose(a, b)


def saturated(value: float) -> float:
    """Return a number cut to between 0 and 1; a NaN is 0."""
    return 0.0 if math.isnan(value) or value <= 0 else min(value, 1.0)


def above_zero(value: float) -> float:
    """Return a number, or zero in place of a negative one."""
    return 0.0 if value <= 0 else value


def to_integer(value: float, how: str, source: str, kind: str) -> int:
    """Return a float converted: out of range it is the nearest; a NaN is 0, or of 64 bits on either side the highest bit."""
    size = bits(kind)
    low, high = (-(1 << (size - 1)), (1 << (size - 1)) - 1) if kind[0] == "s" else (0, (1 << size) - 1)
    if math.isnan(value):
        return 1 << (size - 1) if "64" in source + kind else 0
    if math.isinf(value):
        return low if value < 0 else high
    return min(max(ROUND[how](value), low), high)


def to_whole(value: float, how: str) -> float:
    """Return a float rounded to a whole number, with its sign."""
    return math.copysign(float(ROUND[how](value)), value) if math.isfinite(value) else value


# ---- integers ----


def bits(kind: str) -> int:
    """Return how many bits a type has."""
    return 8 * TYPES[kind].itemsize


def trunc_div(a: int, b: int) -> int | None:
    """Return a / b as C has it; by zero it is undefined."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) if b else None


def trunc_rem(a: int, b: int) -> int | None:
    """Return a % b as C has it."""
    quotient = trunc_div(a, b)
    return None if quotient is None else a - quotient * b


def lookup(table: int, a: int, b: int, c: int) -> int:
    """Return a function of three words bit by bit."""
    return sum((table >> ((a >> k & 1) << 2 | (b >> k & 1) << 1 | (c >> k & 1)) & 1) << k for k in range(32))


def permuted(a: int, b: int, selector: int) -> int:
    """Return the bytes of two words that a selector names."""
    both, found = a | b << 32, 0
    for k in range(4):
        nibble = selector >> 4 * k & 15
        byte = both >> 8 * (nibble & 7) & 255
        found |= (255 * (byte >> 7) if nibble & 8 else byte) << 8 * k
    return found


def field(a: int, at: int, width: int, bits: int, signed: bool) -> int:
    """Return bits of a number from a place on; beyond its end there is its sign."""
    at, width = at & 255, width & 255
    found = (a >> min(at, bits)) & (1 << width) - 1 if signed or at < bits else 0
    if not signed:
        return found & (1 << bits) - 1
    last = min(at + width - 1, bits - 1)
    sign = a >> last & 1 if width else 0
    kept = max(min(width, bits - at), 0)
    return found & (1 << kept) - 1 | (-1 << kept if sign else 0) if width else 0


def inserted(a: int, b: int, at: int, width: int) -> int:
    """Return ``b`` with bits of ``a`` from a place on."""
    at, width = at & 255, width & 255
    mask = (1 << width) - 1 << at & 0xFFFFFFFF
    return b & ~mask | (a << at) & mask


def highest(value: int, signed: bool) -> int:
    """Return the place of the highest bit that is not the sign; all bits if there is none."""
    return (value if not signed or value >= 0 else ~value).bit_length() - 1


def dotted(a: int, b: int, c: int, signed: bool) -> int:
    """Return the sum of the products of four bytes each."""

    def of(word: int, k: int) -> int:
        byte = word >> 8 * k & 255
        return byte - 256 if signed and byte > 127 else byte

    return sum(of(a, k) * of(b, k) for k in range(4)) + c


_ORDERED: dict[str, Callable[[Any, Any], bool]] = {
    **{name: getattr(operator, name) for name in ("lt", "le", "gt", "ge", "eq")},
    "ne": lambda a, b: a != b and a == a and b == b,  # noqa: PLR0124 - a NaN is not itself
}
COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    **_ORDERED,
    **{
        f"{name}u": lambda a, b, of=of: of(a, b) or math.isnan(a) or math.isnan(b)  # type: ignore[misc]
        for name, of in _ORDERED.items()
    },
    "num": lambda a, b: a == a and b == b,  # noqa: PLR0124 - a NaN is not itself
    "nan": lambda a, b: a != a or b != b,  # noqa: PLR0124 - a NaN is not itself
}
JOIN: dict[str, Callable[[bool, bool], bool]] = {
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
}


def both(how: str, join: str, a: Any, b: Any, other: bool) -> int:
    """Return what setp makes of a comparison, 4, and of its contrary, 1, each joined with another predicate."""
    found = COMPARE[how](a, b)
    return 4 * JOIN[join](found, other) + JOIN[join](not found, other)


def halves(how: str, join: str, a: Any, b: Any, other: bool, yes: int = 1) -> int:
    """Return a word with a half for each of two comparisons, joined with another predicate."""
    found = (JOIN[join](COMPARE[how](*pair), other) for pair in zip(a, b, strict=True))
    return sum(yes * bool(one) << 16 * place for place, one in enumerate(found))


def scaled(a: int, b: float, factor: float) -> float | None:
    """Return a product times a power of two where it is far from the ends, so that it is the same however it is rounded."""
    found = multiplied(converted(a, "f32"), b, "f32")
    return found * factor if not found or 2**-100 < abs(found) < 2**100 else None


def power(a: float) -> float:
    return math.inf if a > 1000 else 0.0 if a < -1000 else 2.0**a


def logarithm(a: float) -> float:
    return math.log2(a) if a > 0 else -math.inf if a == 0 else math.nan


def turned(function: Callable[[float], float], a: float) -> float | None:
    """Return a sine or cosine where the approximation is one, which has an absolute error."""
    if not math.isfinite(a):
        return math.nan
    return function(a) if abs(a) < 3 and (abs(function(a)) > 2**-2) else None


def wrapped(value: int, kind: str) -> int:
    """Return what an integer type holds of a sum."""
    below = 1 << bits(kind) - 1 if kind[0] == "s" else 0
    return (value + below & (1 << bits(kind)) - 1) - below
