# ruff: noqa: ANN001, ANN201, ANN202, N803
# mypy: ignore-errors
"""Triton kernels of our own: functions to check on a simulated GPU; ``test_gpu_wheel.py`` says what is to be found in them."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def _softmax(x, out, width, B: tl.constexpr):
    """Each program writes a row of its own."""
    row, lane = tl.program_id(0), tl.arange(0, B)
    value = tl.load(x + row * width + lane, mask=lane < width, other=-float("inf"))
    value = tl.exp(value - tl.max(value, 0))
    tl.store(out + row * width + lane, value / tl.sum(value, 0), mask=lane < width)


def softmax(x):
    out = torch.empty_like(x)
    _softmax[(x.shape[0],)](x, out, x.shape[1], B=triton.next_power_of_2(x.shape[1]))
    return out


@triton.jit
def add_up(index, source, out, B: tl.constexpr):
    """Lanes of one program, and of several, add to the same slots."""
    lane = tl.program_id(0) * B + tl.arange(0, B)
    tl.atomic_add(out + tl.load(index + lane), tl.load(source + lane))


def scatter_add(index, source):
    out = source.new_zeros(16)
    add_up[(index.numel() // 256,)](index, source, out, B=256)
    return out


@triton.jit
def _product(a, b, out, SIZE: tl.constexpr, DEEP: tl.constexpr):
    """Tensor cores compute it, whose inputs are copied asynchronously."""
    row, column, k = tl.arange(0, SIZE)[:, None], tl.arange(0, SIZE)[None, :], tl.arange(0, 32)
    sums = tl.zeros((SIZE, SIZE), tl.float32)
    for begin in range(0, DEEP, 32):
        at = begin + k
        sums += tl.dot(tl.load(a + row * DEEP + at[None, :]), tl.load(b + at[:, None] * SIZE + column))
    tl.store(out + row * SIZE + column, sums)


# Each holds its result against the CPU's, and fails if it is another.


def _as_on_cpu(found, expected, error):
    torch.testing.assert_close(found.cpu().double(), expected.double(), rtol=error, atol=error)
    return found


def atomic():
    torch.manual_seed(
        1
    )  # no process draws the same numbers without it, and some sums hardly ever round another way
    index, source = torch.randint(16, (1 << 12,)), torch.randn(1 << 12)
    expected = torch.zeros(16).double().index_add(0, index, source.double())
    return _as_on_cpu(scatter_add(index.cuda(), source.cuda()), expected, 1e-3)


def products():
    a, b, out = torch.randn(32, 128).half(), torch.randn(128, 32).half(), torch.empty(32, 32, device="cuda")
    _product[(1,)](a.cuda(), b.cuda(), out, SIZE=32, DEEP=128)
    return _as_on_cpu(out, a.double() @ b.double(), 1e-2)


def rows():
    x = torch.randn(9, 300)
    return _as_on_cpu(softmax(x.cuda()), x.softmax(1), 1e-5)
