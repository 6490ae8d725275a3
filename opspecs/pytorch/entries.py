"""The names of the entries of PyTorch's databases, recorded, so that nobody starts a torch to know what a name means.

``python -m detmatrix.opspecs.pytorch.entries`` adds those of the torch beside it to ``entries.txt``: entries come and go with
releases, and what a name means must not. A scan asks the scanned torch, which alone knows what it has.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

DATA = Path(__file__).with_name("entries.txt")


@cache
def recorded_entries() -> tuple[str, ...]:
    """Return the names of the specs that entries become, ``opinfo:nn.functional.conv2d``, of all releases recorded."""
    return tuple(DATA.read_text(encoding="utf-8").split())


def _record() -> None:
    """Add the entries of this interpreter's torch."""
    from detmatrix.opspecs.pytorch.database import entries  # noqa: PLC0415 - takes seconds, and a torch
    from detmatrix.opspecs.pytorch.sources import ADAPTERS  # noqa: PLC0415

    known = set(recorded_entries()) if DATA.exists() else set()
    names = sorted(known.union(*(entries(source) for source in ADAPTERS)))
    DATA.write_text("\n".join(names) + "\n", encoding="utf-8")


if __name__ == "__main__":
    _record()
