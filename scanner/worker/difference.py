"""Say how far differing outputs are from the first one; the measures are those of ``records.Severity``.

Everything is computed in float64 where the outputs lie, block by block, and only where bits differ, so that a closer
look costs little time and little memory even on outputs of gigabytes. A device without float64 hands them to the CPU.
"""

from __future__ import annotations

import sys
from functools import cached_property
from typing import Any

import torch

from detmatrix.scanner.worker import accelerator

# Elements looked at together: what is computed of them mostly stays in the processor's caches. On a device as many as
# keep it busy.
_BLOCK, _BLOCK_ON_DEVICE = 1 << 17, 1 << 22
# A distance beyond float64 is said to be this far: a run file holds no infinity.
_FARTHEST = sys.float_info.max
_INTEGER_OF_SIZE = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

# Elements in one dimension; of complex ones the real and the imaginary parts, each in a tensor.
_Components = tuple[torch.Tensor, ...]


class SeverityAccumulator:
    """Looks closer at one part of a case's output; keeps the largest of each measure over what was added."""

    def __init__(self, first: torch.Tensor) -> None:
        """Keep a reference to the first execution's part, as ``bits.parts`` yields it; compute nothing yet."""
        self._first = first
        # Two float4 numbers share a byte, and no kernel takes them apart.
        packed = str(first.dtype).endswith("_x2")
        self._subtracted = (first.is_floating_point() or first.is_complex()) and not packed
        self._examined = 0
        self._largest: dict[str, Any] = {}

    def add(self, other: torch.Tensor) -> None:
        """Measure another execution's part, of the same dtype and shape, against the first one's."""
        self._examined += 1
        for name, value in self._measures(other).items():
            old = self._largest.get(name)
            self._largest[name] = value if old is None else old if value is None else max(old, value)

    def result(self) -> dict[str, Any] | None:
        """Return the fields of ``records.Severity``; None if nothing was added."""
        if not self._examined:
            return None
        return {"examined": self._examined, "elements": self._first.numel(), **self._largest}

    @cached_property
    def _blocks_of_first(self) -> list[_Components]:
        return _blocks(_components(self._first))

    @cached_property
    def _finite_and_nonzero(self) -> tuple[int, int]:
        """How many elements of the first part are finite, and how many of these are not zero."""
        total = nonzero = 0
        for block in self._blocks_of_first:
            sizes = _sizes(_wide(block))
            finite = _finite(sizes)
            total += _count(finite)
            nonzero += _count(finite & (_modulus(sizes) != 0))
        return total, nonzero

    def _measures(self, other: torch.Tensor) -> dict[str, Any]:
        """Return the measures of one differing part."""
        finite, nonzero = self._finite_and_nonzero if self._subtracted else (0, 0)
        total = _Total(finite=finite, nonzero=nonzero)
        elements = self._first.numel()
        for first, second in zip(self._blocks_of_first, _blocks(_components(other)), strict=True):
            changed = _changed(first, second)
            if count := _count(changed):
                total.differing += count
                if self._subtracted:
                    total.add(_where(changed, count, first), _where(changed, count, second))
        counts = {"differing_elements": total.differing}
        if not self._subtracted:
            # Integers are equal exactly if their bits are.
            return {**counts, "v_c": total.differing / elements}
        return {
            **counts,
            "v_c": total.unequal / elements,
            "v_ermv": min(total.relative / total.nonzero, _FARTHEST) if total.nonzero else None,
            "max_abs": total.max_abs if total.finite else None,
            "max_rel": total.max_rel if total.nonzero else None,
            "max_ulp": total.max_ulp if total.finite else None,
            "not_finite": elements - total.finite,
        }


