"""Where specs are from: what the main process knows of PyTorch's databases, and the recorded names of their entries.

Nobody starts a torch to know what a name means. ``python -m detmatrix.opspecs.pytorch.sources`` adds the names that the torch
beside it has to ``entries.txt``: entries come and go with releases, and what a name means must not. A scan asks the scanned
torch, which alone knows what it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

# Where specs are from, in the order of a scan: those written by hand after PyTorch's lists, the databases, second gradients of their
# ops, and what may be written instead of ops. "all" leaves out the last two.
SOURCES = ("documented", "opinfo", "modules", "gradgrad", "instead")
# Source of specs -> the module that adapts it; the module has ENTRIES, a mapping from spec name to entry.
ADAPTERS = {name: f"detmatrix.opspecs.pytorch.{name}" for name in ("opinfo", "modules", "gradgrad")}
# What the name of a spec begins with -> its source.
PREFIXES = {"opinfo:": "opinfo", "module:": "modules", "gradgrad:": "gradgrad"}
DATA = Path(__file__).with_name("entries.txt")


def databases(sources: Sequence[str] | None) -> tuple[str, ...]:
    """Return those of the sources that only a worker can enumerate."""
    return tuple(name for name in SOURCES if name in (sources or ()) and name in ADAPTERS)


@cache
def recorded_entries() -> tuple[str, ...]:
    """Return the names of the specs that entries become, ``opinfo:nn.functional.conv2d``, of all releases recorded."""
    return tuple(DATA.read_text(encoding="utf-8").split())


def _record() -> None:
    """Add the entries of this interpreter's torch."""
    from detmatrix.opspecs.pytorch.database import entries  # noqa: PLC0415 - takes seconds, and a torch

    known = set(recorded_entries()) if DATA.exists() else set()
    names = sorted(known.union(*(entries(source) for source in ADAPTERS)))
    DATA.write_text("\n".join(names) + "\n", encoding="utf-8")


if __name__ == "__main__":
    _record()
