"""What a Triton kernel reaches: the tensors in its arguments, and whether numbers among them are addresses of memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from detmatrix.scanner.locate.memory.comparison import COMPOUND, sort_of

# Where the process has its memory, on Linux.
_MAPS = Path("/proc/self/maps")
# Where nothing tells: numbers that are no size.
_ANYWHERE = [(1 << 32, (1 << 63) - 1)]
# Below it no process has memory.
_LOWEST = 1 << 16
_WORDS = {torch.int64, getattr(torch, "uint64", torch.int64)}


class Given(NamedTuple):
    """What the arguments of a kernel hold."""

    tensors: list[torch.Tensor]
    addresses: bool  # of memory that need not be that of these tensors


def given_to(arguments: Sequence[Any], untouched: Callable[[torch.Tensor], bool]) -> Given:
    """Look through arguments, however they are nested.

    Args:
        arguments: Of a kernel.
        untouched: Tells of a tensor that nothing was written to it, so that no address in it is the program's.
    """
    leaves = list(_leaves(arguments))
    tensors = [one.detach() for one in leaves if isinstance(one, torch.Tensor)]
    numbers = [one for one in leaves if isinstance(one, int) and _LOWEST <= one < 1 << 63]
    words = [
        _words(one)
        for one in tensors
        if one.dtype in _WORDS and sort_of(one) < COMPOUND and not untouched(one)
    ]
    # An object of another kind has memory that is not known how to put back.
    other = any(hasattr(one, "data_ptr") for one in leaves if not isinstance(one, torch.Tensor))
    return Given(tensors, other or _addresses([torch.tensor(numbers, dtype=torch.int64), *words]))


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _leaves(item)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _leaves(item)
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from _leaves(getattr(value, field.name))
    # Triton's own kinds of argument stand for a tensor.
    elif isinstance(base := getattr(value, "base", None), torch.Tensor):
        yield base
    else:
        yield value


def _words(tensor: torch.Tensor) -> torch.Tensor:
    """Return all that stands in the memory of a tensor of such words and can be an address."""
    memory = torch.empty(0, dtype=torch.int64, device=tensor.device).set_(tensor.untyped_storage())
    return memory[memory >= _LOWEST].cpu()


def _addresses(values: Sequence[torch.Tensor]) -> bool:
    """Tell whether any of these numbers lies in memory that the process may write to."""
    every = torch.cat(list(values))
    if not every.numel():
        return False
    ranges = torch.tensor(_writable(), dtype=torch.int64)
    places = torch.searchsorted(ranges[:, 0].contiguous(), every, right=True) - 1
    return bool(((places >= 0) & (every < ranges[places.clamp(min=0), 1])).any())


def _writable() -> list[tuple[int, int]]:
    """Return where memory that can be written to begins and ends, in order."""
    try:
        lines = _MAPS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return _ANYWHERE
    found = []
    for line in lines:
        place, rights = line.split(maxsplit=2)[:2]
        begin, end = (int(one, 16) for one in place.split("-"))
        if "w" in rights and end < 1 << 63:
            found.append((begin, end))
    return found
