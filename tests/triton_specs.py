# ruff: noqa: ANN001, ANN201, ANN202, N803
# mypy: ignore-errors
"""Triton kernels of our own: a file of specs, functions to check on a simulated GPU, and a program that launches two of them.

It is told in ``test_triton.py`` what the perturbation ``order`` is to find in them, and in ``test_gpu_wheel.py`` what a simulation is.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from detmatrix.opspecs.model import Case, OpSpec, call


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
def _norm_backward(x, grad, lock, count, into, width, GROUPS: tl.constexpr, B: tl.constexpr):
    """As the layer norm of Triton's tutorial: rows add to a partial sum of their group, one at a time, behind a lock."""
    row, lane = tl.program_id(0), tl.arange(0, B)
    group = row % GROUPS
    product = tl.load(x + row * width + lane) * tl.load(grad + row * width + lane)
    while tl.atomic_cas(lock + group, 0, 1) == 1:
        pass
    if tl.load(count + group) != 0:
        product += tl.load(into + group * width + lane)
    tl.store(count + group, 1)
    tl.store(into + group * width + lane, product)
    tl.debug_barrier()
    tl.atomic_xchg(lock + group, 0)


def norm_backward(x, grad):
    groups, width = 4, x.shape[1]
    lock, count = torch.zeros(2, groups, dtype=torch.int32)
    into = torch.zeros(groups, width)
    _norm_backward[(x.shape[0],)](x, grad, lock, count, into, width, GROUPS=groups, B=width)
    return into.sum(0)


@triton.jit
def _histogram(index, out, B: tl.constexpr):
    """Integers are added: every order gives the same sum."""
    lane = tl.program_id(0) * B + tl.arange(0, B)
    tl.atomic_add(out + tl.load(index + lane), 1)


def histogram(index):
    out = torch.zeros(16, dtype=torch.int32)
    _histogram[(index.numel() // 256,)](index, out, B=256)
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
def _last_writer(index, source, out, B: tl.constexpr):
    """One program, whose lanes write different values to the same slots."""
    lane = tl.arange(0, B)
    tl.store(out + tl.load(index + lane), tl.load(source + lane))


def last_writer(index, source):
    out = torch.zeros(16)
    _last_writer[(1,)](index, source, out, B=index.numel())
    return out


@triton.jit
def _waits(turn, out):
    """Each program waits for the one before it."""
    number = tl.program_id(0)
    while tl.atomic_add(turn, 0) != number:
        pass
    tl.store(out + number, number)
    tl.atomic_xchg(turn, number + 1)


def waits(start):
    out = torch.zeros(4, dtype=torch.int32)
    _waits[(4,)](start.clone(), out)
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


def _spec(op, inputs, why):
    return OpSpec(name=f"triton.{op.__name__}", op=op, why=why, cases={"all": Case(inputs=inputs)})


def _collisions(t):
    return call(t.index(1 << 12, high=16), t.normal(1 << 12))


SPECS = (
    _spec(softmax, lambda t: call(t.normal(32, 100)), "Rows are computed by themselves."),
    _spec(norm_backward, lambda t: call(t.normal(64, 64), t.normal(64, 64)), "Locks are taken in any order."),
    _spec(histogram, lambda t: call(t.index(1 << 12, high=16)), "Integers commute."),
    _spec(scatter_add, _collisions, "Floats are added in any order."),
    _spec(last_writer, lambda t: call(t.index(256, high=16), t.normal(256)), "The last lane wins."),
    _spec(waits, lambda _: call(torch.zeros(1, dtype=torch.int32)), "Programs wait for one another."),
)


# On a GPU, where each holds its result against the CPU's, and fails if it is another.


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


if __name__ == "__main__":
    torch.manual_seed(0)
    index, source = torch.randint(0, 16, (1024,)), torch.rand(1024)
    sums = scatter_add(index, source)
    sums.sin().sum() + softmax(source.view(8, 128)).sum()
