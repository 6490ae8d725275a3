"""What arguments of a user's spec hold beside tensors: generators, modules, arrays, gradients.

Whatever an execution does to them the next one would be given, so they are put back before each. What cannot be put back is an
input that changed.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from detmatrix.scanner.worker import bits


def held(value: Any, name: str) -> list[bits.Part]:
    """Return the tensors that modules and NumPy's arrays among nested arguments hold, each with the name a reader finds it by."""
    found: list[bits.Part] = []
    numpy = sys.modules.get("numpy")
    for place, leaf in bits.leaves(value, name):
        for path, tensor in _of_module(leaf).items():
            found += bits.parts(tensor, f"{place}.{path}")
        if numpy and isinstance(leaf, numpy.ndarray) and not leaf.dtype.hasobject:
            data = bytearray(leaf.tobytes())
            whole = torch.frombuffer(data, dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)
            found.append((f"{place}: {leaf.dtype} {leaf.shape}", whole))
    return found


def _of_module(leaf: Any) -> dict[str, torch.Tensor]:
    """Return the parameters and buffers of a module by their paths, those left out that wait for their shape."""
    if not isinstance(leaf, torch.nn.Module):
        return {}
    named = {**dict(leaf.named_parameters()), **dict(leaf.named_buffers())}
    return {path: tensor for path, tensor in named.items() if not is_lazy(tensor)}


class HeldState:
    """The state of what nested arguments hold when it was taken."""

    def __init__(self, value: Any) -> None:
        leaves = [leaf for _, leaf in bits.leaves(value)]
        modules = [leaf for leaf in leaves if isinstance(leaf, torch.nn.Module)]
        self._generators = [(leaf, leaf.get_state()) for leaf in leaves if isinstance(leaf, torch.Generator)]
        self._modules = [
            (module, {path: tensor.detach().clone() for path, tensor in _of_module(module).items()})
            for module in modules
        ]
        self._training = [(part, part.training) for module in modules for part in module.modules()]
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.is_leaf]
        tensors += [one for module in modules for one in module.parameters()]
        self._gradients = [(one, None if one.grad is None else one.grad.clone()) for one in tensors]

    def put_back(self) -> None:
        """Put it back."""
        for generator, state in self._generators:
            generator.set_state(state)
        with torch.no_grad():
            for module, kept in self._modules:
                for path, tensor in _of_module(module).items():
                    if path in kept and tensor.shape == kept[path].shape:
                        tensor.copy_(kept[path])
        for part, training in self._training:
            part.training = training
        for tensor, gradient in self._gradients:
            tensor.grad = None if gradient is None else gradient.clone()
