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
        for one in written:
            self._marks.set(one, (self._marks.get(one) or frozenset()) | {number})

    def follow(self, given: Sequence[torch.Tensor], written: Sequence[torch.Tensor]) -> None:
        """Count an op for the roots that reached it, and mark what it wrote."""
        reached: frozenset[int] = frozenset()
        for one in given:
            found = self._marks.get(one)
            if found is not None:
                reached |= found
        for number in reached:
            self._roots[number].reached += 1
        if reached:
            for one in written:
                self._marks.set(one, (self._marks.get(one) or frozenset()) | reached)
