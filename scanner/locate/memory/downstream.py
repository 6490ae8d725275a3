"""How many later ops are given something that came of a root."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from scanner.locate.memory.storages import StorageTable
from scanner.located import Root


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

    def reach(self, given: Sequence[torch.Tensor]) -> frozenset[int]:
        """Count an op for the roots that reached it, and return their numbers."""
        reached: frozenset[int] = frozenset()
        for one in given:
            found = self._marks.get(one)
            if found is not None and found is not reached:
                reached |= found
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
