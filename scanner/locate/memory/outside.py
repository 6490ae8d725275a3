"""Memory that changes between two ops, of which nobody knows whether it would do so again: numpy or a kernel wrote to it.

While ops are executed again a few bytes of the memory that each has written are kept, and looked at when an op reads it. Only
memory of the CPU is looked at: on another device one would have to wait for it. Two runs compare all of it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import torch

from detmatrix.scanner.locate.memory.comparison import CPU, sort_of
from detmatrix.scanner.locate.memory.storages import StorageTable

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
