"""Operations of PTX, each with what Python says of it: the opcodes of the engine that compute, with their modifiers, are among them.

``python -m tests.gpu_opcodes`` assembles them anew, where there is ptxas.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import product
from typing import Any

import numpy as np

from tests.gpu_machine import HEAD, record

Array = np.ndarray[Any, Any]
THREADS, BLOCK = 1024, 256
_PER_KERNEL = 10
# By PTX's name: how it lies in memory.
TYPES = {
    **{
        f"{kind}{bits}": np.dtype(f"{'int' if kind == 's' else 'uint'}{bits}")
        for kind in "su"
        for bits in (8, 16, 32, 64)
    },
    "f16": np.dtype("uint16"),
    "f32": np.dtype("uint32"),
    "f64": np.dtype("uint64"),
    "bf16": np.dtype("uint16"),
    "f16x2": np.dtype("uint32"),
    "bf16x2": np.dtype("uint32"),
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


@dataclass(frozen=True)
class Case:
    """One operation: PTX with ``{0}``, ``{1}``, … for its inputs and ``{r}`` for its result, and what it should be.

    Attributes:
        ptx: Statements.
        inputs: Types of the inputs.
        result: Type of the result.
        expected: From Python's numbers that of the result, or None where anything goes; of packed types once for each half.
        error: By how much a result may differ, relative to it.
    """

    ptx: str
    inputs: tuple[str, ...]
    result: str
    expected: Callable[..., Any]
    error: float = 0


def case(ptx: str, signature: str, expected: Callable[..., Any], error: float = 0) -> Case:
    """Return a case whose types are written as ``u32 u32 > u32``."""
    taken, _, result = signature.partition(" > ")
    return Case(ptx, tuple(taken.split()), result, expected, error)


# ---- numbers ----


def decoded(bits: Array, kind: str) -> list[Any]:
    """Return Python's numbers of an array; of packed types pairs."""
    if kind.endswith("x2"):
        halves = bits.view(np.uint32)
        return list(
            zip(
                decoded((halves & 0xFFFF).astype(np.uint16), kind[:-2]),
                decoded((halves >> 16).astype(np.uint16), kind[:-2]),
                strict=True,
            )
        )
    if kind == "bf16":
        found: list[Any] = (bits.astype(np.uint32) << 16).view(np.float32).tolist()
    else:
        found = bits.view(np.dtype(_NUMPY[kind]) if kind in _NUMPY else bits.dtype).tolist()
    return found


def encoded(value: Any, kind: str) -> int:
    """Return the bits of a number, or of a pair, that a type holds exactly."""
    if kind.endswith("x2"):
        return encoded(value[0], kind[:-2]) | encoded(value[1], kind[:-2]) << 16
    if kind not in FORMATS:
        return int(value) & (1 << 8 * TYPES[kind].itemsize) - 1
    if math.isnan(value):
        return NAN[kind]
    if kind == "bf16":
        return int(np.float32(value).view(np.uint32)) >> 16
    with np.errstate(all="ignore"):
        return int(np.dtype(_NUMPY[kind]).type(value).view(TYPES[kind]))


