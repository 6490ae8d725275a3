"""Operations of PTX, each with what Python says of it: the opcodes of the engine that compute, with their modifiers, are among them.

``python -m tests.gpu_opcodes`` assembles them anew, where there is ptxas.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from tests.gpu_machine import HEAD, record
from tests.gpu_numbers import (
    COMPARE,
    JOIN,
    THREADS,
    TYPES,
    UNORDERED,
    above_zero,
    added,
    converted,
    divided,
    dotted,
    field,
    flush,
    funnel,
    fused,
    highest,
    inserted,
    least,
    logarithm,
    lookup,
    most,
    multiplied,
    permuted,
    power,
    root,
    saturated,
    scaled,
    shifted,
    strict,
    to_integer,
    to_whole,
    trunc_div,
    trunc_rem,
    turned,
    wrapped,
)

BLOCK = 256
_PER_KERNEL = 10


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
    """Return a case whose types are written as ``u32 u32 > u32``; an opcode alone takes the inputs in their order."""
    taken, _, result = signature.partition(" > ")
    inputs = tuple(taken.split())
    if "{" not in ptx:
        ptx = f"{ptx} {{r}}, {', '.join(f'{{{k}}}' for k in range(len(inputs)))};"
    return Case(ptx, inputs, result, expected, error)


def _first(function: Callable[..., Any], *more: Any) -> Callable[..., Any]:
    """Return a function of the first of two inputs."""
    return lambda a, _: function(a, *more)


def _integer_cases() -> list[Case]:
    found = [
        case("add.u32", "u32 u32 > u32", lambda a, b: a + b),
        case("sub.u32", "u32 u32 > u32", lambda a, b: a - b),
        case("add.u32 {r}, {0}, 0x12345; add.u32 {r}, {r}, {1}; ", "u32 u32 > u32", lambda a, b: a + b + 0x12345),
        case("sub.u32 {r}, {0}, {1}; sub.u32 {r}, {r}, {2};", "u32 u32 u32 > u32", lambda a, b, c: a - b - c),
        case("mad.lo.u32", "u32 u32 u32 > u32", lambda a, b, c: a * b + c),
        case("mul.lo.u32 {r}, {0}, {1}; sub.u32 {r}, {r}, {2};", "u32 u32 u32 > u32", lambda a, b, c: a * b - c),
        case("mul.hi.u32", "u32 u32 > u32", lambda a, b: a * b >> 32),
        case("mul.hi.s32", "s32 s32 > s32", lambda a, b: a * b >> 32),
        case("mad.hi.u32", "u32 u32 u32 > u32", lambda a, b, c: (a * b >> 32) + c),
        case("mul.wide.u32", "u32 u32 > u64", lambda a, b: a * b),
        case("mul.wide.s32", "s32 s32 > s64", lambda a, b: a * b),
        case("mad.wide.u32", "u32 u32 u64 > u64", lambda a, b, c: a * b + c),
        case("mad.wide.s32", "s32 s32 s64 > s64", lambda a, b, c: a * b + c),
        case("mul.wide.s32 {r}, {0}, {1}; sub.s64 {r}, {r}, {2};", "s32 s32 s64 > s64", lambda a, b, c: a * b - c),
        case("add.u64", "u64 u64 > u64", lambda a, b: a + b),
        case("sub.u64", "u64 u64 > u64", lambda a, b: a - b),
        case("neg.s64 {r}, {0};", "s64 s64 > s64", lambda a, _: -a),
        case("add.u64 {r}, {0}, {1}; add.u64 {r}, {r}, {2};", "u64 u64 u64 > u64", lambda a, b, c: a + b + c),
        case("sub.u64 {r}, {0}, {1}; add.u64 {r}, {r}, {2};", "u64 u64 u64 > u64", lambda a, b, c: a - b + c),
        case("sub.u64 {r}, {0}, {1}; sub.u64 {r}, {r}, {2};", "u64 u64 u64 > u64", lambda a, b, c: a - b - c),
        case("mul.lo.u64", "u64 u64 > u64", lambda a, b: a * b),
        case("mul.hi.u64", "u64 u64 > u64", lambda a, b: a * b >> 64),
        case("mul.hi.s64", "s64 s64 > s64", lambda a, b: a * b >> 64),
        case("mad.lo.u64", "u64 u64 u64 > u64", lambda a, b, c: a * b + c),
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
        case("or.b64 {r}, {0}, {1}; xor.b64 {r}, {r}, {2};", "u64 u64 u64 > u64", lambda a, b, c: (a | b) ^ c),
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
        case("shl.b32", "u32 u32 > u32", lambda a, b: a << b if b < 32 else 0),
        case("shr.u32", "u32 u32 > u32", lambda a, b: shifted(a, b, 32)),
        case("shr.s32", "s32 u32 > s32", lambda a, b: shifted(a, b, 32)),
        case("shl.b64", "u64 u32 > u64", lambda a, b: a << b if b < 64 else 0),
        case("shr.u64", "u64 u32 > u64", lambda a, b: shifted(a, b, 64)),
        case("shr.s64", "s64 u32 > s64", lambda a, b: shifted(a, b, 64)),
        case("shl.b64 {r}, {0}, 37;", "u64 u32 > u64", lambda a, _: a << 37),
        case("shl.b64 {r}, {0}, 7;", "u64 u32 > u64", lambda a, _: a << 7),
        case("shr.u64 {r}, {0}, 7;", "u64 u32 > u64", lambda a, _: a >> 7),
        case("shr.s64 {r}, {0}, 7;", "s64 u32 > s64", lambda a, _: a >> 7),
        case("shr.s64 {r}, {0}, 39;", "s64 u32 > s64", lambda a, _: a >> 39),
        case("shf.l.clamp.b32", "u32 u32 u32 > u32", funnel(True, lambda by: min(by, 32))),
        case("shf.l.wrap.b32", "u32 u32 u32 > u32", funnel(True, lambda by: by & 31)),
        case("shf.r.clamp.b32", "u32 u32 u32 > u32", funnel(False, lambda by: min(by, 32))),
        case("shf.r.wrap.b32", "u32 u32 u32 > u32", funnel(False, lambda by: by & 31)),
        case("shf.l.wrap.b32 {r}, {0}, {1}, 5;", "u32 u32 > u32", lambda a, b: (a | b << 32) << 5 >> 32),
        case("shl.b32 {r}, {0}, 3; add.u32 {r}, {r}, {1};", "u32 u32 > u32", lambda a, b: (a << 3) + b),
        case("shl.b32 {r}, {0}, 3; sub.u32 {r}, {1}, {r};", "u32 u32 > u32", lambda a, b: b - (a << 3)),
        case("shl.b32 {r}, {0}, 3; sub.u32 {r}, {r}, {1};", "u32 u32 > u32", lambda a, b: (a << 3) - b),
        case("shr.u32 {r}, {0}, 27; add.u32 {r}, {r}, {1};", "u32 u32 > u32", lambda a, b: (a >> 27) + b),
        case("shr.s32 {r}, {0}, 27; add.s32 {r}, {r}, {1};", "s32 s32 > s32", lambda a, b: (a >> 27) + b),
        case("shl.b64 {r}, {0}, 2; add.u64 {r}, {r}, {1};", "u64 u64 > u64", lambda a, b: (a << 2) + b),
        case("cvt.s64.s32 {r}, {0}; add.s64 {r}, {r}, {1};", "s32 s64 > s64", lambda a, b: a + b),
        case("cvt.s64.s32 {r}, {0}; shl.b64 {r}, {r}, 2; add.s64 {r}, {r}, {1};", "s32 s64 > s64", lambda a, b: (a << 2) + b),
        case("cvt.s64.s32 {r}, {0}; shl.b64 {r}, {r}, 4; sub.s64 {r}, {r}, {1};", "s32 s64 > s64", lambda a, b: (a << 4) - b),
        case("cvt.s64.s32 {r}, {0}; sub.s64 {r}, {r}, {1};", "s32 s64 > s64", lambda a, b: a - b),
        case("shr.s32 {r}, {0}, 31; shr.u32 {r}, {r}, 27; add.s32 {r}, {r}, {0};", "s32 s32 > s32", lambda a, _: a + (31 if a < 0 else 0)),
        case("prmt.b32", "u32 u32 u32 > u32", permuted),
        case("prmt.b32 {r}, {0}, {1}, 0x5b10;", "u32 u32 > u32", lambda a, b: permuted(a, b, 0x5B10)),
        case("bfe.u32", "u32 u32 u32 > u32", lambda a, b, c: field(a, b, c, 32, False)),
        case("bfe.s32", "s32 u32 u32 > s32", lambda a, b, c: field(a, b, c, 32, True)),
        case("bfi.b32 {r}, {0}, {1}, {2}, 9;", "u32 u32 u32 > u32", lambda a, b, c: inserted(a, b, c, 9)),
        case("bfe.u64 {r}, {0}, 5, 20;", "u64 u64 > u64", lambda a, _: a >> 5 & 0xFFFFF),
        case("bfind.u32 {r}, {0};", "u32 u32 > u32", lambda a, _: highest(a, False)),
        case("bfind.s32 {r}, {0};", "s32 s32 > u32", lambda a, _: highest(a, True)),
        case("bfind.shiftamt.u32 {r}, {0};", "u32 u32 > u32", lambda a, _: 31 - highest(a, False) if a else -1),
        case("bfind.u64 {r}, {0};", "u64 u64 > u32", lambda a, _: highest(a, False)),
        case("clz.b32 {r}, {0};", "u32 u32 > u32", lambda a, _: 32 - a.bit_length()),
        case("clz.b64 {r}, {0};", "u64 u64 > u32", lambda a, _: 64 - a.bit_length()),
        case("popc.b32 {r}, {0};", "u32 u32 > u32", lambda a, _: a.bit_count()),
        case("popc.b64 {r}, {0};", "u64 u64 > u32", lambda a, _: a.bit_count()),
        case("brev.b32 {r}, {0};", "u32 u32 > u32", lambda a, _: int(f"{a:032b}"[::-1], 2)),
        case("bmsk.clamp.b32", "u32 u32 > u32", lambda a, b: (1 << min(b, 32)) - 1 << min(a, 32)),
        case("bmsk.wrap.b32", "u32 u32 > u32", lambda a, b: (1 << (b & 31)) - 1 << (a & 31)),
        case("szext.clamp.u32", "u32 u32 > u32", lambda a, b: field(a, 0, min(b, 32), 32, False)),
        case("szext.clamp.s32", "s32 u32 > s32", lambda a, b: field(a, 0, min(b, 32), 32, True)),
        case("szext.wrap.u32", "u32 u32 > u32", lambda a, b: field(a, 0, b & 31, 32, False)),
        case("szext.wrap.s32", "s32 u32 > s32", lambda a, b: field(a, 0, b & 31, 32, True)),
        case("dp4a.u32.u32", "u32 u32 u32 > u32", lambda a, b, c: dotted(a, b, c, False)),
        case("dp4a.s32.s32", "u32 u32 u32 > u32", lambda a, b, c: dotted(a, b, c, True)),
        case("cvt.s32.s8 {r}, {0};", "s8 s8 > s32", lambda a, _: a),
        case("cvt.s64.s16 {r}, {0};", "s16 s16 > s64", lambda a, _: a),
        case("cvt.u32.u8 {r}, {0};", "u8 u8 > u32", lambda a, _: a),
        case("mul.lo.s16", "s16 s16 > s16", lambda a, b: a * b),
    ]  # fmt: skip
    for kind in ("s32", "u32", "s64", "u64"):
        of = f"{kind} {kind} > {kind}"
        found += [
            case(f"min.{kind}", of, min),
            case(f"max.{kind}", of, max),
            case(f"min.{kind} {{r}}, {{0}}, {{1}}; min.{kind} {{r}}, {{r}}, {{2}};", f"{kind} {of}", min),
            case(f"max.{kind} {{r}}, {{0}}, {{1}}; max.{kind} {{r}}, {{r}}, {{2}};", f"{kind} {of}", max),
            case(f"min.{kind} {{r}}, {{0}}, {{1}}; max.{kind} {{r}}, {{r}}, 0;", of, lambda a, b: max(min(a, b), 0)),
            case(f"min.{kind} {{r}}, {{0}}, {{1}}; min.{kind} {{r}}, {{r}}, {{2}};", f"{kind} {of}", min),
            case(
                f"add.{kind} {{r}}, {{0}}, {{1}}; min.{kind} {{r}}, {{r}}, {{2}}; max.{kind} {{r}}, {{r}}, 0;",
                f"{kind} {of}",
                lambda a, b, c, kind=kind: max(min(wrapped(a + b, kind), c), 0),
            ),
            case(f"div.{kind}", of, trunc_div),
            case(f"rem.{kind}", of, trunc_rem),
        ]  # fmt: skip
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
                )  # fmt: skip
    return found


def _float_cases() -> list[Case]:
    found = []
    for kind in ("f32", "f64"):
        two, three = f"{kind} {kind} > {kind}", f"{kind} {kind} {kind} > {kind}"
        for how in ("rn", "rz", "rm", "rp"):
            found += [
                case(f"add.{how}.{kind}", two, partial(added, kind=kind, how=how)),
                case(f"mul.{how}.{kind}", two, partial(multiplied, kind=kind, how=how)),
                case(f"fma.{how}.{kind}", three, partial(fused, kind=kind, how=how)),
            ]
        found += [
            case(f"sub.rn.{kind}", two, lambda a, b, kind=kind: added(a, -b, kind)),
            case(f"div.rn.{kind}", two, partial(divided, kind=kind)),
            case(f"rcp.rn.{kind} {{r}}, {{0}};", two, lambda a, _, kind=kind: divided(1, a, kind)),
            case(f"sqrt.rn.{kind} {{r}}, {{0}};", two, lambda a, _, kind=kind: root(a, kind)),
            case(f"min.{kind}", two, least),
            case(f"max.{kind}", two, most),
            case(f"abs.{kind} {{r}}, {{0}}; add.{kind} {{r}}, {{r}}, {{1}};", two, lambda a, b, kind=kind: added(abs(a), b, kind)),
        ]  # fmt: skip
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
                )  # fmt: skip
    return found


def _single_cases() -> list[Case]:
    two = "f32 f32 > f32"
    return [
        case("div.rz.f32", two, partial(divided, kind="f32", how="rz")),
        case("add.ftz.f32", two, lambda a, b: flush(added(flush(a), flush(b), "f32"))),
        case("mul.ftz.f32", two, lambda a, b: flush(multiplied(flush(a), flush(b), "f32"))),
        case("fma.rn.ftz.f32 {r}, {0}, {1}, {1};", two, lambda a, b: flush(fused(flush(a), flush(b), flush(b), "f32"))),
        case("add.sat.f32", two, lambda a, b: saturated(added(a, b, "f32"))),
        case("mul.sat.f32", two, lambda a, b: saturated(multiplied(a, b, "f32"))),
        case("fma.rn.sat.f32 {r}, {0}, {1}, {1};", two, lambda a, b: saturated(fused(a, b, b, "f32"))),
        case("min.ftz.f32", two, lambda a, b: least(flush(a), flush(b))),
        case("min.NaN.f32", two, strict(least)),
        case("max.NaN.f32", two, strict(most)),
        case("set.lt.ftz.f32.f32", two, lambda a, b: float(flush(a) < flush(b))),
        case("{{ .reg .pred p; setp.gtu.ftz.f32 p, {0}, {1}; selp.u32 {r}, 1, 0, p; }}", "f32 f32 > u32", lambda a, b: int(not flush(a) <= flush(b))),
        case("mul.f32 {r}, {0}, 0f3F000000; mul.f32 {r}, {r}, {1};", two, lambda a, b: multiplied(multiplied(a, 0.5, "f32"), b, "f32")),
        case("div.rn.f64 {r}, {0}, 0d4008000000000000;", "f64 f64 > f64", lambda a, _: divided(a, 3, "f64")),
        case("add.f64 {r}, {0}, 0d7ff0000000000000;", "f64 f64 > f64", lambda a, _: added(a, math.inf, "f64")),
        case(
            "{{ .reg .pred p; setp.gt.f64 p, {0}, {1}; selp.f64 {r}, {0}, 0d7ff0000000000000, p; }}",
            "f64 f64 > f64",
            lambda a, b: a if a > b else math.inf,
        ),
        case("fma.rn.f32 {r}, {0}, 0f3FC00000, 0fBF800000;", two, lambda a, _: fused(a, 1.5, -1, "f32")),
        case("rcp.approx.ftz.f32 {r}, {0};", two, lambda a, _: flush(divided(1, flush(a), "f32")), 2**-22),
        case("rcp.approx.f32 {r}, {0};", two, lambda a, _: divided(1, a, "f32"), 2**-22),
        case("div.approx.f32", two, lambda a, b: divided(a, b, "f32") if 2**-126 <= abs(b) <= 2**126 else None, 2**-21),
        case("div.full.f32", two, lambda a, b: divided(a, b, "f32") if abs(a) > 2**-100 else None, 2**-21),
        case("sqrt.approx.ftz.f32 {r}, {0};", two, lambda a, _: root(flush(a), "f32"), 2**-22),
        case("sqrt.approx.f32 {r}, {0};", two, lambda a, _: root(a, "f32"), 2**-22),
        case("rsqrt.approx.f32 {r}, {0};", two, lambda a, _: divided(1, root(a, "f64"), "f32") if a else math.copysign(math.inf, a), 2**-22),
        case("ex2.approx.f32 {r}, {0};", two, lambda a, _: converted(power(a), "f32"), 2**-21),
        case("ex2.approx.ftz.f32 {r}, {0};", two, lambda a, _: flush(converted(power(flush(a)), "f32")), 2**-21),
        case("lg2.approx.f32 {r}, {0};", two, lambda a, _: logarithm(a), 2**-21),
        case("sin.approx.f32 {r}, {0};", two, lambda a, _: turned(math.sin, a), 2**-20),
        case("cos.approx.f32 {r}, {0};", two, lambda a, _: turned(math.cos, a), 2**-20),
        case("tanh.approx.f32 {r}, {0};", two, lambda a, _: converted(math.tanh(a), "f32"), 2**-10),
        case("rcp.approx.ftz.f64 {r}, {0};", "f64 f64 > f64", lambda a, _: flush(divided(1, flush(a, "f64"), "f64"), "f64"), 2**-19),
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
    ]  # fmt: skip


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
                lambda a, b, factor=factor: scaled(a, b, factor),
            )
        )  # fmt: skip
    for how, compare in {**COMPARE, **UNORDERED}.items():
        found.append(case(f"set.{how}.f32.f32", two, lambda a, b, compare=compare: float(compare(a, b))))
        join = {"gt": "or", "neu": "xor"}.get(how, "and")
        found.append(
            case(
                f"{{{{ .reg .pred q; setp.ne.u32 q, {{2}}, 3; set.{how}.{join}.u32.f32 {{r}}, {{0}}, {{1}}, q; }}}}",
                "f32 f32 u32 > u32",
                lambda a, b, c, compare=compare, join=JOIN[join]: -join(bool(compare(a, b)), c != 3),
            )
        )  # fmt: skip
    return found


def _conversion_cases() -> list[Case]:
    found = []
    for how, name in zip(("rn", "rz", "rm", "rp"), ("rni", "rzi", "rmi", "rpi"), strict=True):
        found += [
            case(f"cvt.{how}.f32.f64 {{r}}, {{0}};", "f64 f64 > f32", _first(converted, "f32", how)),
            case(f"cvt.{how}.f16.f32 {{r}}, {{0}};", "f32 f32 > f16", _first(converted, "f16", how)),
            case(f"cvt.{name}.f32.f32 {{r}}, {{0}};", "f32 f32 > f32", _first(to_whole(name))),
            case(f"cvt.{name}.f64.f64 {{r}}, {{0}};", "f64 f64 > f64", _first(to_whole(name))),
            case(f"cvt.{name}.f16.f16 {{r}}, {{0}};", "f16 f16 > f16", _first(to_whole(name))),
        ]
        for source in ("f16", "f32", "f64"):
            kinds = ("s32", "u32", "s64", "u64") if source != "f16" else ("s32", "u64")
            for kind in (*kinds, *(("s16", "u16", "s8", "u8") if name == "rzi" and source == "f32" else ())):
                result = kind if kind[1:] != "8" else f"{kind[0]}16"
                found.append(
                    case(f"cvt.{name}.{kind}.{source} {{r}}, {{0}};", f"{source} {source} > {result}", _first(to_integer(name, source, kind)))
                )  # fmt: skip
        for kind in ("s32", "u32", "s64", "u64"):
            for result in ("f32", "f64", *(("f16",) if how in {"rn", "rz"} else ())):
                found.append(case(f"cvt.{how}.{result}.{kind} {{r}}, {{0}};", f"{kind} {kind} > {result}", _first(converted, result, how)))  # fmt: skip
    for kind in ("s8", "u8", "s16", "u16"):
        for result in ("f16", "f32", "f64"):
            found.append(case(f"cvt.rn.{result}.{kind} {{r}}, {{0}};", f"{kind} {kind} > {result}", _first(converted, result)))  # fmt: skip
    found += [
        case("{{ .reg .b32 t; bfe.u32 t, {0}, 8, 8; cvt.rn.f32.u32 {r}, t; }}", "u32 > f32", lambda a: float(a >> 8 & 255)),
        case("{{ .reg .b32 t; bfe.u32 t, {0}, 24, 8; cvt.rn.f64.u32 {r}, t; }}", "u32 > f64", lambda a: float(a >> 24)),
        case("{{ .reg .b32 t; bfe.s32 t, {0}, 16, 8; cvt.rn.f32.s32 {r}, t; }}", "u32 > f32", lambda a: float((a >> 16 & 255 ^ 128) - 128)),
        case("{{ .reg .b16 h, k; mov.b32 {{h, k}}, {0}; cvt.rn.f32.s16 {r}, k; }}", "u32 > f32", lambda a: float((a >> 16 ^ 0x8000) - 0x8000)),
        case("{{ .reg .b16 h, k; mov.b32 {{h, k}}, {0}; cvt.rn.f64.u16 {r}, k; }}", "u32 > f64", lambda a: float(a >> 16)),
        case("cvt.rzi.ftz.u32.f32 {r}, {0};", "f32 f32 > u32", lambda a, _: to_integer("rzi", "f32", "u32")(flush(a))),
        case("cvt.rmi.ftz.f32.f32 {r}, {0};", "f32 f32 > f32", lambda a, _: to_whole("rmi")(flush(a))),
        case("cvt.f64.f32 {r}, {0};", "f32 f32 > f64", lambda a, _: a),
        case("cvt.ftz.f64.f32 {r}, {0};", "f32 f32 > f64", lambda a, _: flush(a)),
        case("cvt.rn.ftz.f32.f64 {r}, {0};", "f64 f64 > f32", lambda a, _: flush(converted(a, "f32"))),
        case("cvt.f32.f16 {r}, {0};", "f16 f16 > f32", lambda a, _: a),
        case("cvt.f64.f16 {r}, {0};", "f16 f16 > f64", lambda a, _: a),
        case("cvt.rn.f16.f64 {r}, {0};", "f64 f64 > f16", _first(converted, "f16")),
        case("cvt.rn.bf16.f32 {r}, {0};", "f32 f32 > bf16", _first(converted, "bf16")),
        case("cvt.rz.bf16.f32 {r}, {0};", "f32 f32 > bf16", _first(converted, "bf16", "rz")),
        case("{{ .reg .f32 t; neg.f32 t, {0}; cvt.rn.bf16.f32 {r}, t; }}", "f32 f32 > bf16", lambda a, _: converted(-a, "bf16")),
    ]  # fmt: skip
    return found


def _packed_cases() -> list[Case]:
    found = []
    for kind in ("f16", "bf16"):
        packed, pair = f"{kind}x2", f"f32 f32 > {kind}x2"
        found += [
            case(f"cvt.rn.{packed}.f32 {{r}}, {{1}}, {{0}};", pair, lambda a, b, kind=kind: (converted(a, kind), converted(b, kind))),
            case(f"cvt.rz.{packed}.f32 {{r}}, {{1}}, {{0}};", pair, lambda a, b, kind=kind: (converted(a, kind, "rz"), converted(b, kind, "rz"))),
            case(
                f"cvt.rn.relu.{packed}.f32 {{r}}, {{1}}, {{0}};",
                pair,
                lambda a, b, kind=kind: tuple(0.0 if one <= 0 else converted(one, kind) for one in (a, b)),
            ),
            case(f"fma.rn.{packed}", f"{packed} {packed} {packed} > {packed}", partial(fused, kind=kind)),
            case(f"fma.rn.relu.{packed}", f"{packed} {packed} {packed} > {packed}", lambda a, b, c, kind=kind: above_zero(fused(a, b, c, kind))),
            case(f"fma.rn.{kind}", f"{kind} {kind} {kind} > {kind}", partial(fused, kind=kind)),
            case(f"min.{packed}", f"{packed} {packed} > {packed}", least),
            case(f"max.{packed}", f"{packed} {packed} > {packed}", most),
            case(f"max.NaN.{packed}", f"{packed} {packed} > {packed}", strict(most)),
            case(
                f"neg.{packed} {{r}}, {{0}}; fma.rn.{packed} {{r}}, {{r}}, {{1}}, {{1}};",
                f"{packed} {packed} > {packed}",
                lambda a, b, kind=kind: fused(-a, b, b, kind),
            ),
        ]  # fmt: skip
    half = "f16x2 f16x2 > f16x2"
    found += [
        case("add.rn.f16x2", half, partial(added, kind="f16")),
        case("sub.rn.f16x2", half, lambda a, b: added(a, -b, "f16")),
        case("mul.rn.f16x2", half, partial(multiplied, kind="f16")),
        case("add.sat.f16x2", half, lambda a, b: saturated(added(a, b, "f16"))),
        case("mul.sat.f16x2", half, lambda a, b: saturated(multiplied(a, b, "f16"))),
        case("fma.rn.sat.f16x2 {r}, {0}, {1}, {1};", half, lambda a, b: saturated(fused(a, b, b, "f16"))),
        case("add.rn.f16", "f16 f16 > f16", partial(added, kind="f16")),
        case("abs.f16x2 {r}, {0}; add.rn.f16x2 {r}, {r}, {1};", half, lambda a, b: added(abs(a), b, "f16")),
    ]
    for how in ("eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"):
        compare = {**COMPARE, **UNORDERED}[how]
        found += [
            case(f"set.{how}.f16x2.f16x2", half, lambda a, b, compare=compare: float(compare(a, b))),
            case(
                f"{{{{ .reg .pred q; setp.gt.s16 q, {{2}}, 3; set.{how}.and.u32.f16x2 {{r}}, {{0}}, {{1}}, q; }}}}",
                "f16x2 f16x2 s16 > u32",
                lambda a, b, c, compare=compare: sum(
                    0xFFFF * bool(compare(x, y) and c > 3) << 16 * k
                    for k, (x, y) in enumerate(zip(a, b, strict=True))
                ),
            ),
        ]
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
        )  # fmt: skip
    return found


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
