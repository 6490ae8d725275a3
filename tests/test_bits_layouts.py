"""Bits of tensors that are no plain memory: sparse, quantized, nested, mkldnn, subclasses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from detmatrix.scanner.worker import bits

torch = pytest.importorskip("torch")

from tests.raw_bits import same_bits  # noqa: E402 - it needs torch

pytestmark = pytest.mark.usefixtures("quiet_torch")


def _coo(values: list[float], indices: list[int]) -> Any:
    return torch.sparse_coo_tensor([indices], values, (4,), check_invariants=False)


def test_uncoalesced_values_are_not_summed() -> None:
    """Coalescing may sum in any order itself, so duplicates of a COO tensor are compared as they stand."""
    left, right = _coo([1.0, 2.0], [3, 3]), _coo([2.0, 1.0], [3, 3])

    assert not left.is_coalesced()
    assert [part.tolist() for _, part in bits.parts(left, "output")] == [[[3, 3]], [1.0, 2.0]]
    assert same_bits(left, _coo([1.0, 2.0], [3, 3]))
    assert not same_bits(left, right)
    assert not same_bits(_coo([1.0, 2.0], [0, 1]), _coo([1.0, 2.0], [0, 2]))
    assert not same_bits(_coo([0.0], [1]), _coo([-0.0], [1]))


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
    assert same_bits(sparse(dense), sparse(dense.clone()))
    assert not same_bits(sparse(dense), sparse(dense * (1 + 2**-23)))
    assert not same_bits(sparse(dense), sparse(moved))


@pytest.mark.parametrize("dtype", ["quint8", "qint8", "qint32"])
def test_quantized_tensors_are_compared_with_their_scale(dtype: str) -> None:
    """Equal integers under another scale or zero point are other values."""

    def quantized(value: float, scale: float, zero: int) -> Any:
        return torch.quantize_per_tensor(torch.full((3,), value), scale, zero, getattr(torch, dtype))

    names = [name for name, _ in bits.parts(quantized(1.0, 0.5, 2), "output")]
    assert names == ["output.int_repr (scale 0.5, zero point 2)"]
    assert same_bits(quantized(1.0, 0.5, 2), quantized(1.0, 0.5, 2))
    assert not same_bits(quantized(1.0, 0.5, 2), quantized(1.5, 0.5, 2))
    assert not same_bits(quantized(1.0, 0.5, 2), quantized(2.0, 1.0, 2))
    assert not same_bits(quantized(1.0, 0.5, 2), quantized(0.5, 0.5, 3))


def test_quantization_per_channel_is_compared_channel_by_channel() -> None:
    """One changed scale of one channel is seen."""

    def quantized(last: float) -> Any:
        scales = torch.tensor([0.5, last])
        return torch.quantize_per_channel(
            torch.zeros(2, 3), scales, torch.zeros(2, dtype=torch.int64), 0, torch.qint8
        )

    names = [name for name, _ in bits.parts(quantized(0.25), "output")]
    assert names == ["output.int_repr (axis 0)", "output.scales", "output.zero_points"]
    assert same_bits(quantized(0.25), quantized(0.25))
    assert not same_bits(quantized(0.25), quantized(0.125))


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
    assert same_bits(nested(2, 3), nested(2, 3))
    assert not same_bits(nested(2, 3), nested(3, 2))
    assert not same_bits(nested(2, 3), nested(2, 3, fill=1.0 + 2**-23))


def test_mkldnn_tensors_are_compared_as_dense_ones() -> None:
    """A blocked layout has no memory of its own to read."""
    if not torch.backends.mkldnn.is_available():
        pytest.skip("this torch was built without mkldnn")
    left, right = torch.randn(8), torch.randn(8)

    assert same_bits(left.to_mkldnn(), left.to_mkldnn())
    assert not same_bits(left.to_mkldnn(), right.to_mkldnn())


@pytest.mark.parametrize("kind", ["meta", "masked"])
def test_what_has_no_memory_is_an_error(kind: str) -> None:
    """A meta tensor or a wrapper of others gives no verdict, and does not end the process."""
    if kind == "meta":
        tensor, text = torch.ones(3, device="meta"), "output has no memory to compare (Tensor on meta)"
    else:
        tensor = torch.masked.masked_tensor(torch.ones(3), torch.tensor([True, False, True]))
        text = "output has no memory to compare (MaskedTensor on cpu)"

    with pytest.raises(ValueError, match="no memory") as error:
        bits.parts(tensor, "output")
    assert str(error.value) == text


def _hybrid(values: Any) -> Any:
    return torch.sparse_coo_tensor([[0, 2]], values, (4, 3), check_invariants=False)


SAME: dict[str, Callable[[], tuple[Any, Any]]] = {
    "hybrid": lambda: (_hybrid(torch.ones(2, 3, requires_grad=True)), _hybrid(torch.ones(2, 3))),
    # The zeros of forward-mode gradients lie nowhere in memory; reading them would end the process.
    "zeros": lambda: (torch._efficientzerotensor((3,)), torch.zeros(3)),
    "subclass": lambda: (torch.ones(3).as_subclass(type("Sub", (torch.Tensor,), {})), torch.ones(3)),
}


@pytest.mark.parametrize("kind", SAME)
def test_what_holds_the_same_is_the_same(kind: str) -> None:
    """Dense dimensions behind sparse ones, a requirement of gradients and a plain subclass change nothing."""
    assert same_bits(*SAME[kind]())
