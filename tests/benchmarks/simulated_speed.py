"""How many instructions of threads a second the simulated GPU executes, how much longer it takes with the conflict log, and in drawn orders.

Kernels of PTX, assembled by ptxas; processor time of this process, the fastest of some rounds.
"""

from __future__ import annotations

import time

import numpy as np

from detmatrix.scanner.gpu.engine import Result
from tests.gpu_machine import assembled, head, loaded, run
from tests.gpu_programs import entry

BLOCKS, THREADS = 512, 256
LOG_AIM = 2.0
INTERLEAVED = 3
ROUNDS = 5
_LOOP = "mov.u32 %r5, 0; AGAIN: {body} add.u32 %r5, %r5, 1; setp.lt.u32 %p1, %r5, 64; @%p1 bra AGAIN;"
_AT = "mad.wide.u32 %d3, %r3, 4, %d0; mad.wide.u32 %d4, %r3, 4, %d1;"
KERNELS = {
    "sums and products": f"{_AT} ld.global.f32 %f1, [%d3]; mov.f32 %f2, %f1;"
    + _LOOP.format(body="fma.rn.f32 %f1, %f1, %f2, %f2; mul.f32 %f2, %f2, %f1; add.f32 %f1, %f1, %f2;")
    + "st.global.f32 [%d4], %f1;",
    "integers": f"{_AT} ld.global.u32 %r6, [%d3];"
    + _LOOP.format(body="mad.lo.u32 %r6, %r6, %r6, %r3; xor.b32 %r6, %r6, %r5; shl.b32 %r7, %r6, 3; add.u32 %r6, %r6, %r7;")
    + "st.global.u32 [%d4], %r6;",
    "copies": f"{_AT} ld.global.f32 %f1, [%d3]; st.global.f32 [%d4], %f1;",
    "sums in shared memory": f"{_AT} ld.global.f32 %f1, [%d3]; mov.u32 %r6, s; mad.lo.u32 %r6, %r0, 4, %r6; st.shared.f32 [%r6], %f1;"
     "bar.sync 0; mov.u32 %r5, 128; AGAIN: setp.ge.u32 %p2, %r0, %r5; @%p2 bra OUT; mad.lo.u32 %r7, %r5, 4, %r6;"
     "ld.shared.f32 %f1, [%r6]; ld.shared.f32 %f2, [%r7]; add.f32 %f1, %f1, %f2; st.shared.f32 [%r6], %f1; OUT: bar.sync 0;"
     "shr.u32 %r5, %r5, 1; setp.ne.u32 %p1, %r5, 0; @%p1 bra AGAIN; ld.shared.f32 %f1, [s]; st.global.f32 [%d4], %f1;",
    "additions to 64 places": f"{_AT} ld.global.f32 %f1, [%d3]; and.b32 %r6, %r3, 63; mad.wide.u32 %d4, %r6, 4, %d1; red.global.add.f32 [%d4], %f1;",
}  # fmt: skip


def main() -> None:
    """Print a line for each kernel."""
    names = {name: f"k{place}" for place, name in enumerate(KERNELS)}
    text = head() + "\n".join(
        entry(names[name], body, ".shared .align 16 .b8 s[1024];") for name, body in KERNELS.items()
    )
    cubin = loaded(assembled(text))
    given = np.random.default_rng(0).random(BLOCKS * THREADS, np.float32)

    def seconds(name: str, *, log: bool = False, how: int = 0) -> tuple[float, Result]:
        fastest = float("inf")
        for _ in range(ROUNDS):
            out = np.zeros(BLOCKS * THREADS, np.float32)
            begun = time.process_time()
            orders = {"blocks": how, "warps": how, "seed": 7}
            result = run(
                cubin, names[name], given, out, 0, grid=BLOCKS, block=THREADS, log=log, orders=orders
            )
            fastest = min(fastest, time.process_time() - begun)
        return fastest, result

    print(f"{BLOCKS} blocks of {THREADS} threads; million instructions of threads a second")
    for name in KERNELS:
        without, result = seconds(name)
        log, _ = seconds(name, log=True)
        drawn, _ = seconds(name, how=INTERLEAVED)
        rate = result.work / 1e6
        print(
            f"{name:24} {rate / without:7.0f}; with the log {log / without:4.1f} times as long; blocks and warps "
            f"interleaved {rate / drawn:5.0f}"
        )
    print(f"aim: with the log at most {LOG_AIM:g} times as long")


if __name__ == "__main__":
    main()
