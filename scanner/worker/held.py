"""What arguments of a user's spec hold beside tensors and numbers: modules, arrays, optimizers, iterators, any object.

What can be read enters the digest of the inputs. An execution may change any of it, so that the next one is given something else.
"""

from __future__ import annotations

import dis
import enum
import hashlib
import logging
import pickle
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from operator import attrgetter, itemgetter, methodcaller
from types import (
    BuiltinFunctionType,
    CodeType,
    EllipsisType,
    FunctionType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    SimpleNamespace,
    WrapperDescriptorType,
)
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from detmatrix.scanner.worker import bits, simulated

# What no execution can change.
_PLAIN = (
    *(torch.dtype, torch.device, torch.layout, torch.memory_format, torch.finfo, torch.iinfo),
    *(type(None), bool, int, float, complex, str, bytes, range, slice, type, enum.Enum, EllipsisType),
    logging.Logger,
    *(torch._ops.OpOverload, torch._ops.OpOverloadPacket, torch._C.ConcreteModuleType),  # noqa: SLF001 - have no public name
    *(attrgetter, itemgetter, methodcaller, MethodDescriptorType, WrapperDescriptorType, ModuleType),
)
_CALLABLE = (partial, MethodType, BuiltinFunctionType, MethodWrapperType, FunctionType)
# Libraries whose functions keep nothing from call to call, and whose objects do not change if they are hashed by their value.
_KNOWN = (
    *("torch", "numpy", "builtins", "math", "operator", "functools"),
    *("datetime", "decimal", "fractions", "pathlib", "re", "uuid"),
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
    """Return what executions may have changed unseen among nested arguments: objects with a state, gradients that add up.

    Tensors, numbers and texts are compared, and generators put back, unless it is an object that holds them.
    """
    found: dict[int, Any] = {}
    seen = set[int]()
    waiting = deque([(value, False)])  # each with whether it is inside of an object, or an argument itself
    while waiting:
        one, inside = waiting.popleft()
        if id(one) in seen or isinstance(one, _PLAIN):
            continue
        seen.add(id(one))
        changes, inside, parts = _looked_at(one, inside)
        if changes:
            found[id(one)] = one
        waiting += ((part, inside) for part in parts)
    return list(found.values())


def state_of(value: Any) -> str | None:
    """Return a digest of all that an object holds; ``None`` where that cannot be told."""
    sha = hashlib.sha256()
    try:
        pickle.Pickler(SimpleNamespace(write=sha.update)).dump(value)
    except Exception:  # noqa: BLE001 - whatever an object's own pickling raises
        return None
    return sha.hexdigest()


def _looked_at(value: Any, inside: bool) -> tuple[bool, bool, Iterable[Any]]:
    """Tell whether a value may change, and whether its parts are inside of an object; return those."""
    if isinstance(value, torch.Tensor):
        adds_up = value.is_leaf and value.grad is not None
        # Neither kind of hooks has a public name; torch 2.0 lacks the second.
        hooks = (
            getattr(value, f"_{kind}_hooks", None) or {} for kind in ("backward", "post_accumulate_grad")
        )
        parts = [*_attributes(value), *(one for some in hooks for one in some.values())]
        inside = inside or bool(parts)
        return inside or adds_up, inside, [*parts, value.grad] if adds_up else parts
    if isinstance(value, (tuple, frozenset)) and not hasattr(value, "__dict__"):
        return False, inside, value
    if type(value) in (list, dict, torch.Generator):
        return inside, inside, _items(value)
    if isinstance(value, _CALLABLE):
        return _rebinds(value), True, _carried(value)
    return not _is_constant(value), True, [*_items(value), *_attributes(value)]


def _items(value: Any) -> Iterable[Any]:
    if isinstance(value, Mapping):
        return (*value.keys(), *value.values())
    return value if isinstance(value, (list, tuple, frozenset, set, deque)) else ()


def _attributes(value: Any) -> Iterable[Any]:
    found: list[Any] = []
    for kind in type(value).__mro__:
        for one in vars(kind).values():
            if isinstance(one, MemberDescriptorType):  # of `__slots__`, whatever they are called
                with suppress(Exception):  # it is empty, or an object refuses, in any way it likes
                    found.append(one.__get__(value))
    with suppress(Exception):
        found += vars(value).values()
    return found


def _is_constant(value: Any) -> bool:
    """Tell whether an object of a library stands for a value: NumPy's numbers and dtypes, dates, paths, torch's overloads."""
    fixed = bits.by_value(value) and not isinstance(value, memoryview)
    return bits.made_by(value) in _KNOWN and (fixed or type(value).__name__ == "ufunc")


def _known(function: FunctionType) -> bool:
    """Tell whether a function is of a library: what wraps one bears its name, and has globals of its own."""
    return str(function.__globals__.get("__name__")).partition(".")[0] in _KNOWN


def _carried(function: Any) -> Iterator[Any]:
    """Yield what a callable carries from call to call."""
    if isinstance(function, partial):
        yield from (function.func, *function.args, *function.keywords.values())
    elif not isinstance(function, FunctionType):
        yield function.__self__
    elif _known(function):
        yield vars(function).get("__wrapped__")  # a function of the user's that a library decorates
    else:
        yield from (
            function.__defaults__,
            *(function.__kwdefaults__ or {}).values(),
            *vars(function).values(),
        )
        for cell in function.__closure__ or ():
            with suppress(ValueError):  # it is empty
                yield cell.cell_contents


def _rebinds(function: Any) -> bool:
    """Tell whether a function puts another value into what it carries: into a variable of the function around it, or an attribute."""

    def stored(code: CodeType) -> set[str]:
        names = {one.argval for one in dis.get_instructions(code) if one.opname == "STORE_DEREF"}
        return names.union(*(stored(one) for one in code.co_consts if isinstance(one, CodeType)))

    if not isinstance(function, FunctionType) or _known(function):
        return False
    attributes = vars(function).keys() - {"__wrapped__"}
    return bool(attributes or stored(function.__code__) & {*function.__code__.co_freevars})
