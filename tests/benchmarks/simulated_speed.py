"""How many instructions of threads a second the simulated GPU executes, how much longer it takes with the conflict log, and in drawn orders.

Kernels of PTX, assembled by ptxas; processor time of this process, the fastest of some rounds.
"""

from __future__ import annotations

import time

import numpy as np

from tests.gpu_machine import assembled, kernels, loaded, run

BLOCKS, THREADS = 512, 256
LOG_AIM = 2.0
ROUNDS = 5
INTERLEAVED = {"orders": {"blocks": 3, "warps": 3, "seed": 7}}


def main() -> None:
    """Print a line for each kernel."""
    cubin = loaded(assembled(kernels("speed")))
    given = np.random.default_rng(0).random(BLOCKS * THREADS, np.float32)

    def rate(name: str, **how: object) -> float:
        rates = []
        for _ in range(ROUNDS):
            out, begun = np.zeros(BLOCKS * THREADS, np.float32), time.process_time()
            result = run(cubin, name, given, out, 0, grid=BLOCKS, block=THREADS, **how)  # type: ignore[arg-type]
            rates.append(result.work / 1e6 / (time.process_time() - begun))
        return max(rates)

    print(f"{BLOCKS} blocks of {THREADS} threads; million instructions of threads a second")
    for name in cubin.kernels:
        without, log, interleaved = rate(name), rate(name, log=True), rate(name, **INTERLEAVED)
        print(
            f"{name:24} {without:7.0f}; with the log {without / log:4.1f} times as long; "
            f"blocks and warps interleaved {interleaved:5.0f}"
        )
    print(f"aim: with the log at most {LOG_AIM:g} times as long")


if __name__ == "__main__":
    main()
