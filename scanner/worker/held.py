"""What arguments of a user's spec hold beside tensors: the parameters of modules, arrays, and whatever state an object has.

It enters the digest of the inputs, and executions that differ prove nothing if it changed between them.
"""

from __future__ import annotations

import hashlib
import pickle
import sys
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from detmatrix.scanner.worker import bits, simulated


def held(value: Any, name: str) -> list[bits.Part]:
    """Return the tensors that modules and NumPy's arrays among nested arguments hold, each with the name a reader finds it by."""
    found: list[bits.Part] = []
    numpy = sys.modules.get("numpy")
    for place, leaf in bits.leaves(value, name):
        if isinstance(leaf, torch.nn.Module):
            named = {**dict(leaf.named_parameters()), **dict(leaf.named_buffers())}
            for path, tensor in named.items():
                if not (is_lazy(tensor) or tensor.is_meta or tensor.is_nested):
                    found += bits.parts(tensor.cpu() if simulated.active() else tensor, f"{place}.{path}")
        if numpy and isinstance(leaf, numpy.ndarray) and not leaf.dtype.hasobject:
            data = bytearray(leaf.tobytes())
            whole = torch.frombuffer(data, dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)
            found.append((f"{place}: {leaf.dtype} {leaf.shape}", whole))
    return found


def state(value: Any) -> list[str | None]:
    """Return a digest of the state of each object among nested arguments, and of each gradient; ``None`` where it cannot be read."""
    leaves = [leaf for _, leaf in bits.leaves(value)]
    gradients = [leaf.grad for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.is_leaf]
    others = [leaf for leaf in leaves if not isinstance(leaf, (torch.Tensor, torch.Generator))]
    for leaf in others:
        # Of a bound method the object it belongs to. Not every module can be pickled whole.
        module = getattr(leaf, "__self__", leaf)
        if isinstance(module, torch.nn.Module):
            others = [*others, dict(module.named_parameters()), dict(module.named_buffers())]
            gradients += [one.grad for one in module.parameters()]
    return [_digest(one) for one in (*others, *gradients)]


def _digest(one: Any) -> str | None:
    try:
        return hashlib.sha256(pickle.dumps(one)).hexdigest()
    except Exception:  # noqa: BLE001 - objects of a user's refuse in any way they like
        return None
