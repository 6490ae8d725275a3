"""Digests of tensors: a 64-bit integer over the raw bits, in their order, computed where the tensor lies.

The digest of few words is the sum of their products with odd numbers modulo 2^64, which does not depend on the order in which
threads add. Each word is mixed with its upper half first: a difference in the upper bits alone, such as two signs, would
vanish in the product. More words are laid out in tiles, and the sums of their columns and rows are digested instead.

Other digests than those of a scan (``detmatrix.scanner.worker.bits``): these are computed several times for each op of a program, in a
third of the time, and are kept nowhere.
"""

from __future__ import annotations

from functools import cache, lru_cache
from threading import get_ident

import torch

from detmatrix.scanner.worker.bits import splitmix

# Words that are multiplied at once.
_FEW = 1 << 13
# A tile. PyTorch does not hand out so few elements to several threads, for which one would have to wait.
_ROWS, _COLUMNS = 160, 176
_TILE = _ROWS * _COLUMNS


@cache
def _weights(device: torch.device) -> torch.Tensor:
    """Return odd numbers, the same in every process."""
    return (splitmix(torch.arange(1, _FEW + 1, dtype=torch.int64, device="cpu")) | 1).to(device)


def words(tensor: torch.Tensor) -> torch.Tensor:
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
    return _digest_words(words(tensor))


def _digest_words(bits: torch.Tensor) -> torch.Tensor:
    on_cpu = bits.device.type == "cpu"
    mixed = _mixed if on_cpu else _mixed_on_device
    while bits.numel() > _FEW:
        bits = torch.cat(_sums_on_cpu(bits) if on_cpu else _sums_on_device(bits))
    weights, bits = _weights(bits.device)[: bits.numel()], mixed(bits)
    # CUDA has no product of integer vectors.
    return torch.dot(weights, bits) if on_cpu else (weights * bits).sum()


def _mixed(bits: torch.Tensor) -> torch.Tensor:
    """Return words of the CPU mixed with their upper halves, in memory that the next call uses again."""
    mixed = _workplace(get_ident())[: bits.numel()]
    torch.bitwise_right_shift(bits, 32, out=mixed)
    return mixed.bitwise_xor_(bits)


@lru_cache(maxsize=64)
def _workplace(thread: int) -> torch.Tensor:  # noqa: ARG001 - each thread has its own
    """Return memory for a tile: fresh memory costs more than what is done there."""
    with torch.inference_mode(mode=False):  # or nobody could write to it outside of that mode
        return torch.empty(_TILE, dtype=torch.int64, device="cpu")


def _sums_on_cpu(bits: torch.Tensor) -> list[torch.Tensor]:
    """Return sums of columns, then of rows, of tile after tile; then the words that fill no row."""
    columns, rows = [], []
    whole = bits.numel() // _COLUMNS * _COLUMNS
    for begin in range(0, whole, _TILE):
        tile = _mixed(bits[begin : min(begin + _TILE, whole)]).view(-1, _COLUMNS)
        columns.append(tile.sum(0))
        rows.append(tile.sum(1))
    return [*columns, *rows, bits[whole:]]


def _mixed_on_device(bits: torch.Tensor) -> torch.Tensor:
    return bits ^ (bits >> 32)


def _sums_on_device(bits: torch.Tensor) -> list[torch.Tensor]:
    """Return the same, of all whole tiles at once."""
    mixed = _mixed_on_device(bits)
    tiles, whole = bits.numel() // _TILE * _TILE, bits.numel() // _COLUMNS * _COLUMNS
    many, last = mixed[:tiles].view(-1, _ROWS, _COLUMNS), mixed[tiles:whole].view(-1, _COLUMNS)
    columns, rows = [many.sum(1).view(-1)], [many.sum(2).view(-1)]
    if last.numel():
        columns, rows = [*columns, last.sum(0)], [*rows, last.sum(1)]
    return [*columns, *rows, bits[whole:]]
