"""What arguments of a user's spec hold beside tensors and numbers: modules, arrays, optimizers, iterators, any object.

What can be read enters the digest of the inputs. An execution may change any of it, so that the next one is given something else.
"""

from __future__ import annotations

import enum
import sys
from functools import partial
from operator import attrgetter, itemgetter, methodcaller
from types import (
    BuiltinFunctionType,
    EllipsisType,
    FunctionType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from detmatrix.scanner.worker import bits, simulated

# What no execution can change, or what is compared or put back by itself.
_PLAIN = (
    *(torch.Tensor, torch.Generator, torch.dtype, torch.device, torch.layout, torch.memory_format),
    *(torch.finfo, torch.iinfo),
    *(type(None), bool, int, float, complex, str, bytes, range, slice, type, enum.Enum),
    *(FunctionType, BuiltinFunctionType, MethodDescriptorType, ModuleType, EllipsisType),
    *(attrgetter, itemgetter, methodcaller),
)


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


def may_change(value: Any) -> list[Any]:
    """Return what executions may have changed unseen among nested arguments: objects with a state, gradients that add up."""
    found: list[Any] = []
    ufuncs = [numpy.ufunc] if (numpy := sys.modules.get("numpy")) else []
    for _, leaf in bits.leaves(value):
        if isinstance(leaf, MethodType):
            found.append(leaf.__self__)
        elif isinstance(leaf, partial):
            found += may_change((leaf.func, leaf.args, leaf.keywords))
        elif isinstance(leaf, torch.Tensor):
            found += [leaf] if leaf.is_leaf and leaf.grad is not None else []
        elif not isinstance(leaf, (*_PLAIN, *ufuncs)) and getattr(type(leaf), "__hash__", None) in {
            None,
            object.__hash__,
        }:
            # What is hashed by its value does not change: NumPy's numbers and dtypes, dates, paths, torch's overloads.
            found.append(leaf)
    return found
