"""Kernels in PTX of what one thread alone does not show: memory, atomics, warps, control, barriers, orders and faults.

Most are in ``tests/data/gpu/programs.txt`` and ``newer.txt``; ``python -m tests.gpu_programs`` assembles them anew, where there is ptxas.
"""

from __future__ import annotations

import re
from itertools import product

from tests.gpu_machine import DATA, HEAD, record

# Of loads and stores: PTX's type, bytes, the register it takes, and how it is widened to 64 bits.
ACCESSES = {
    "u8": (1, "b16", "cvt.u64.u8"),
    "s8": (1, "b16", "cvt.s64.s8"),
    "u16": (2, "b16", "cvt.u64.u16"),
    "s16": (2, "b16", "cvt.s64.s16"),
    "u32": (4, "b32", "cvt.u64.u32"),
    "u64": (8, "b64", "mov.u64"),
}
BYTES = 16  # of a thread, in the kernels of loads and stores
RESULTS = sum(BYTES // size for size, _, _ in ACCESSES.values()) + 4
SPACES = ("global", "shared", "local", "generic")
# Atomics: operations by type.
ATOMICS = {
    "u32": "add inc dec min max",
    "s32": "min max",
    "b32": "and or xor exch cas",
    "u64": "add min max",
    "s64": "min max",
    "b64": "and or xor exch cas",
    **dict.fromkeys(("f32", "f64"), "add"),
    "f16x2": "add.noftz",
    "b16": "cas",
}
# Those that return nothing are another opcode.
REDUCTIONS = "add inc dec min max and or xor"
PLACES, ATOMIC_THREADS = 3, 64


def entry(name: str, body: str, shared: str = "") -> str:
    """Return a kernel of three 64-bit parameters, in %d0 to %d2; %r0 is the thread, %r1 the block, %r2 the size, %r3 the thread of all."""
    return f"""
.visible .entry {name}(.param .u64 a, .param .u64 b, .param .u64 c) {{
.reg .b16 %h<40>; .reg .b32 %r<80>; .reg .b64 %d<80>; .reg .f32 %f<40>; .reg .f64 %g<20>; .reg .pred %p<30>;
{shared}
ld.param.u64 %d0, [a]; ld.param.u64 %d1, [b]; ld.param.u64 %d2, [c];
mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mad.lo.u32 %r3, %r1, %r2, %r0;
{body}
ret;
}}
"""


def _accesses(space: str) -> str:
    """Return a kernel that writes 16 bytes of each thread to a space piece by piece, and reads them back, widened."""
    declared = ".shared .align 16 .b8 s[512]; .local .align 16 .b8 l[1024];"
    lines = [
        f"""mad.wide.u32 %d3, %r3, 16, %d0;
mad.wide.u32 %d4, %r3, {8 * RESULTS}, %d1;
and.b32 %r10, %r0, 31;
mov.u32 %r11, s; mad.lo.u32 %r12, %r10, 16, %r11;
mov.u32 %r13, l; mad.lo.u32 %r14, %r10, 16, %r13;
mad.wide.u32 %d5, %r3, 16, %d2;
.reg .b64 at; .reg .b32 near;"""
    ]
    if space == "generic":  # each third of the threads another space, so that none can be known
        lines.append("""cvt.u64.u32 %d6, %r12; cvta.shared.u64 %d6, %d6;
cvt.u64.u32 %d7, %r14; cvta.local.u64 %d7, %d7;
rem.u32 %r15, %r0, 3; setp.eq.u32 %p1, %r15, 0; setp.eq.u32 %p2, %r15, 1;
selp.u64 at, %d6, %d7, %p1; selp.u64 at, %d5, at, %p2;""")
    of = {"global": "%d5", "shared": "%r12", "local": "%r14", "generic": "at"}[space]
    dot, back = "" if space == "generic" else f".{space}", of
    volatile = f".volatile{dot}"
    if space == "local":  # read where nobody can tell that it is the same place: b begins with a zero
        back, volatile = "%r17", dot
        lines.append("ld.global.u32 %r16, [%d2]; add.u32 %r17, %r14, %r16;")
    place = 0
    for kind, (size, register, widen) in ACCESSES.items():
        lines.append(f"{{ .reg .{register} v; .reg .b64 w;")
        lines += [
            f"ld.global.{kind} v, [%d3 + {at}]; st{volatile}.{kind} [{of} + {at}], v;"
            for at in range(0, BYTES, size)
        ]
        for k in range(BYTES // size):
            lines.append(
                f"ld{volatile}.{kind} v, [{back} + {size * k}]; {widen} w, v; st.global.u64 [%d4 + {8 * place}], w;"
            )
            place += 1
        lines.append("}")
    lines.append(f"""{{ .reg .b32 v<4>; .reg .b64 w<2>;
ld.global.v4.u32 {{v0, v1, v2, v3}}, [%d3]; xor.b32 v0, v0, 1;
st{dot}.v4.u32 [{of}], {{v0, v1, v2, v3}}; bar.warp.sync -1; ld{volatile}.v2.u32 {{v2, v3}}, [{back}];
mov.b64 w0, {{v2, v3}}; st.global.u64 [%d4 + {8 * place}], w0; ld{volatile}.v2.u64 {{w0, w1}}, [{back}];
st.global.v2.u64 [%d4 + {8 * place + 16}], {{w0, w1}}; st{volatile}.v2.u32 [{of}], {{v3, v2}};
ld{volatile}.u64 w0, [{back}]; st.global.u64 [%d4 + {8 * place + 8}], w0; }}""")
    return entry(f"access_{space}", "\n".join(lines), declared)


def atomics() -> list[tuple[str, str, str, bool]]:
    """Return the atomics: space, operation, type, and whether what was there is returned."""
    return [
        (space, operation, kind, returns)
        for space in ("global", "shared", "generic")
        for kind, operations in ATOMICS.items()
        for operation in operations.split()
        for returns in (True, False)
        if returns or operation.partition(".")[0] in REDUCTIONS.split()
    ]


def _atomic(space: str, operation: str, kind: str, returns: bool) -> str:
    """Return a kernel in which each thread updates one of three places: values at b, places at a, what was there to c."""
    size = 8 if "64" in kind else 2 if kind == "b16" else 4
    register = {"f32": "f32", "f64": "f64"}.get(kind, f"b{8 * size}")
    plain = kind if kind in {"f32", "f64"} else f"b{8 * size}"
    lines = [
        f""".reg .{register} v, w, o; .reg .b64 at, g; .reg .b32 near;
rem.u32 %r10, %r0, {PLACES};
mad.wide.u32 %d3, %r0, 16, %d1; mad.wide.u32 %d4, %r0, 8, %d2;
ld.global.{plain} v, [%d3]; ld.global.{plain} w, [%d3 + 8];
mad.wide.u32 g, %r10, 8, %d0; mov.u32 near, s; mad.lo.u32 near, %r10, 8, near;"""
    ]
    if space != "global":  # the first threads bring the places, and take them back
        lines.append(f"""setp.ge.u32 %p1, %r0, {PLACES};
@!%p1 ld.global.u64 %d5, [g]; @!%p1 st.shared.u64 [near], %d5; bar.sync 0;""")
    of = {"global": "g", "shared": "near", "generic": "at"}[space]
    dot = "" if space == "generic" else f".{space}"
    if space == "generic":  # those of the third place stay in global memory
        lines += [
            "cvt.u64.u32 at, near; cvta.shared.u64 at, at; setp.eq.u32 %p2, %r10, 2; selp.u64 at, g, at, %p2;"
        ]
    second = ", w" if operation == "cas" else ""
    if returns:
        lines += [f"atom{dot}.{operation}.{kind} o, [{of}], v{second};", f"st.global.{plain} [%d4], o;"]
    else:
        lines += [f"red{dot}.{operation}.{kind} [{of}], v;"]
    if space != "global":
        lines += [
            "bar.sync 0; @%p1 bra END; ld.shared.u64 %d5, [near];",
            "setp.eq.u32 %p2, %r10, 2;" if space == "generic" else "setp.ne.u32 %p2, 0, 0;",
        ]
        lines += ["@!%p2 st.global.u64 [g], %d5; END:"]
    name = f"atomic_{space}_{operation.replace('.', '_')}_{kind}_{'old' if returns else 'new'}"
    return entry(name, "\n".join(lines), ".shared .align 8 .b8 s[64];")


SHUFFLES = [(mode, width) for mode in ("idx", "up", "down", "bfly") for width in (32, 16, 8, 4)]


def _shuffle(mode: str, width: int) -> str:
    """Return a body in which each lane asks another: values at a, which at b, results and predicates to c."""
    clamp = (32 - width) << 8 | (0 if mode == "up" else 31)
    return f"""mad.wide.u32 %d3, %r0, 4, %d0; mad.wide.u32 %d4, %r0, 4, %d1; mad.wide.u32 %d5, %r0, 8, %d2;
ld.global.u32 %r4, [%d3]; ld.global.u32 %r5, [%d4];
shfl.sync.{mode}.b32 %r6|%p1, %r4, %r5, {clamp}, -1; selp.u32 %r7, 1, 0, %p1; st.global.v2.u32 [%d5], {{%r6, %r7}};"""


EACH = "mad.wide.u32 %d3, %r3, 4, %d0; mad.wide.u32 %d4, %r3, 4, %d1; mad.wide.u32 %d5, %r3, 4, %d2;"


def _written(file: str) -> str:
    """Return the kernels of a file of the tests' data, behind what it begins with."""
    text = re.sub("^#.*\n|^\n", "", (DATA / file).read_text(encoding="utf-8"), flags=re.MULTILINE)
    head, *found = re.split(r"^entry (\w+):(.*)\n", text.replace("EACH", EACH), flags=re.MULTILINE)
    return head + "".join(map(entry, found[::3], found[2::3], found[1::3]))


def _predicates() -> dict[str, str]:
    """Return the bodies of kernels that ask many bits of a word, by their names: seven, and more predicates than there are."""
    asked = [f"and.b32 %r6, %r4, {1 << k}; setp.ne.u32 %p{k}, %r6, 0;" for k in range(24)]
    few = "".join(f"@%p{k} st.global.u32 [%d6 + {4 * k}], {k + 10};" for k in range(7))
    added = "".join(f"@%p{k} add.u32 %r5, %r5, {3 ** (k % 15) + k};" for k in range(24))
    scaled = "".join(f"@!%p{k} mad.lo.u32 %r5, %r5, 3, {k};" for k in range(24))
    begin = f"{EACH} ld.global.u32 %r4, [%d3]; mov.u32 %r5, 0; mad.wide.u32 %d6, %r3, 32, %d1;"
    return {
        "few_predicates": begin + "".join(asked[:7]) + few,
        "predicates": f"{begin} {''.join(asked)} bar.sync 0; {added} bar.sync 0; {scaled} st.global.u32 [%d4], %r5;",
    }


TABLE = [(37 * k + 11 + k * k) % 256 for k in range(128)]


# Products of tensor cores: columns of the first matrix, its type, the type of what is added.
PRODUCTS = [
    *((depth, kind, "f32") for depth in (8, 16) for kind in ("f16", "bf16")),
    *((depth, "f16", "f16") for depth in (8, 16)),
    *((depth, "tf32", "f32") for depth in (4, 8)),
]


def _product(depth: int, kind: str, added: str) -> str:
    """Return a kernel whose lanes read their registers of three matrices, one word after the other, and write their product in place."""
    left, right = (depth // 2, depth // 4) if kind == "tf32" else (depth // 4, depth // 8)
    words = 4 if added == "f32" else 2
    registers = iter(range(20, 40))
    a, b, c = ([f"%r{next(registers)}" for _ in range(count)] for count in (left, right, words))
    lines = ["mul.lo.u32 %r4, %r0, 4; cvt.u64.u32 %d3, %r4;"]
    for base, of in (("%d0", a), ("%d1", b), ("%d2", c)):
        lines.append(
            f"mad.lo.u32 %r5, %r0, {4 * len(of)}, 0; cvt.u64.u32 %d4, %r5; add.u64 %d5, {base}, %d4;"
        )
        lines += [f"ld.global.u32 {one}, [%d5 + {4 * at}];" for at, one in enumerate(of)]
    held = [f"%f{at}" for at in range(words)] if added == "f32" else c
    if added == "f32":
        lines += [f"mov.b32 {to}, {one};" for to, one in zip(held, c, strict=True)]
    sets = ", ".join(f"{{{', '.join(of)}}}" for of in (held, a, b, held))
    lines.append(f"mma.sync.aligned.m16n8k{depth}.row.col.{added}.{kind}.{kind}.{added} {sets};")
    lines += [
        f"st.global.{'f32' if added == 'f32' else 'u32'} [%d5 + {4 * at}], {one};"
        for at, one in enumerate(held)
    ]
    return entry(f"product_{depth}_{kind}_{added}", "\n".join(lines))


def _matrices(count: int, across: str) -> str:
    """Return a kernel that copies four matrices of 8 rows to shared memory, a row a lane, and reads as many of them as matrices."""
    to = ", ".join(f"%r{10 + at}" for at in range(count))
    return entry(
        f"matrices_{count}{across.replace('.', '_')}",
        f"""mul.lo.u32 %r4, %r0, 16; cvt.u64.u32 %d3, %r4; add.u64 %d4, %d0, %d3; mov.u32 %r5, s; add.u32 %r6, %r5, %r4; ld.global.v4.u32 {{%r20, %r21, %r22, %r23}}, [%d4];
st.shared.v4.u32 [%r6], {{%r20, %r21, %r22, %r23}}; bar.sync 0; ldmatrix.sync.aligned.m8n8.x{count}{across}.shared.b16 {{{to}}}, [%r6]; add.u64 %d5, %d1, %d3;"""
        + "".join(f"st.global.u32 [%d5 + {4 * at}], %r{10 + at};" for at in range(count)),
        ".shared .align 16 .b8 s[512];",
    )


def ptx() -> str:
    """Return the module of all of them."""
    parts = [HEAD, _written("programs.txt").replace("{TABLE}", f"{{{', '.join(map(str, TABLE))}}}")]
    parts += [_accesses(space) for space in SPACES]
    parts += [_atomic(*one) for one in atomics()]
    parts += [_product(*one) for one in PRODUCTS]
    parts += [_matrices(count, across) for count in (1, 2, 4) for across in ("", ".trans")]
    parts += [entry(f"shuffle_{mode}_{width}", _shuffle(mode, width)) for mode, width in SHUFFLES]
    parts += [entry(name, body) for name, body in _predicates().items()]
    return "".join(parts)


# What PTX is asked for beside what all architectures have.
NEWER = {90: "8.1", 100: "8.8"}


# Of integers to bfloat16: the direction of rounding, and the type.
CONVERSIONS = [*product(("rn", "rz", "rm", "rp"), ("s16", "u16", "s32", "u32", "s64", "u64"))]


def _conversions() -> str:
    """Return a kernel that converts the lowest bits of the integers at a: what each of a thread gives, to b."""
    of = {"16": "%h0", "32": "%r4", "64": "%d5"}
    lines = [
        f"""mad.wide.u32 %d3, %r3, 8, %d0; mad.wide.u32 %d4, %r3, {2 * len(CONVERSIONS)}, %d1;
ld.global.u64 %d5, [%d3]; cvt.u32.u64 %r4, %d5; cvt.u16.u64 %h0, %d5;"""
    ]
    lines += [
        f"cvt.{how}.bf16.{kind} %h1, {of[kind[1:]]}; st.global.b16 [%d4 + {2 * at}], %h1;"
        for at, (how, kind) in enumerate(CONVERSIONS)
    ]
    return entry("to_bfloat16", "\n".join(lines))


def newer(architecture: int) -> str:
    """Return a module of what PTX has from sm_90 on, or from sm_100 on."""
    kernels = _written("newer.txt")
    kernels = kernels if architecture >= 100 else kernels[: kernels.index("\n.visible .entry wide")]
    head = HEAD.replace("sm_80", f"sm_{architecture}").replace("8.0", NEWER[architecture])
    return head + kernels + _conversions()


if __name__ == "__main__":
    for one in NEWER:
        record("newer", newer(one), [one])
    record("programs", ptx())
