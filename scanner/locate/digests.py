"""Digests of tensors: two 64-bit integers over the raw bits, in their order, computed where the tensor lies.

A digest is a sum of products modulo 2^64, so that it does not depend on the order in which threads add. Each word of 64 bits
is mixed with its upper half first: a difference in the upper bits alone, such as two signs, would vanish in the product.
"""

from __future__ import annotations

from functools import cache, lru_cache
from threading import get_ident

import torch

# Words that are multiplied at once; a longer tensor is digested in blocks, and then their digests are. PyTorch does not
# hand out so few elements to several threads, for which one would have to wait.
_BLOCK = 1 << 15
# Columns that a quick digest adds up.
_COLUMNS = 1 << 12
_aten = torch.ops.aten


@cache
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
    return digest_words(words(tensor))


def digest_words(bits: torch.Tensor) -> torch.Tensor:
    """Return the digest of a tensor whose ``words`` are known."""
    return _on_cpu(bits) if bits.device.type == "cpu" else _on_device(bits)


def quick_digest_words(bits: torch.Tensor) -> torch.Tensor:
    """Return two 64-bit numbers that tell whether a tensor was written to, in a fraction of the time of a digest.

    They do not see two words change places that are a multiple of 4096 words apart.
    """
    count = bits.numel()
    weights = _weights(bits.device)
    if count <= 2 * _COLUMNS:
        return _product(weights[:, :count], bits)
    rows = count // _COLUMNS
    sums = _product(weights[:, :_COLUMNS], bits[: rows * _COLUMNS].view(rows, _COLUMNS).sum(0))
    rest = bits[rows * _COLUMNS :]
    return sums + _product(weights[:, _COLUMNS : _COLUMNS + rest.numel()], rest) if rest.numel() else sums


def _product(weights: torch.Tensor, vector: torch.Tensor) -> torch.Tensor:
    """Return two sums of products; CUDA has no product of integer matrices."""
    return _aten.mv.default(weights, vector) if vector.device.type == "cpu" else (weights * vector).sum(1)


@lru_cache(maxsize=256)
def _workplace(count: int, thread: int) -> tuple[torch.Tensor, torch.Tensor]:  # noqa: ARG001 - each thread has its own
    """Return weights for so many words, and memory for these, since fresh memory costs more than what is done there."""
    return _weights(torch.device("cpu"))[:, :count], torch.empty(count, dtype=torch.int64, device="cpu")


def _on_cpu(bits: torch.Tensor) -> torch.Tensor:
    count, thread = bits.numel(), get_ident()
    blocks = [bits] if count <= _BLOCK else bits.split(_BLOCK)
    found = []
    for block in blocks:
        weights, mixed = _workplace(block.numel(), thread)
        _aten.bitwise_right_shift.Tensor_Scalar_out(block, 32, out=mixed)
        mixed.bitwise_xor_(block)
        found.append(_product(weights, mixed))
    return found[0] if len(found) == 1 else _on_cpu(_aten.cat.default(found))


def _on_device(bits: torch.Tensor) -> torch.Tensor:
    count, weights = bits.numel(), _weights(bits.device)
    bits = bits ^ (bits >> 32)
    if count <= _BLOCK:
        return _product(weights[:, :count], bits)
    whole, rest = bits[: count // _BLOCK * _BLOCK].view(-1, _BLOCK), bits[count // _BLOCK * _BLOCK :]
    found = [(whole * row).sum(1) for row in weights.unbind()]
    if rest.numel():
        found.append(_product(weights[:, : rest.numel()], rest))
    return _on_device(_aten.cat.default(found))
