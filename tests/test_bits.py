"""Raw bits decide: every dtype, layout and stride, and no operation on values."""

from __future__ import annotations

import enum
import hashlib
import math
import struct
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scanner import bits
from scanner.observe import Comparison

torch = pytest.importorskip("torch")

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


@pytest.fixture(autouse=True)
def _quiet_torch() -> Any:
    """Leave torch its warnings about betas (CSR, complex32) and deprecations (quantized): the bits matter here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _raw(data: bytes, dtype: str, shape: tuple[int, ...] | None = None) -> Any:
    """Return a tensor of any dtype with exactly these bytes."""
    tensor = torch.frombuffer(bytearray(data), dtype=torch.uint8).clone().view(getattr(torch, dtype))
    return tensor if shape is None else tensor.reshape(shape)


def _same(left: Any, right: Any) -> bool:
    """Compare in all three ways, which must agree, and return what they say."""
    one, other = bits.parts(left, "output"), bits.parts(right, "output")
    if not bits.same_structure(one, other):
        assert bits.digest(one) != bits.digest(other)
        return False
    pairs = [(a, b) for (_, a), (_, b) in zip(one, other, strict=True)]
    answers = {
        all(bits.equal_on_cpu(a, b) for a, b in pairs),
        not any(bits.differ_on_device(a, b).item() for a, b in pairs),
        bits.digest(one) == bits.digest(other),
    }
    (answer,) = answers
    return answer


def _doubles(*patterns: int) -> Any:
    return _raw(struct.pack(f"<{len(patterns)}Q", *patterns), "float64")


@pytest.mark.parametrize("dtype", DTYPES)
@given(data=st.data())
@settings(max_examples=15, deadline=None)
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

    assert _same(_raw(content, dtype), _raw(content, dtype))
    assert not _same(_raw(content, dtype), _raw(bytes(flipped), dtype))


@pytest.mark.parametrize("position", [0, 1, 4094, 4096])
def test_last_bit_of_any_element_is_seen(position: int) -> None:
    """A difference of one unit in the last place counts, first and last element included."""
    left = torch.full((4097,), 1.0)
    right = left.clone()
    right[position] = torch.nextafter(right[position], torch.tensor(math.inf))

    assert not _same(left, right)


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        pytest.param(_doubles(0), _doubles(1 << 63), False, id="signs of zero"),
        pytest.param(_doubles(0x7FF8000000000000), _doubles(0x7FF8000000000001), False, id="NaN payloads"),
        pytest.param(_doubles(0x7FF8000000000000), _doubles(0xFFF8000000000000), False, id="signs of NaN"),
        pytest.param(_doubles(0x7FF0000000000001), _doubles(0x7FF8000000000001), False, id="quiet and signaling"),
        pytest.param(_doubles(0x7FF8000000000123), _doubles(0x7FF8000000000123), True, id="equal NaNs"),
        pytest.param(_doubles(0), _doubles(1), False, id="smallest subnormal"),
        pytest.param(_doubles(5), _doubles(5), True, id="equal subnormals"),
        pytest.param(_doubles(0x7FF << 52), _doubles(0xFFF << 52), False, id="infinities"),
        pytest.param(torch.tensor([1.0]), torch.tensor([1.0], dtype=torch.float64), False, id="dtypes"),
        pytest.param(torch.zeros(2), torch.zeros(2, dtype=torch.int32), False, id="equal bits, other dtype"),
        pytest.param(torch.zeros(2, 3), torch.zeros(3, 2), False, id="shapes"),
        pytest.param(torch.zeros(1), torch.zeros(()), False, id="dimensions"),
        pytest.param(torch.zeros(0, 3), torch.zeros(0, 3), True, id="empty"),
        pytest.param(torch.zeros(0, 3), torch.zeros(3, 0), False, id="empty, other shape"),
        pytest.param(torch.tensor(2.5), torch.tensor(2.5), True, id="0-d"),
        pytest.param((torch.zeros(1), torch.zeros(2)), (torch.zeros(1),), False, id="fewer outputs"),
        pytest.param([torch.zeros(1), None], [None, torch.zeros(1)], False, id="other place"),
        pytest.param({"a": torch.zeros(1)}, {"b": torch.zeros(1)}, False, id="other key"),
        pytest.param(0.0, -0.0, False, id="Python zeros"),
        pytest.param(1, 1.0, False, id="Python types"),
        pytest.param(1, True, False, id="a bool is no int"),
        pytest.param(2**53, 2**53 + 1, False, id="large ints"),
        pytest.param(2**64, 2**64 + 1, False, id="ints beyond 64 bits"),
        pytest.param(complex(0.0, 0.0), complex(0.0, -0.0), False, id="complex"),
    ],
)  # fmt: skip
def test_what_counts_as_the_same(left: Any, right: Any, expected: bool) -> None:
    """Values do not matter, bits, dtypes, shapes and names do."""
    assert _same(left, right) is expected


_LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "transposed": lambda x: x.transpose(0, 1).contiguous().transpose(0, 1),
    "channels_last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "every other": lambda x: torch.stack((x, x), -1).flatten(-2)[..., ::2],
    "with an offset": lambda x: torch.cat((torch.ones(3), x.flatten()))[3:].view(x.shape),
    "with gaps": lambda x: torch.nn.functional.pad(x, (2, 3))[..., 2:-3],
    "differentiable": lambda x: x.clone().requires_grad_() * 1,
    "parameter": torch.nn.Parameter,
    "computed in inference mode": torch.inference_mode()(torch.clone),
    "negative view": lambda x: torch.complex(torch.zeros_like(x), -x).conj().imag,
}


@pytest.mark.parametrize("layout", _LAYOUTS)
def test_strides_do_not_count(layout: str) -> None:
    """The same elements laid out otherwise are the same, and one changed bit of them is seen."""
    plain = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(0))
    changed = plain.clone()
    changed[1, 2, 3, 4] = torch.nextafter(changed[1, 2, 3, 4], torch.tensor(9.0))
    arrange = _LAYOUTS[layout]

    assert _same(plain, arrange(plain))
    assert _same(arrange(plain), arrange(plain))
    assert not _same(arrange(plain), arrange(changed))
    assert not _same(plain, arrange(changed))


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_any_strides_give_the_bits_of_a_fresh_copy(data: st.DataObject) -> None:
    """Views with arbitrary strides, overlapping ones and odd ones on size-1 dimensions too, read like a copy."""
    shape = data.draw(st.lists(st.integers(0, 4), max_size=4))
    strides = data.draw(st.lists(st.integers(0, 7), min_size=len(shape), max_size=len(shape)))
    dtype = data.draw(st.sampled_from([torch.float64, torch.float16, torch.int8, torch.complex64]))
    base = torch.arange(1, 128).to(dtype)
    view = base.as_strided(shape, strides, data.draw(st.integers(0, 9)))
    fresh = torch.empty(shape, dtype=dtype).copy_(view)

    assert _same(view, fresh)
    assert _same(view, base.clone().as_strided(shape, strides, view.storage_offset()))
    if view.numel():
        changed = fresh.clone()
        changed.view(-1)[data.draw(st.integers(0, fresh.numel() - 1))] += 1
        assert not _same(view, changed)


@pytest.mark.parametrize("dtype", ["complex32", "complex64", "complex128"])
def test_conjugate_views_are_resolved(dtype: str) -> None:
    """A lazy conjugate differs from its base and equals the computed one."""
    base = torch.complex(torch.randn(5), torch.randn(5)).to(getattr(torch, dtype))

    assert not _same(base, base.conj())
    assert _same(base.conj(), base.conj_physical())
    assert _same(base.conj().conj(), base)


def _coo(values: list[float], indices: list[int]) -> Any:
    return torch.sparse_coo_tensor([indices], values, (4,), check_invariants=False)


def test_uncoalesced_values_are_not_summed() -> None:
    """Coalescing may sum in any order itself, so duplicates of a COO tensor are compared as they stand."""
    left, right = _coo([1.0, 2.0], [3, 3]), _coo([2.0, 1.0], [3, 3])

    assert not left.is_coalesced()
    assert [part.tolist() for _, part in bits.parts(left, "output")] == [[[3, 3]], [1.0, 2.0]]
    assert _same(left, _coo([1.0, 2.0], [3, 3]))
    assert not _same(left, right)
    assert not _same(_coo([1.0, 2.0], [0, 1]), _coo([1.0, 2.0], [0, 2]))
    assert not _same(_coo([0.0], [1]), _coo([-0.0], [1]))


@pytest.mark.parametrize(
    ("layout", "names"),
    [
        ("csr", ["crow_indices", "col_indices", "values"]),
        ("csc", ["ccol_indices", "row_indices", "values"]),
        ("bsr", ["crow_indices", "col_indices", "values"]),
        ("bsc", ["ccol_indices", "row_indices", "values"]),
        ("coo", ["indices", "values"]),
    ],
)
def test_sparse_layouts_are_compared_by_their_parts(layout: str, names: list[str]) -> None:
    """Both indices and values count, and each is named."""
    dense = torch.zeros(4, 4)
    dense[0, 1], dense[2, 3] = 1.0, 2.0
    moved = dense.roll(2, 0)
    size = {"blocksize": (2, 2)} if layout in ("bsr", "bsc") else {}

    def sparse(tensor: Any) -> Any:
        return getattr(tensor, f"to_sparse_{layout}")(**size) if layout != "coo" else tensor.to_sparse()

    expected = [f"output.{name}" + (" of (4, 4)" if name == "values" else "") for name in names]
    assert [name for name, _ in bits.parts(sparse(dense), "output")] == expected
    assert _same(sparse(dense), sparse(dense.clone()))
    assert not _same(sparse(dense), sparse(dense * (1 + 2**-23)))
    assert not _same(sparse(dense), sparse(moved))


def test_hybrid_and_differentiable_sparse_tensors_are_compared() -> None:
    """Dense dimensions behind sparse ones and a requirement of gradients change nothing."""
    values = torch.randn(2, 3, requires_grad=True)
    left = torch.sparse_coo_tensor([[0, 2]], values, (4, 3), check_invariants=False)
    right = torch.sparse_coo_tensor([[0, 2]], values.detach().clone(), (4, 3), check_invariants=False)

    assert _same(left, right)


@pytest.mark.parametrize("dtype", ["quint8", "qint8", "qint32"])
def test_quantized_tensors_are_compared_with_their_scale(dtype: str) -> None:
    """Equal integers under another scale or zero point are other values."""

    def quantized(value: float, scale: float, zero: int) -> Any:
        return torch.quantize_per_tensor(torch.full((3,), value), scale, zero, getattr(torch, dtype))

    names = [name for name, _ in bits.parts(quantized(1.0, 0.5, 2), "output")]
    assert names == ["output.int_repr (scale 0.5, zero point 2)"]
    assert _same(quantized(1.0, 0.5, 2), quantized(1.0, 0.5, 2))
    assert not _same(quantized(1.0, 0.5, 2), quantized(1.5, 0.5, 2))
    assert not _same(quantized(1.0, 0.5, 2), quantized(2.0, 1.0, 2))
    assert not _same(quantized(1.0, 0.5, 2), quantized(0.5, 0.5, 3))


def test_quantization_per_channel_is_compared_channel_by_channel() -> None:
    """One changed scale of one channel is seen."""

    def quantized(last: float) -> Any:
        scales = torch.tensor([0.5, last])
        return torch.quantize_per_channel(
            torch.zeros(2, 3), scales, torch.zeros(2, dtype=torch.int64), 0, torch.qint8
        )

    names = [name for name, _ in bits.parts(quantized(0.25), "output")]
    assert names == ["output.int_repr (axis 0)", "output.scales", "output.zero_points"]
    assert _same(quantized(0.25), quantized(0.25))
    assert not _same(quantized(0.25), quantized(0.125))


@pytest.mark.parametrize("layout", ["strided", "jagged"])
def test_nested_tensors_are_compared_item_by_item(layout: str) -> None:
    """The lengths of the items and their bits count."""

    def nested(*lengths: int, fill: float = 1.0) -> Any:
        items = [torch.full((length, 2), fill) for length in lengths]
        return torch.nested.nested_tensor(items, layout=getattr(torch, layout))

    assert [(name, tuple(part.shape)) for name, part in bits.parts(nested(2, 3), "output")] == [
        ("output[0]", (2, 2)),
        ("output[1]", (3, 2)),
    ]
    assert _same(nested(2, 3), nested(2, 3))
    assert not _same(nested(2, 3), nested(3, 2))
    assert not _same(nested(2, 3), nested(2, 3, fill=1.0 + 2**-23))


def test_mkldnn_tensors_are_compared_as_dense_ones() -> None:
    """A blocked layout has no memory of its own to read."""
    if not torch.backends.mkldnn.is_available():
        pytest.skip("this torch was built without mkldnn")
    left, right = torch.randn(8), torch.randn(8)

    assert _same(left.to_mkldnn(), left.to_mkldnn())
    assert not _same(left.to_mkldnn(), right.to_mkldnn())


def test_zero_tensors_are_compared_as_zeros() -> None:
    """The zeros of forward-mode gradients lie nowhere in memory; reading them would end the process."""
    zero = torch._efficientzerotensor((3,))

    assert _same(zero, torch.zeros(3))


@pytest.mark.parametrize("kind", ["meta", "masked"])
def test_what_has_no_memory_is_an_error(kind: str) -> None:
    """A meta tensor or a wrapper of others gives no verdict, and does not end the process."""
    if kind == "meta":
        tensor, told = torch.ones(3, device="meta"), "output has no memory to compare (Tensor on meta)"
    else:
        tensor = torch.masked.masked_tensor(torch.ones(3), torch.tensor([True, False, True]))
        told = "output has no memory to compare (MaskedTensor on cpu)"

    with pytest.raises(ValueError, match="no memory") as error:
        bits.parts(tensor, "output")
    assert str(error.value) == told


def test_subclasses_with_memory_are_tensors() -> None:
    """A plain subclass is compared by its own memory."""
    subclass = type("Sub", (torch.Tensor,), {})

    assert _same(torch.ones(3).as_subclass(subclass), torch.ones(3))


class _Kind(enum.IntEnum):
    LARGE = 2**53 + 1


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
    "value", ["text", {1, 2}, torch.float32, object()], ids=lambda value: type(value).__name__
)
def test_outputs_without_bits_are_refused(value: Any) -> None:
    """What cannot be compared must not be passed over: it could differ unseen. Among arguments it may stand."""
    with pytest.raises(TypeError, match=r"^output\[1\] is a \w+, which has no bits to compare$"):
        bits.parts((torch.zeros(1), value), "output")

    assert [name for name, _ in bits.parts((torch.zeros(1), value), "args", skip_others=True)] == ["args[0]"]


@pytest.mark.parametrize(
    ("value", "dtype"),
    [(True, "bool"), (-7, "int64"), (2**63 - 1, "int64"), (-(2**63), "uint8"), (2**200, "uint8"),
     (0.1, "float64"), (1j, "complex128"), (_Kind.LARGE, "int64")],
    ids=str,
)  # fmt: skip
def test_python_numbers_keep_every_bit(value: complex, dtype: str) -> None:
    """A number becomes a tensor that holds it exactly, however large."""
    ((_, tensor),) = bits.parts(value, "output")

    assert str(tensor.dtype) == f"torch.{dtype}"
    if dtype == "uint8":
        assert int.from_bytes(bytes(tensor.tolist()), "little", signed=True) == value
    else:
        assert tensor.item() == value


@given(st.integers(), st.integers())
@settings(max_examples=100, deadline=None)
def test_unequal_integers_differ(one: int, other: int) -> None:
    """Python integers of any size are the same exactly if they are equal."""
    assert _same(one, other) == (one == other)


def test_nan_payload_of_a_python_float_is_kept() -> None:
    """The detour over a Python float changes no bit."""
    value = struct.unpack("<d", struct.pack("<Q", 0x7FF8000000000123))[0]
    ((_, tensor),) = bits.parts(value, "output")

    assert tensor.view(torch.int64).item() == 0x7FF8000000000123


def test_digest_depends_on_the_bytes_alone() -> None:
    """The digest is a fixed function: run files of different machines can be held against each other."""
    parts = bits.parts({"a": torch.tensor([1.0, 2.0]), "b": 3}, "output")

    expected = hashlib.sha256(
        b"output['a']|torch.float32|(2,)\n"
        + struct.pack("<2f", 1.0, 2.0)
        + b"output['b']|torch.int64|()\n"
        + struct.pack("<q", 3)
    )
    assert bits.digest(parts) == expected.hexdigest()[:32]


def test_frozen_parts_survive_their_origin() -> None:
    """A copy does not follow what it was taken from."""
    tensor = torch.zeros(3)
    kept = bits.frozen(bits.parts(tensor.expand(2, 3), "output"))
    tensor += 1

    assert kept[0][1].tolist() == [[0.0] * 3] * 2


def _comparison(first: Any, runs: int, *, queued: bool) -> Comparison:
    """Return a comparison that takes the path of the CPU or, on the CPU, the path of a GPU."""
    comparison = Comparison(bits.parts(first, "output"), runs)
    if queued:
        comparison._on_cpu = False
        comparison._flags = torch.zeros((runs, len(bits.parts(first, "output"))), dtype=torch.bool)
    return comparison


@pytest.mark.parametrize("queued", [False, True], ids=["at once", "queued"])
def test_an_op_that_reuses_its_buffer_does_not_hide_differences(queued: bool) -> None:
    """The first output is copied: an op which returns the same memory each time is compared with what it was."""
    buffer = torch.zeros(4)
    compare = _comparison(buffer, 4, queued=queued)
    for index in range(1, 4):
        buffer.fill_(index)
        compare.add(index, bits.parts(buffer, "output"))
    result = compare.result()

    assert (result["executions"], len(result["digests"]), result["first_differing"]) == (4, 4, 1)
    assert result["outputs"][0]["differing"] == 3


@pytest.mark.parametrize("queued", [False, True], ids=["at once", "queued"])
def test_outputs_that_share_memory_are_each_compared(queued: bool) -> None:
    """Views of one buffer count as outputs of their own."""
    base = torch.zeros(6)
    compare = _comparison((base[:3], base[3:]), 2, queued=queued)
    other = base.clone()
    other[5] = 1.0
    compare.add(1, bits.parts((other[:3], other[3:]), "output"))
    result = compare.result()

    assert [(output["name"], output["differing"]) for output in result["outputs"]] == [
        ("output[0]", 0),
        ("output[1]", 1),
    ]


@pytest.mark.parametrize("queued", [False, True], ids=["at once", "queued"])
@given(outputs=st.lists(st.integers(0, 3), min_size=1, max_size=12))
@settings(max_examples=40, deadline=None)
def test_comparison_counts_what_came(queued: bool, outputs: list[int]) -> None:
    """Digests, their counts and the first that differed are those of the outputs, in both ways of comparing."""
    compare = _comparison(torch.full((3,), float(outputs[0])), len(outputs), queued=queued)
    for index, value in enumerate(outputs[1:], start=1):
        compare.add(index, bits.parts(torch.full((3,), float(value)), "output"))
    result = compare.result()

    differing = [index for index, value in enumerate(outputs) if value != outputs[0]]
    assert result["executions"] == len(outputs)
    assert sorted(result["digests"].values()) == sorted(outputs.count(value) for value in set(outputs))
    assert next(iter(result["digests"].values())) == outputs.count(outputs[0])
    assert result["first_differing"] == (differing[0] if differing else None)
    assert result["outputs"][0]["differing"] == len(differing)


@pytest.mark.parametrize("queued", [False, True], ids=["at once", "queued"])
def test_other_structure_differs(queued: bool) -> None:
    """An output of another shape, dtype or number differs, and the comparison goes on behind it."""
    compare = _comparison(torch.zeros(3), 5, queued=queued)
    later = [torch.zeros(4), torch.zeros(3, dtype=torch.float64), (torch.zeros(3), 1), torch.zeros(3)]
    for index, value in enumerate(later, start=1):
        compare.add(index, bits.parts(value, "output"))
    result = compare.result()

    assert list(result["digests"].values()) == [2, 1, 1, 1]
    assert (result["first_differing"], result["outputs"][0]["differing"]) == (1, 3)


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "complex64", "int8", "bool"])
def test_comparison_on_cuda(dtype: str) -> None:
    """On a GPU the queued flags see the last bit of the last element, and a reused buffer hides nothing."""
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device here")
    size = getattr(torch, dtype).itemsize
    plain, flipped = bytes(4096 * size), bytes(4096 * size - 1) + b"\1"
    first, same, other = (_raw(data, dtype).cuda() for data in (plain, plain, flipped))
    compare = Comparison(bits.parts(first, "output"), 4)
    compare.add(1, bits.parts(same, "output"))
    compare.add(2, bits.parts(other, "output"))
    first.copy_(other)
    compare.add(3, bits.parts(first, "output"))
    result = compare.result()

    assert list(result["digests"].values()) == [2, 2]
    assert (result["first_differing"], result["outputs"][0]["differing"]) == (2, 2)
    assert bits.digest(bits.parts(same, "output")) == bits.digest(bits.parts(same.cpu(), "output"))
