"""What tensors hold: read, compared and digested by raw bits, and followed from op to op by the memory that they share."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache, lru_cache
from threading import get_ident
from typing import Any, Generic, TypeVar

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from detmatrix.scanner.located import Root
from detmatrix.scanner.worker import bits

T = TypeVar("T")
_keys = torch._C._dispatch_keys  # noqa: SLF001 - has no public name
# Dispatch keys of a tensor -> whether its memory is on the CPU (0), on another device (1), to be taken apart (2), absent (3).
CPU, DEVICE, COMPOUND, NOTHING = range(4)
_sorts: dict[int, int] = {}


def sort_of(tensor: torch.Tensor) -> int:
    """Tell how the bits of a tensor can be read; what tensors of the same dispatch keys answered is kept."""
    key = _keys(tensor).raw_repr()
    found = _sorts.get(key)
    if found is None:
        found = _sorts[key] = _sort(tensor)
    return found


def _sort(tensor: torch.Tensor) -> int:
    if tensor.device.type == "meta" or type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        return NOTHING
    plain = tensor.layout is torch.strided and not (
        tensor.is_nested
        or tensor.is_quantized
        or tensor.is_conj()
        or tensor.is_neg()
        or tensor._is_zerotensor()  # noqa: SLF001 - has no public name
    )
    if not plain:
        return COMPOUND
    return CPU if tensor.device.type == "cpu" else DEVICE


def unequal(one: torch.Tensor, other: torch.Tensor) -> bool | torch.Tensor:
    """Tell whether two tensors differ in a bit; on another device than the CPU as a tensor there, waiting for nothing."""
    sort = sort_of(one)
    if sort != COMPOUND and (one.dtype != other.dtype or one.shape != other.shape):
        return True
    if sort == CPU:
        return bool(one.numel()) and not bits.equal_on_cpu(one, other)
    if sort == NOTHING:
        return False
    if sort == DEVICE:
        return bool(one.numel()) and bits.differ_on_device(one, other)
    mine, its = bits.parts(one, "output"), bits.parts(other, "output")
    if not bits.same_structure(mine, its):
        return True
    return any(bool(unequal(x, y)) for (_, x), (_, y) in zip(mine, its, strict=True))


class KeptTensors:
    """What an op gave, to be compared with what it gives again; what is asked of it each time is read once."""

    def __init__(self, kept: list[torch.Tensor]) -> None:
        self.tensors = kept
        self.readable = plain = True
        self.on_device, self.size = False, 0
        memories = []
        for one in kept:
            sort = sort_of(one)
            if sort >= COMPOUND:
                plain = False
                self.readable &= sort == COMPOUND
                continue
            size = one.numel() * one.element_size()
            self.size += size
            self.on_device |= sort == DEVICE
            plain = plain and sort == CPU and one.is_contiguous()
            if plain:
                memories.append((one.dtype, one.shape, one.data_ptr(), size))
        self._plain = memories if plain else None

    def same_on_cpu(self, others: list[torch.Tensor]) -> bool:
        """Tell whether others are the same bits, all of them plain tensors of the CPU; else it is as well to look closer."""
        if self._plain is None or len(others) != len(self._plain):
            return False
        # What the same call returns is a plain tensor again; its shape may depend on what it computes.
        for (dtype, shape, pointer, size), other in zip(self._plain, others, strict=True):
            if (
                other.dtype is not dtype
                or other.shape != shape
                or not other.is_contiguous()
                or (size and bits.memcmp(pointer, other.data_ptr(), size))
            ):
                return False
        return True


def size_of(tensor: torch.Tensor) -> int:
    """Return the bytes that a copy of a tensor takes, as far as that is known without reading it."""
    return tensor.numel() * tensor.element_size() if sort_of(tensor) < COMPOUND else 0


# --- Digests: a 64-bit integer over the raw bits of a tensor, in their order, computed where it lies
#
# The digest of few words is the sum of their products with odd numbers modulo 2^64, which does not depend on the order in which
# threads add. Each word is mixed with its upper bits first: a difference in the upper bits alone, such as two signs, would
# vanish in the product. No two words are mixed to the same one. More words are laid out in tiles, and the sums of their columns
# are digested instead, and of their rows, whose words have weights: or ones that change places in two rows would vanish.
#
# Other digests than those of a scan (``detmatrix.scanner.worker.bits``): these are computed several times for each op of a program, in a
# third of the time, and are kept nowhere.


# Words that are multiplied at once.
_FEW = 1 << 13
# A tile. PyTorch does not hand out so few elements to several threads, for which one would have to wait.
_ROWS, _COLUMNS = 160, 176
_TILE = _ROWS * _COLUMNS
# Each word is mixed with what it is when shifted by so many bits, without the signs that come in: by those a word and its complement
# would be mixed to the same one. With a shift by half a word the signs of two equal float32 would vanish.
_SHIFT = 29
_SHIFTED = (1 << 64 - _SHIFT) - 1


@cache
def _weights(device: torch.device) -> torch.Tensor:
    """Return odd numbers, the same in every process."""
    return (bits.splitmix(torch.arange(1, _FEW + 1, dtype=torch.int64, device="cpu")) | 1).to(device)


def _words(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bits of a strided tensor as 64-bit words in the order of its elements, padded with zeros."""
    if not tensor.is_contiguous():
        tensor = tensor.clone(memory_format=torch.contiguous_format)
    size = tensor.numel() * tensor.element_size()
    # A view to another item size asks for strides that dimensions of size 1 may not have.
    flat = tensor.as_strided((tensor.numel(),), (1,))
    if size % 8 == 0 and flat.storage_offset() * flat.element_size() % 8 == 0:
        return flat.view(torch.int64)
    padded = torch.zeros((size + 7) // 8, dtype=torch.int64, device=tensor.device)
    padded.view(torch.uint8)[:size].copy_(flat.view(torch.uint8))
    return padded


def digest(tensor: torch.Tensor) -> torch.Tensor:
    """Return a 64-bit number on the tensor's device; waits for nothing there.

    Args:
        tensor: Strided, with at least one element, neither conjugate nor negative.
    """
    words, on_cpu = _words(tensor), tensor.device.type == "cpu"
    while words.numel() > _FEW:
        words = torch.cat(_sums_on_cpu(words) if on_cpu else _sums_on_device(words))
    weights = _weights(words.device)[: words.numel()]
    # CUDA has no product of integer vectors.
    return torch.dot(weights, _mixed(words)) if on_cpu else (weights * _mixed_on_device(words)).sum()


def _mixed(words: torch.Tensor) -> torch.Tensor:
    """Return words of the CPU mixed with their upper bits, in memory that the next call uses again."""
    mixed = _workplace(get_ident())[: words.numel()]
    torch.bitwise_right_shift(words, _SHIFT, out=mixed)
    return mixed.bitwise_and_(_SHIFTED).bitwise_xor_(words)


@lru_cache(maxsize=64)
def _workplace(thread: int) -> torch.Tensor:  # noqa: ARG001 - each thread has its own
    """Return memory for a tile: fresh memory costs more than what is done there."""
    with torch.inference_mode(mode=False):  # or nobody could write to it outside of that mode
        return torch.empty(_TILE, dtype=torch.int64, device="cpu")


def _sums_on_cpu(words: torch.Tensor) -> list[torch.Tensor]:
    """Return sums of columns, then weighted ones of rows, of tile after tile; then the words that fill no row."""
    columns, rows, weights = [], [], _weights(words.device)[:_COLUMNS]
    whole = words.numel() // _COLUMNS * _COLUMNS
    for begin in range(0, whole, _TILE):
        tile = _mixed(words[begin : min(begin + _TILE, whole)]).view(-1, _COLUMNS)
        columns.append(tile.sum(0))
        rows.append(tile.mul_(weights).sum(1))
    return [*columns, *rows, words[whole:]]


def _mixed_on_device(words: torch.Tensor) -> torch.Tensor:
    return words ^ (words >> _SHIFT & _SHIFTED)


def _sums_on_device(words: torch.Tensor) -> list[torch.Tensor]:
    """Return the same, of all whole tiles at once."""
    mixed = _mixed_on_device(words)
    tiles, whole = words.numel() // _TILE * _TILE, words.numel() // _COLUMNS * _COLUMNS
    many, last = mixed[:tiles].view(-1, _ROWS, _COLUMNS), mixed[tiles:whole].view(-1, _COLUMNS)
    weights = _weights(words.device)[:_COLUMNS]
    columns, rows = [many.sum(1).view(-1)], [many.mul_(weights).sum(2).view(-1)]
    if last.numel():
        columns, rows = [*columns, last.sum(0)], [*rows, last.mul_(weights).sum(1)]
    return [*columns, *rows, words[whole:]]


# --- Memory that tensors share, and what is known of it while it lives


# Entries beyond which those of memory that is gone are removed.
_FEW_ENTRIES = 256


class StorageTable(Generic[T]):
    """Something known of each of some storages, forgotten when they are gone."""

    def __init__(self) -> None:
        # While a weak reference is held no other storage has this number.
        self._entries: dict[int, tuple[StorageWeakRef, T]] = {}
        self._sweep_at = _FEW_ENTRIES

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
            self._entries = {key: one for key, one in self._entries.items() if not one[0].expired()}
            self._sweep_at = max(_FEW_ENTRIES, 2 * len(self._entries))
        return known and known[1]

    def remove(self, tensor: torch.Tensor) -> None:
        """Forget what is known of the memory of a tensor."""
        storage = _storage(tensor)
        if storage is not None:
            self._entries.pop(storage._cdata, None)  # noqa: SLF001


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
    return sort_of(tensor) < COMPOUND and size_of(tensor) == int(tensor.untyped_storage().nbytes())


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
        self._marks: StorageTable[frozenset[Root]] = StorageTable()

    def __bool__(self) -> bool:
        return bool(self._marks)

    def reach(
        self, given: Sequence[torch.Tensor], overwritten: Sequence[torch.Tensor] = ()
    ) -> frozenset[Root]:
        """Count an op for the roots that reached it, and return these.

        None has by a tensor that the op is about to write wholly, and does not read.
        """
        reached: frozenset[Root] = frozenset()
        unread = set(map(id, overwritten))
        for one in given:
            found = self._marks.get(one)
            if found is not None and found is not reached and id(one) not in unread:
                reached |= found
        for one in overwritten:
            # Of a part of its memory the rest stays as it is.
            if self._marks.get(one) is not None and covers(one):
                self._marks.remove(one)
        for root in reached:
            root.reached += 1
        return reached

    def mark(self, reached: frozenset[Root], written: Sequence[torch.Tensor]) -> None:
        """Mark what a root has written, or an op that these roots reached."""
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
