"""Where specs are from: what the main process knows of PyTorch's databases."""

from __future__ import annotations

from collections.abc import Sequence

# Where specs are from, in the order of a scan: those written by hand after PyTorch's lists, the databases, and what may be written
# instead of ops, which "all" leaves out.
SOURCES = ("documented", "opinfo", "modules", "instead")
# Source of specs -> the module that adapts it; the module has ENTRIES, a mapping from spec name to entry.
ADAPTERS = {"opinfo": "detmatrix.opspecs.pytorch.opinfo", "modules": "detmatrix.opspecs.pytorch.modules"}
# What the name of a spec begins with -> its source.
PREFIXES = {"opinfo:": "opinfo", "module:": "modules"}


def databases(sources: Sequence[str] | None) -> tuple[str, ...]:
    """Return those of the sources that only a worker can enumerate."""
    return tuple(name for name in SOURCES if name in (sources or ()) and name in ADAPTERS)
