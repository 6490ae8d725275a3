"""Memory that tensors share, what is known of it while it lives, and how many later ops are given what came of a root."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Generic, TypeVar

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from scanner.locate.comparison import COMPOUND, sort_of
from scanner.located import Root

T = TypeVar("T")
# Entries beyond which those of memory that is gone are removed.
_FEW = 256


class StorageTable(Generic[T]):
    """Something known of each of some storages, forgotten when they are gone."""

    def __init__(self) -> None:
        # While a weak reference is held no other storage has this number.
        self._entries: dict[int, tuple[StorageWeakRef, T]] = {}
        self._sweep_at = _FEW

    def __bool__(self) -> bool:
        return bool(self._entries)

    def get(self, tensor: torch.Tensor) -> T | None:
        """Return what is known of the memory of a tensor."""
        if sort_of(tensor) >= COMPOUND:
            return None
        found = self._entries.get(tensor.untyped_storage()._cdata)  # noqa: SLF001 - has no public name
        return found and found[1]

    def set(self, tensor: torch.Tensor, value: T) -> None:
        """Note something of the memory of a tensor."""
        if sort_of(tensor) >= COMPOUND:
            return
        storage = tensor.untyped_storage()
        known = self._entries.get(storage._cdata)  # noqa: SLF001
        self._entries[storage._cdata] = (known[0] if known else StorageWeakRef(storage), value)  # noqa: SLF001
        if len(self._entries) > self._sweep_at:
            self._sweep()

    def remove(self, tensor: torch.Tensor) -> None:
        """Forget what is known of the memory of a tensor."""
        if sort_of(tensor) < COMPOUND:
            self._entries.pop(tensor.untyped_storage()._cdata, None)  # noqa: SLF001

    def _sweep(self) -> None:
        for number, (reference, _) in list(self._entries.items()):
            if reference.expired():
                del self._entries[number]
        self._sweep_at = max(_FEW, 2 * len(self._entries))


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


def geometry(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Return which elements of its memory a tensor holds, and as what."""
    return tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype


def substituted(value: Any, new: dict[int, torch.Tensor]) -> Any:
    """Return an argument with other tensors in the place of some, by the identity of these."""
    if isinstance(value, torch.Tensor):
        return new.get(id(value), value)
    if isinstance(value, (tuple, list)):
        return type(value)(_items(value, new))
    if isinstance(value, dict):
        return {name: substituted(one, new) for name, one in value.items()}
    return value


def _items(values: Any, new: dict[int, torch.Tensor]) -> Iterator[Any]:
    return (substituted(one, new) for one in values)
