"""Kernels in PTX of what one thread alone does not show: memory, atomics, warps, control, barriers, orders and faults.

``python -m tests.gpu_programs`` assembles them anew, where there is ptxas.
"""

from __future__ import annotations

from tests.gpu_machine import HEAD, record

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
# Atomics: operations by type, and where.
ATOMICS = {
    "global": {
        "u32": "add inc dec min max",
        "s32": "min max",
        "b32": "and or xor exch cas",
        "u64": "add min max",
        "s64": "min max",
        "b64": "and or xor exch cas",
        "f32": "add",
        "f64": "add",
        "f16x2": "add.noftz",
        "b16": "cas",
    }
}
ATOMICS["shared"] = ATOMICS["generic"] = ATOMICS["global"]
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
    found = []
    for space, kinds in ATOMICS.items():
        for kind, operations in kinds.items():
            for operation in operations.split():
                found.append((space, operation, kind, True))
                if operation.partition(".")[0] in REDUCTIONS.split():
                    found.append((space, operation, kind, False))
    return found


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


# What kernels declare of shared and local memory.
DECLARED = {
    "staged": ".shared .align 4 .b8 s[1028];",
    "copies": ".shared .align 16 .b8 s[1024];",
    "warp_flags": ".shared .align 4 .b8 s[4];",
    "unwritten": ".shared .align 4 .b8 s[128]; .local .align 4 .b8 l[16];",
    "outside_shared": ".shared .align 4 .b8 s[64];",
    "outside_local": ".local .align 4 .b8 l[64];",
    "spaces": ".shared .align 4 .b8 s[4]; .local .align 4 .b8 l[4];",
    "increments": ".shared .align 4 .b8 s[256];",
    "halves": ".local .align 4 .b8 l[16];",
}


