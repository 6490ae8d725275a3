"""Bits are compared as they lie in memory: every dtype, any strides, outputs of any structure."""

from __future__ import annotations

import enum
import re
import struct
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from detmatrix.scanner.worker import bits
from tests.observed import raw, same_bits

pytestmark = pytest.mark.usefixtures("quiet_torch")

# Shells without a copy kernel: no op of PyTorch returns them.
_SUB_BYTE = {f"{sign}int{size}" for sign in ("", "u") for size in range(1, 8)}
_QUANTIZED = {"qint8", "quint8", "qint32", "quint4x2", "quint2x4"}
DTYPES = sorted(
    name
    for name in {
        str(value).removeprefix("torch.") for value in vars(torch).values() if isinstance(value, torch.dtype)
    }
    if name not in _SUB_BYTE | _QUANTIZED
)


@pytest.mark.parametrize("dtype", DTYPES)
@given(data=st.data())
@settings(max_examples=15)
def test_one_flipped_bit_is_seen_in_every_dtype(dtype: str, data: st.DataObject) -> None:
    """Any single bit of any element decides, whatever value it belongs to."""
    size = getattr(torch, dtype).itemsize
    elements = data.draw(st.integers(1, 70))
    # Booleans hold nothing but 0 and 1.
    values = st.integers(0, 1) if dtype == "bool" else st.integers(0, 255)
    content = bytes(data.draw(st.lists(values, min_size=size * elements, max_size=size * elements)))
    place = data.draw(st.integers(0, len(content) - 1))
    flipped = bytearray(content)
    flipped[place] ^= 1 if dtype == "bool" else 1 << data.draw(st.integers(0, 7))

    assert same_bits(raw(content, dtype), raw(content, dtype))
    assert not same_bits(raw(content, dtype), raw(bytes(flipped), dtype))


@given(data=st.data())
@settings(max_examples=60)
def test_any_strides_give_the_bits_of_a_fresh_copy(data: st.DataObject) -> None:
    """Views with arbitrary strides, overlapping ones and odd ones on size-1 dimensions too, read like a copy."""
    shape = data.draw(st.lists(st.integers(0, 4), max_size=4))
    strides = data.draw(st.lists(st.integers(0, 7), min_size=len(shape), max_size=len(shape)))
    dtype = data.draw(st.sampled_from([torch.float64, torch.float16, torch.int8, torch.complex64]))
    base = torch.arange(1, 128).to(dtype)
    view = base.as_strided(shape, strides, data.draw(st.integers(0, 9)))
    fresh = torch.empty(shape, dtype=dtype).copy_(view)

    assert same_bits(view, fresh)
    assert same_bits(view, base.clone().as_strided(shape, strides, view.storage_offset()))
    if view.numel():
        changed = fresh.clone()
        changed.view(-1)[data.draw(st.integers(0, fresh.numel() - 1))] += 1
        assert not same_bits(view, changed)


class _Kind(enum.IntEnum):
    LARGE = 2**53 + 1


