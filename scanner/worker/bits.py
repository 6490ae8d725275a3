"""Compare and digest tensors by their raw bits.

Norms, ``allclose`` and ``torch.equal`` are blind to some differences (reordered sums that cancel, the sign of
zero) or see some that are none (a NaN is unequal to itself), so nothing here looks at values.
"""

from __future__ import annotations

import ctypes
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any

import torch

_INTEGER_OF_SIZE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_COMPRESSED = {
    torch.sparse_csr: ("crow_indices", "col_indices"),
    torch.sparse_csc: ("ccol_indices", "row_indices"),
    torch.sparse_bsr: ("crow_indices", "col_indices"),
    torch.sparse_bsc: ("ccol_indices", "row_indices"),
}

# Parts that `_split` names so.
_STRUCTURE = re.compile(r"\.(indices|(c?col|c?row)_indices|scales|zero_points)$")
# Fewer equal numbers side by side may be chance, or what an op is there to select.
_SIDE_BY_SIDE = 8
# Libraries whose objects that are hashed say all they are: NumPy's numbers, dates, paths.
_SHOWN = ("numpy", "datetime", "decimal", "fractions", "pathlib", "uuid")
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_ZERO_POINT = re.compile(r"\.int_repr \(.*zero point (-?\d+)\)$")

_NUMBERS = ((bool, torch.bool), (int, torch.int64), (float, torch.float64), (complex, torch.complex128))

# What digests of this kind begin with; those of run files before format 5 have no kind.
_KIND = "2"
# Numbers that are summed at once: their keys and products stay in a processor's cache. On a device as many blocks at once
# as keep it busy, in 32 MB.
_BLOCK = 1 << 14
_BLOCKS_AT_ONCE = 256
# Bytes that are copied to see whether they change.
_COPIED = 1 << 24
# Elements that mostly tell whether all are alike.
_FIRST = 64

# (name, strided tensor): what is compared.
Part = tuple[str, torch.Tensor]

memcmp = ctypes.CDLL(None).memcmp
memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
memcmp.restype = ctypes.c_int


def parts(value: Any, name: str, *, skip_others: bool = False) -> list[Part]:
    """Flatten what an op returned into strided tensors, each with the name a reader finds it by.

    Tuples, lists and mappings are walked; numbers become 0-d tensors; sparse, quantized and nested tensors
    are split into the tensors they consist of; conjugate and negative views are resolved. ``None`` is left out. Objects without
    bits are refused, for left out in silence they could differ unseen; *skip_others*, for arguments, leaves them out.
    """
    found: list[Part] = []
    for place, leaf in leaves(value, name):
        if isinstance(leaf, torch.Tensor):
            found += _split(leaf.detach(), place)
        elif isinstance(leaf, (bool, int, float, complex)):
            found.append((place, _number(leaf)))
        elif leaf is not None and not skip_others:
            raise TypeError(
                f"{place} is a {type(leaf).__name__}, whose bits are not compared: return tensors and numbers"
            )
    return found


def leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield what nested tuples, lists and mappings hold, each with the name a reader finds it by."""
    items: Any = enumerate(value) if isinstance(value, (tuple, list)) else None
    items = value.items() if isinstance(value, Mapping) else items
    if items is None:
        yield name, value
    else:
        for place, (key, item) in enumerate(items):
            yield from leaves(item, f"{name}[{_named(key, place)}]")


def _named(key: Any, place: int) -> str:
    """Return a key in words that are the same in every process: members of a set in order, of an object of unknown kind its place."""
    if isinstance(key, (int, str)):  # nearly all; this runs in each execution
        return repr(key)
    if isinstance(key, (tuple, frozenset)):
        names = [_named(one, place) for one in key]
        return f"({', '.join(names)})" if isinstance(key, tuple) else f"{{{', '.join(sorted(names))}}}"
    if isinstance(key, Enum):
        return f"{type(key).__name__}.{key.name}"
    if is_dataclass(key):
        told = (_named(getattr(key, one.name, None), place) for one in fields(key))
        return f"{type(key).__name__}({', '.join(told)})"
    plain = isinstance(key, (float, complex, bytes, type(None), torch.dtype, torch.device))
    # What else shows all it is, by a text of its library's: NumPy's numbers, dates, fractions.
    return (
        repr(key) if plain or (by_value(key) and made_by(key) in _SHOWN) else f"{type(key).__name__} {place}"
    )


def _number(value: complex) -> torch.Tensor:
    """Return a tensor that keeps every bit of a Python number: 0-d, or the bytes of an integer beyond 64 bits."""
    if isinstance(value, int) and value.bit_length() > 63:  # noqa: PLR2004
        size = value.bit_length() // 8 + 1
        return torch.tensor(list(value.to_bytes(size, "little", signed=True)), dtype=torch.uint8)
    # Subclasses too (an IntEnum), a bool before the int it is.
    return torch.tensor(value, dtype=next(dtype for kind, dtype in _NUMBERS if isinstance(value, kind)))


def _split(tensor: torch.Tensor, name: str) -> Iterator[Part]:
    """Yield the strided tensors that a tensor of any layout consists of."""
    if tensor.layout == torch.sparse_coo:
        # Not `indices()`: that asks for a coalesced tensor, and coalescing may itself sum in any order.
        yield from _split(tensor._indices(), f"{name}.indices")  # noqa: SLF001
        yield from _split(tensor._values(), f"{name}.values of {tuple(tensor.shape)}")  # noqa: SLF001
    elif tensor.layout in _COMPRESSED:
        for part in _COMPRESSED[tensor.layout]:
            yield from _split(getattr(tensor, part)(), f"{name}.{part}")
        yield from _split(tensor.values(), f"{name}.values of {tuple(tensor.shape)}")
    elif tensor.is_nested:
        for position, item in enumerate(tensor.unbind()):
            yield from _split(item, f"{name}[{position}]")
    elif tensor.is_quantized:
        # Scale and zero point go into the name, exactly: they make no tensor non-empty.
        if tensor.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
            text = f"scale {tensor.q_scale()!r}, zero point {tensor.q_zero_point()}"
            yield f"{name}.int_repr ({text})", tensor.int_repr()
        else:
            yield f"{name}.int_repr (axis {tensor.q_per_channel_axis()})", tensor.int_repr()
            yield f"{name}.scales", tensor.q_per_channel_scales()
            yield f"{name}.zero_points", tensor.q_per_channel_zero_points()
    elif tensor.layout == torch._mkldnn:  # noqa: SLF001 - has no public name
        yield name, tensor.to_dense()
    else:
        yield name, _in_memory(tensor.resolve_conj().resolve_neg(), name)


def _in_memory(tensor: torch.Tensor, name: str) -> torch.Tensor:
    """Return a tensor whose memory can be read: a zero tensor has none until it is copied."""
    if tensor.data_ptr() or not tensor.numel():
        return tensor
    copied = tensor.clone()
    if not copied.data_ptr():
        raise ValueError(f"{name} has no memory to compare ({type(tensor).__name__} on {tensor.device})")
    return copied


def frozen(tensors: Sequence[Part]) -> list[Part]:
    """Copy parts, so that an op which reuses its output buffer cannot change what it is compared with."""
    return [(name, _copied(tensor)) for name, tensor in tensors]


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    """Copy a tensor bit by bit; of booleans torch would copy whether they are zero, and some dtypes it copies not at all."""
    return tensor.clone() if tensor.is_complex() else as_integers(tensor).clone().view(tensor.dtype)


def unchanged(tensors: Sequence[Part]) -> Callable[[Sequence[Part]], bool]:
    """Return what tells whether parts still have the bits of these: on the CPU by copies, which are compared faster than digested."""
    size = sum(tensor.numel() * tensor.element_size() for _, tensor in tensors)
    if size > _COPIED or any(tensor.device.type != "cpu" for _, tensor in tensors):
        before = digest(tensors)
        return lambda now: digest(now) == before
    kept = frozen(tensors)

    def equal(now: Sequence[Part]) -> bool:
        pairs = zip(kept, now, strict=False)
        return same_structure(kept, now) and all(equal_on_cpu(one, other) for (_, one), (_, other) in pairs)

    return equal


def same_structure(left: Sequence[Part], right: Sequence[Part]) -> bool:
    """Tell whether two lists of parts agree in names, dtypes and shapes, and so can be compared bit by bit."""
    if len(left) != len(right):
        return False
    # Runs once per execution: a plain loop takes half the time of all() over a generator.
    for (name, one), (other_name, other) in zip(left, right, strict=True):
        if one.shape != other.shape or one.dtype != other.dtype or name != other_name:
            return False
    return True


def equal_on_cpu(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Compare two CPU tensors of one dtype and shape by their bytes."""
    if not (left.is_contiguous() and right.is_contiguous()):
        left, right = as_integers(left), as_integers(right)
        if left.stride() != right.stride():
            left, right = left.contiguous(), right.contiguous()
        left, right = _dense(left), _dense(right)
    return not memcmp(left.data_ptr(), right.data_ptr(), left.numel() * left.element_size())


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    """Return the same elements in storage order if they lie densely (channels last), else copied."""
    if tensor.is_contiguous():
        return tensor
    stride = tensor.stride()
    ordered = tensor.permute(sorted(range(tensor.dim()), key=lambda axis: stride[axis], reverse=True))
    return ordered if ordered.is_contiguous() else tensor.contiguous()


