"""What could be taken for a difference, and what could hide one: through the comparison itself, on every device."""

from __future__ import annotations

import struct
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from detmatrix.opspecs.model import Case, OpSpec, call  # noqa: E402
from detmatrix.scanner.worker import bits  # noqa: E402
from detmatrix.scanner.worker.comparison import OutputComparison  # noqa: E402
from detmatrix.scanner.worker.observe import observe  # noqa: E402
from tests.raw_bits import raw  # noqa: E402

DEVICES = ["cpu", pytest.param("cuda:0", marks=pytest.mark.cuda)]
# Bits of float32 values.
ZERO, MINUS_ZERO, SUBNORMAL, OTHER_SUBNORMAL = 0x00000000, 0x80000000, 0x00000001, 0x00000002
NAN, OTHER_NAN, ONE = 0x7FC00000, 0x7FC00001, 0x3F800000


def _floats(*patterns: int) -> Any:
    """Return the float32 tensor of these bit patterns, which no arithmetic has touched."""
    return torch.frombuffer(bytearray(struct.pack(f"<{len(patterns)}I", *patterns)), dtype=torch.float32)


def _complex(*patterns: int) -> Any:
    return torch.view_as_complex(_floats(*patterns).view(-1, 2))


def _coo(values: Any) -> Any:
    return torch.sparse_coo_tensor(torch.tensor([[0, 2]]), values, (4,), check_invariants=False)


def _quantized(value: float) -> Any:
    with warnings.catch_warnings():
        # To be removed from torch some day.
        warnings.simplefilter("ignore")
        return torch.quantize_per_tensor(torch.tensor([1.0, value]), 0.5, 0, torch.qint8)


def _strided(*patterns: int) -> Any:
    """Return the values in every other element of their memory."""
    wide = torch.zeros(2 * len(patterns))
    wide.view(torch.int32)[::2] = _floats(*patterns).view(torch.int32)
    return wide[::2]


def _aliased(*patterns: int) -> tuple[Any, Any]:
    one = _floats(*patterns)
    return one, one[1:]


# Name: an output, the same output made again, an output that differs in the way named.
KINDS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "signed zeros": (lambda: _floats(ONE, ZERO), lambda: _floats(ONE, MINUS_ZERO)),
    "NaN payloads": (lambda: _floats(ONE, NAN), lambda: _floats(ONE, OTHER_NAN)),
    "subnormals": (lambda: _floats(ONE, SUBNORMAL), lambda: _floats(ONE, OTHER_SUBNORMAL)),
    "a subnormal and zero": (lambda: _floats(ONE, SUBNORMAL), lambda: _floats(ONE, ZERO)),
    "complex": (lambda: _complex(ONE, ZERO, ONE, NAN), lambda: _complex(ONE, MINUS_ZERO, ONE, NAN)),
    "bool": (lambda: torch.tensor([True, False]), lambda: torch.tensor([True, True])),
    "integers": (lambda: torch.tensor([1, 2**62]), lambda: torch.tensor([1, 2**62 + 1])),
    "sparse": (lambda: _coo(_floats(ONE, ZERO)), lambda: _coo(_floats(ONE, MINUS_ZERO))),
    "quantized": (lambda: _quantized(2.0), lambda: _quantized(2.5)),
    "0-d": (lambda: _floats(ZERO)[0], lambda: _floats(MINUS_ZERO)[0]),
    "empty beside another": (
        lambda: (torch.zeros(0, 3), _floats(ZERO)),
        lambda: (torch.zeros(0, 3), _floats(MINUS_ZERO)),
    ),
    "not contiguous": (lambda: _strided(ONE, NAN), lambda: _strided(ONE, OTHER_NAN)),
    "transposed": (
        lambda: _floats(ONE, NAN, ZERO, ONE, ONE, ONE).view(2, 3).t(),
        lambda: _floats(ONE, NAN, MINUS_ZERO, ONE, ONE, ONE).view(2, 3).t(),
    ),
    "conjugate view": (lambda: _complex(ONE, ZERO).conj(), lambda: _complex(ONE, MINUS_ZERO).conj()),
    "negative view": (
        lambda: torch._neg_view(_floats(ONE, ZERO)),
        lambda: torch._neg_view(_floats(ONE, MINUS_ZERO)),
    ),
    "aliased outputs": (lambda: _aliased(ONE, ZERO), lambda: _aliased(ONE, MINUS_ZERO)),
}


def _to(value: Any, device: str) -> Any:
    """Move a value; copies on the way would resolve the views and gather the strides that are to be tested."""
    if isinstance(value, tuple):
        return tuple(_to(item, device) for item in value)
    if device == "cpu":
        return value
    if value.layout == torch.strided and not value.is_quantized and not value.is_contiguous():
        moved = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=device)
        return moved.copy_(value)
    return value.to(device)


def _needs(device: str) -> None:
    if device != "cpu" and not torch.cuda.is_available():
        pytest.skip("no CUDA device here")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", KINDS)
