"""The ops of one run as its process wrote them down: the lines of ``scanner.locate.recorder``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from scanner.errors import UntrustedScanError
from scanner.located import OpSite

# Stands for what is not compared; begins the digest of a generator's state, and of what was written to without an op.
NOT_COMPARED, GENERATOR, CHANGED = "-", "g", "c"


# A number of 64 bits, or a text that begins with one of these.
RecordedDigest = int | str


class RecordedOp(msgspec.Struct, array_like=True, frozen=True):
    """One op of a run."""

    site: int
    shapes: int
    numbers: int
    before: tuple[RecordedDigest, ...]
    writers: tuple[int, ...]
    behind: tuple[RecordedDigest, ...]
    older: tuple[int, ...] = ()


class _Named(msgspec.Struct):
    site: OpSite | None = None
    text: str | None = None


class RecordedRun:
    """All ops of a run in their order, with the call sites and texts that they refer to by number."""

    def __init__(self, path: Path) -> None:
        self.sites: list[OpSite] = []
        self.texts: list[str] = []
        self.ops: list[RecordedOp] = []
        op, named = msgspec.json.Decoder(RecordedOp), msgspec.json.Decoder(_Named)
        try:
            with path.open("rb") as lines:
                for line in lines:
                    if line.startswith(b"["):
                        self.ops.append(op.decode(line))
                        continue
                    one = named.decode(line)
                    if one.site is not None:
                        self.sites.append(one.site)
                    else:
                        self.texts.append(one.text or "")
            self._check()
        except (OSError, msgspec.MsgspecError, IndexError) as error:
            raise UntrustedScanError(f"the digests of a run cannot be read ({error})") from error

    def _check(self) -> None:
        for one in self.ops:
            _ = self.sites[one.site], self.texts[one.shapes], self.texts[one.numbers]

    def keys(self) -> list[Any]:
        """Return what each op is known by in any run: its call site, and the shapes that it is given."""
        return [(self.sites[one.site], self.texts[one.shapes]) for one in self.ops]
