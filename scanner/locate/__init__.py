"""What runs inside a stranger's program and finds the ops that are not reproducible; needs torch and nothing else.

In a notebook or a test::

    from scanner.locate import locate

    with locate() as found:
        train_step()
    print(found)  # found.roots: one for each call site that differs
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from scanner.locate.session import LocateSettings, Session
from scanner.located import Located, Root
from scanner.located_words import text

__all__ = ["Found", "locate"]


class Found:
    """What a ``locate`` block found; empty until the block ends."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.located: Located | None = None

    @property
    def ops(self) -> int:
        """Ops that were looked at so far."""
        return self._session.mode.ops

    @property
    def roots(self) -> tuple[Root, ...]:
        """One for each call site whose op is not reproducible."""
        return self.located.roots if self.located else ()

    @property
    def could_see(self) -> bool:
        """Whether an op that must differ wherever anything races did so in this process."""
        return self.located is not None and any(one.differing for one in self.located.sentinels)

    def __str__(self) -> str:
        return text(self.located) if self.located else "The block has not ended."


@contextmanager
def locate(
    *, replays: int = 4, ignored: tuple[str, ...] = (), max_bytes: int = 1 << 30, save: str | None = None
) -> Iterator[Found]:
    """Execute each op of the block again on the same inputs, and find those that give other bits.

    Args:
        replays: Further executions of each op.
        ignored: Ops that are executed once: ``aten::index_put_``.
        max_bytes: That copies of an op's tensors may take; larger ones are executed once.
        save: A folder for the inputs of roots, which ``detmatrix repro`` makes scripts of.
    """
    session = Session(LocateSettings(replays=replays, ignored=ignored, max_bytes=max_bytes, save=save))
    found = Found(session)
    session.start()
    try:
        yield found
    finally:
        session.stop()
        found.located = session.located()
