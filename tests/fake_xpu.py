"""A file of specs whose worker has a stand-in for an XPU device (``tests/fake_device.py``)."""

from __future__ import annotations

from tests.fake_device import install, plus_spec

DEVICE = install("xpu")
SPECS = (plus_spec(),)
