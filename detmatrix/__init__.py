"""``import detmatrix as dm``: ``dm.read``, ``scan``, ``check``, ``explain``, and others; ``reports/api.py`` documents each.

Neither torch nor pandas is imported until one of them needs it. The packages in this folder are links to the folders of
the checkout; installed, they lie here.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from detmatrix.reports.api import (
        Answer,
        CallSites,
        Changes,
        Checked,
        Explained,
        Runs,
        check,
        compare,
        explain,
        locate,
        read,
        scan,
    )
    from detmatrix.scanner.errors import DetmatrixError, UsageError

__all__ = [
    "Answer",
    "CallSites",
    "Changes",
    "Checked",
    "DetmatrixError",
    "Explained",
    "Runs",
    "UsageError",
    "check",
    "compare",
    "explain",
    "locate",
    "read",
    "scan",
]


def __getattr__(name: str) -> Any:
    """Load what scripts and notebooks use when they use it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    place = "detmatrix.scanner.errors" if name.endswith("Error") else "detmatrix.reports.api"
    return getattr(importlib.import_module(place), name)