def test_differs_where_bits_differ_and_nowhere_else(kind: str, device: str) -> None:
    """Of four executions two give the same bits again, made anew, and one gives others."""
    _needs(device)
    same, other = KINDS[kind]
    compare = OutputComparison(bits.parts(_to(same(), device), "output"), 4)
    for index, make in enumerate((same, other, same), start=1):
        compare.add(index, bits.parts(_to(make(), device), "output"))
    result = compare.result()

    assert list(result["digests"].values()) == [3, 1]
    assert result["first_differing"] == 2
    assert compare.differing == 1


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("changes", [True, False])
def test_negative_zero_in_a_gradient_is_a_difference(device: str, changes: bool) -> None:
    """A gradient that is 0.0 and then -0.0 differs; one that is -0.0 each time does not."""
    _needs(device)

    def op(x: Any, numbers: Iterator[int]) -> Any:
        doubled = x * 2
        sign = -1.0 if next(numbers) % 2 else 1.0
        zero = torch.tensor([sign * 0.0, 1.0, 1.0, 1.0], device=x.device)
        doubled.register_hook(lambda gradient: gradient.abs() * zero)
        return doubled

    def numbers() -> Iterator[int]:
        number = 1
        while True:
            yield number
            number += changes

    spec = OpSpec(
        name="gradient",
        op=op,
        why="Test.",
        cases={"zeros": Case(inputs=lambda t: call(t.leaf(t.normal(4)), numbers()))},
    )

    observed = observe(spec, "zeros", direction="backward", dtype="float32", device=device, seed=0, runs=6)

    assert observed["outcome"] == "ran"
    assert list(observed["digests"].values()) == ([3, 3] if changes else [6])
    assert observed["forward_differing"] == 0


def _comparison(first: Any, runs: int, *, queued: bool) -> OutputComparison:
    """Return a comparison that takes the path of the CPU or, on the CPU, the path of a GPU."""
    comparison = OutputComparison(bits.parts(first, "output"), runs)
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


def test_a_reference_may_have_parts_without_elements() -> None:
    """What is compared with it is all the others."""
    compare = OutputComparison([("output[0]", torch.ones(3)), ("output[1]", torch.ones(0))], 2)

    assert compare.elements_unlike([("output[0]", torch.ones(3)), ("output[1]", torch.ones(0))]) == 0
    assert compare.elements_unlike([("output[0]", torch.arange(3.0)), ("output[1]", torch.ones(0))]) == 2
    assert compare.elements_unlike([("output[0]", torch.ones(3))]) == 3


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
    first, same, other = (raw(data, dtype).cuda() for data in (plain, plain, flipped))
    compare = OutputComparison(bits.parts(first, "output"), 4)
    compare.add(1, bits.parts(same, "output"))
    compare.add(2, bits.parts(other, "output"))
    first.copy_(other)
    compare.add(3, bits.parts(first, "output"))
    result = compare.result()

    assert list(result["digests"].values()) == [2, 2]
    assert (result["first_differing"], result["outputs"][0]["differing"]) == (2, 2)
    assert bits.digest(bits.parts(same, "output")) == bits.digest(bits.parts(same.cpu(), "output"))


def _sample(tensor: Any, name: str = "output") -> list[str]:
    """Return what is sampled of an output."""
    (output,) = OutputComparison([(name, tensor)], 1).result(sample=True)["outputs"]
    numbers: list[str] = output["sample"].split()
    return numbers


@pytest.mark.parametrize(
    ("dtype", "count", "width"),
    [("float32", 16, 8), ("bfloat16", 16, 4), ("float64", 8, 16), ("complex64", 16, 8), ("bool", 16, 2)],
)
def test_a_sample_holds_a_few_numbers_with_their_raw_bits(dtype: str, count: int, width: int) -> None:
    """However large an output is, its sample stays below 150 characters; the numbers are those of the output."""
    tensor = torch.arange(5000).reshape(50, 100).to(getattr(torch, dtype))

    numbers = _sample(tensor)

    raw_numbers = bits.as_integers(tensor).flatten().tolist()
    known = {f"{number % (1 << 4 * width):0{width}x}" for number in raw_numbers}
    assert (len(numbers), {len(one) for one in numbers}) == (count, {width})
    assert len(" ".join(numbers)) < 150
    assert set(numbers) <= known


@pytest.mark.parametrize("device", DEVICES)
def test_a_sample_is_of_the_same_places_however_an_output_lies(device: str) -> None:
    """Strides and devices are not what a release computes; the place is that of the element, not of the memory."""
    _needs(device)
    tensor = torch.arange(6000.0).reshape(20, 30, 10)
    permuted = tensor.permute(2, 0, 1).contiguous().permute(1, 2, 0)

    assert not permuted.is_contiguous()
    assert len(set(_sample(tensor))) == 16
    assert _sample(permuted.to(device)) == _sample(tensor) == _sample(tensor)
    assert _sample(tensor, "output[1]") != _sample(tensor)


def test_a_small_output_is_sampled_whole_and_many_share_the_room() -> None:
    """What has no more numbers than fit is all there; of many gradients there is one number of each."""
    many = [(f"grad of kwargs[{place}]", torch.arange(100.0)) for place in range(20)]
    outputs = OutputComparison(many, 1).result(sample=True)["outputs"]

    assert _sample(_floats(NAN, MINUS_ZERO, ONE)) == ["7fc00000", "80000000", "3f800000"]
    assert _sample(torch.tensor(1.0)) == ["3f800000"]
    assert _sample(torch.empty(0, 3)) == []
    assert [len(one["sample"].split()) for one in outputs] == [1] * 20
