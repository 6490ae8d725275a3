# ruff: noqa: ANN001, N803
# mypy: ignore-errors
"""A program whose forward phase launches two Triton kernels: one that adds floats atomically, and one whose rows are apart."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def add_up(index, source, out, B: tl.constexpr) -> None:
    """Add each value to its slot, in whatever order programs run."""
    lane = tl.program_id(0) * B + tl.arange(0, B)
    tl.atomic_add(out + tl.load(index + lane), tl.load(source + lane))


@triton.jit
def normalized(x, out, B: tl.constexpr) -> None:
    """Divide each row by its sum."""
    lane = tl.program_id(0) * B + tl.arange(0, B)
    row = tl.load(x + lane)
    tl.store(out + lane, row / tl.sum(row, 0))


def step() -> torch.Tensor:
    """Call both."""
    torch.manual_seed(0)
    index, source = torch.randint(0, 8, (1024,)), torch.rand(1024)
    sums, rows = torch.zeros(8), torch.empty(1024)
    add_up[(8,)](index, source, sums, B=128)
    normalized[(8,)](source, rows, B=128)
    return sums.sin().sum() + rows.sum()


if __name__ == "__main__":
    step()
