"""How many later ops are given something that came of a root."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from detmatrix.scanner.locate.memory.storages import StorageTable, covers
from detmatrix.scanner.located import Root


class Downstream:
    """Follows memory that roots, or what was made of them, have written."""

    def __init__(self) -> None:
        self._marks: StorageTable[frozenset[int]] = StorageTable()
        self._roots: list[Root] = []

    def __bool__(self) -> bool:
        return bool(self._roots)

    def begin(self, root: Root, written: Sequence[torch.Tensor]) -> None:
        """Mark what a root has written."""
        number = next((place for place, one in enumerate(self._roots) if one is root), None)
        if number is None:
            number = len(self._roots)
            self._roots.append(root)
        self.mark(frozenset({number}), written)

    def reach(
        self, given: Sequence[torch.Tensor], overwritten: Sequence[torch.Tensor] = ()
    ) -> frozenset[int]:
        """Count an op for the roots that reached it, and return their numbers.

        Args:
            given: To the op.
            overwritten: Those of it that the op is about to write wholly, and does not read: no root has reached it by them.
        """
        reached: frozenset[int] = frozenset()
        unread = set(map(id, overwritten))
        for one in given:
            found = self._marks.get(one)
            if found is not None and found is not reached and id(one) not in unread:
                reached |= found
        for one in overwritten:
            # Of a part of its memory the rest stays as it is.
            if self._marks.get(one) is not None and covers(one):
                self._marks.remove(one)
        for number in reached:
            self._roots[number].reached += 1
        return reached

    def mark(self, reached: frozenset[int], written: Sequence[torch.Tensor]) -> None:
        """Mark what an op has written that these roots reached."""
        for one in written:
            known = self._marks.get(one)
            if known is None:
                self._marks.set(one, reached)
            elif not reached <= known:
                self._marks.set(one, known | reached)
