"""Perturbations: circumstances of a share of a case's executions, as data; ``detmatrix.scanner.worker.perturb`` brings them about."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from detmatrix.scanner.schedules import FREEDOMS, SCHEDULES, split

# Blocks are made in the sizes of a case's outputs, up to so many bytes at once, and in a few common sizes.
_MOST_BYTES, _MOST_BYTES_ON_DEVICE = 64 << 20, 1 << 30
_COMMON_SIZES = (256, 4 << 10, 64 << 10)


@dataclass(frozen=True)
class CaseContext:
    """Where a case runs: what a perturbation needs to know of it."""

    device: str
    sizes: tuple[int, ...]  # bytes of its outputs
    # Of a simulated GPU: what schedules are drawn from, and when the executions must end, as `time.perf_counter` counts.
    seed: int = 0
    deadline: float = math.inf

    @property
    def blocks(self) -> list[int]:
        """Bytes of the blocks to allocate: those of the outputs, and common sizes for what an op keeps inside."""
        blocks, total = [], 0
        most = _MOST_BYTES if self.device.partition(":")[0] == "cpu" else _MOST_BYTES_ON_DEVICE
        for size in (*self.sizes, *_COMMON_SIZES):
            if size and total + size <= most:
                blocks.append(size)
                total += size
        return blocks


@dataclass(frozen=True)
class Perturbation:
    """What it does to the circumstances, in words."""

    meaning: str
    cpu_alone: bool = False
    # Of what each perturbation but the first gets of the executions.
    share: float = 1.0
    retired: bool = False  # earlier releases had it, and their files are read


# By the names of `--perturb`.
PERTURBATIONS: dict[str, Perturbation] = {
    "quiet": Perturbation("nothing is done"),
    # An execution takes longer there, and of most rows it shows what a quiet one does.
    "stress": Perturbation("every other core is busy, by turns; on CUDA, another stream is", share=0.5),
    "shift": Perturbation("blocks of the outputs' sizes are held, so that the op's allocations move"),
    "poison": Perturbation(
        "free memory is filled with a different byte each time, to expose reads of uninitialized memory"
    ),
    "pause": Perturbation(
        "15 ms pass before it, in which the op's threads fall asleep: those that still wait for work begin at once (CPU)",
        cpu_alone=True,
    ),
    "order": Perturbation("retired: --simulate executes Triton kernels in other orders", retired=True),
    **{name: Perturbation(f"simulated GPU: {it.meaning}") for name, it in FREEDOMS.items()},
    "threads": Perturbation("retired: --invariance threads tries other thread counts", retired=True),
}
DEFAULT = ("quiet", "stress", "shift", "poison")
# Those that `--perturb` offers.
OFFERED = tuple(name for name, it in PERTURBATIONS.items() if name not in SCHEDULES and not it.retired)


# They hold one of an op's threads up against another.
OF_SEVERAL_THREADS = ("stress", "pause")


def shares(runs: int, names: Sequence[str]) -> list[int]:
    """Divide executions among groups (``"quiet"``, ``"stress"``): half for the first, the rest among the others; schedules by their table."""
    if names[0] in SCHEDULES:
        return [split(runs)[name] for name in names]
    each = runs / 2 / max(1, len(names) - 1)
    others = [int(each * PERTURBATIONS[name].share) for name in names[1:]]
    return [runs - sum(others), *others]