def _programs() -> dict[str, str]:
    """Return the bodies of kernels by their names."""
    each = "mad.wide.u32 %d3, %r3, 4, %d0; mad.wide.u32 %d4, %r3, 4, %d1; mad.wide.u32 %d5, %r3, 4, %d2;"
    return {
        # Loads of constants at an index, and a switch, whose table is one.
        "constants": f"""{each} and.b32 %r4, %r0, 15; cvt.u64.u32 %d6, %r4; mov.u64 %d7, table; add.u64 %d8, %d7, %d6;
ld.const.u8 %h0, [%d8]; cvt.u32.u16 %r5, %h0; ld.const.s8 %h1, [%d8]; cvt.s32.s16 %r6, %h1;
mad.lo.u64 %d9, %d6, 2, %d7; ld.const.u16 %h2, [%d9]; cvt.u32.u16 %r7, %h2; ld.const.s16 %h3, [%d9]; cvt.s32.s16 %r8, %h3;
mad.lo.u64 %d10, %d6, 4, %d7; ld.const.u32 %r9, [%d10]; mad.lo.u64 %d11, %d6, 8, %d7; ld.const.u64 %d12, [%d11];
mad.wide.u32 %d13, %r3, 32, %d1; st.global.v4.u32 [%d13], {{%r5, %r6, %r7, %r8}}; st.global.u32 [%d13 + 16], %r9; st.global.u64 [%d13 + 24], %d12;""",
        "switch": f"""{each} ld.global.u32 %r4, [%d3]; mov.u32 %r5, 99; setp.gt.u32 %p1, %r4, 7; @%p1 bra OTHER;
TARGETS: .branchtargets L0, L1, L2, L3, L4, L5, L6, L7;
brx.idx %r4, TARGETS;
L0: mul.lo.u32 %r5, %r3, 3; bra DONE; L1: xor.b32 %r5, %r3, 77; bra DONE; L2: shl.b32 %r5, %r3, 5; bra DONE; L3: sub.u32 %r5, 5, %r3; bra DONE;
L4: mul.lo.u32 %r5, %r3, %r3; bra DONE; L5: not.b32 %r5, %r3; bra DONE; L6: popc.b32 %r5, %r3; bra DONE; L7: brev.b32 %r5, %r3; bra DONE;
OTHER: add.u32 %r5, %r5, %r3;
DONE: st.global.u32 [%d4], %r5;""",
        # Warps.
        **{f"shuffle_{mode}_{width}": _shuffle(mode, width) for mode, width in SHUFFLES},
        "votes": f"""{each} ld.global.u32 %r4, [%d3]; setp.gt.s32 %p1, %r4, 5; mad.wide.u32 %d6, %r3, 32, %d1;
vote.sync.ballot.b32 %r5, %p1, -1; vote.sync.all.pred %p2, %p1, -1; vote.sync.any.pred %p3, %p1, -1; vote.sync.uni.pred %p4, %p1, -1;
activemask.b32 %r6; selp.u32 %r7, 1, 0, %p2; selp.u32 %r8, 1, 0, %p3; selp.u32 %r9, 1, 0, %p4; mov.u32 %r10, 0; mov.u32 %r11, 0;
@%p1 bra YES; activemask.b32 %r10; setp.lt.s32 %p5, %r4, 0; vote.sync.ballot.b32 %r11, %p5, %r10; bra DONE;
YES: activemask.b32 %r10; setp.gt.s32 %p5, %r4, 50; vote.sync.ballot.b32 %r11, %p5, %r10;
DONE: st.global.v4.u32 [%d6], {{%r5, %r6, %r7, %r8}}; st.global.v4.u32 [%d6 + 16], {{%r9, %r10, %r11, %r11}};""",
        "matches": f"""{each} ld.global.u32 %r4, [%d3]; mad.wide.u32 %d6, %r3, 8, %d2; ld.global.u64 %d7, [%d6]; mad.wide.u32 %d8, %r3, 32, %d1;
match.any.sync.b32 %r5, %r4, -1; match.all.sync.b32 %r6|%p1, %r4, -1; match.any.sync.b64 %r7, %d7, -1; match.all.sync.b64 %r8|%p2, %d7, -1;
selp.u32 %r9, 1, 0, %p1; selp.u32 %r10, 1, 0, %p2; setp.lt.u32 %p3, %r0, 16; selp.u32 %r11, 0xffff, 0xffff0000, %p3;
match.any.sync.b32 %r12, %r4, %r11;
st.global.v4.u32 [%d8], {{%r5, %r6, %r7, %r8}}; st.global.v4.u32 [%d8 + 16], {{%r9, %r10, %r12, %r12}};""",
        "reductions": f"""{each} ld.global.u32 %r4, [%d3]; mad.wide.u32 %d6, %r3, 32, %d1;
redux.sync.add.s32 %r5, %r4, -1; redux.sync.min.s32 %r6, %r4, -1; redux.sync.max.s32 %r7, %r4, -1; redux.sync.min.u32 %r8, %r4, -1;
redux.sync.max.u32 %r9, %r4, -1; redux.sync.and.b32 %r10, %r4, -1; redux.sync.or.b32 %r11, %r4, -1; redux.sync.xor.b32 %r12, %r4, -1;
st.global.v4.u32 [%d6], {{%r5, %r6, %r7, %r8}}; st.global.v4.u32 [%d6 + 16], {{%r9, %r10, %r11, %r12}};""",
        "specials": """mov.u32 %r4, %tid.y; mov.u32 %r5, %tid.z; mov.u32 %r6, %ctaid.y; mov.u32 %r7, %ctaid.z; mov.u32 %r8, %ntid.y; mov.u32 %r9, %nctaid.x;
mov.u32 %r10, %nctaid.y; mov.u32 %r11, %ntid.z; mad.lo.u32 %r12, %r5, %r8, %r4; mad.lo.u32 %r12, %r12, %r2, %r0; mul.lo.u32 %r13, %r2, %r8; mul.lo.u32 %r13, %r13, %r11;
mad.lo.u32 %r14, %r7, %r10, %r6; mad.lo.u32 %r14, %r14, %r9, %r1; mad.lo.u32 %r15, %r14, %r13, %r12; mad.wide.u32 %d3, %r15, 64, %d0;
mov.u32 %r16, %laneid; mov.u32 %r17, %lanemask_eq; mov.u32 %r18, %lanemask_lt; mov.u32 %r19, %lanemask_le; mov.u32 %r20, %lanemask_gt; mov.u32 %r21, %lanemask_ge;
st.global.v4.u32 [%d3], {%r0, %r4, %r5, %r1}; st.global.v4.u32 [%d3 + 16], {%r6, %r7, %r16, %r17}; st.global.v4.u32 [%d3 + 32], {%r18, %r19, %r20, %r21};""",
        "clocks": """mov.u32 %r4, %clock; mov.u64 %d3, %clock64; mov.u32 %r5, %globaltimer_lo; mov.u64 %d4, %globaltimer; cvt.u32.u64 %r6, %d3; cvt.u32.u64 %r7, %d4;
st.global.v4.u32 [%d0], {%r4, %r6, %r5, %r7};""",
        # Control: loops of which each lane has its own number, nested, left early; functions that call others.
        "loops": f"""{each} ld.global.u32 %r4, [%d3]; and.b32 %r5, %r4, 15; shr.u32 %r6, %r4, 4; and.b32 %r6, %r6, 7; mov.u32 %r7, 0; mov.u32 %r8, 0;
OUTER: setp.ge.u32 %p1, %r8, %r5; @%p1 bra END; mov.u32 %r9, 0;
INNER: setp.gt.u32 %p2, %r9, %r6; @%p2 bra NEXT; mad.lo.u32 %r7, %r7, 3, %r9; setp.eq.u32 %p3, %r7, 40; @%p3 bra END; and.b32 %r10, %r7, 63; setp.eq.u32 %p4, %r10, 5; @%p4 bra NEXT;
add.u32 %r9, %r9, 1; bra INNER;
NEXT: add.u32 %r8, %r8, 1; and.b32 %r11, %r7, 1023; setp.eq.u32 %p5, %r11, 1022; @%p5 exit; bra OUTER;
END: st.global.u32 [%d4], %r7;""",
        "calls": f"""{each} ld.global.u32 %r4, [%d3]; mov.u32 %r5, 7; setp.lt.s32 %p1, %r4, 0; @%p1 bra SKIP;
{{ .param .b32 x; .param .b32 y; st.param.b32 [x], %r4; call (y), fold, (x); ld.param.b32 %r5, [y]; }}
SKIP: bar.warp.sync -1; st.global.u32 [%d4], %r5;""",
        # Lanes that took a loop and lanes that did not meet, and hand each other what they have.
        "meets": f"""{each} ld.global.u32 %r4, [%d3]; mov.u32 %r5, 7; mov.u32 %r8, 0; and.b32 %r9, %r4, 3; setp.lt.s32 %p1, %r4, 0; @%p1 bra SKIP;
AGAIN: ld.volatile.global.u32 %r6, [%d3]; add.u32 %r5, %r5, %r6; setp.lt.u32 %p2, %r8, %r9; add.u32 %r8, %r8, 1; @%p2 bra AGAIN;
st.volatile.global.u32 [%d4], %r5; ld.volatile.global.u32 %r5, [%d4]; add.u32 %r5, %r5, 1;
SKIP: bar.warp.sync -1; shfl.sync.bfly.b32 %r7, %r5, 1, 31, -1; st.global.u32 [%d4], %r7;""",
        "trap": "setp.eq.u32 %p1, %r0, 5; @%p1 trap;",
        "asserts": """{ .param .b64 p0; .param .b64 p1; .param .b32 p2; .param .b64 p3; .param .b64 p4; st.param.b64 [p0], %d0; st.param.b64 [p1], %d0; st.param.b32 [p2], 3;
st.param.b64 [p3], %d0; st.param.b64 [p4], 1; setp.ne.u32 %p1, %r0, 5; @%p1 bra SKIP; call.uni __assertfail, (p0, p1, p2, p3, p4); SKIP: }""",
        # Barriers of a block.
        "barriers": f"""{each} ld.global.u32 %r4, [%d3]; setp.gt.s32 %p1, %r4, 5; mad.wide.u32 %d6, %r3, 16, %d1;
bar.red.popc.u32 %r5, 0, %p1; bar.red.and.pred %p2, 0, %p1; bar.red.or.pred %p3, 0, !%p1; selp.u32 %r6, 1, 0, %p2; selp.u32 %r7, 1, 0, %p3;
shr.u32 %r8, %r0, 6; add.u32 %r9, %r8, 3; bar.red.popc.u32 %r10, %r9, 64, %p1;
st.global.v4.u32 [%d6], {{%r5, %r6, %r7, %r10}};""",
        "staged": f"""{each} mov.u32 %r10, s; mad.lo.u32 %r11, %r0, 4, %r10; ld.global.u32 %r4, [%d3]; setp.lt.u32 %p2, %r0, 32; @%p2 bra FIRST; bar.sync 1, %r2; bra BOTH;
FIRST: st.shared.u32 [s + 1024], %r4; bar.sync 1, %r2; BOTH: st.shared.u32 [%r11], %r4; bar.sync 0; sub.u32 %r12, %r2, 1; sub.u32 %r12, %r12, %r0;
mad.lo.u32 %r13, %r12, 4, %r10; ld.shared.u32 %r5, [%r13]; setp.ge.u32 %p3, %r0, 96; @%p3 exit; bar.sync 0; st.shared.u32 [%r11], %r5; bar.sync 2, 96; st.global.u32 [%d4], %r5;""",
        "never_met": "setp.lt.u32 %p1, %r0, 32; @%p1 bra ONE; bar.sync 1, 96; bra END; ONE: bar.sync 2, 96; END: st.global.u32 [%d0], %r0;",
        "disagree": "setp.lt.u32 %p1, %r0, 32; @%p1 bra ONE; bar.sync 1, 64; bra END; ONE: bar.sync 1, 96; END: st.global.u32 [%d0], %r0;",
        # Copies that end later.
        "copies": """mov.u32 %r10, s; mad.lo.u32 %r11, %r0, 32, %r10; mad.wide.u32 %d3, %r3, 32, %d0; mad.wide.u32 %d4, %r3, 32, %d1; setp.lt.u32 %p1, %r0, 7; mov.u32 %r4, -1;
st.shared.v4.u32 [%r11], {%r4, %r4, %r4, %r4}; st.shared.v4.u32 [%r11 + 16], {%r4, %r4, %r4, %r4};
cp.async.cg.shared.global [%r11], [%d3], 16, %p1; cp.async.ca.shared.global [%r11 + 16], [%d3 + 16], 8; cp.async.ca.shared.global [%r11 + 24], [%d3 + 24], 4;
cp.async.commit_group; cp.async.wait_group 0; ld.shared.v4.u32 {%r5, %r6, %r7, %r8}, [%r11]; st.global.v4.u32 [%d4], {%r5, %r6, %r7, %r8};
ld.shared.v4.u32 {%r5, %r6, %r7, %r8}, [%r11 + 16]; st.global.v4.u32 [%d4 + 16], {%r5, %r6, %r7, %r8};""",
        # Locks and flags: they spin until others have gone on.
        "lock": """SPIN: atom.global.cas.b32 %r4, [%d0], 0, 1; setp.ne.u32 %p1, %r4, 0; @%p1 bra SPIN; membar.gl;
ld.volatile.global.u32 %r5, [%d1]; add.u32 %r5, %r5, 1; st.volatile.global.u32 [%d1], %r5; membar.gl; atom.global.exch.b32 %r6, [%d0], 0;""",
        "patient_lock": """mov.u32 %r7, 1; SPIN: atom.global.cas.b32 %r4, [%d0], 0, 1; setp.eq.u32 %p1, %r4, 0; @%p1 bra HAVE; nanosleep.u32 %r7; shl.b32 %r7, %r7, 1; bra SPIN; HAVE: membar.gl;
ld.volatile.global.u32 %r5, [%d1]; add.u32 %r5, %r5, 1; st.volatile.global.u32 [%d1], %r5; membar.gl; atom.global.exch.b32 %r6, [%d0], 0;""",
        "look_back": """setp.ne.u32 %p1, %r0, 0; @%p1 bra WAIT; mov.u32 %r9, 0; setp.eq.u32 %p2, %r1, 0; @%p2 bra HAVE; sub.u32 %r8, %r1, 1; mad.wide.u32 %d3, %r8, 8, %d0;
SPIN: ld.volatile.global.u32 %r4, [%d3]; setp.eq.u32 %p3, %r4, 0; @%p3 bra SPIN; membar.gl; ld.volatile.global.u32 %r9, [%d3 + 4];
HAVE: add.u32 %r9, %r9, %r1; mad.wide.u32 %d4, %r1, 8, %d0; st.volatile.global.u32 [%d4 + 4], %r9; membar.gl; mov.u32 %r5, 1; st.volatile.global.u32 [%d4], %r5;
WAIT: bar.sync 0;""",
        "grid_barrier": """setp.ne.u32 %p1, %r0, 0; @%p1 bra WAIT; mov.u32 %r4, %nctaid.x; atom.global.add.u32 %r5, [%d0], 1;
SPIN: ld.volatile.global.u32 %r6, [%d0]; setp.lt.u32 %p2, %r6, %r4; @%p2 bra SPIN; WAIT: bar.sync 0; red.global.add.u32 [%d1], 1;""",
        "warp_flags": """mov.u32 %r10, s; shr.u32 %r4, %r0, 5; and.b32 %r5, %r0, 31; setp.ne.u32 %p1, %r5, 0; @%p1 exit; setp.ne.u32 %p2, %r4, 3; @%p2 bra WAIT; mov.u32 %r6, 5; st.volatile.shared.u32 [s], %r6; exit;
WAIT: ld.volatile.shared.u32 %r7, [s]; setp.ne.u32 %p3, %r7, 5; @%p3 bra WAIT; red.global.add.u32 [%d0], 1;""",
        "forever": "SPIN: ld.volatile.global.u32 %r4, [%d0]; setp.eq.u32 %p1, %r4, 0; @%p1 bra SPIN;",
        "forever_counting": "SPIN: add.u32 %r5, %r5, 1; ld.volatile.global.u32 %r4, [%d0]; st.volatile.global.u32 [%d1], %r5; setp.eq.u32 %p1, %r4, 0; @%p1 bra SPIN;",
        "by_the_clock": (
            "setp.ne.u32 %p1, %r1, 0; @%p1 bra OTHER; mov.u64 %d3, %clock64; add.u64 %d3, %d3, 100000000000; SPIN: ld.volatile.global.u32 %r4, [%d0]; "
            "setp.ne.u32 %p2, %r4, 0; @%p2 bra END; mov.u64 %d4, %clock64; setp.lt.u64 %p3, %d4, %d3; @%p3 bra SPIN; END: st.global.u32 [%d1], %r4; exit; "
            "OTHER: mov.u32 %r5, 7; st.global.u32 [%d0], %r5;"
        ),
        # What orders change: sums, last writers.
        "sum_of_blocks": "setp.ne.u32 %p1, %r0, 0; @%p1 exit; mad.wide.u32 %d3, %r1, 4, %d0; ld.global.f32 %f0, [%d3]; red.global.add.f32 [%d1], %f0;",
        "sum_of_warps": "and.b32 %r4, %r0, 31; setp.ne.u32 %p1, %r4, 0; @%p1 exit; shr.u32 %r5, %r0, 5; mad.wide.u32 %d3, %r5, 4, %d0; ld.global.f32 %f0, [%d3]; red.global.add.f32 [%d1], %f0;",
        "sum_of_lanes": "setp.gt.u32 %p1, %r0, 2; @%p1 exit; mad.wide.u32 %d3, %r0, 4, %d0; ld.global.f32 %f0, [%d3]; red.global.add.f32 [%d1], %f0;",
        "last_block": "setp.ne.u32 %p1, %r0, 0; @%p1 exit; st.global.u32 [%d1], %r1;",
        "last_warp": "shr.u32 %r4, %r0, 5; and.b32 %r5, %r0, 31; setp.ne.u32 %p1, %r5, 0; @%p1 exit; st.global.u32 [%d1], %r4;",
        "last_lane": "st.global.u32 [%d1], %r0;",
        "last_path": """and.b32 %r4, %r0, 3; setp.eq.u32 %p1, %r4, 1; @%p1 bra ONE; setp.eq.u32 %p2, %r4, 2; @%p2 bra TWO; st.volatile.global.u32 [%d1], 0; st.volatile.global.u32 [%d1 + 4], 7; bra END;
ONE: st.volatile.global.u32 [%d1], 1; st.volatile.global.u32 [%d1 + 8], 9; bra END; TWO: st.volatile.global.u32 [%d1], 2; END: bar.sync 0;""",
        "unwritten": (
            f"{each} mov.u32 %r10, s; mad.lo.u32 %r11, %r0, 4, %r10; ld.volatile.shared.u32 %r4, [%r11]; st.global.u32 [%d4], %r4; "
            "mov.u32 %r12, l; and.b32 %r13, %r0, 12; add.u32 %r12, %r12, %r13; ld.local.u32 %r5, [%r12]; st.global.u32 [%d4 + 128], %r5;"
        ),
        "order_of_blocks": "setp.ne.u32 %p1, %r0, 0; @%p1 exit; atom.global.add.u32 %r4, [%d0], 1; mad.wide.u32 %d3, %r4, 4, %d1; st.global.u32 [%d3], %r1;",
        "order_of_warps": "and.b32 %r5, %r0, 31; setp.ne.u32 %p1, %r5, 0; @%p1 exit; shr.u32 %r6, %r0, 5; atom.global.add.u32 %r4, [%d0], 1; mad.wide.u32 %d3, %r4, 4, %d1; st.global.u32 [%d3], %r6;",
        # Blocks that are there at once: each says how many have begun and not ended.
        "residents": """setp.ne.u32 %p1, %r0, 0; @%p1 exit; atom.global.add.u32 %r4, [%d0], 1; add.u32 %r4, %r4, 1; red.global.max.u32 [%d0 + 4], %r4; mov.u32 %r5, 0;
AGAIN: ld.volatile.global.u32 %r6, [%d1]; add.u32 %r5, %r5, 1; setp.lt.u32 %p2, %r5, 2000; @%p2 bra AGAIN; red.global.add.u32 [%d0], -1;""",
        "everybody": "mad.wide.u32 %d3, %r3, 4, %d0; st.global.u32 [%d3], %r1;",
        # What no kernel may.
        "outside": "mad.wide.u32 %d3, %r0, 4, %d0; ld.global.u32 %r4, [%d3]; st.global.u32 [%d1], %r4;",
        "misaligned": "add.u64 %d3, %d0, %d2; ld.global.u32 %r4, [%d3]; st.global.u32 [%d1], %r4;",
        "outside_shared": "cvt.u32.u64 %r4, %d2; ld.volatile.shared.u32 %r5, [%r4]; st.global.u32 [%d1], %r5;",
        "outside_local": "cvt.u32.u64 %r4, %d2; mov.u32 %r5, l; add.u32 %r4, %r4, %r5; st.local.u32 [%r4], %r4; ld.global.u32 %r7, [%d1]; add.u32 %r7, %r5, %r7; ld.local.u32 %r6, [%r7]; st.global.u32 [%d1], %r6;",
        "from_absent_lanes": f"{each} setp.gt.u32 %p1, %r0, 15; @%p1 exit; ld.global.u32 %r4, [%d3]; shfl.sync.idx.b32 %r5, %r4, 20, 31, 0xffff; st.global.u32 [%d4], %r5;",
        "shared_barrier_kinds": f"""{each} shr.u32 %r4, %r0, 5; setp.eq.u32 %p1, %r4, 0; setp.ne.u32 %p2, %r0, 0; add.u32 %r5, %r4, 1; @%p1 bar.sync 0; setp.ne.u32 %p3, %r4, 0; @%p3 bar.red.popc.u32 %r6, 0, %p2; st.global.u32 [%d3], %r5;""",
        "tensor_cores": """mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%r4, %r5, %r6, %r7}, {%r0, %r1}, {%r0}, {%r4, %r5, %r6, %r7}; st.global.u32 [%d0], %r4;""",
        "spaces": f"""{each} cvt.u64.u32 %d6, s; cvta.shared.u64 %d6, %d6; cvt.u64.u32 %d7, l; cvta.local.u64 %d7, %d7; st.local.u32 [l], %r0; rem.u32 %r4, %r0, 3; setp.eq.u32 %p1, %r4, 0; setp.eq.u32 %p2, %r4, 1;
selp.u64 %d8, %d6, %d7, %p1; selp.u64 %d8, %d0, %d8, %p2; isspacep.shared %p3, %d8; isspacep.local %p4, %d8; selp.u32 %r5, 1, 0, %p3; selp.u32 %r6, 2, 0, %p4; or.b32 %r5, %r5, %r6; st.global.u32 [%d3], %r5;""".replace(
            "cvt.u64.u32 %d6, s;", "mov.u32 %r10, s; cvt.u64.u32 %d6, %r10;"
        ).replace("cvt.u64.u32 %d7, l;", "mov.u32 %r11, l; cvt.u64.u32 %d7, %r11;"),
        "increments": f"""{each} ld.global.u32 %r4, [%d3]; mov.u32 %r10, s; mad.lo.u32 %r11, %r0, 4, %r10; st.shared.u32 [%r11], 0; bar.sync 0; mad.lo.u32 %r12, %r4, 4, %r10;
red.shared.add.u32 [%r12], 1; bar.sync 0; ld.shared.u32 %r5, [%r11]; st.global.u32 [%d4], %r5;""",
        "halves": f"""{each} mov.u32 %r10, l; and.b32 %r4, %r0, 6; add.u32 %r5, %r10, %r4; ld.global.u16 %h1, [%d3]; ld.global.s16 %h2, [%d3 + 2]; st.local.u32 [l], 0; st.local.u32 [l + 4], 0; st.local.u32 [l + 8], 0;
st.local.u16 [%r5], %h1; st.local.s16 [%r5 + 2], %h2; ld.global.u32 %r6, [%d2]; add.u32 %r7, %r10, %r6; ld.local.s16 %h3, [%r7 + 2]; cvt.s32.s16 %r8, %h3; ld.local.u16 %h4, [%r7 + 4]; cvt.u32.u16 %r9, %h4; shl.b32 %r9, %r9, 16; xor.b32 %r8, %r8, %r9; st.global.u32 [%d4], %r8;""",
        "few_predicates": (
            each
            + "ld.global.u32 %r4, [%d3]; mad.wide.u32 %d6, %r3, 32, %d1;"
            + "".join(f"and.b32 %r6, %r4, {1 << k}; setp.ne.u32 %p{k}, %r6, 0;" for k in range(7))
            + "".join(f"@%p{k} st.global.u32 [%d6 + {4 * k}], {k + 10};" for k in range(7))
        ),
        # The same in every lane: the opcodes of uniform registers.
        "uniform": """ld.param.u32 %r4, [c]; mov.u32 %r5, %ctaid.x; mad.wide.u32 %d3, %r0, 8, %d1; add.u32 %r6, %r4, %r5; mul.lo.u32 %r7, %r6, %r5; shl.b32 %r8, %r7, 3; add.u32 %r8, %r8, %r4;
bmsk.clamp.b32 %r9, %r8, %r5; brev.b32 %r10, %r9; popc.b32 %r11, %r10; bfind.u32 %r12, %r8; szext.clamp.u32 %r13, %r8, %r5; szext.clamp.s32 %r14, %r8, %r5; prmt.b32 %r15, %r8, %r9, 0x4321;
setp.gt.s32 %p1, %r8, %r9; setp.lt.u32 %p2, %r7, %r11; and.pred %p3, %p1, %p2; selp.u32 %r16, %r8, %r9, %p3; lop3.b32 %r17, %r8, %r9, %r10, 0xca; mul.wide.u32 %d5, %r8, %r9; mul.wide.s32 %d6, %r8, %r9;
add.u64 %d7, %d5, %d6; shl.b64 %d8, %d7, 5; shr.s64 %d9, %d8, 3; shr.u64 %d10, %d8, %r5; xor.b32 %r18, %r11, %r10; xor.b32 %r18, %r18, %r12; xor.b32 %r18, %r18, %r13; xor.b32 %r18, %r18, %r14;
xor.b32 %r18, %r18, %r15; xor.b32 %r18, %r18, %r16; xor.b32 %r18, %r18, %r17; cvt.u64.u32 %d11, %r18; xor.b64 %d11, %d11, %d9; xor.b64 %d11, %d11, %d10; st.global.u64 [%d3], %d11;""",
        # More predicates than there are.
        "predicates": (
            each
            + "ld.global.u32 %r4, [%d3]; mov.u32 %r5, 0;"
            + "".join(f"and.b32 %r6, %r4, {1 << k}; setp.ne.u32 %p{k}, %r6, 0;" for k in range(24))
            + "bar.sync 0;"
            + "".join(f"@%p{k} add.u32 %r5, %r5, {3 ** (k % 15) + k};" for k in range(24))
            + "bar.sync 0;"
            + "".join(f"@!%p{k} mad.lo.u32 %r5, %r5, 3, {k};" for k in range(24))
            + "st.global.u32 [%d4], %r5;"
        ),
    }


