# ruff: noqa: ANN001, ANN201, ANN202, N803
# mypy: ignore-errors
"""Triton kernels of our own, as a user's file of specs: what the perturbation ``order`` is to find in them, and what not."""

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
def _scatter_add(index, source, out, B: tl.constexpr):
    """Lanes of one program, and of several, add to the same slots."""
    lane = tl.program_id(0) * B + tl.arange(0, B)
    tl.atomic_add(out + tl.load(index + lane), tl.load(source + lane))


def scatter_add(index, source):
    out = torch.zeros(16)
    _scatter_add[(index.numel() // 256,)](index, source, out, B=256)
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