def _quietly(make: Callable[..., Any], *args: Any) -> Any:
    """Make a tensor of a kind that is in beta, or will be removed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make(*args)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (torch.zeros(1), ["output"]),
        ((torch.zeros(1), [torch.zeros(1), torch.zeros(1)]), ["output[0]", "output[1][0]", "output[1][1]"]),
        ({"a": torch.zeros(1), 2: (torch.zeros(1),)}, ["output['a']", "output[2][0]"]),
        (torch.zeros(2, 2).max(0), ["output[0]", "output[1]"]),
        (torch.Size([2, 3]), ["output[0]", "output[1]"]),
        ((None, torch.zeros(1)), ["output[1]"]),
        ((True, 2, 3.0, 4j), ["output[0]", "output[1]", "output[2]", "output[3]"]),
        (None, []),
        ((), []),
    ],
    ids=str,
)
def test_outputs_are_named_by_their_place(value: Any, expected: list[str]) -> None:
    """A reader finds the output that differed; what is not there is left out."""
    assert [name for name, _ in bits.parts(value, "output")] == expected


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((value, f"is a {type(value).__name__}, whose bits are not compared: return tensors and numbers") for value in ("text", {1, 2}, torch.float32, object())),
        # A tensor or a wrapper of others without memory does not end the process.
        (torch.ones(3, device="meta"), "has no memory to compare (Tensor on meta)"),
        (_quietly(torch.masked.masked_tensor, torch.ones(3), torch.ones(3) > 0), "has no memory to compare (MaskedTensor on cpu)"),
    ],
)  # fmt: skip
def test_outputs_without_bits_are_refused(value: Any, text: str) -> None:
    """What cannot be compared must not be passed over: it could differ unseen. Among arguments it may stand."""
    with pytest.raises((TypeError, ValueError), match=re.escape(f"output[1] {text}")):
        bits.parts((torch.zeros(1), value), "output")

    if not isinstance(value, torch.Tensor):
        parts = bits.parts((torch.zeros(1), value), "args", skip_others=True)
        assert [name for name, _ in parts] == ["args[0]"]


@pytest.mark.parametrize(
    ("value", "dtype"),
    [(True, "bool"), (-7, "int64"), (2**63 - 1, "int64"), (-(2**63), "uint8"), (2**200, "uint8"),
     (0.1, "float64"), (-0.0, "float64"), (complex(0.0, -0.0), "complex128"), (struct.unpack("<d", struct.pack("<Q", 0x7FF8000000000123))[0], "float64"), (1j, "complex128"), (_Kind.LARGE, "int64")],
    ids=str,
)  # fmt: skip
def test_python_numbers_keep_every_bit(value: complex, dtype: str) -> None:
    """A number becomes a tensor that holds it exactly, however large."""
    ((_, tensor),) = bits.parts(value, "output")

    assert str(tensor.dtype) == f"torch.{dtype}"
    if isinstance(value, float):
        assert tensor.view(torch.int64).item() == struct.unpack("<q", struct.pack("<d", value))[0]
    elif dtype == "uint8":
        assert int.from_bytes(bytes(tensor.tolist()), "little", signed=True) == value
    else:
        assert repr(tensor.item()) == repr(value if dtype != "int64" else int(value.real))


def test_digest_is_a_fixed_function() -> None:
    """It depends on the bytes alone: run files of different machines can be held against each other."""
    parts = bits.parts({"a": torch.tensor([1.0, 2.0]), "b": 3}, "output")

    assert bits.digest(parts) == "2:45b37892cc0c164fec06f7651c06fc75"


# As another implementation gave them, which added up the products of Python integers.
@pytest.mark.parametrize(
    ("size", "words"),
    [
        (0, [0, 0]),
        (3, [6408030082934262528, 3817467332325242880]),
        (4, [4994440961004161792, -7577614002148640768]),
        (65_535, [2903778632645022535, -9076489080895141878]),
        (65_536, [6685054614295614279, -4152015496980953078]),
        (65_537, [5761523131971687817, -1323634337875327957]),
        (200_001, [-4050794590101107872, 3226345580619108379]),
    ],
)
def test_words_of_any_length(size: int, words: list[int]) -> None:
    """Blocks, the rest behind the last one, and what fills no number of 32 bits."""
    data = torch.tensor([index * 37 % 251 for index in range(size)], dtype=torch.uint8)

    assert bits.digest_words(data).tolist() == words


# Bits of tensors that are no plain memory: sparse, quantized, nested, mkldnn, subclasses.


def _coo(values: Any, indices: list[int], *dense: int) -> Any:
    return torch.sparse_coo_tensor([indices], values, (4, *dense), check_invariants=False)


def _dense(place: int = 0, last: float = 2.0) -> Any:
    tensor = torch.zeros(4, 4)
    tensor[place, 1], tensor[2 + place, 3] = 1.0, last
    return tensor


def _quantized(dtype: str, value: float, scale: float, zero: int) -> Any:
    return torch.quantize_per_tensor(torch.full((3,), value), scale, zero, getattr(torch, dtype))


def _by_channel(last: float) -> Any:
    zeros = torch.zeros(2, dtype=torch.int64)
    return torch.quantize_per_channel(torch.zeros(2, 3), torch.tensor([0.5, last]), zeros, 0, torch.qint8)


def _nested(layout: str, *lengths: int, fill: float = 1.0) -> Any:
    items = [torch.full((length, 2), fill) for length in lengths]
    return torch.nested.nested_tensor(items, layout=getattr(torch, layout))


def _sparse(layout: str, dense: Any) -> Any:
    size = {"blocksize": (2, 2)} if layout in ("bsr", "bsc") else {}
    return getattr(dense, f"to_sparse_{layout}")(**size)


def _image(last: float = 119.0) -> Any:
    image = torch.arange(120.0).reshape(2, 3, 4, 5)
    image[1, 2, 3, 4] = last
    return image


_Sub = type("Sub", (torch.Tensor,), {})
_ROWS, _COLUMNS = (
    ("crow_indices", "col_indices", "values of (4, 4)"),
    ("ccol_indices", "row_indices", "values of (4, 4)"),
)
# What makes a tensor, what makes others, and the names of its parts behind "output".
PARTS: dict[str, tuple[Callable[[], Any], list[Callable[[], Any]], tuple[str, ...]]] = {
    # Coalescing may sum in any order itself, so duplicates are compared as they stand.
    "uncoalesced": (lambda: _coo([1.0, 2.0], [3, 3]), [lambda: _coo([2.0, 1.0], [3, 3])], (".indices", ".values of (4,)")),
    "coo": (lambda: _coo([1.0, 2.0], [0, 1]), [lambda: _coo([1.0, 2.0], [0, 2])], (".indices", ".values of (4,)")),
    "signs of coo": (lambda: _coo([0.0], [1]), [lambda: _coo([-0.0], [1])], (".indices", ".values of (4,)")),
    **{
        layout: (partial(_sparse, layout, _dense()), [partial(_sparse, layout, one) for one in (_dense(last=2 + 2**-22), _dense(1))], tuple(f".{name}" for name in names))
        for layout, names in (("csr", _ROWS), ("csc", _COLUMNS), ("bsr", _ROWS), ("bsc", _COLUMNS))
    },
    # Equal integers under another scale or zero point are other values.
    **{
        dtype: (partial(_quantized, dtype, 1.0, 0.5, 2), [partial(_quantized, dtype, *of) for of in ((1.5, 0.5, 2), (2.0, 1.0, 2), (0.5, 0.5, 3))],
                (".int_repr (scale 0.5, zero point 2)",))
        for dtype in ("quint8", "qint8", "qint32")
    },
    "by channel": (lambda: _by_channel(0.25), [lambda: _by_channel(0.125)], (".int_repr (axis 0)", ".scales", ".zero_points")),
    **{
        layout: (partial(_nested, layout, 2, 3), [partial(_nested, layout, 3, 2), partial(_nested, layout, 2, 3, fill=1 + 2**-23)], ("[0]", "[1]"))
        for layout in ("strided", "jagged")
    },
    # Not every byte of a boolean is 0 or 1, and some dtypes have no copy.
    "booleans": (lambda: torch.arange(64, dtype=torch.uint8).view(8, 8)[:, ::2].view(torch.bool), [lambda: torch.ones(8, 4, dtype=torch.bool)], ("",)),
    "uint4": (lambda: torch.arange(8, dtype=torch.uint8).view(torch.uint4), [lambda: torch.arange(1, 9, dtype=torch.uint8).view(torch.uint4)], ("",)),
    "mkldnn": (lambda: torch.ones(8).to_mkldnn(), [lambda: torch.randn(8).to_mkldnn()], ("",)),
    # Dense dimensions behind sparse ones, and a requirement of gradients, change nothing; nor does a plain subclass.
    "hybrid": (lambda: _coo(torch.ones(2, 3, requires_grad=True), [0, 2], 3), [lambda: _coo(torch.zeros(2, 3), [0, 2], 3)], (".indices", ".values of (4, 3)")),
    # The zeros of forward-mode gradients lie nowhere in memory; reading them would end the process.
    "zeros": (lambda: torch._efficientzerotensor((3,)), [lambda: torch.ones(3)], ("",)),
    "subclass": (lambda: torch.ones(3).as_subclass(_Sub), [lambda: torch.zeros(3)], ("",)),
    # The same elements laid out otherwise are the same.
    "channels last": (lambda: _image().contiguous(memory_format=torch.channels_last), [lambda: _image(9.0), lambda: _image(9.0).contiguous(memory_format=torch.channels_last)], ("",)),
    "differentiable": (lambda: torch.ones(3).requires_grad_() * 1, [lambda: torch.zeros(3).requires_grad_() * 1], ("",)),
    "parameter": (lambda: torch.nn.Parameter(torch.ones(3)), [lambda: torch.nn.Parameter(torch.zeros(3))], ("",)),
    "computed in inference mode": (lambda: torch.inference_mode()(torch.ones)(3), [lambda: torch.zeros(3)], ("",)),
}  # fmt: skip


@pytest.mark.parametrize("kind", PARTS)
def test_tensors_of_other_layouts_are_compared_by_their_parts(kind: str) -> None:
    """Indices, values, scales and lengths of items count, and each part is named."""
    if kind == "mkldnn" and not torch.backends.mkldnn.is_available():
        pytest.skip("this torch was built without mkldnn")
    make, others, names = PARTS[kind]

    assert [name for name, _ in bits.parts(make(), "output")] == [f"output{name}" for name in names]
    plain = {"hybrid": _coo(torch.ones(2, 3), [0, 2], 3), "zeros": torch.zeros(3), "channels last": _image()}
    ones = ("subclass", "differentiable", "parameter", "computed in inference mode")
    plain |= dict.fromkeys(ones, torch.ones(3))
    assert same_bits(make(), plain.get(kind, make()))
    assert [same_bits(make(), other()) for other in others] == [False] * len(others)


# Results that hold no information are recognised in every layout, and results that hold some are left alone.

NAN = float("nan")


INPUT = torch.arange(1.0, 7.0)
_DRAWN = torch.randn(1000, generator=torch.Generator().manual_seed(0))
LARGE = [_DRAWN.to(dtype) for dtype in (torch.float32, torch.float16, torch.float64)]
INPUTS = bits.parts((INPUT, *LARGE, torch.arange(1000)), "args")


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        pytest.param(torch.zeros(3), ("zeros", None), id="zeros"),
        pytest.param(torch.tensor([0.0, -0.0]), ("zeros", None), id="zeros of either sign"),
        pytest.param(torch.zeros(3, dtype=torch.float16), ("zeros", None), id="half zeros"),
        pytest.param(torch.full((3,), NAN), ("nan", None), id="NaN"),
        pytest.param(torch.full((3,), complex(NAN, 0.0)), ("nan", None), id="complex NaN in one component"),
        pytest.param(torch.tensor([1j, 2j]), (None, None), id="imaginary"),
        pytest.param(torch.zeros(3, dtype=torch.complex64), ("zeros", None), id="complex zeros"),
        pytest.param(torch.full((3,), 2 + 1j), ("value", None), id="one complex value"),
        pytest.param(torch.full((3,), 7), ("value", None), id="one value"),
        pytest.param(torch.tensor(7.0), (None, None), id="a single number"),
        pytest.param(torch.tensor([0.0, NAN]), (None, None), id="zero and NaN"),
        pytest.param(INPUT.clone(), ("input", None), id="the input's bits"),
        pytest.param(INPUT.view(2, 3), ("input", None), id="the input in another shape"),
        pytest.param(INPUT[2:4], ("input", None), id="a view of a part of the input"),
        pytest.param(INPUT.view(2, 3)[:, :2], ("input", None), id="a view of columns"),
        pytest.param(torch.cat([INPUT[4:], INPUT[:2]]), (None, None), id="numbers of the input, elsewhere"),
        pytest.param(INPUT.flip(0), (None, None), id="the input in another order"),
        # A copy of floating numbers that stand side by side in it, whatever their type; a few may be chance, and integers more.
        *(pytest.param(it[100:200].clone(), ("input", None), id=f"a part of the input, {it.dtype}") for it in LARGE),
        *(pytest.param(other, (None, None), id=f"{what}, {it.dtype}") for it in LARGE for what, other in {
            "one more": it[100:200] + 1, "seven": it[100:107].clone(), "twice": it[100:200].repeat(2)}.items()),
        pytest.param(torch.arange(10, 90), (None, None), id="integers of the input"),
        pytest.param(_coo([0.0, 0.0], [0, 2]), ("zeros", None), id="sparse zeros"),
        pytest.param(_coo([0.0, 1.0], [0, 2]), (None, None), id="sparse values"),
        pytest.param(_quietly(_sparse, "csr", torch.zeros(2, 2)), ("zeros", None), id="nothing stored"),
        pytest.param(_quietly(_sparse, "csr", torch.tensor([[1.0, 2.0]] * 2)), (None, None), id="stored by rows"),
        pytest.param(_quietly(_quantized, "qint8", 0.0, 0.5, 5), ("zeros", None), id="quantized zeros"),
        pytest.param(_quietly(torch.quantize_per_tensor, torch.tensor([0.0, 1.0]), 0.5, 5, torch.qint8), (None, None), id="quantized values"),
        pytest.param((torch.zeros(2), torch.arange(2)), ("zeros", "output[0]"), id="zeros beside indices"),
        pytest.param((torch.tensor([1.0, 2.0]), torch.zeros(2, dtype=torch.int64)), (None, None), id="indices of zero"),
        pytest.param((torch.tensor([1.0, 2.0]), torch.zeros(2)), ("zeros", "output[1]"), id="one gradient of zeros"),
        pytest.param((INPUT.clone(), 6), ("input", "output[0]"), id="the input and a number"),
        pytest.param((torch.zeros(0), torch.tensor([1.0, 2.0])), (None, None), id="an empty part"),
    ],
)  # fmt: skip
def test_what_holds_no_information(output: Any, expected: tuple[str | None, str | None]) -> None:
    """Zeros, NaN and the input are told, of the whole output or of the part that is."""
    assert bits.blank(bits.parts(output, "output"), INPUTS) == expected