_FUNCTIONS = """
.extern .func __assertfail(.param .b64 p0, .param .b64 p1, .param .b32 p2, .param .b64 p3, .param .b64 p4) .noreturn;
.const .align 8 .b8 table[128] = {TABLE};
.func (.param .b32 result) fold(.param .b32 value) {
.reg .b32 %r<19>; .reg .pred %p<4>; ld.param.b32 %r1, [value]; mov.u32 %r4, 3; setp.le.s32 %p1, %r1, 1; @%p1 bra DONE;
and.b32 %r3, %r1, 1; setp.eq.u32 %p2, %r3, 0; @%p2 bra EVEN; sub.u32 %r5, %r1, 3;
{ .param .b32 x; .param .b32 y; st.param.b32 [x], %r5; call (y), fold, (x); ld.param.b32 %r6, [y]; } mad.lo.u32 %r4, %r6, 3, %r1; bra DONE;
EVEN: shr.u32 %r5, %r1, 1; { .param .b32 x; .param .b32 y; st.param.b32 [x], %r5; call (y), fold, (x); ld.param.b32 %r6, [y]; } sub.u32 %r4, %r6, %r1;
DONE: st.param.b32 [result], %r4; ret; }
"""
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
    parts = [HEAD, _FUNCTIONS.replace("TABLE", ", ".join(map(str, TABLE)))]
    parts += [_accesses(space) for space in SPACES]
    parts += [_atomic(*one) for one in atomics()]
    parts += [_product(*one) for one in PRODUCTS]
    parts += [_matrices(count, across) for count in (1, 2, 4) for across in ("", ".trans")]
    parts += [entry(name, body, DECLARED.get(name, "")) for name, body in _programs().items()]
    return "".join(parts)


