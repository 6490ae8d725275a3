"""A file of specs whose worker has a stand-in for a CUDA device (``tests/fake_device.py``), and ops that do it harm."""

from __future__ import annotations

import time
from typing import Any

import torch

from detmatrix.opspecs.model import Case, OpSpec, call
from tests.fake_device import install

DEVICE = install("cuda", asserting=("special_erfcx",))
# Nobody reads it, so that what is queued into it takes its time when the device is waited for, and not before.
UNREAD = torch.empty(1)


def plus(x: Any) -> Any:
    """Add one."""
    return x + 1


def partly_empty(x: Any) -> Any:
    """Return a result, and one without elements."""
    return x + 1, x[:0]


def large(x: Any) -> Any:
    """Ask for more than there is."""
    return x.new_empty(1 << 27)


def slow(x: Any, seconds: float) -> Any:
    """Return at once, and let the device work for so long."""
    if DEVICE is not None:
        DEVICE.queue(UNREAD, lambda: time.sleep(seconds))
    return x + 1


def tells(_: Any) -> Any:
    """Say how often the host has waited so far, and how much memory was held at once."""
    counts = (DEVICE.synchronisations, DEVICE.peak) if DEVICE is not None else (0, 0)
    if DEVICE is not None:
        DEVICE.peak = DEVICE.held
    raise ArithmeticError(" ".join(map(str, counts)))


def _slow(name: str, seconds: float) -> OpSpec:
    cases = {"one": Case(inputs=lambda t: call(t.normal(64), seconds))}
    return OpSpec(name=f"fake.{name}", op=slow, why="Shows how time is kept.", cases=cases)


def _spec(name: str, op: Any, elements: int = 64, **more: Any) -> OpSpec:
    # Few enough are drawn to be the same on every device.
    cases = {"one": Case(inputs=lambda t: call(t.leaf(t.normal(64).repeat(elements // 64))))}
    return OpSpec(name=f"fake.{name}", op=op, why="Shows what happens on a device.", cases=cases, **more)


SPECS = (
    _spec("before", plus),
    # In the stand-in an assertion fails in it.
    _spec("asserts", "torch.special.erfcx"),
    _spec("behind", plus),
    _spec("large", large),
    _spec("wide", plus, 1 << 20),
    _spec("partly_empty", partly_empty),
    _slow("slow", 0.02),
    _slow("slower", 0.4),
    _spec("tells", tells),
)
