"""Digests of tensors: two 64-bit integers over the raw bits, in their order, computed where the tensor lies.

A digest is a sum of products modulo 2^64, so that it does not depend on the order in which threads add. Each word of 64 bits
is mixed with its upper half first: a difference in the upper bits alone, such as two signs, would vanish in the product.
"""

from __future__ import annotations

from functools import lru_cache

import torch

# Words that are multiplied at once; longer tensors are digested in blocks, and then the digests of the blocks.
_BLOCK = 1 << 17
_aten = torch.ops.aten


@lru_cache(maxsize=None)
def _weights(device: torch.device) -> torch.Tensor:
    """Return two rows of odd numbers, the same in every process."""
    numbers = torch.arange(1, 2 * _BLOCK + 1, dtype=torch.int64, device=device)
    for shift, factor in ((30, -4658895280553007687), (27, -7723592293110705685)):
        numbers = (numbers ^ ((numbers >> shift) & ((1 << (64 - shift)) - 1))) * factor
    return (numbers ^ ((numbers >> 31) & ((1 << 33) - 1)) | 1).view(2, _BLOCK)


def words(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bits of a strided tensor as 64-bit words in the order of its elements, padded with zeros."""
    if not tensor.is_contiguous():
        tensor = _aten.clone.default(tensor, memory_format=torch.contiguous_format)
    size = tensor.numel() * tensor.element_size()
    if size % 8 == 0 and tensor.storage_offset() * tensor.element_size() % 8 == 0:
        # A view to another item size asks for strides that size-1 dimensions may not have.
        return tensor.view(-1).view(torch.int64)
    padded = _aten.zeros.default([(size + 7) // 8], dtype=torch.int64, device=tensor.device)
    padded.view(torch.uint8)[:size].copy_(tensor.view(-1).view(torch.uint8))
    return padded


def digest(tensor: torch.Tensor) -> torch.Tensor:
    """Return two 64-bit numbers on the tensor's device; waits for nothing there.

    Args:
        tensor: Strided, with at least one element, neither conjugate nor negative.
    """
    bits = words(tensor)
    mixed = bits >> 32
    mixed ^= bits
    return _products(mixed)


def quick_digest(tensor: torch.Tensor) -> torch.Tensor:
    """Return two 64-bit numbers that tell whether a tensor was written to; half the work of ``digest``."""
    return _products(words(tensor))


def _products(bits: torch.Tensor) -> torch.Tensor:
    count, weights = bits.numel(), _weights(bits.device)
    if count <= _BLOCK:
        return _sums(weights[:, :count], bits)
    blocks = count // _BLOCK
    whole = bits[: blocks * _BLOCK].view(blocks, _BLOCK)
    parts = [_sums(whole, row) for row in weights.unbind()]
    rest = bits[blocks * _BLOCK :]
    if rest.numel():
        parts.append(_sums(weights[:, : rest.numel()], rest))
    joined = _aten.cat.default(parts)
    return _products(joined ^ (joined >> 32))


def _sums(rows: torch.Tensor, vector: torch.Tensor) -> torch.Tensor:
    """Return the products of rows and vector; CUDA has no product of integer matrices."""
    if rows.device.type == "cpu":
        return _aten.mv.default(rows, vector)
    return (rows * vector).sum(1)
