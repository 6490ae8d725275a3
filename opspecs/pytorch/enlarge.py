"""Grow the tiny samples of a database until kernels run in parallel and values collide.

A recipe says how, in a form that travels with the row: ``"size=5 by=9 values=mixed"`` multiplies every dimension of
size 5 by 9. Nothing here knows what an op means; whoever asks for recipes calls the op and keeps what it accepts.

* ``size=N`` dimensions of size N, ``dim=N`` the N-th dimension of every tensor that has the first one's size there,
  ``size=all`` all dimensions of size 2 or more, ``index=all`` those of integers and of what has their shape, ``rest=N``
  the N-th of every tensor but the first, or the only one it has.
* ``values=mixed`` floating values between two random ones of the sample, so that what holds between a least and a
  greatest value still holds, with full mantissas; ``picked`` random ones of the sample, which makes ties; ``tiled``
  the sample side by side, which keeps its structure. Integers and booleans, indices among them, are always picked, so
  that destinations repeat.
* ``ints=1`` also multiplies the integers in lists and tuples that equal a size which grows.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

# Depth of an argument in ``(args, kwargs)``.
_ARGUMENT = 2
_KINDS = ("size", "dim", "index", "rest")
# Elements that make CPU kernels run in two threads at least, fill a GPU, or take several blocks of most kernels.
ON_CPU, ON_GPU, ON_SIMULATED = 1 << 16, 1 << 20, 1 << 13
# All tensors of a grown sample together have at most so many times the elements asked for.
_EXCESS = 8
# Index outputs and the order of equals only show where values are equal.
_CHOOSES_AMONG_EQUALS = (
    "sort", "topk", "median", "mode", "kthvalue", "max", "min", "unique", "cummax", "cummin", "msort", "aminmax",
    "quantile", "bucketize", "searchsorted",
)  # fmt: skip

# Kernels that do not check their integers: drawn anew these would be addresses outside of a tensor, and what such a
# kernel then does to memory would speak in every later row. (A malloc that checks itself has seen lu_unpack do it.)
_TRUSTS_INTEGERS = (
    "lu_unpack", "lu_solve", "ldl_solve", "segment_reduce", "embedding_bag", "ctc_loss", "CTCLoss",
    "_unsafe_masked_index",
    "_efficient_attention", "_flash_attention",  # offsets of sequences: on an H100 rows that overlap raced
    "sparse", "nested", "jagged", "packed",
)  # fmt: skip


def mapped(tree: Any, change: Callable[[torch.Tensor], Any], made: dict[int, Any] | None = None) -> Any:
    """Return nested arguments with *change* of each tensor, *made* once, in its places; what is no collection stays itself."""
    import torch  # noqa: PLC0415

    # Handed on: a function within this one that calls itself is garbage that holds what was made until it is collected.
    made = {} if made is None else made
    if isinstance(tree, torch.Tensor):
        if id(tree) not in made:
            made[id(tree)] = change(tree)
        return made[id(tree)]
    if isinstance(tree, Mapping):
        return {key: mapped(value, change, made) for key, value in tree.items()}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(mapped(value, change, made) for value in tree))
    if isinstance(tree, tuple) and not isinstance(tree, torch.Size):
        return tuple(mapped(value, change, made) for value in tree)
    return [mapped(value, change, made) for value in tree] if isinstance(tree, list) else tree


def tensors(tree: Any) -> list[torch.Tensor]:
    """Return the tensors of nested arguments, in order, each once."""
    found: list[torch.Tensor] = []
    mapped(tree, found.append)
    return found


def enlargements(tree: Any, name: str, target: int) -> Iterator[str]:
    """Yield recipes by which the largest tensor of a sample of an op gets *target* elements or more, likely ones first."""
    growing = [tensor for tensor in tensors(tree) if _grows(tensor)]
    if any(map(_is_index, growing)) and any(word in name for word in _TRUSTS_INTEGERS):
        return
    chooses = any(word in name for word in _CHOOSES_AMONG_EQUALS)
    values = ("picked",) if chooses else ("mixed", "tiled")
    if not growing:
        if factor := _integer_factor(tree, target):
            yield f"size=all by={factor} values=picked ints=1"
        return
    seen = set()
    for which in _dimensions(growing):
        factor = _factor(growing, which, target)
        shapes = tuple(_shape(tensor, which, factor, growing) for tensor in growing) if factor else ()
        if not shapes or shapes in seen:
            continue
        seen.add(shapes)
        yield from (f"{which} by={factor} values={value}" for value in values)
        if which.startswith("size=") and _with_integers(tree, _sizes(growing, which), 2) != tree:
            yield f"{which} by={factor} values={values[0]} ints=1"


def kind_of(enlargement: str) -> tuple[str, ...]:
    """Return what a recipe says beside its factor."""
    return tuple(part for part in enlargement.split() if not part.startswith("by="))


def to_real_size(tree: Any, name: str, enlargement: str) -> str:
    """Return the recipe of the same kind that fills a GPU, made of the sample itself; empty if there is none."""
    same = (one for one in enlargements(tree, name, ON_GPU) if kind_of(one) == kind_of(enlargement))
    return re.sub(r"values=\w+", "values=tiled", next(same, ""))


def _dimensions(growing: list[torch.Tensor]) -> Iterator[str]:
    """Yield what could be grown together: indices, everything, dimensions of one size, one dimension."""
    if has_indices(growing):
        # Many indices into few places collide, where as many places as indices hardly do.
        yield "index=all"
        yield from (f"rest={number}" for number in range(max(tensor.dim() for tensor in growing)))
    yield "size=all"
    sizes = sorted({size for tensor in growing for size in tensor.shape if size > 1}, reverse=True)
    yield from (f"size={size}" for size in sizes)
    yield from (f"dim={number}" for number in range(max(tensor.dim() for tensor in growing)))


def _factor(growing: list[torch.Tensor], which: str, target: int) -> int | None:
    """Return the smallest factor that brings one tensor to the target; ``None`` if none does within reason."""
    exponents = [len(_axes(tensor, which, growing)) for tensor in growing]
    factors = [
        math.ceil((target / tensor.numel()) ** (1 / count) - 1e-9)
        for tensor, count in zip(growing, exponents, strict=True)
        if count
    ]
    if not factors:
        return None
    factor = max(2, min(factors))
    total = sum(tensor.numel() * factor**count for tensor, count in zip(growing, exponents, strict=True))
    return factor if total <= _EXCESS * target * 2 ** max(exponents) else None


def _axes(tensor: torch.Tensor, which: str, growing: list[torch.Tensor]) -> list[int]:
    """Return the dimensions of a tensor that grow."""
    kind, _, number = which.partition("=")
    shape, first = [int(size) for size in tensor.shape], growing[0]
    axes = range(len(shape))
    if kind == "index":
        return [*axes] if any(tensor.shape == one.shape for one in growing if _is_index(one)) else []
    if kind == "rest":
        only = 0 if len(shape) == 1 else int(number)
        return [axis for axis in axes if tensor is not first and axis == only]
    if kind == "dim":
        sizes = dict(enumerate(first.shape))
        return [axis for axis in axes if axis == int(number) and shape[axis] == sizes.get(axis)]
    return [axis for axis in axes if (shape[axis] > 1 if number == "all" else shape[axis] == int(number))]


def _sizes(growing: list[torch.Tensor], which: str) -> set[int]:
    """Return the sizes that grow."""
    return {tensor.shape[axis] for tensor in growing for axis in _axes(tensor, which, growing)}


def has_indices(tree: Any) -> bool:
    """Tell whether nested arguments hold a tensor of integers beside one of other numbers."""
    growing = [tensor for tensor in tensors(tree) if _grows(tensor)]
    return any(map(_is_index, growing)) and not all(map(_is_index, growing))


def _is_index(tensor: torch.Tensor) -> bool:
    return str(tensor.dtype) in ("torch.int64", "torch.int32")


def _shape(tensor: torch.Tensor, which: str, factor: int, growing: list[torch.Tensor]) -> tuple[int, ...]:
    axes = _axes(tensor, which, growing)
    return tuple(size * factor if axis in axes else size for axis, size in enumerate(tensor.shape))


def _grows(tensor: torch.Tensor) -> bool:
    """Tell whether a tensor is of the plain kind that can be drawn anew."""
    import torch  # noqa: PLC0415

    plain = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout == torch.strided
    return plain and not tensor.is_quantized and tensor.numel() > 0 and tensor.dim() > 0


def _integer_factor(tree: Any, target: int) -> int | None:
    """Return the factor for what is made of sizes alone (``zeros((5, 5))``); ``None`` if there are none."""
    sizes = max(_sequences(tree), key=len, default=())
    if not sizes:
        return None
    return max(2, math.ceil(math.pow(target / math.prod(sizes), 1 / len(sizes))))


def _sequences(tree: Any) -> Iterator[tuple[int, ...]]:
    """Yield the lists and tuples of sizes in nested arguments."""
    if isinstance(tree, Mapping):
        tree = list(tree.values())
    if isinstance(tree, (tuple, list)):
        numbers = tuple(item for item in tree if type(item) is int and item > 1)
        if numbers and len(numbers) == len(tree):
            yield numbers
        for item in tree:
            yield from _sequences(item)


def grow(tree: tuple[tuple[Any, ...], dict[str, Any]], enlargement: str, key: str) -> Any:
    """Return ``(args, kwargs)``, the *tree* of a sample, grown by a recipe; equal keys give equal bits."""
    import torch  # noqa: PLC0415

    said = dict(part.split("=") for part in enlargement.split())
    which = next(f"{kind}={said[kind]}" for kind in _KINDS if kind in said)
    factor = int(said["by"])
    seed = int.from_bytes(hashlib.sha256(f"{key}|{enlargement}".encode()).digest()[:7], "big")
    generator = torch.Generator().manual_seed(seed)
    growing = [tensor for tensor in tensors(tree) if _grows(tensor)]
    sizes = _sizes(growing, which)
    grows = {id(tensor) for tensor in growing}

    def larger(tensor: torch.Tensor) -> torch.Tensor:
        shape = _shape(tensor, which, factor, growing) if id(tensor) in grows else tuple(tensor.shape)
        if shape == tuple(tensor.shape):
            return tensor
        drawn = _redrawn(tensor.detach(), shape, said["values"], generator)
        return drawn.requires_grad_() if tensor.requires_grad else drawn

    grown = mapped(tree, larger)
    return _with_integers(grown, sizes, factor) if "ints" in said else grown


def _redrawn(
    tensor: torch.Tensor, shape: tuple[int, ...], values: str, generator: torch.Generator
) -> torch.Tensor:
    """Return a tensor of a larger shape made of the values of a smaller one."""
    import torch  # noqa: PLC0415

    if values == "tiled":
        return tensor.repeat([new // old for new, old in zip(shape, tensor.shape, strict=True)])
    count = math.prod(shape)
    flat = tensor.resolve_conj().resolve_neg().reshape(-1)

    def picked() -> torch.Tensor:
        places = torch.randint(len(flat), (count,), generator=generator)
        return flat[places.to(flat.device)]

    one = picked()
    if values == "mixed" and (flat.is_floating_point() or flat.is_complex()) and flat.element_size() > 1:
        share = torch.rand(count, generator=generator, dtype=torch.float64).to(flat.device)
        wide = torch.complex128 if flat.is_complex() else torch.float64
        low, high = one.to(wide), picked().to(wide)
        one = torch.lerp(low, high, share.to(wide)).to(flat.dtype)
    return one.reshape(shape)


def _with_integers(tree: Any, sizes: set[int], factor: int, *, depth: int = 0) -> Any:
    """Return ``(args, kwargs)`` in which sizes that grew, told in lists and tuples, have grown as well.

    An argument that is a single integer is more often a dimension than a size: it grows only where there is no tensor.
    """
    if isinstance(tree, dict):
        return {key: _with_integers(value, sizes, factor, depth=depth + 1) for key, value in tree.items()}
    if type(tree) in (tuple, list):
        return type(tree)(_with_integers(item, sizes, factor, depth=depth + 1) for item in tree)
    nested = depth > _ARGUMENT
    grows = type(tree) is int and tree > 1 and (tree in sizes and nested if sizes else True)
    return tree * factor if grows else tree
