"""A file of specs whose worker has a stand-in for an XPU device (``tests/fake_device.py``)."""

from __future__ import annotations

from typing import Any

from opspecs.model import Case, OpSpec, call
from tests.fake_device import install

DEVICE = install("xpu")


def plus(x: Any) -> Any:
    """Add one."""
    return x + 1


SPECS = (
    OpSpec(
        name="fake.before",
        op=plus,
        why="Shows what happens on a device.",
        cases={"one": Case(inputs=lambda t: call(t.normal(64)))},
    ),
)
