"""Kernels in PTX of what one thread alone does not show: memory, atomics, warps, control, barriers, orders and faults.

They are written in ``tests/data/gpu/programs.ptx.j2`` and ``newer.ptx.j2``, some of them once for each entry of the lists below;
``python -m tests.gpu_programs`` assembles them anew, where there is ptxas.
"""

from __future__ import annotations

import re

from tests.gpu_machine import ARCHITECTURES, head, record, written

SHUFFLES = [(mode, width) for mode in ("idx", "up", "down", "bfly") for width in (32, 16, 8, 4)]
# Products of tensor cores: columns of the first matrix, its type, the type of what is added.
PRODUCTS = [
    *((depth, kind, "f32") for depth in (8, 16) for kind in ("f16", "bf16")),
    *((depth, "f16", "f16") for depth in (8, 16)),
    *((depth, "tf32", "f32") for depth in (4, 8)),
]
# Architectures that have more than all have.
NEWER = ARCHITECTURES[1:]
EACH = "mad.wide.u32 %d3, %r3, 4, %d0; mad.wide.u32 %d4, %r3, 4, %d1; mad.wide.u32 %d5, %r3, 4, %d2;"


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


def registers(kind: str, first: int, count: int) -> str:
    """Return the names of registers from one on."""
    return ", ".join(f"{kind}{number}" for number in range(first, first + count))


def kernels(name: str, architecture: int = 80) -> str:
    """Return the kernels of a template, behind what it begins with."""
    text = written(name, **globals(), architecture=architecture).replace("EACH", EACH)
    head, *found = re.split(r"^entry (\w+):(.*)\n", text, flags=re.MULTILINE)
    return head + "".join(map(entry, found[::3], found[2::3], found[1::3]))


def ptx() -> str:
    """Return the module of what all architectures have."""
    return head() + kernels("programs")


def newer(architecture: int) -> str:
    """Return a module of what PTX has from sm_90 on, or from sm_100 on."""
    return head(architecture) + kernels("newer", architecture)


if __name__ == "__main__":
    for one in ARCHITECTURES:
        record("programs", ptx(), one)
    for one in NEWER:
        record("newer", newer(one), one)