# What PTX is asked for beside what all architectures have.
NEWER = {90: "8.1", 100: "8.8"}


def newer(architecture: int) -> str:
    """Return a module of what PTX has from sm_90 on: a block copies 512 bytes, which it adds to the same place as all others; bfloat16.

    From sm_100 on a thread reads and writes 256 bits, and takes the least of three numbers.
    """
    body = """mov.u32 %r4, s; mov.u32 %r5, barrier; setp.ne.u32 %p1, %r0, 0; mul.wide.u32 %d3, %r1, 512; add.u64 %d4, %d0, %d3; mad.wide.u32 %d5, %r3, 4, %d2;
@%p1 bra BEGUN; mbarrier.init.shared.b64 [%r5], 1; fence.proxy.async.shared::cta; BEGUN: bar.sync 0; @%p1 bra WAITS; mbarrier.arrive.expect_tx.shared.b64 %d6, [%r5], 512;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r4], [%d4], 512, [%r5];
WAITS: mbarrier.try_wait.parity.shared.b64 %p2, [%r5], 0; @!%p2 bra WAITS; mad.lo.u32 %r6, %r0, 4, %r4; ld.shared.u32 %r7, [%r6]; st.global.u32 [%d5], %r7; @%p1 bra DONE;
cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%d1], [%r4], 512; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; mbarrier.inval.shared.b64 [%r5]; DONE:"""
    declared = ".shared .align 16 .b8 s[512]; .shared .align 8 .b64 barrier;"
    warps = """shr.u32 %r4, %r0, 5; and.b32 %r5, %r0, 31; setp.ne.u32 %p1, %r5, 0; mov.u32 %r6, s; mad.lo.u32 %r6, %r4, 128, %r6; mov.u32 %r7, barriers; mad.lo.u32 %r7, %r4, 8, %r7;
mad.wide.u32 %d3, %r4, 128, %d0; mad.wide.u32 %d5, %r3, 4, %d2; @%p1 bra BEGUN; mbarrier.init.shared.b64 [%r7], 1; fence.proxy.async.shared::cta; BEGUN: bar.sync 0; @%p1 bra WAITS;
mbarrier.arrive.expect_tx.shared.b64 %d6, [%r7], 128; cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r6], [%d3], 128, [%r7];
WAITS: mbarrier.try_wait.parity.shared.b64 %p2, [%r7], 0; @!%p2 bra WAITS; mad.lo.u32 %r8, %r5, 4, %r6; ld.shared.u32 %r9, [%r8]; st.global.u32 [%d5], %r9; @%p1 bra DONE;
cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%d1], [%r6], 128; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; DONE:"""
    of_warps = ".shared .align 16 .b8 s[512]; .shared .align 8 .b64 barriers[4];"
    packed = """mad.wide.u32 %d3, %r3, 8, %d0; ld.global.v2.u32 {%r4, %r5}, [%d3]; mad.wide.u32 %d4, %r3, 16, %d2;
add.rn.bf16x2 %r6, %r4, %r5; mul.rn.bf16x2 %r7, %r4, %r5; sub.rn.bf16x2 %r8, %r4, %r5; add.rn.bf16x2 %r9, %r4, %r4; st.global.v4.u32 [%d4], {%r6, %r7, %r8, %r9};
setp.lt.bf16x2 %p1|%p2, %r4, %r5; selp.b32 %r10, 1, 0, %p1; selp.b32 %r11, 2, 0, %p2; or.b32 %r10, %r10, %r11; mad.wide.u32 %d5, %r3, 4, %d1; st.global.u32 [%d5], %r10;"""
    vectors = """mad.wide.u32 %d3, %r0, 16, %d0; ld.global.v4.u32 {%r4, %r5, %r6, %r7}, [%d3]; mov.b32 %f0, %r4; mov.b32 %f1, %r5; mov.b32 %f2, %r6; mov.b32 %f3, %r7;
red.global.v4.f32.add [%d1], {%f0, %f1, %f2, %f3}; red.global.v2.f32.add [%d1+16], {%f0, %f1}; atom.acq_rel.gpu.global.v4.f32.add {%f4, %f5, %f6, %f7}, [%d1+32], {%f0, %f1, %f2, %f3};
red.global.v4.f16x2.add.noftz [%d2], {%r4, %r5, %r6, %r7}; red.global.v2.f16x2.add.noftz [%d2+16], {%r4, %r5}; atom.acq_rel.gpu.global.v2.f32.add {%f4, %f5}, [%d1+48], {%f0, %f1};"""
    wide = """mad.wide.u32 %d3, %r3, 32, %d0; ld.global.v8.f32 {%f0, %f1, %f2, %f3, %f4, %f5, %f6, %f7}, [%d3]; mad.wide.u32 %d4, %r3, 32, %d1;
min.f32 %f8, %f0, %f1, %f2; max.NaN.f32 %f9, %f3, %f4, %f5; st.global.v8.f32 [%d4], {%f8, %f9, %f2, %f3, %f4, %f5, %f6, %f7};"""
    bodies = (
        entry("bulk", body, declared)
        + entry("bulk_of_warps", warps, of_warps)
        + entry("bfloats", packed)
        + entry("vectors", vectors)
    )
    bodies += entry("wide", wide) if architecture >= 100 else ""
    return HEAD.replace("sm_80", f"sm_{architecture}").replace("8.0", NEWER[architecture]) + bodies


if __name__ == "__main__":
    for one in NEWER:
        record("newer", newer(one), [one])
    record("programs", ptx())