def _integers(bits: int) -> Array:
    found = {
        0,
        1,
        2,
        3,
        5,
        7,
        31,
        32,
        33,
        63,
        64,
        65,
        127,
        128,
        255,
        0x7FFF,
        0x8000,
        0xFFFF,
        0x10000,
        0x55555555,
        0xAAAAAAAA,
    }
    found |= {(1 << bits) - 1 - one for one in (0, 1, 2, 31, 32)} | {
        (1 << (bits - 1)) + one for one in (-1, 0, 1)
    }
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
    values = [
        0,
        0.5,
        1,
        1.5,
        2,
        2.5,
        3,
        7,
        1 / 3,
        0.1,
        math.pi,
        126,
        127.5,
        128,
        255,
        256,
        32767.5,
        65504,
        65519.99,
        65520,
    ]
    values += [
        2.0**one for one in (-24, -25, -40, 15, 16, 24, 31, 32, 53, 63, 64, 100, -100) if least < one <= most
    ]
    values += [2.0**24 + 1, 2.0**31 - 1, 2.0**53 + 1, 1e-7, 1e-5, 1e-38, 1e38, 1e300, 1e-300]
    values += [
        2.0**least,
        2.0 ** (least - fraction),
        2.0**least - 2.0 ** (least - fraction),
        1 + 2.0**-fraction,
    ]
    values += [float((2 - Fraction(2) ** -fraction) * Fraction(2) ** most)]
    found = [encoded(one, kind) for value in values for one in [converted(value, kind)]] + [
        encoded(math.inf, kind),
        NAN[kind],
    ]
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
        edge = edges(kind)
        chosen = [pair[place] for pair in pairs[: 2 * THREADS // 3]] or random.integers(
            0, len(edge), 2 * THREADS // 3
        ).tolist()
        bits[: len(chosen)] = edge[chosen]
        found.append(bits)
    return tuple(found)


# ---- what IEEE 754 says ----


def rounded(value: Fraction, kind: str, how: str = "rn") -> float:
    """Return a number that is not 0 rounded once to a format, as PTX names the direction."""
    fraction, least, most = FORMATS[kind]
    exponent = abs(value.numerator).bit_length() - value.denominator.bit_length() - 1
    exponent += abs(value) >= Fraction(2) ** (exponent + 1)
    unit = Fraction(2) ** (max(exponent, least) - fraction)
    found, sign = ROUND[f"{how}i"](value / unit) * unit, 1 if value > 0 else -1
    if abs(found) >= Fraction(2) ** (most + 1):
        stays = how == "rz" or (how == "rm" and value > 0) or (how == "rp" and value < 0)
        return sign * (float((2 - Fraction(2) ** -fraction) * Fraction(2) ** most) if stays else math.inf)
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
    sign = math.copysign(1, a) * math.copysign(1, b)
    if math.isnan(a) or math.isnan(b) or (not a and not b) or (math.isinf(a) and math.isinf(b)):
        return math.nan
    if not b or math.isinf(a):
        return sign * math.inf
    return (
        rounded(Fraction(a) / Fraction(b), kind, how) if a and math.isfinite(b) else math.copysign(0.0, sign)
    )


def root(a: float, kind: str) -> float:
    """Return the square root rounded to nearest."""
    if not a or math.isnan(a) or a == math.inf:
        return a
    if a < 0:
        return math.nan
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


def strict(choose: Callable[[float, float], float]) -> Callable[[float, float], float]:
    """Return a choice of which a NaN is the result if there is one."""
    return lambda a, b: math.nan if math.isnan(a) or math.isnan(b) else choose(a, b)


def saturated(value: float) -> float:
    """Return a number cut to between 0 and 1; a NaN is 0."""
    return 0.0 if math.isnan(value) or value <= 0 else min(value, 1.0)


def above_zero(value: float) -> float:
    """Return a number, or zero in place of a negative one."""
    return 0.0 if value <= 0 else value


def to_integer(how: str, source: str, kind: str) -> Callable[[float], int]:
    """Return the conversion of a float: out of range it is the nearest; a NaN is 0, or of 64 bits on either side the highest bit."""
    bits = int(kind[1:])
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if kind[0] == "s" else (0, (1 << bits) - 1)

    def convert(value: float) -> int:
        if math.isnan(value):
            return 1 << (bits - 1) if "64" in source + kind else 0
        return (
            low
            if value == -math.inf
            else high
            if value == math.inf
            else min(max(ROUND[how](value), low), high)
        )

    return convert


def to_whole(how: str) -> Callable[[float], float]:
    """Return the rounding of a float to a whole number, with its sign."""
    return lambda value: math.copysign(float(ROUND[how](value)), value) if math.isfinite(value) else value


# ---- integers ----


def trunc_div(a: int, b: int) -> int | None:
    """Return a / b as C has it; by zero it is undefined."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) if b else None


def trunc_rem(a: int, b: int) -> int | None:
    """Return a % b as C has it."""
    quotient = trunc_div(a, b)
    return None if quotient is None else a - quotient * b


def shifted(value: int, by: int, bits: int) -> int:
    """Return a shift to the right that yields the sign from ``bits`` on."""
    return value >> min(by, bits)


def lookup(table: int) -> Callable[[int, int, int], int]:
    """Return a function of three words bit by bit."""

    def one(a: int, b: int, c: int) -> int:
        return sum(
            (table >> ((a >> k & 1) << 2 | (b >> k & 1) << 1 | (c >> k & 1)) & 1) << k for k in range(32)
        )

    return one


def permuted(a: int, b: int, selector: int) -> int:
    """Return the bytes of two words that a selector names."""
    both, found = a | b << 32, 0
    for k in range(4):
        nibble = selector >> 4 * k & 15
        byte = both >> 8 * (nibble & 7) & 255
        found |= (255 * (byte >> 7) if nibble & 8 else byte) << 8 * k
    return found


def funnel(left: bool, limit: Callable[[int], int]) -> Callable[[int, int, int], int]:
    """Return a shift of two words of which one is the result."""

    def one(low: int, high: int, by: int) -> int:
        both = low | high << 32
        return both << limit(by) >> 32 if left else both >> limit(by)

    return one


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


COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b and a == a and b == b,  # noqa: PLR0124 - a NaN is not itself
}
UNORDERED: dict[str, Callable[[Any, Any], bool]] = {
    **{
        f"{name}u": lambda a, b, of=of: of(a, b) or math.isnan(a) or math.isnan(b)  # type: ignore[misc]
        for name, of in COMPARE.items()
    },
    "num": lambda a, b: a == a and b == b,  # noqa: PLR0124 - a NaN is not itself
    "nan": lambda a, b: a != a or b != b,  # noqa: PLR0124 - a NaN is not itself
}
JOIN: dict[str, Callable[[bool, bool], bool]] = {
    "and": lambda a, b: a and b,
    "or": lambda a, b: a or b,
    "xor": lambda a, b: a != b,
}


def _integer_cases() -> list[Case]:
    found = [
        case("add.u32 {r}, {0}, {1};", "u32 u32 > u32", lambda a, b: a + b),
        case("sub.u32 {r}, {0}, {1};", "u32 u32 > u32", lambda a, b: a - b),
        case(
            "add.u32 {r}, {0}, 0x12345; add.u32 {r}, {r}, {1}; ",
            "u32 u32 > u32",
            lambda a, b: a + b + 0x12345,
        ),
        case("sub.u32 {r}, {0}, {1}; sub.u32 {r}, {r}, {2};", "u32 u32 u32 > u32", lambda a, b, c: a - b - c),
        case("mad.lo.u32 {r}, {0}, {1}, {2};", "u32 u32 u32 > u32", lambda a, b, c: a * b + c),
        case(
            "mul.lo.u32 {r}, {0}, {1}; sub.u32 {r}, {r}, {2};", "u32 u32 u32 > u32", lambda a, b, c: a * b - c
        ),
        case("mul.hi.u32 {r}, {0}, {1};", "u32 u32 > u32", lambda a, b: a * b >> 32),
        case("mul.hi.s32 {r}, {0}, {1};", "s32 s32 > s32", lambda a, b: a * b >> 32),
        case("mad.hi.u32 {r}, {0}, {1}, {2};", "u32 u32 u32 > u32", lambda a, b, c: (a * b >> 32) + c),
        case("mul.wide.u32 {r}, {0}, {1};", "u32 u32 > u64", lambda a, b: a * b),
        case("mul.wide.s32 {r}, {0}, {1};", "s32 s32 > s64", lambda a, b: a * b),
        case("mad.wide.u32 {r}, {0}, {1}, {2};", "u32 u32 u64 > u64", lambda a, b, c: a * b + c),
        case("mad.wide.s32 {r}, {0}, {1}, {2};", "s32 s32 s64 > s64", lambda a, b, c: a * b + c),
        case(
            "mul.wide.s32 {r}, {0}, {1}; sub.s64 {r}, {r}, {2};",
            "s32 s32 s64 > s64",
            lambda a, b, c: a * b - c,
        ),
        case("add.u64 {r}, {0}, {1};", "u64 u64 > u64", lambda a, b: a + b),
        case("sub.u64 {r}, {0}, {1};", "u64 u64 > u64", lambda a, b: a - b),
        case("neg.s64 {r}, {0};", "s64 s64 > s64", lambda a, _: -a),
        case("add.u64 {r}, {0}, {1}; add.u64 {r}, {r}, {2};", "u64 u64 u64 > u64", lambda a, b, c: a + b + c),
        case("sub.u64 {r}, {0}, {1}; add.u64 {r}, {r}, {2};", "u64 u64 u64 > u64", lambda a, b, c: a - b + c),
        case("sub.u64 {r}, {0}, {1}; sub.u64 {r}, {r}, {2};", "u64 u64 u64 > u64", lambda a, b, c: a - b - c),
        case("mul.lo.u64 {r}, {0}, {1};", "u64 u64 > u64", lambda a, b: a * b),
        case("mul.hi.u64 {r}, {0}, {1};", "u64 u64 > u64", lambda a, b: a * b >> 64),
        case("mul.hi.s64 {r}, {0}, {1};", "s64 s64 > s64", lambda a, b: a * b >> 64),
        case("mad.lo.u64 {r}, {0}, {1}, {2};", "u64 u64 u64 > u64", lambda a, b, c: a * b + c),
        case(
            "{{ .reg .b32 t; add.cc.u32 t, {0}, {1}; addc.u32 {r}, {2}, 0; xor.b32 {r}, {r}, t; }}",
            "u32 u32 u32 > u32",
            lambda a, b, c: c + (a + b >> 32) ^ a + b & 0xFFFFFFFF,
        ),
        case(
            "{{ .reg .b32 t; sub.cc.u32 t, {0}, {1}; subc.u32 {r}, {2}, 5; xor.b32 {r}, {r}, t; }}",
            "u32 u32 u32 > u32",
            lambda a, b, c: c - 5 - (a < b) ^ a - b & 0xFFFFFFFF,
        ),
        case(
            "{{ .reg .b32 t; mad.lo.cc.u32 t, {0}, {1}, {2}; madc.hi.u32 {r}, {0}, {1}, {2}; xor.b32 {r}, {r}, t; }}",
            "u32 u32 u32 > u32",
            lambda a, b, c: (a * b >> 32) + c + ((a * b & 0xFFFFFFFF) + c >> 32) ^ a * b + c & 0xFFFFFFFF,
        ),
        case(
            "{{ .reg .b32 t; mad.hi.cc.u32 t, {0}, {1}, {2}; madc.lo.u32 {r}, {0}, {1}, {2}; xor.b32 {r}, {r}, t; }}",
            "u32 u32 u32 > u32",
            lambda a, b, c: (
                a * b + c + ((a * b >> 32) + c >> 32) & 0xFFFFFFFF ^ (a * b >> 32) + c & 0xFFFFFFFF
            ),
        ),
        case("abs.s32 {r}, {0};", "s32 s32 > s32", lambda a, _: abs(a)),
        case("abs.s64 {r}, {0};", "s64 s64 > s64", lambda a, _: abs(a)),
        case("lop3.b32 {r}, {0}, {1}, {2}, 0xca;", "u32 u32 u32 > u32", lookup(0xCA)),
        case("lop3.b32 {r}, {0}, {1}, {2}, 0x3b;", "u32 u32 u32 > u32", lookup(0x3B)),
        case("lop3.b32 {r}, {0}, {1}, {2}, 0x96;", "u32 u32 u32 > u32", lookup(0x96)),
        case("lop3.b32 {r}, {0}, {1}, {2}, 0x17;", "u32 u32 u32 > u32", lookup(0x17)),
        case("not.b64 {r}, {0}; and.b64 {r}, {r}, {1};", "u64 u64 > u64", lambda a, b: ~a & b),
        case(
            "or.b64 {r}, {0}, {1}; xor.b64 {r}, {r}, {2};", "u64 u64 u64 > u64", lambda a, b, c: (a | b) ^ c
        ),
        case(
            "{{ .reg .pred p; .reg .b32 t; and.b32 t, {0}, {1}; setp.ne.or.u32 p, t, 0, 0; selp.u32 {r}, t, 7, p; }}",
            "u32 u32 > u32",
            lambda a, b: a & b or 7,
        ),
        case(
            "{{ .reg .pred p, q; setp.gt.u32 q, {0}, {1}; and.b32 {r}, {0}, 12; setp.ne.or.u32 p, {r}, 0, q; selp.u32 {r}, 3, 7, p; }}",
            "u32 u32 > u32",
            lambda a, b: 3 if a > b or a & 12 else 7,
        ),
        case(
            "{{ .reg .pred p, q; setp.gt.u32 q, {0}, {1}; and.b32 {r}, {0}, 12; setp.ne.and.u32 p, {r}, 0, q; selp.u32 {r}, 3, 7, p; }}",
            "u32 u32 > u32",
            lambda a, b: 3 if a > b and a & 12 else 7,
        ),
        case("shl.b32 {r}, {0}, {1};", "u32 u32 > u32", lambda a, b: a << b if b < 32 else 0),
        case("shr.u32 {r}, {0}, {1};", "u32 u32 > u32", lambda a, b: shifted(a, b, 32)),
        case("shr.s32 {r}, {0}, {1};", "s32 u32 > s32", lambda a, b: shifted(a, b, 32)),
        case("shl.b64 {r}, {0}, {1};", "u64 u32 > u64", lambda a, b: a << b if b < 64 else 0),
        case("shr.u64 {r}, {0}, {1};", "u64 u32 > u64", lambda a, b: shifted(a, b, 64)),
        case("shr.s64 {r}, {0}, {1};", "s64 u32 > s64", lambda a, b: shifted(a, b, 64)),
        case("shl.b64 {r}, {0}, 37;", "u64 u32 > u64", lambda a, _: a << 37),
        case("shl.b64 {r}, {0}, 7;", "u64 u32 > u64", lambda a, _: a << 7),
        case("shr.u64 {r}, {0}, 7;", "u64 u32 > u64", lambda a, _: a >> 7),
        case("shr.s64 {r}, {0}, 7;", "s64 u32 > s64", lambda a, _: a >> 7),
        case("shr.s64 {r}, {0}, 39;", "s64 u32 > s64", lambda a, _: a >> 39),
        case(
            "shf.l.clamp.b32 {r}, {0}, {1}, {2};", "u32 u32 u32 > u32", funnel(True, lambda by: min(by, 32))
        ),
        case("shf.l.wrap.b32 {r}, {0}, {1}, {2};", "u32 u32 u32 > u32", funnel(True, lambda by: by & 31)),
        case(
            "shf.r.clamp.b32 {r}, {0}, {1}, {2};", "u32 u32 u32 > u32", funnel(False, lambda by: min(by, 32))
        ),
        case("shf.r.wrap.b32 {r}, {0}, {1}, {2};", "u32 u32 u32 > u32", funnel(False, lambda by: by & 31)),
        case("shf.l.wrap.b32 {r}, {0}, {1}, 5;", "u32 u32 > u32", lambda a, b: (a | b << 32) << 5 >> 32),
        case("shl.b32 {r}, {0}, 3; add.u32 {r}, {r}, {1};", "u32 u32 > u32", lambda a, b: (a << 3) + b),
        case("shl.b32 {r}, {0}, 3; sub.u32 {r}, {1}, {r};", "u32 u32 > u32", lambda a, b: b - (a << 3)),
        case("shl.b32 {r}, {0}, 3; sub.u32 {r}, {r}, {1};", "u32 u32 > u32", lambda a, b: (a << 3) - b),
        case("shr.u32 {r}, {0}, 27; add.u32 {r}, {r}, {1};", "u32 u32 > u32", lambda a, b: (a >> 27) + b),
        case("shr.s32 {r}, {0}, 27; add.s32 {r}, {r}, {1};", "s32 s32 > s32", lambda a, b: (a >> 27) + b),
        case("shl.b64 {r}, {0}, 2; add.u64 {r}, {r}, {1};", "u64 u64 > u64", lambda a, b: (a << 2) + b),
        case("cvt.s64.s32 {r}, {0}; add.s64 {r}, {r}, {1};", "s32 s64 > s64", lambda a, b: a + b),
        case(
            "cvt.s64.s32 {r}, {0}; shl.b64 {r}, {r}, 2; add.s64 {r}, {r}, {1};",
            "s32 s64 > s64",
            lambda a, b: (a << 2) + b,
        ),
        case(
            "cvt.s64.s32 {r}, {0}; shl.b64 {r}, {r}, 4; sub.s64 {r}, {r}, {1};",
            "s32 s64 > s64",
            lambda a, b: (a << 4) - b,
        ),
        case("cvt.s64.s32 {r}, {0}; sub.s64 {r}, {r}, {1};", "s32 s64 > s64", lambda a, b: a - b),
        case(
            "shr.s32 {r}, {0}, 31; shr.u32 {r}, {r}, 27; add.s32 {r}, {r}, {0};",
            "s32 s32 > s32",
            lambda a, _: a + (31 if a < 0 else 0),
        ),
        case("prmt.b32 {r}, {0}, {1}, {2};", "u32 u32 u32 > u32", permuted),
        case("prmt.b32 {r}, {0}, {1}, 0x5b10;", "u32 u32 > u32", lambda a, b: permuted(a, b, 0x5B10)),
        case("bfe.u32 {r}, {0}, {1}, {2};", "u32 u32 u32 > u32", lambda a, b, c: field(a, b, c, 32, False)),
        case("bfe.s32 {r}, {0}, {1}, {2};", "s32 u32 u32 > s32", lambda a, b, c: field(a, b, c, 32, True)),
        case("bfi.b32 {r}, {0}, {1}, {2}, 9;", "u32 u32 u32 > u32", lambda a, b, c: inserted(a, b, c, 9)),
        case("bfe.u64 {r}, {0}, 5, 20;", "u64 u64 > u64", lambda a, _: a >> 5 & 0xFFFFF),
        case("bfind.u32 {r}, {0};", "u32 u32 > u32", lambda a, _: highest(a, False)),
        case("bfind.s32 {r}, {0};", "s32 s32 > u32", lambda a, _: highest(a, True)),
        case(
            "bfind.shiftamt.u32 {r}, {0};",
            "u32 u32 > u32",
            lambda a, _: 31 - highest(a, False) if a else -1,
        ),
        case("bfind.u64 {r}, {0};", "u64 u64 > u32", lambda a, _: highest(a, False)),
        case("clz.b32 {r}, {0};", "u32 u32 > u32", lambda a, _: 32 - a.bit_length()),
        case("clz.b64 {r}, {0};", "u64 u64 > u32", lambda a, _: 64 - a.bit_length()),
        case("popc.b32 {r}, {0};", "u32 u32 > u32", lambda a, _: a.bit_count()),
        case("popc.b64 {r}, {0};", "u64 u64 > u32", lambda a, _: a.bit_count()),
        case("brev.b32 {r}, {0};", "u32 u32 > u32", lambda a, _: int(f"{a:032b}"[::-1], 2)),
        case(
            "bmsk.clamp.b32 {r}, {0}, {1};", "u32 u32 > u32", lambda a, b: (1 << min(b, 32)) - 1 << min(a, 32)
        ),
        case("bmsk.wrap.b32 {r}, {0}, {1};", "u32 u32 > u32", lambda a, b: (1 << (b & 31)) - 1 << (a & 31)),
        case(
            "szext.clamp.u32 {r}, {0}, {1};", "u32 u32 > u32", lambda a, b: field(a, 0, min(b, 32), 32, False)
        ),
        case(
            "szext.clamp.s32 {r}, {0}, {1};", "s32 u32 > s32", lambda a, b: field(a, 0, min(b, 32), 32, True)
        ),
        case("szext.wrap.u32 {r}, {0}, {1};", "u32 u32 > u32", lambda a, b: field(a, 0, b & 31, 32, False)),
        case("szext.wrap.s32 {r}, {0}, {1};", "s32 u32 > s32", lambda a, b: field(a, 0, b & 31, 32, True)),
        case("dp4a.u32.u32 {r}, {0}, {1}, {2};", "u32 u32 u32 > u32", lambda a, b, c: dotted(a, b, c, False)),
        case("dp4a.s32.s32 {r}, {0}, {1}, {2};", "u32 u32 u32 > u32", lambda a, b, c: dotted(a, b, c, True)),
        case("cvt.s32.s8 {r}, {0};", "s8 s8 > s32", lambda a, _: a),
        case("cvt.s64.s16 {r}, {0};", "s16 s16 > s64", lambda a, _: a),
        case("cvt.u32.u8 {r}, {0};", "u8 u8 > u32", lambda a, _: a),
        case("mul.lo.s16 {r}, {0}, {1};", "s16 s16 > s16", lambda a, b: a * b),
    ]
    for kind in ("s32", "u32", "s64", "u64"):
        of = f"{kind} {kind} > {kind}"
        found += [
            case(f"min.{kind} {{r}}, {{0}}, {{1}};", of, min),
            case(f"max.{kind} {{r}}, {{0}}, {{1}};", of, max),
            case(f"div.{kind} {{r}}, {{0}}, {{1}};", of, trunc_div),
            case(f"rem.{kind} {{r}}, {{0}}, {{1}};", of, trunc_rem),
        ]
        found += [
            case(f"div.{kind} {{r}}, {{0}}, 7;", of, lambda a, _: trunc_div(a, 7)),
            case(f"rem.{kind} {{r}}, {{0}}, 10;", of, lambda a, _: trunc_rem(a, 10)),
        ]
        for how, compare in COMPARE.items():
            joins = JOIN if how in {"lt", "ge"} else {"and": JOIN["and"]}
            for name, join in joins.items():
                found.append(
                    case(
                        f"{{{{ .reg .pred p, q; setp.ne.u32 q, {{2}}, 3; setp.{how}.{name}.{kind} p|q, {{0}}, {{1}}, q; selp.u32 {{r}}, 4, 0, p; @q add.u32 {{r}}, {{r}}, 1; }}}}",
                        f"{kind} {kind} u32 > u32",
                        lambda a, b, c, compare=compare, join=join: (
                            4 * join(compare(a, b), c != 3) + join(not compare(a, b), c != 3)
                        ),
                    )
                )
    return found


def _float_cases() -> list[Case]:
    found = []
    for kind in ("f32", "f64"):
        two, three = f"{kind} {kind} > {kind}", f"{kind} {kind} {kind} > {kind}"
        for how in ("rn", "rz", "rm", "rp"):
            found += [
                case(
                    f"add.{how}.{kind} {{r}}, {{0}}, {{1}};",
                    two,
                    lambda a, b, kind=kind, how=how: added(a, b, kind, how),
                ),
                case(
                    f"mul.{how}.{kind} {{r}}, {{0}}, {{1}};",
                    two,
                    lambda a, b, kind=kind, how=how: multiplied(a, b, kind, how),
                ),
                case(
                    f"fma.{how}.{kind} {{r}}, {{0}}, {{1}}, {{2}};",
                    three,
                    lambda a, b, c, kind=kind, how=how: fused(a, b, c, kind, how),
                ),
            ]
        found += [
            case(f"sub.rn.{kind} {{r}}, {{0}}, {{1}};", two, lambda a, b, kind=kind: added(a, -b, kind)),
            case(f"div.rn.{kind} {{r}}, {{0}}, {{1}};", two, lambda a, b, kind=kind: divided(a, b, kind)),
            case(f"rcp.rn.{kind} {{r}}, {{0}};", two, lambda a, _, kind=kind: divided(1, a, kind)),
            case(f"sqrt.rn.{kind} {{r}}, {{0}};", two, lambda a, _, kind=kind: root(a, kind)),
            case(f"min.{kind} {{r}}, {{0}}, {{1}};", two, least),
            case(f"max.{kind} {{r}}, {{0}}, {{1}};", two, most),
            case(
                f"abs.{kind} {{r}}, {{0}}; add.{kind} {{r}}, {{r}}, {{1}};",
                two,
                lambda a, b, kind=kind: added(abs(a), b, kind),
            ),
        ]
        for how, compare in {**COMPARE, **UNORDERED}.items():
            joins = JOIN if how in {"lt", "geu"} else {"and": JOIN["and"]}
            for name, join in joins.items():
                found.append(
                    case(
                        f"{{{{ .reg .pred p, q; setp.ne.u32 q, {{2}}, 3; setp.{how}.{name}.{kind} p|q, {{0}}, {{1}}, q; selp.u32 {{r}}, 4, 0, p; @q add.u32 {{r}}, {{r}}, 1; }}}}",
                        f"{kind} {kind} u32 > u32",
                        lambda a, b, c, compare=compare, join=join: (
                            4 * join(bool(compare(a, b)), c != 3) + join(not compare(a, b), c != 3)
                        ),
                    )
                )
    return found


def _single_cases() -> list[Case]:
    two = "f32 f32 > f32"
    return [
        case("div.rz.f32 {r}, {0}, {1};", two, lambda a, b: divided(a, b, "f32", "rz")),
        case("add.ftz.f32 {r}, {0}, {1};", two, lambda a, b: flush(added(flush(a), flush(b), "f32"))),
        case("mul.ftz.f32 {r}, {0}, {1};", two, lambda a, b: flush(multiplied(flush(a), flush(b), "f32"))),
        case(
            "fma.rn.ftz.f32 {r}, {0}, {1}, {1};",
            two,
            lambda a, b: flush(fused(flush(a), flush(b), flush(b), "f32")),
        ),
        case("add.sat.f32 {r}, {0}, {1};", two, lambda a, b: saturated(added(a, b, "f32"))),
        case("mul.sat.f32 {r}, {0}, {1};", two, lambda a, b: saturated(multiplied(a, b, "f32"))),
        case("fma.rn.sat.f32 {r}, {0}, {1}, {1};", two, lambda a, b: saturated(fused(a, b, b, "f32"))),
        case("min.ftz.f32 {r}, {0}, {1};", two, lambda a, b: least(flush(a), flush(b))),
        case("min.NaN.f32 {r}, {0}, {1};", two, strict(least)),
        case("max.NaN.f32 {r}, {0}, {1};", two, strict(most)),
        case("set.lt.ftz.f32.f32 {r}, {0}, {1};", two, lambda a, b: float(flush(a) < flush(b))),
        case(
            "{{ .reg .pred p; setp.gtu.ftz.f32 p, {0}, {1}; selp.u32 {r}, 1, 0, p; }}",
            "f32 f32 > u32",
            lambda a, b: int(not flush(a) <= flush(b)),
        ),
        case(
            "mul.f32 {r}, {0}, 0f3F000000; mul.f32 {r}, {r}, {1};",
            two,
            lambda a, b: multiplied(multiplied(a, 0.5, "f32"), b, "f32"),
        ),
        case("div.rn.f64 {r}, {0}, 0d4008000000000000;", "f64 f64 > f64", lambda a, _: divided(a, 3, "f64")),
        case(
            "add.f64 {r}, {0}, 0d7ff0000000000000;", "f64 f64 > f64", lambda a, _: added(a, math.inf, "f64")
        ),
        case(
            "{{ .reg .pred p; setp.gt.f64 p, {0}, {1}; selp.f64 {r}, {0}, 0d7ff0000000000000, p; }}",
            "f64 f64 > f64",
            lambda a, b: a if a > b else math.inf,
        ),
        case("fma.rn.f32 {r}, {0}, 0f3FC00000, 0fBF800000;", two, lambda a, _: fused(a, 1.5, -1, "f32")),
        case("rcp.approx.ftz.f32 {r}, {0};", two, lambda a, _: flush(divided(1, flush(a), "f32")), 2**-22),
        case("rcp.approx.f32 {r}, {0};", two, lambda a, _: divided(1, a, "f32"), 2**-22),
        case(
            "div.approx.f32 {r}, {0}, {1};",
            two,
            lambda a, b: divided(a, b, "f32") if 2**-126 <= abs(b) <= 2**126 else None,
            2**-21,
        ),
        case(
            "div.full.f32 {r}, {0}, {1};",
            two,
            lambda a, b: divided(a, b, "f32") if abs(a) > 2**-100 else None,
            2**-21,
        ),
        case("sqrt.approx.ftz.f32 {r}, {0};", two, lambda a, _: root(flush(a), "f32"), 2**-22),
        case("sqrt.approx.f32 {r}, {0};", two, lambda a, _: root(a, "f32"), 2**-22),
        case(
            "rsqrt.approx.f32 {r}, {0};",
            two,
            lambda a, _: divided(1, root(a, "f64"), "f32") if a else math.copysign(math.inf, a),
            2**-22,
        ),
        case("ex2.approx.f32 {r}, {0};", two, lambda a, _: converted(_power(a), "f32"), 2**-21),
        case(
            "ex2.approx.ftz.f32 {r}, {0};",
            two,
            lambda a, _: flush(converted(_power(flush(a)), "f32")),
            2**-21,
        ),
        case("lg2.approx.f32 {r}, {0};", two, lambda a, _: _logarithm(a), 2**-21),
        case("sin.approx.f32 {r}, {0};", two, lambda a, _: _turned(math.sin, a), 2**-20),
        case("cos.approx.f32 {r}, {0};", two, lambda a, _: _turned(math.cos, a), 2**-20),
        case("tanh.approx.f32 {r}, {0};", two, lambda a, _: converted(math.tanh(a), "f32"), 2**-10),
        case(
            "rcp.approx.ftz.f64 {r}, {0};",
            "f64 f64 > f64",
            lambda a, _: flush(divided(1, flush(a, "f64"), "f64"), "f64"),
            2**-19,
        ),
        case(
            "rsqrt.approx.ftz.f64 {r}, {0};",
            "f64 f64 > f64",
            lambda a, _: (
                divided(1, root(flush(a, "f64"), "f64"), "f64")
                if flush(a, "f64")
                else math.copysign(math.inf, a)
            ),
            2**-19,
        ),
    ]


def _scaled_cases() -> list[Case]:
    found, two = [], "f32 f32 > f32"
    for bits, factor in (
        (0x3F000000, 0.5),
        (0x3E800000, 0.25),
        (0x3E000000, 0.125),
        (0x40000000, 2.0),
        (0x40800000, 4.0),
        (0x41000000, 8.0),
    ):
        found.append(
            case(
                f"{{{{ .reg .f32 t; cvt.rn.f32.s32 t, {{0}}; mul.f32 {{r}}, t, {{1}}; mul.f32 {{r}}, {{r}}, 0f{bits:08X}; }}}}",
                "s32 f32 > f32",
                lambda a, b, factor=factor: _scaled(a, b, factor),
            )
        )
    for how, compare in {**COMPARE, **UNORDERED}.items():
        found.append(
            case(
                f"set.{how}.f32.f32 {{r}}, {{0}}, {{1}};",
                two,
                lambda a, b, compare=compare: float(compare(a, b)),
            )
        )
        join = {"gt": "or", "neu": "xor"}.get(how, "and")
        found.append(
            case(
                f"{{{{ .reg .pred q; setp.ne.u32 q, {{2}}, 3; set.{how}.{join}.u32.f32 {{r}}, {{0}}, {{1}}, q; }}}}",
                "f32 f32 u32 > u32",
                lambda a, b, c, compare=compare, join=JOIN[join]: -join(bool(compare(a, b)), c != 3),
            )
        )
    return found


def _conversion_cases() -> list[Case]:
    found = []
    for how, name in zip(("rn", "rz", "rm", "rp"), ("rni", "rzi", "rmi", "rpi"), strict=True):
        found += [
            case(
                f"cvt.{how}.f32.f64 {{r}}, {{0}};",
                "f64 f64 > f32",
                lambda a, _, how=how: converted(a, "f32", how),
            ),
            case(
                f"cvt.{how}.f16.f32 {{r}}, {{0}};",
                "f32 f32 > f16",
                lambda a, _, how=how: converted(a, "f16", how),
            ),
            case(
                f"cvt.{name}.f32.f32 {{r}}, {{0}};",
                "f32 f32 > f32",
                lambda a, _, name=name: to_whole(name)(a),
            ),
            case(
                f"cvt.{name}.f64.f64 {{r}}, {{0}};",
                "f64 f64 > f64",
                lambda a, _, name=name: to_whole(name)(a),
            ),
            case(
                f"cvt.{name}.f16.f16 {{r}}, {{0}};",
                "f16 f16 > f16",
                lambda a, _, name=name: to_whole(name)(a),
            ),
        ]
        for source in ("f16", "f32", "f64"):
            kinds = ("s32", "u32", "s64", "u64") if source != "f16" else ("s32", "u64")
            for kind in (*kinds, *(("s16", "u16", "s8", "u8") if name == "rzi" and source == "f32" else ())):
                result = kind if kind[1:] != "8" else f"{kind[0]}16"
                convert = to_integer(name, source, kind)
                found.append(
                    case(
                        f"cvt.{name}.{kind}.{source} {{r}}, {{0}};",
                        f"{source} {source} > {result}",
                        lambda a, _, convert=convert: convert(a),
                    )
                )
        for kind in ("s32", "u32", "s64", "u64"):
            for result in ("f32", "f64", *(("f16",) if how in {"rn", "rz"} else ())):
                found.append(
                    case(
                        f"cvt.{how}.{result}.{kind} {{r}}, {{0}};",
                        f"{kind} {kind} > {result}",
                        lambda a, _, result=result, how=how: converted(a, result, how),
                    )
                )
    for kind in ("s8", "u8", "s16", "u16"):
        for result in ("f16", "f32", "f64"):
            found.append(
                case(
                    f"cvt.rn.{result}.{kind} {{r}}, {{0}};",
                    f"{kind} {kind} > {result}",
                    lambda a, _, result=result: converted(a, result),
                )
            )
    found += [
        case(
            "{{ .reg .b32 t; bfe.u32 t, {0}, 8, 8; cvt.rn.f32.u32 {r}, t; }}",
            "u32 > f32",
            lambda a: float(a >> 8 & 255),
        ),
        case(
            "{{ .reg .b32 t; bfe.u32 t, {0}, 24, 8; cvt.rn.f64.u32 {r}, t; }}",
            "u32 > f64",
            lambda a: float(a >> 24),
        ),
        case(
            "{{ .reg .b32 t; bfe.s32 t, {0}, 16, 8; cvt.rn.f32.s32 {r}, t; }}",
            "u32 > f32",
            lambda a: float((a >> 16 & 255 ^ 128) - 128),
        ),
        case(
            "{{ .reg .b16 h, k; mov.b32 {{h, k}}, {0}; cvt.rn.f32.s16 {r}, k; }}",
            "u32 > f32",
            lambda a: float((a >> 16 ^ 0x8000) - 0x8000),
        ),
        case(
            "{{ .reg .b16 h, k; mov.b32 {{h, k}}, {0}; cvt.rn.f64.u16 {r}, k; }}",
            "u32 > f64",
            lambda a: float(a >> 16),
        ),
        case(
            "cvt.rzi.ftz.u32.f32 {r}, {0};",
            "f32 f32 > u32",
            lambda a, _: to_integer("rzi", "f32", "u32")(flush(a)),
        ),
        case("cvt.rmi.ftz.f32.f32 {r}, {0};", "f32 f32 > f32", lambda a, _: to_whole("rmi")(flush(a))),
        case("cvt.f64.f32 {r}, {0};", "f32 f32 > f64", lambda a, _: a),
        case("cvt.ftz.f64.f32 {r}, {0};", "f32 f32 > f64", lambda a, _: flush(a)),
        case("cvt.rn.ftz.f32.f64 {r}, {0};", "f64 f64 > f32", lambda a, _: flush(converted(a, "f32"))),
        case("cvt.f32.f16 {r}, {0};", "f16 f16 > f32", lambda a, _: a),
        case("cvt.f64.f16 {r}, {0};", "f16 f16 > f64", lambda a, _: a),
        case("cvt.rn.f16.f64 {r}, {0};", "f64 f64 > f16", lambda a, _: converted(a, "f16")),
        case("cvt.rn.bf16.f32 {r}, {0};", "f32 f32 > bf16", lambda a, _: converted(a, "bf16")),
        case("cvt.rz.bf16.f32 {r}, {0};", "f32 f32 > bf16", lambda a, _: converted(a, "bf16", "rz")),
        case(
            "{{ .reg .f32 t; neg.f32 t, {0}; cvt.rn.bf16.f32 {r}, t; }}",
            "f32 f32 > bf16",
            lambda a, _: converted(-a, "bf16"),
        ),
    ]
    return found


def _packed_cases() -> list[Case]:
    found = []
    for kind in ("f16", "bf16"):
        packed, pair = f"{kind}x2", f"f32 f32 > {kind}x2"
        found += [
            case(
                f"cvt.rn.{packed}.f32 {{r}}, {{1}}, {{0}};",
                pair,
                lambda a, b, kind=kind: (converted(a, kind), converted(b, kind)),
            ),
            case(
                f"cvt.rz.{packed}.f32 {{r}}, {{1}}, {{0}};",
                pair,
                lambda a, b, kind=kind: (converted(a, kind, "rz"), converted(b, kind, "rz")),
            ),
            case(
                f"cvt.rn.relu.{packed}.f32 {{r}}, {{1}}, {{0}};",
                pair,
                lambda a, b, kind=kind: tuple(0.0 if one <= 0 else converted(one, kind) for one in (a, b)),
            ),
            case(
                f"fma.rn.{packed} {{r}}, {{0}}, {{1}}, {{2}};",
                f"{packed} {packed} {packed} > {packed}",
                lambda a, b, c, kind=kind: fused(a, b, c, kind),
            ),
            case(
                f"fma.rn.relu.{packed} {{r}}, {{0}}, {{1}}, {{2}};",
                f"{packed} {packed} {packed} > {packed}",
                lambda a, b, c, kind=kind: above_zero(fused(a, b, c, kind)),
            ),
            case(
                f"fma.rn.{kind} {{r}}, {{0}}, {{1}}, {{2}};",
                f"{kind} {kind} {kind} > {kind}",
                lambda a, b, c, kind=kind: fused(a, b, c, kind),
            ),
            case(f"min.{packed} {{r}}, {{0}}, {{1}};", f"{packed} {packed} > {packed}", least),
            case(f"max.{packed} {{r}}, {{0}}, {{1}};", f"{packed} {packed} > {packed}", most),
            case(f"max.NaN.{packed} {{r}}, {{0}}, {{1}};", f"{packed} {packed} > {packed}", strict(most)),
            case(
                f"neg.{packed} {{r}}, {{0}}; fma.rn.{packed} {{r}}, {{r}}, {{1}}, {{1}};",
                f"{packed} {packed} > {packed}",
                lambda a, b, kind=kind: fused(-a, b, b, kind),
            ),
        ]
    half = "f16x2 f16x2 > f16x2"
    found += [
        case("add.rn.f16x2 {r}, {0}, {1};", half, lambda a, b: added(a, b, "f16")),
        case("sub.rn.f16x2 {r}, {0}, {1};", half, lambda a, b: added(a, -b, "f16")),
        case("mul.rn.f16x2 {r}, {0}, {1};", half, lambda a, b: multiplied(a, b, "f16")),
        case("add.sat.f16x2 {r}, {0}, {1};", half, lambda a, b: saturated(added(a, b, "f16"))),
        case("mul.sat.f16x2 {r}, {0}, {1};", half, lambda a, b: saturated(multiplied(a, b, "f16"))),
        case("fma.rn.sat.f16x2 {r}, {0}, {1}, {1};", half, lambda a, b: saturated(fused(a, b, b, "f16"))),
        case("add.rn.f16 {r}, {0}, {1};", "f16 f16 > f16", lambda a, b: added(a, b, "f16")),
        case("abs.f16x2 {r}, {0}; add.rn.f16x2 {r}, {r}, {1};", half, lambda a, b: added(abs(a), b, "f16")),
    ]
    for how in ("eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"):
        compare = {**COMPARE, **UNORDERED}[how]
        join = {"lt": "or", "gtu": "xor"}.get(how, "and")
        found.append(
            case(
                f"{{{{ .reg .pred p, q, s; setp.gt.s16 s, {{2}}, 3; setp.{how}.{join}.f16x2 p|q, {{0}}, {{1}}, s; selp.u32 {{r}}, 1, 0, p; @q add.u32 {{r}}, {{r}}, 65536; }}}}",
                "f16x2 f16x2 s16 > u32",
                lambda a, b, c, compare=compare, join=JOIN[join]: sum(
                    join(bool(compare(x, y)), c > 3) << 16 * k
                    for k, (x, y) in enumerate(zip(a, b, strict=True))
                ),
            )
        )
    return found


def _scaled(a: int, b: float, factor: float) -> float | None:
    """Return a product times a power of two where it is far from the ends, so that it is the same however it is rounded."""
    found = multiplied(converted(a, "f32"), b, "f32")
    return found * factor if not found or 2**-100 < abs(found) < 2**100 else None


def _power(a: float) -> float:
    return math.inf if a > 1000 else 0.0 if a < -1000 else 2.0**a


def _logarithm(a: float) -> float:
    return (
        math.log2(a) if a > 0 and a < math.inf else a if a == math.inf else -math.inf if a == 0 else math.nan
    )


def _turned(function: Callable[[float], float], a: float) -> float | None:
    """Return a sine or cosine where the approximation is one, which has an absolute error."""
    if not math.isfinite(a):
        return math.nan
    return function(a) if abs(a) < 3 and (abs(function(a)) > 2**-2) else None


CASES = [
    *_integer_cases(),
    *_float_cases(),
    *_single_cases(),
    *_scaled_cases(),
    *_conversion_cases(),
    *_packed_cases(),
]


@cache
def groups() -> list[tuple[tuple[str, ...], list[Case]]]:
    """Return the cases of each kernel: those that have the same inputs, ten at most."""
    by: dict[tuple[str, ...], list[Case]] = {}
    for one in CASES:
        by.setdefault(one.inputs, []).append(one)
    return [
        (kinds, found[at : at + _PER_KERNEL])
        for kinds, found in by.items()
        for at in range(0, len(found), _PER_KERNEL)
    ]


def _register(kind: str) -> str:
    return {"f32": "f32", "f64": "f64"}.get(kind, f"b{max(16, 8 * TYPES[kind].itemsize)}")


def _access(kind: str) -> str:
    return kind if kind[0] in "su" or kind in {"f32", "f64"} else f"b{8 * TYPES[kind].itemsize}"


def ptx() -> str:
    """Return the module of all cases: each thread reads its inputs, and writes the result of each."""
    lines = [HEAD]
    for number, (kinds, cases) in enumerate(groups()):
        lines.append(f".visible .entry k{number}(.param .u64 from, .param .u64 to) {{")
        lines += [f".reg .{_register(kind)} %i{k};" for k, kind in enumerate(kinds)]
        lines += [f".reg .{_register(one.result)} %o{k};" for k, one in enumerate(cases)]
        lines.append(".reg .b32 %t<4>; .reg .b64 %p<4>;")
        lines.append(
            "mov.u32 %t0, %tid.x; mov.u32 %t1, %ctaid.x; mov.u32 %t2, %ntid.x; mad.lo.u32 %t3, %t1, %t2, %t0;"
        )
        lines.append(
            "ld.param.u64 %p0, [from]; ld.param.u64 %p1, [to]; mad.wide.u32 %p0, %t3, 8, %p0; mad.wide.u32 %p1, %t3, 8, %p1;"
        )
        lines += [
            f"ld.global.{_access(kind)} %i{k}, [%p0 + {8 * THREADS * k}];" for k, kind in enumerate(kinds)
        ]
        for k, one in enumerate(cases):
            lines.append(one.ptx.format(*(f"%i{k}" for k in range(len(kinds))), r=f"%o{k}"))
            lines.append(f"st.global.{_access(one.result)} [%p1 + {8 * THREADS * k}], %o{k};")
        lines.append("ret; }")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    record("opcodes", ptx())
