"""Results that hold no information are recognised in every layout, and results that hold some are left alone."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from detmatrix.scanner.worker import bits  # noqa: E402

NAN = float("nan")


def test_a_copy_of_a_part_of_the_input_is_told() -> None:
    """Of floating numbers that stand side by side in it, whatever their type; a few may be chance, and integers more."""
    whole = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    for dtype in (torch.float32, torch.float16, torch.float64):
        inputs = bits.parts((whole.to(dtype),), "args")
        cut = whole.to(dtype)[100:200].clone()

        assert bits.blank(bits.parts(cut, "output"), inputs) == ("input", None)
        for other in (cut + 1, cut[:7], torch.cat([cut, cut])):
            assert bits.blank(bits.parts(other, "output"), inputs) == (None, None)
    numbers = torch.arange(1000)
    assert bits.blank(bits.parts(numbers[10:90].clone(), "output"), bits.parts((numbers,), "args")) == (
        None,
        None,
    )


def _coo(*values: float) -> Any:
    return torch.sparse_coo_tensor(torch.tensor([[0, 2]]), torch.tensor(values), (4,), check_invariants=False)


def _csr(*values: float) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.tensor([values, values]).to_sparse_csr()


def _quantized(*values: float, zero_point: int) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.quantize_per_tensor(torch.tensor(values), 0.5, zero_point, torch.qint8)


INPUT = torch.arange(1.0, 7.0)


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
        pytest.param(_coo(0.0, 0.0), ("zeros", None), id="sparse zeros"),
        pytest.param(_coo(0.0, 1.0), (None, None), id="sparse values"),
        pytest.param(_csr(0.0, 0.0), ("zeros", None), id="nothing stored"),
        pytest.param(_csr(1.0, 2.0), (None, None), id="stored by rows"),
        pytest.param(_quantized(0.0, 0.0, zero_point=5), ("zeros", None), id="quantized zeros"),
        pytest.param(_quantized(0.0, 1.0, zero_point=5), (None, None), id="quantized values"),
        pytest.param((torch.zeros(2), torch.arange(2)), ("zeros", "output[0]"), id="zeros beside indices"),
        pytest.param((torch.tensor([1.0, 2.0]), torch.zeros(2, dtype=torch.int64)), (None, None), id="indices of zero"),
        pytest.param((torch.tensor([1.0, 2.0]), torch.zeros(2)), ("zeros", "output[1]"), id="one gradient of zeros"),
        pytest.param((INPUT.clone(), 6), ("input", "output[0]"), id="the input and a number"),
        pytest.param((torch.zeros(0), torch.tensor([1.0, 2.0])), (None, None), id="an empty part"),
    ],
)  # fmt: skip
def test_what_holds_no_information(output: Any, expected: tuple[str | None, str | None]) -> None:
    """Zeros, NaN and the input are told, of the whole output or of the part that is."""
    inputs = bits.parts((INPUT,), "args")

    found = bits.blank(bits.parts(output, "output"), inputs)

    assert found == expected
