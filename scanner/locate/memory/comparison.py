"""Compare what an op gave with what it gave before, by raw bits."""

from __future__ import annotations

import torch

from detmatrix.scanner.worker.bits import differ_on_device, equal_on_cpu, memcmp, parts, same_structure

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
        return bool(one.numel()) and not equal_on_cpu(one, other)
    if sort == NOTHING:
        return False
    if sort == DEVICE:
        return bool(one.numel()) and differ_on_device(one, other)
    mine, its = parts(one, "output"), parts(other, "output")
    if not same_structure(mine, its):
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
                or (size and memcmp(pointer, other.data_ptr(), size))
            ):
                return False
        return True


def size_of(tensor: torch.Tensor) -> int:
    """Return the bytes that a copy of a tensor takes, as far as that is known without reading it."""
    return tensor.numel() * tensor.element_size() if sort_of(tensor) < COMPOUND else 0