def differ_on_device(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return a 0-d bool tensor on the device that says whether any bit differs; waits for nothing."""
    return (as_integers(left) != as_integers(right)).any()


def as_integers(tensor: torch.Tensor) -> torch.Tensor:
    """View a strided tensor as integers of the same size, which never compares a NaN or a signed zero.

    Only a view to another item size asks for strides that size-1 dimensions may not have.
    """
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    return tensor.view(_INTEGER_OF_SIZE[tensor.element_size()])


def blank(judged: Sequence[Part], inputs: Sequence[Part]) -> tuple[str | None, str | None]:
    """Tell whether an output holds no information: a ``records.Blank``, and the part it is said of if not of all."""
    # Where a sparse tensor stores something, and how a quantized one is scaled, says nothing of its values.
    values = [(name, tensor) for name, tensor in judged if tensor.numel() and not _STRUCTURE.search(name)]
    kinds = [_blank(name, tensor, inputs) for name, tensor in values]
    if not values:
        # Nothing is stored, so that every element is zero.
        return "zeros", None
    if all(kinds):
        return ("value" if "value" in kinds else kinds[0]), None
    for (name, tensor), kind in zip(values, kinds, strict=True):
        # Indices may well be all zero; a floating output or gradient that is says that nothing was computed.
        computed = tensor.is_floating_point() or tensor.is_complex() or _ZERO_POINT.search(name)
        if computed and kind not in (None, "value"):
            return kind, name
    return None, None


def _blank(name: str, tensor: torch.Tensor, inputs: Sequence[Part]) -> str | None:
    flat = tensor.detach().contiguous().flatten()  # the elements, one per row
    if flat.is_complex() or flat.is_floating_point():
        # Some half and quarter types know no comparison, and every one of them is exact in float32.
        flat = flat if flat.element_size() >= 4 else flat.float()  # noqa: PLR2004
        if bool(flat[:_FIRST].isnan().all()) and bool(flat.isnan().all()):
            return "nan"
        if flat.is_complex():
            # Older releases of torch ask of a complex number only whether its real part is zero.
            flat = torch.view_as_real(flat)
    elif found := _ZERO_POINT.search(name):
        flat = flat.to(torch.int64) - int(found[1])
    if not bool(flat[:_FIRST].any()) and not bool(flat.any()):
        return "zeros"
    if any(_same_bytes(tensor, one) for _, one in inputs):
        return "input"
    if len(flat) > 1 and bool((flat[:_FIRST] == flat[0]).all()) and bool((flat == flat[0]).all()):
        return "value"
    return "input" if any(_is_part(tensor, one) for _, one in inputs) else None


def _is_part(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Tell whether a tensor is a view of another one, or a copy of floating numbers that stand there side by side."""
    if one.dtype != other.dtype or one.device != other.device:
        return False
    if one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr():
        return True
    count, whole = one.numel(), _INTEGER_OF_SIZE.get(one.element_size())
    if not one.is_floating_point() or whole is None or not _SIDE_BY_SIDE <= count < other.numel():
        return False
    part, all_of_it = (tensor.detach().contiguous().flatten().view(whole) for tensor in (one, other))
    begins = (all_of_it[: len(all_of_it) - count + 1] == part[0]).nonzero().flatten()[:8].tolist()
    return any(bool((all_of_it[begin : begin + count] == part).all()) for begin in begins)


def _same_bytes(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Tell whether two tensors of one dtype hold the same elements, in whatever shape."""
    if one.dtype != other.dtype or one.numel() != other.numel() or one.device != other.device:
        return False
    one, other = one.contiguous().flatten(), other.contiguous().flatten()
    return equal_on_cpu(one, other) if one.device.type == "cpu" else not bool(differ_on_device(one, other))


def said(value: Any, name: str, but: tuple[type, ...] = (), *, depth: int = 2) -> list[str]:
    """Return what ``parts`` leaves out of nested arguments in words: ``kwargs['indexing']: 'xy'``; tensors are no words.

    *but* are left out, too. Of a dataclass the fields are told, down to a *depth*.
    """
    others = [
        (place, leaf)
        for place, leaf in leaves(value, name)
        if not isinstance(leaf, (torch.Tensor, bool, int, float, complex, *but))
    ]
    return [f"{place}: {_described(leaf, depth)}" for place, leaf in others]


def _described(value: Any, depth: int) -> str:
    if depth and is_dataclass(value) and not isinstance(value, type) and made_by(value) != "torch":
        told = [(one.name, getattr(value, one.name, None)) for one in fields(value)]
        return f"{type(value).__name__}({', '.join(f'{name}={_described(one, depth - 1)}' for name, one in told)})"
    if isinstance(value, torch.nn.Module):
        # Its settings; parameters and buffers are arguments of their own.
        return _ADDRESS.sub("", " ".join(repr(value).split()))
    plain = (
        bool,
        int,
        float,
        complex,
        str,
        bytes,
        range,
        slice,
        torch.device,
        torch.dtype,
        torch.layout,
        torch.memory_format,
    )
    # Of other objects the text may hold an address, which is another one in each process.
    says_all = value is None or isinstance(value, plain) or (by_value(value) and made_by(value) in _SHOWN)
    return repr(value) if says_all else type(value).__name__


def by_value(value: Any) -> bool:
    """Tell whether an object is hashed by what it is, not by which one it is."""
    return getattr(type(value), "__hash__", None) not in (
        None,
        object.__hash__,
    )  # a tuple: it may have no hash itself


def made_by(value: Any) -> str:
    """Return the library that an object's type comes from."""
    return type(value).__module__.partition(".")[0]


def digest(tensors: Sequence[Part], words: Sequence[str] = ()) -> str:
    """Return the digest of names, dtypes, shapes and bits, and of words if there are any; waits for the device once."""
    return digests([tensors], words)[0]


def digests(outputs: Sequence[Sequence[Part]], words: Sequence[str] = ()) -> list[str]:
    """Return the digest of each output; waits for the device once, however many they are.

    What stands before the colon is the kind: digests of different kinds, which older run files hold, say nothing of
    one another.
    """
    hashed = iter(_fetched([digest_words(tensor) for tensors in outputs for _, tensor in tensors]))
    found = []
    for tensors in outputs:
        sha = hashlib.sha256()
        for word in words:
            sha.update(f"{word}\n".encode())
        for name, tensor in tensors:
            one, two = next(hashed)
            sha.update(f"{name}|{tensor.dtype}|{tuple(tensor.shape)}|{one},{two}\n".encode())
        found.append(f"{_KIND}:{sha.hexdigest()[:32]}")
    return found


def digest_words(tensor: torch.Tensor) -> torch.Tensor:
    """Return two 64-bit words that stand for the bits of a strided tensor, where it lies; waits for nothing.

    The words do not depend on the device, the process, the strides or the dtype. Whoever else needs the identity of a
    tensor on a device may use them.

    The raw bits are cut into numbers of 32 bits. Each is multiplied by a key of its place, drawn once and for all, and a
    word is the sum modulo 2**64 (the multilinear hash of Carter and Wegman: arXiv 1202.4961); the sums of blocks are
    hashed in the same way with other keys. Two tensors that were not made to collide, whatever their difference, have one
    word in common with a chance of 2**-33 at most for each level, of which there are two below 256 MB, and both words with
    its square. So equal words are taken for equal bits where nothing else can be had: between processes. Within a process
    each output is held against the first one bit by bit.
    """
    numbers = _numbers(tensor)
    level = 0
    while len(sums := _block_sums(numbers, level)) > 1:
        numbers, level = sums.flatten().view(torch.int32), level + 1
    return sums[0]


def _numbers(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bits of a tensor, in the order of its elements, as int32; the last one is filled up with zeros."""
    tensor = tensor.detach().contiguous()
    # A single element may have any stride.
    flat = as_integers(tensor.as_strided((tensor.numel(),), (1,))).flatten()
    size = flat.numel() * flat.element_size()
    aligned = not (flat.storage_offset() * flat.element_size() % 4 or flat.data_ptr() % 4)
    if size % 4 == 0 and aligned:
        return flat.view(torch.int32)
    padded = torch.zeros(size + -size % 4, dtype=torch.uint8, device=flat.device)
    padded[:size] = flat.view(torch.uint8)
    return padded.view(torch.int32)


def _block_sums(numbers: torch.Tensor, level: int) -> torch.Tensor:
    """Return both sums of each block, ``(blocks, 2)`` as int64."""
    keys = _keys(level, numbers.device)
    if numbers.device.type == "cpu":
        # A block and its products stay in the cache of the one core that works on them.
        blocks = (block.to(torch.int64) for block in numbers.split(_BLOCK))
        return torch.stack([torch.dot(one, key) for one in blocks for key in keys[:, : len(one)]]).view(-1, 2)
    whole = len(numbers) // _BLOCK * _BLOCK
    parts = [*numbers[:whole].view(-1, _BLOCK).split(_BLOCKS_AT_ONCE)] if whole else []
    if whole < len(numbers) or not whole:
        parts.append(numbers[whole:].view(1, -1))
    wide = (part.to(torch.int64) for part in parts)
    return torch.cat(
        [torch.stack([(one * key).sum(1) for key in keys[:, : one.shape[1]]], 1) for one in wide]
    )


@cache
def _keys(level: int, device: torch.device) -> torch.Tensor:
    """Return the keys of the places in a block, for both sums, the same everywhere."""
    numbers = torch.arange(1, 2 * _BLOCK + 1, dtype=torch.int64) + 2 * _BLOCK * level
    return splitmix(numbers).view(2, _BLOCK).to(device)


def splitmix(numbers: torch.Tensor) -> torch.Tensor:
    """Return numbers of 64 bits without a visible order for int64 ones: splitmix64."""
    mixed = numbers * _signed(0x9E3779B97F4A7C15)
    mixed = (mixed ^ _shifted(mixed, 30)) * _signed(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ _shifted(mixed, 27)) * _signed(0x94D049BB133111EB)
    return mixed ^ _shifted(mixed, 31)


def _shifted(numbers: torch.Tensor, by: int) -> torch.Tensor:
    """Shift to the right and fill with zeros, which int64 does not by itself."""
    return (numbers >> by) & ((1 << 64 - by) - 1)


def _signed(constant: int) -> int:
    return constant - (1 << 64) if constant >= 1 << 63 else constant


def _fetched(pairs: Sequence[torch.Tensor]) -> list[list[int]]:
    """Return the values of pairs of words, in order; waits once for each device they lie on."""
    values: dict[int, list[int]] = {}
    for device in {pair.device for pair in pairs}:
        places = [place for place, pair in enumerate(pairs) if pair.device == device]
        values.update(zip(places, torch.stack([pairs[place] for place in places]).tolist(), strict=True))
    return [values[place] for place in range(len(pairs))]
