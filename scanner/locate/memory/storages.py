"""Memory that tensors share, what is known of it while it lives, and how many later ops are given what came of a root."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from detmatrix.scanner.locate.memory.comparison import COMPOUND, CPU, NOTHING, sort_of
from detmatrix.scanner.located import Root

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
        storage = _storage(tensor)
        found = self._entries.get(storage._cdata) if storage is not None else None  # noqa: SLF001 - has no public name
        return found and found[1]

    def set(self, tensor: torch.Tensor, value: T) -> T | None:
        """Note something of the memory of a tensor; return what was known of it."""
        storage = _storage(tensor)
        if storage is None:
            return None
        number = storage._cdata  # noqa: SLF001
        known = self._entries.get(number)
        self._entries[number] = (known[0] if known else StorageWeakRef(storage), value)
        if len(self._entries) > self._sweep_at:
            self._sweep()
        return known and known[1]

    def remove(self, tensor: torch.Tensor) -> None:
        """Forget what is known of the memory of a tensor."""
        storage = _storage(tensor)
        if storage is not None:
            self._entries.pop(storage._cdata, None)  # noqa: SLF001

    def _sweep(self) -> None:
        for number, (reference, _) in list(self._entries.items()):
            if reference.expired():
                del self._entries[number]
        self._sweep_at = max(_FEW, 2 * len(self._entries))


def _storage(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    """Return the memory that a tensor is known by, of a sparse one that of its values; ``None`` if it has none."""
    sort = sort_of(tensor)
    if sort < COMPOUND:
        return tensor.untyped_storage()
    if sort == NOTHING:
        return None
    try:
        if tensor.layout is torch.sparse_coo:
            tensor = tensor.detach()._values()  # noqa: SLF001 - the public one asks for a coalesced tensor
        elif tensor.layout is not torch.strided:
            tensor = tensor.detach().values()
        return tensor.untyped_storage()
    except RuntimeError:
        return None


def covers(tensor: torch.Tensor) -> bool:
    """Tell whether a tensor has all of its memory."""
    if sort_of(tensor) >= COMPOUND:
        return False
    nbytes = tensor.untyped_storage().nbytes()
    return bool(tensor.numel() * tensor.element_size() == nbytes)


def geometry(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Return which elements of its memory a tensor holds, and as what."""
    return tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype


def substituted(value: Any, new: dict[int, torch.Tensor]) -> Any:
    """Return an argument with other tensors in the place of some, by the identity of these."""
    if isinstance(value, torch.Tensor):
        return new.get(id(value), value)
    if isinstance(value, (tuple, list)):
        return type(value)([substituted(one, new) for one in value])
    if isinstance(value, dict):
        return {name: substituted(one, new) for name, one in value.items()}
    return value


# --- How many later ops are given something that came of a root


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

        None has by a tensor that the op is about to write wholly, and does not read.
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


# --- Memory that changes between two ops, of which nobody knows whether it would do so again: numpy or a kernel wrote to it
#
# While ops are executed again a few bytes of the memory that each has written are kept, and looked at when an op reads it. Only
# memory of the CPU is looked at: on another device one would have to wait for it. Two runs compare all of it.


# Bytes that are looked at, at the beginning, in the middle and at the end.
_BYTES = 64


class OutsideWrites:
    """Counts ops that were given memory which something else than an op had written to."""

    def __init__(self) -> None:
        self.seen = 0
        self.first: Any = None  # the call site of the first of these
        self._samples: StorageTable[bytes] = StorageTable()

    def look(self, given: Sequence[torch.Tensor], key: Any) -> None:
        """Before an op is called: see whether the memory that it is given is as ops have left it."""
        changed = False
        for one in given:
            known = self._samples.get(one) if sort_of(one) == CPU else None
            if known is not None and known != _sample(one):
                changed = True
                self._samples.remove(one)
        if changed:
            self.seen += 1
            self.first = self.first or key

    def written(self, tensors: Sequence[torch.Tensor]) -> None:
        """Keep what stands in memory that an op has written."""
        for one in tensors:
            if sort_of(one) == CPU:
                self._samples.set(one, _sample(one))

    def forget(self, tensors: Sequence[torch.Tensor]) -> None:
        """Forget memory that is written to without being looked at."""
        for one in tensors:
            self._samples.remove(one)


def _sample(tensor: torch.Tensor) -> bytes:
    storage = tensor.untyped_storage()
    begin, size = storage.data_ptr(), storage.nbytes()
    if size <= 3 * _BYTES:
        return ctypes.string_at(begin, size) if begin else b""
    places = (0, (size - _BYTES) // 2, size - _BYTES)
    return b"".join([ctypes.string_at(begin + place, _BYTES) for place in places])
