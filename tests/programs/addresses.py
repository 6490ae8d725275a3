# ruff: noqa: ANN001, N803
# mypy: ignore-errors
"""A program whose Triton kernels reach memory in every way there is, and change it in place."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def by_number(address, B: tl.constexpr) -> None:
    """Add one to what lies at an address."""
    lane = address.to(tl.pointer_type(tl.float32)) + tl.arange(0, B)
    tl.store(lane, tl.load(lane) + 1)


@triton.jit
def by_table(pointers, source, B: tl.constexpr) -> None:
    """Add to each of several tensors, as a grouped GEMM does."""
    lane = tl.arange(0, B)
    out = tl.load(pointers + tl.program_id(0)).to(tl.pointer_type(tl.float32))
    tl.atomic_add(out + lane, tl.load(source + lane))


@triton.jit
def by_descriptor(given, B: tl.constexpr) -> None:
    """Add one through a descriptor in a tuple."""
    place = tl.program_id(0) * B
    given[0].store([place, 0], given[0].load([place, 0]) + 1)


if __name__ == "__main__":
    number, tables, described = torch.zeros(16), [torch.zeros(16) for _ in range(3)], torch.zeros(32, 16)
    by_number[(1,)](number.data_ptr(), B=16)
    by_table[(3,)](torch.tensor([one.data_ptr() for one in tables]), torch.ones(16), B=16)
    by_descriptor[(4,)]((TensorDescriptor.from_tensor(described, [8, 16]),), B=8)
    print([one.sum().item() for one in (number, *tables, described)])
