"""What a compiled region uses: the tensors and numbers in its arguments, in its modules, and in whatever its code names.

Code is not run for it. Of an object only those attributes are looked into that code names which was reached: a trainer's step
uses its model, and not the data that the trainer holds.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from detmatrix.scanner.locate.call_sites import OURS, TORCH

# Things that are looked at, more than a model and its settings have, and numbers that are told.
_MOST, _MOST_NUMBERS = 1 << 16, 256
# Of a list or a mapping; what has more is data.
_MOST_ITEMS = 1 << 12
# Methods that are called without being named.
_UNNAMED = ("forward", "__call__", "__getattr__", "__getitem__", "__iter__")
# What holds the function in what stands for one.
_HELD = ("func", "args", "keywords", "fget", "__func__")
_NUMBERS = (int, float, complex)
_SIMPLE = (torch.Tensor, *_NUMBERS, tuple, list, dict)
_Found = Iterator[tuple[str, Any]]


class RegionUse:
    """What a function, or a module, uses when it is called, by names that its author knows."""

    def __init__(self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self.tensors: list[torch.Tensor] = []
        self.names: list[str] = []
        self.numbers: dict[str, Any] = {}  # ``self.scale=0.5``, but for those that are arguments themselves
        # Things that were looked at; while they are held no others have their numbers.
        self._seen: dict[int, Any] = {}
        self._attributes = dict.fromkeys(_UNNAMED)
        self._objects: list[tuple[str, Any]] = []
        given = [(f"argument {place}", one) for place, one in enumerate(args, 1)] + [*kwargs.items()]
        left = deque([one for one in given if not isinstance(one[1], _NUMBERS)])
        left.append(("", function))
        searched = (0, 0)
        while left and len(self._seen) < _MOST:
            self._look(*left.popleft(), left)
            # Attributes of objects that were reached before their names were.
            if not left and searched != (searched := (len(self._attributes), len(self._objects))):
                left.extend(self._named())

    def _look(self, path: str, one: Any, left: deque[tuple[str, Any]]) -> None:
        if isinstance(one, _NUMBERS):
            if len(self.numbers) < _MOST_NUMBERS:
                self.numbers[path] = one
        elif id(one) not in self._seen:
            self._seen[id(one)] = one
            with suppress(Exception):  # of a mapping of the user's own
                left.extend(self._within(path, one))

    def _within(self, path: str, one: Any) -> _Found:
        if isinstance(one, torch.Tensor):
            # A lazy parameter holds nothing until its module has been called.
            if not is_lazy(one):
                self.tensors.append(one)
                self.names.append(path)
        elif isinstance(one, (tuple, list, Mapping)):
            for place, item in enumerate(islice(one, _MOST_ITEMS)):
                # Other keys than these, such as the parameters of an optimizer's state, are no words.
                key = item if isinstance(one, Mapping) and isinstance(item, (str, int)) else place
                yield f"{path}[{key!r}]", one[item] if isinstance(one, Mapping) else item
        elif isinstance(one, MethodType):
            yield from (("self", one.__self__), (path, one.__func__))
        elif isinstance(one, FunctionType):
            yield from self._of_function(path, one)
        elif isinstance(one, (functools.partial, property, staticmethod, classmethod)):
            yield from ((path, getattr(one, name, None)) for name in _HELD)
        elif isinstance(one, type):
            self._objects += [] if _is_torchs(one) else [(one.__name__, one)]
        elif not isinstance(one, (str, bytes, ModuleType)) and hasattr(one, "__dict__"):
            yield from self._of_object(path, one)

    def _of_function(self, path: str, function: FunctionType) -> _Found:
        code = function.__code__
        if code.co_filename.startswith((TORCH, OURS)):  # what wraps the user's own
            yield path, getattr(function, "__wrapped__", None)
            return
        names = dict.fromkeys(_names_of(code))
        self._attributes.update(names)
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=False):
            with suppress(ValueError):  # nothing is in it yet
                yield name, cell.cell_contents
        defaults = function.__defaults__ or ()
        yield from zip(code.co_varnames[code.co_argcount - len(defaults) :], defaults, strict=False)
        yield from (function.__kwdefaults__ or {}).items()
        for name in names:
            one = function.__globals__.get(name)
            yield name, one
            if isinstance(one, ModuleType):
                yield from ((f"{name}.{inner}", vars(one).get(inner)) for inner in names)

    def _of_object(self, path: str, one: Any) -> _Found:
        if isinstance(one, torch.nn.Module):
            for found in (one.named_parameters, one.named_buffers):
                yield from ((_join(path, name), tensor) for name, tensor in found(recurse=False))
            yield from ((_join(path, name), module) for name, module in one.named_children())
        if not _is_torchs(type(one)):
            self._objects.append((path, one))
            yield from (("", kind) for kind in type(one).__mro__)
        elif not isinstance(one, torch.nn.Module):
            # Its code is not looked into.
            for name, value in vars(one).items():
                if isinstance(value, _SIMPLE) and not (name.startswith("_") and isinstance(value, _NUMBERS)):
                    yield _join(path, name), value

    def _named(self) -> _Found:
        for path, one in self._objects:
            for name, value in [*vars(one).items()]:
                if name in self._attributes:
                    yield _join(path, name), value


def _names_of(code: CodeType) -> Iterator[str]:
    """Yield the globals and attributes that code names, that of functions within it included."""
    yield from code.co_names
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from _names_of(one)


def _is_torchs(kind: type) -> bool:
    return kind.__module__.partition(".")[0] in {"torch", "builtins"}


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
