"""Memory that tensors share, what is known of it while it lives, and how many later ops are given what came of a root."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, TypeVar

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from detmatrix.scanner.locate.memory.comparison import COMPOUND, NOTHING, sort_of

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
        return type(value)(_items(value, new))
    if isinstance(value, dict):
        return {name: substituted(one, new) for name, one in value.items()}
    return value


def _items(values: Any, new: dict[int, torch.Tensor]) -> Iterator[Any]:
    return (substituted(one, new) for one in values)
