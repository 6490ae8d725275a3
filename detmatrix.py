"""The entry of the command line, and of ``import detmatrix as dm``: ``dm.read``, ``scan``, ``check``, ``explain``, and others.

``reports/api.py`` documents each; neither torch nor pandas is imported until one of them needs it.

Our packages are those beside this file, whatever else bears their names.

``scanner.py`` and ``reports`` are names that files of a user's may have, and with ``PYTHONPATH=.`` or ``python -m`` the
current folder is searched first. Nothing of theirs is run in place of ours, but for a ``detmatrix.py``: the name of this
file is what Python looks up, and a less likely one would be a second name of the command for ``python -m``.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from reports.api import (
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
    from scanner.errors import DetmatrixError

__all__ = [
    "Answer",
    "CallSites",
    "Changes",
    "Checked",
    "DetmatrixError",
    "Explained",
    "Runs",
    "check",
    "compare",
    "explain",
    "locate",
    "read",
    "scan",
]
_PACKAGES = ("opspecs", "scanner", "reports")
_HERE = Path(__file__).resolve().parent


def __getattr__(name: str) -> Any:
    """Load what scripts and notebooks use when they use it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    for package in _PACKAGES:
        other = getattr(sys.modules.get(package), "__file__", None)
        if other is not None and Path(other).resolve().parent != _HERE / package:
            raise ImportError(
                f"detmatrix has a package {package} of its own, and {other} is imported already"
            )
        _claim(package)
    place = "scanner.errors" if name == "DetmatrixError" else "reports.api"
    return getattr(importlib.import_module(place), name)


def main() -> NoReturn:
    """Run the command line, and exit."""
    for name in _PACKAGES:
        _claim(name)
    from scanner.cli.main import main as run  # noqa: PLC0415 - only now it is ours

    run()


def _claim(name: str) -> None:
    """Import one of our packages from where it lies, so that its modules are found there too."""
    folder = _HERE / name
    known = getattr(sys.modules.get(name), "__file__", None)
    if known is not None and Path(known).resolve().parent == folder:
        return
    spec = importlib.util.spec_from_file_location(
        name, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)


if __name__ == "__main__":
    main()
