"""Compare and digest tensors by their raw bits.

Norms, ``allclose`` and ``torch.equal`` are blind to some differences (reordered sums that cancel, the sign of
zero) or see some that are none (a NaN is unequal to itself), so nothing here looks at values.
"""

from __future__ import annotations

import ctypes
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
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
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_ZERO_POINT = re.compile(r"\.int_repr \(.*zero point (-?\d+)\)$")

_NUMBERS = (
    (bool, torch.bool),
    (int, torch.int64),
    (float, torch.float64),
    (complex, torch.complex128),
)

# (name, strided tensor): what is compared.
Part = tuple[str, torch.Tensor]

_memcmp = ctypes.CDLL(None).memcmp
_memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_memcmp.restype = ctypes.c_int


def parts(value: Any, name: str, *, skip_others: bool = False) -> list[Part]:
    """Flatten what an op returned into strided tensors, each with the name a reader finds it by.

    Tuples, lists and mappings are walked; numbers become 0-d tensors; sparse, quantized and nested tensors
    are split into the tensors they consist of; conjugate and negative views are resolved. ``None`` is left out.

    Args:
        value: What the op returned, or its arguments.
        name: What to call it.
        skip_others: Leave out objects that have no bits to compare, instead of refusing them.

    Raises:
        TypeError: There is such an object: left out in silence it could differ unseen.
        ValueError: A tensor has no memory.
    """
    return list(_walk(value, name, skip_others=skip_others))


def _walk(value: Any, name: str, *, skip_others: bool) -> Iterator[Part]:
    if isinstance(value, torch.Tensor):
        yield from _split(value.detach(), name)
    elif isinstance(value, (bool, int, float, complex)):
        yield name, _number(value)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _walk(item, f"{name}[{key!r}]", skip_others=skip_others)
    elif isinstance(value, (tuple, list)):
        for position, item in enumerate(value):
            yield from _walk(item, f"{name}[{position}]", skip_others=skip_others)
    elif value is not None and not skip_others:
        raise TypeError(f"{name} is a {type(value).__name__}, which has no bits to compare")


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
    """Return a tensor whose memory can be read: a zero tensor has none until it is copied.

    Raises:
        ValueError: It has none at all (a meta tensor, a subclass that wraps others); reading from its address,
            which is zero, would end the process.
    """
    if tensor.data_ptr() or not tensor.numel():
        return tensor
    copied = tensor.clone()
    if not copied.data_ptr():
        raise ValueError(f"{name} has no memory to compare ({type(tensor).__name__} on {tensor.device})")
    return copied


def frozen(tensors: Sequence[Part]) -> list[Part]:
    """Copy parts, so that an op which reuses its output buffer cannot change what it is compared with."""
    return [(name, tensor.clone()) for name, tensor in tensors]


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
        if left.stride() != right.stride():
            left, right = left.contiguous(), right.contiguous()
        left, right = _dense(left), _dense(right)
    return not _memcmp(left.data_ptr(), right.data_ptr(), left.numel() * left.element_size())


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
    """Tell whether an output holds no information: a ``records.Blank``, and the part it is said of if not of all.

    Args:
        judged: The compared tensors of one execution.
        inputs: The tensors among the arguments.
    """
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
    flat = tensor.detach().contiguous().flatten()
    if flat.is_complex() or flat.is_floating_point():
        # Some half and quarter types know no comparison, and every one of them is exact in float32.
        flat = flat if flat.element_size() >= 4 else flat.float()  # noqa: PLR2004
        if bool(flat.isnan().all()):
            return "nan"
        if flat.is_complex():
            # Older releases of torch ask of a complex number only whether its real part is zero.
            flat = torch.view_as_real(flat)
            return _blank_numbers(flat.flatten(0, -2), tensor, inputs)
    elif found := _ZERO_POINT.search(name):
        flat = flat.to(torch.int64) - int(found[1])
    return _blank_numbers(flat, tensor, inputs)


def _blank_numbers(flat: torch.Tensor, tensor: torch.Tensor, inputs: Sequence[Part]) -> str | None:
    """Judge what is not NaN: *flat* are the elements of *tensor*, one per row."""
    if not bool(flat.any()):
        return "zeros"
    if any(_same_bytes(tensor, one) for _, one in inputs):
        return "input"
    if len(flat) > 1 and bool((flat == flat[0]).all()):
        return "value"
    return "input" if any(_is_part(tensor, one) for _, one in inputs) else None


def _is_part(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Tell whether a tensor is a view of another one, or a copy of floating numbers that stand there side by side."""
    if one.dtype != other.dtype or one.device != other.device:
        return False
    if one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr():
        return True
    count, whole = one.numel(), _INTEGERS.get(one.element_size())
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


def said(value: Any, name: str) -> list[str]:
    """Return what ``parts`` leaves out of nested arguments in words: ``kwargs['indexing']: 'xy'``; tensors are no words."""
    if isinstance(value, Mapping):
        return [text for key, item in value.items() for text in said(item, f"{name}[{key!r}]")]
    if isinstance(value, (tuple, list)):
        return [text for place, item in enumerate(value) for text in said(item, f"{name}[{place}]")]
    if isinstance(value, (torch.Tensor, bool, int, float, complex)):
        return []
    if isinstance(value, torch.nn.Module):
        # Its settings; parameters and buffers are arguments of their own.
        return [f"{name}: {' '.join(repr(value).split())}"]
    # Of other objects the text may hold an address, which is another one in each process.
    plain = value is None or isinstance(
        value, (str, slice, torch.device, torch.dtype, torch.layout, torch.memory_format)
    )
    return [f"{name}: {value!r}" if plain else f"{name}: {type(value).__name__}"]


def digest(tensors: Sequence[Part], words: Sequence[str] = ()) -> str:
    """Return 32 hexadecimal digits of the SHA-256 over names, dtypes, shapes and bytes, and over words if there are any."""
    sha = hashlib.sha256()
    for word in words:
        sha.update(f"{word}\n".encode())
    for name, tensor in tensors:
        sha.update(f"{name}|{tensor.dtype}|{tuple(tensor.shape)}\n".encode())
        host = tensor.cpu().contiguous()
        size = host.numel() * host.element_size()
        if size:
            # Handing over the memory itself avoids a copy, and numpy, which a scanned build may lack.
            sha.update((ctypes.c_char * size).from_address(host.data_ptr()))
    return sha.hexdigest()[:32]