class _Total:
    """Adds up what the blocks of two parts show."""

    def __init__(self, *, finite: int, nonzero: int) -> None:
        """Begin with the finite and the finite nonzero elements of the first part, as if no pair differed."""
        self.finite = finite
        self.nonzero = nonzero
        self.differing = self.unequal = self.max_ulp = 0
        self.max_abs = self.max_rel = self.relative = 0.0

    def add(self, first: _Components, second: _Components) -> None:
        """Add elements of which each pair differs in a bit."""
        one, two = _wide(first), _wide(second)
        sizes = _sizes(one)
        whole = _finite(sizes)
        both = whole & _finite(_sizes(two))
        finite = _count(both)
        self.unequal += _count(_unequal(one, two, finite=finite == both.numel()))
        self.finite -= _count(whole) - finite
        # Of the elements that could be divided by, those whose other one is not finite drop out.
        size = _modulus(sizes)
        self.nonzero -= _count(whole & ~both & (size != 0))
        if not finite:
            return
        first, second = _where(both, finite, first), _where(both, finite, second)
        one, two = _where(both, finite, one), _where(both, finite, two)
        (size,) = _where(both, finite, (size,))
        distance = _modulus(_sizes(tuple(x - y for x, y in zip(one, two, strict=True))))
        self.max_abs = max(self.max_abs, distance.max().item())
        steps = max(int(_steps(x, y).max().item()) for x, y in zip(first, second, strict=True))
        self.max_ulp = max(self.max_ulp, steps)
        divisible = size != 0
        if count := _count(divisible):
            distance, size = _where(divisible, count, (distance, size))
            ratio = distance.div_(size).clamp_(max=_FARTHEST)
            self.max_rel = max(self.max_rel, ratio.max().item())
            self.relative += ratio.sum().item()


def _components(tensor: torch.Tensor) -> _Components:
    if not accelerator.computes_doubles(tensor.device):
        tensor = tensor.cpu()
    flat = tensor.contiguous().reshape(-1)
    return torch.view_as_real(flat).unbind(-1) if flat.is_complex() else (flat,)


def _blocks(components: _Components) -> list[_Components]:
    block = _BLOCK if components[0].device.type == "cpu" else _BLOCK_ON_DEVICE
    return list(zip(*(component.split(block) for component in components), strict=True))


def _bits(component: torch.Tensor) -> torch.Tensor:
    return component.view(_INTEGER_OF_SIZE[component.element_size()])


def _changed(first: _Components, second: _Components) -> torch.Tensor:
    """Tell which elements differ in a bit."""
    changed = _bits(first[0]) != _bits(second[0])
    for x, y in zip(first[1:], second[1:], strict=True):
        changed |= _bits(x) != _bits(y)
    return changed


def _where(mask: torch.Tensor, count: int, components: _Components) -> _Components:
    """Return the elements for which *mask* holds, *count* in number."""
    if count == mask.numel():
        return components
    places = mask.nonzero().flatten()
    # Not every dtype can be indexed; all integers can.
    return tuple(_bits(component).index_select(0, places).view(component.dtype) for component in components)


def _count(mask: torch.Tensor) -> int:
    return int(torch.count_nonzero(mask).item())


def _wide(components: _Components) -> _Components:
    return tuple(component.to(torch.float64) for component in components)


def _sizes(wide: _Components) -> _Components:
    return tuple(component.abs() for component in wide)


def _finite(sizes: _Components) -> torch.Tensor:
    """Tell which elements have finite components; half the work of isfinite, which takes absolute values too."""
    finite = sizes[0] <= _FARTHEST
    for component in sizes[1:]:
        finite &= component <= _FARTHEST
    return finite


def _modulus(sizes: _Components) -> torch.Tensor:
    """Return absolute values, those of complex numbers included, at most the largest number."""
    return (sizes[0] if len(sizes) == 1 else torch.hypot(*sizes)).clamp(max=_FARTHEST)


def _unequal(one: _Components, two: _Components, *, finite: bool) -> torch.Tensor:
    """Tell which elements differ in value: NaN equals NaN, and zeros equal each other."""
    unequal = torch.zeros_like(one[0], dtype=torch.bool)
    for x, y in zip(one, two, strict=True):
        unequal |= x != y if finite else (x != y) & ~(x.isnan() & y.isnan())
    return unequal


def _steps(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return how many representable numbers lie from one to the other, at most 2**63 - 1, as int64."""
    one, two = _ordered(x), _ordered(y)
    if one.dtype != torch.int64:
        return one.to(torch.int64).sub_(two).abs_()
    steps = torch.maximum(one, two).sub_(torch.minimum(one, two))
    # Numbers of unlike signs may be so far apart that the difference wraps around, once.
    return steps.masked_fill_(steps < 0, torch.iinfo(torch.int64).max)


def _ordered(values: torch.Tensor) -> torch.Tensor:
    """Number the representable values in their order, both zeros 0."""
    if str(values.dtype) == "torch.float8_e8m0fnu":
        # No bit of this format is a sign: it holds exponents alone.
        return values.view(torch.uint8).to(torch.int16)
    raw = _bits(values)
    # The bits are sign and magnitude: below zero all but the sign are flipped, and one is added.
    negative = raw >> (8 * raw.element_size() - 1)
    return (negative & torch.iinfo(raw.dtype).max).bitwise_xor_(raw).sub_(negative)
