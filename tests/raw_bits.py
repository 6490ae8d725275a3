"""Tensors of given bytes, and whether two values have the same bits; loading this takes a torch."""

from __future__ import annotations

from typing import Any

import torch

from detmatrix.scanner.worker import bits


def raw(data: bytes, dtype: str, shape: tuple[int, ...] | None = None) -> Any:
    """Return a tensor of any dtype with exactly these bytes."""
    tensor = torch.frombuffer(bytearray(data), dtype=torch.uint8).clone().view(getattr(torch, dtype))
    return tensor if shape is None else tensor.reshape(shape)


def same_bits(left: Any, right: Any) -> bool:
    """Compare in all three ways, which must agree, and return what they say."""
    one, other = bits.parts(left, "output"), bits.parts(right, "output")
    if not bits.same_structure(one, other):
        assert bits.digest(one) != bits.digest(other)
        return False
    pairs = [(a, b) for (_, a), (_, b) in zip(one, other, strict=True)]
    answers = {
        all(bits.equal_on_cpu(a, b) for a, b in pairs),
        not any(bits.differ_on_device(a, b).item() for a, b in pairs),
        bits.digest(one) == bits.digest(other),
    }
    (answer,) = answers
    return answer
