"""What could be taken for a difference, and what could hide one: through the comparison itself, on every device."""

from __future__ import annotations

import itertools
import math
import operator
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from detmatrix.opspecs.model import call
from detmatrix.scanner.worker import bits, difference
from detmatrix.scanner.worker.agreement import CpuReference
from detmatrix.scanner.worker.comparison import OutputComparison
from detmatrix.scanner.worker.difference import SeverityAccumulator
from detmatrix.scanner.worker.execution import Execution
from tests.observed import observed, spec_of

ON_CUDA = [pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")]
DEVICES = ["cpu", pytest.param("cuda:0", marks=ON_CUDA)]
# Bits of float32 values.
ZERO, MINUS_ZERO, NAN, OTHER_NAN, ONE = 0x00000000, 0x80000000, 0x7FC00000, 0x7FC00001, 0x3F800000


def _floats(*patterns: int) -> Any:
    """Return the float32 tensor of these bit patterns, which no arithmetic has touched."""
    return torch.frombuffer(bytearray(struct.pack(f"<{len(patterns)}I", *patterns)), dtype=torch.float32)


def _coo(values: Any) -> Any:
    return torch.sparse_coo_tensor(torch.tensor([[0, 2]]), values, (4,), check_invariants=False)


# What makes an output of two numbers; ``test_bits`` has all dtypes and layouts.
KINDS: dict[str, Callable[[Any], Any]] = {
    "plain": lambda it: it,
    "bfloat16": lambda it: it.view(torch.bfloat16),
    "int8": lambda it: it.view(torch.int8),
    "bool": lambda it: it.view(torch.uint8) > 0,
    "sparse": _coo,
    "empty beside another": lambda it: (torch.zeros(0, 3), it),
    "transposed": lambda it: it.repeat(2, 3).t(),
    "large": lambda it: torch.cat([torch.zeros(4094), it]).view(torch.complex64),
    "conjugate view": lambda it: it.view(torch.complex64).conj(),
    "negative view": torch._neg_view,
    "aliased outputs": lambda it: (it, it[1:]),
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


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("usual", "other"), [(ZERO, MINUS_ZERO), (NAN, OTHER_NAN)], ids=["signed zeros", "NaN payloads"]
)
@pytest.mark.parametrize("kind", KINDS)
def test_differs_where_bits_differ_and_nowhere_else(kind: str, usual: int, other: int, device: str) -> None:
    """Of four executions two give the same bits again, made anew, and one gives others."""
    patterns = (usual, usual, other, usual)
    first, *later = (_to(KINDS[kind](_floats(ONE, last)), device) for last in patterns)
    compare = OutputComparison(bits.parts(first, "output"), 4)
    for index, value in enumerate(later, start=1):
        compare.add(index, bits.parts(value, "output"))
    result = compare.result()

    assert list(result["digests"].values()) == [3, 1]
    # As on the CPU.
    assert next(iter(result["digests"])) == bits.digest(
        bits.parts(KINDS[kind](_floats(ONE, usual)), "output")
    )
    assert result["first_differing"] == 2
    assert compare.differing == 1


def test_negative_zero_in_a_gradient_is_a_difference() -> None:
    """A gradient that is 0.0 and then -0.0 differs, the forward phase does not."""

    def op(x: Any, numbers: Iterator[int]) -> Any:
        doubled = x * 2
        zero = torch.zeros(4) * (-1.0) ** next(numbers)
        doubled.register_hook(lambda gradient: gradient.abs() * zero)
        return doubled

    spec = spec_of(op, lambda t: call(t.leaf(t.normal(4)), itertools.count()))
    seen = observed(spec, direction="backward", runs=6)

    assert (seen["outcome"], list(seen["digests"].values())) == ("ran", [3, 3])
    assert seen["forward_differing"] == 0


def _comparison(first: Any, runs: int, *, queued: bool) -> OutputComparison:
    """Return a comparison that takes the path of the CPU or, on the CPU, the path of a GPU."""
    comparison = OutputComparison(bits.parts(first, "output"), runs)
    if queued:
        comparison._on_cpu = False
        comparison._flags = torch.zeros((runs, len(bits.parts(first, "output"))), dtype=torch.bool)
    return comparison


@pytest.mark.parametrize("path", ["at once", "queued", *DEVICES[1:]])
@given(outputs=st.lists(st.integers(0, 3), min_size=1, max_size=12))
@settings(max_examples=40, deadline=None)
def test_comparison_counts_what_came(path: str, outputs: list[int]) -> None:
    """Digests, their counts and the first that differed are those of the outputs, though an op returns the same memory each time."""
    buffer = torch.full((3,), float(outputs[0]), device=path if path.startswith("cuda") else "cpu")
    compare = _comparison(buffer, len(outputs), queued=path == "queued")
    for index, value in enumerate(outputs[1:], start=1):
        compare.add(index, bits.parts(buffer.fill_(value), "output"))
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
    """An output of another shape, dtype, number or name differs, whatever its bits, and the comparison goes on behind it."""
    zeros, integers = torch.zeros(3), torch.zeros(3, dtype=torch.int32)
    others = [torch.zeros(4), zeros[None], torch.zeros(3, dtype=torch.float64), integers]
    others += [(zeros, 1), (zeros,), (None, zeros), {"a": zeros}, {"b": zeros}]
    compare = _comparison(zeros, len(others) + 2, queued=queued)
    for index, value in enumerate([*others, zeros], start=1):
        compare.add(index, bits.parts(value, "output"))
    result = compare.result()

    assert list(result["digests"].values()) == [2, *[1] * len(others)]
    assert (result["first_differing"], result["outputs"][0]["differing"]) == (1, len(others))
    for pair in ((torch.zeros(0, 3), torch.zeros(3, 0)), ((zeros, 1), (zeros,))):
        one, other = (bits.parts(value, "output") for value in pair)
        assert not bits.same_structure(one, other)
        assert bits.digest(one) != bits.digest(other)


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
    """Strides and devices are not what a release computes; the place is that of the element, not of the memory.

    What has no more numbers than fit is all there; of many gradients there is one number of each.
    """
    tensor = torch.arange(6000.0).reshape(20, 30, 10)
    permuted = tensor.permute(2, 0, 1).contiguous().permute(1, 2, 0)
    many = [(f"grad of kwargs[{place}]", torch.arange(100.0)) for place in range(20)]

    assert not permuted.is_contiguous()
    assert len(set(_sample(tensor))) == 16
    assert _sample(permuted.to(device)) == _sample(tensor) == _sample(tensor)
    assert _sample(tensor, "output[1]") != _sample(tensor)
    assert _sample(_floats(NAN, MINUS_ZERO, ONE)) == ["7fc00000", "80000000", "3f800000"]
    assert [_sample(torch.tensor(1.0)), _sample(torch.empty(0, 3))] == [["3f800000"], []]
    outputs = OutputComparison(many, 1).result(sample=True)["outputs"]
    assert [len(one["sample"].split()) for one in outputs] == [1] * 20


# How far outputs differ, held against arithmetic on Python numbers.

pytestmark = pytest.mark.usefixtures("quiet_torch")

_INF = math.inf
_FARTHEST = sys.float_info.max

# Of each dtype the bits of an element, or of a component of complex numbers; indices and booleans are counted and have no distance.
_COUNTED = {"uint8": 8, "int8": 8, "int16": 16, "int32": 32, "int64": 64, "bool": 8}
_WIDTHS = {"float64": 64, "float32": 32, "complex64": 32, "float16": 16, "bfloat16": 16, **_COUNTED}
_WIDTHS |= {name: 8 for name in vars(torch) if name.startswith("float8_") and name != "float8_e8m0fnu"}


def _tensor(raw: Sequence[int], dtype: str, width: int) -> Any:
    """Return a tensor whose elements, or their components, have these bits."""
    data = b"".join(bits.to_bytes(width // 8, "little") for bits in raw)
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).clone().view(getattr(torch, dtype))


def _ulp(one: int, other: int, width: int) -> int:
    """Return the distance of two sign-magnitude numbers, in integers without an end."""
    sign = 1 << (width - 1)
    placed = [-(bits - sign) if bits & sign else bits for bits in (one, other)]
    return min(abs(placed[0] - placed[1]), 2**63 - 1)


def _same(one: float, other: float) -> bool:
    return one == other or (math.isnan(one) and math.isnan(other))


def _expected(
    first: Sequence[int], second: Sequence[int], dtype: str, width: int, parts: int
) -> dict[str, Any]:
    """Measure two lists of elements of so many *parts*, one element at a time."""
    elements = len(first) // parts
    if dtype in _COUNTED:
        differing = sum(map(operator.ne, first, second))
        return {
            "examined": 1,
            "elements": elements,
            "differing_elements": differing,
            "v_c": differing / elements,
        }
    differing = unequal = not_finite = 0
    distances, ratios, steps = [], [], []
    for start in range(0, len(first), parts):
        one, other = first[start : start + parts], second[start : start + parts]
        # Exactly what they mean: a double holds every number of the others.
        a, b = (_tensor(raw, dtype, width).double().tolist() for raw in (one, other))
        differing += one != other
        unequal += not all(map(_same, a, b))
        if not all(map(math.isfinite, [*a, *b])):
            not_finite += 1
            continue
        distance = min(math.hypot(*(x - y for x, y in zip(a, b, strict=True))), _FARTHEST)
        distances.append(distance)
        steps.append(max(_ulp(x, y, width) for x, y in zip(one, other, strict=True)))
        if any(a):
            # Python refuses a quotient beyond its range.
            size = min(math.hypot(*a), _FARTHEST)
            ratios.append(_FARTHEST if distance / _FARTHEST > size else distance / size)
    return {
        "examined": 1,
        "elements": elements,
        "differing_elements": differing,
        "v_c": unequal / elements,
        "v_ermv": min(sum(ratios) / len(ratios), _FARTHEST) if ratios else None,
        "max_abs": max(distances, default=None),
        "max_rel": max(ratios, default=None),
        "max_ulp": max(steps, default=None),
        "not_finite": not_finite,
    }


def _measured(first: Any, *others: Any) -> dict[str, Any]:
    measured = SeverityAccumulator(first)
    for other in others:
        measured.add(other)
    result = measured.result()
    assert result is not None
    return result


def _close(expected: dict[str, Any], actual: dict[str, Any]) -> bool:
    """Tell whether two results agree: counts and steps exactly, quotients and sums up to rounding."""
    rounded = {"v_ermv", "max_abs", "max_rel"}
    return expected.keys() == actual.keys() and all(
        expected[name] == actual[name]
        or (name in rounded and math.isclose(expected[name], actual[name], rel_tol=1e-12))
        for name in expected
    )


def _pairs(width: int) -> st.SearchStrategy[list[tuple[int, int]]]:
    """Draw pairs of bit patterns: equal, neighbours, of another sign, special, or anything."""
    sign = 1 << (width - 1)
    anything = st.integers(0, 2 * sign - 1)
    # Zeros, subnormals, the ends of all ranges, infinities and NaNs lie here, whatever the format.
    ends = st.sampled_from([0, 1, sign - 1, sign, sign + 1, 2 * sign - 1])
    value = st.one_of(anything, ends)
    pair = st.one_of(
        st.tuples(value, value),
        value.map(lambda bits: (bits, bits)),
        value.map(lambda bits: (bits, bits ^ 1)),
        value.map(lambda bits: (bits, bits ^ sign)),
    )
    return st.lists(pair, min_size=1, max_size=40)


@pytest.mark.parametrize("dtype", sorted(_WIDTHS))
@given(data=st.data(), block=st.integers(1, 50))
@settings(max_examples=60)
def test_measures_are_those_of_python_arithmetic(dtype: str, data: st.DataObject, block: int) -> None:
    """Any bits of any floating dtype are measured as one element after the other is, in blocks of any length.

    Distances of complex numbers are those in the plane; steps are those of the component that took more.
    """
    width, parts = _WIDTHS[dtype], 1 + dtype.startswith("complex")
    pairs = data.draw(_pairs(width))
    if dtype == "bool":  # which holds nothing but 0 and 1
        pairs = [(one & 1, other & 1) for one, other in pairs]
    first, second = zip(*pairs, *(pairs[::-1] if parts > 1 else ()), strict=True)

    with mock.patch.object(difference, "_BLOCK", block):
        actual = _measured(_tensor(first, dtype, width), _tensor(second, dtype, width))

    assert _close(_expected(first, second, dtype.replace("complex64", "float32"), width, parts), actual), (
        actual
    )


@pytest.mark.parametrize(
    ("dtype", "first", "second", "expected"),
    [
        # The highest bit is a part of the exponent; 255 is NaN.
        ("float8_e8m0fnu", [127, 127, 255], [129, 126, 0], {"max_abs": 3.0, "max_rel": 3.0, "max_ulp": 2, "not_finite": 1}),
        # A byte that holds two numbers cannot be taken apart; that it differs can be told.
        ("float4_e2m1fn_x2", [1, 2], [1, 3], {"examined": 1, "elements": 2, "differing_elements": 1, "v_c": 0.5}),
    ],
)  # fmt: skip
def test_measures_of_bytes_that_no_python_number_stands_for(
    dtype: str, first: list[int], second: list[int], expected: dict[str, Any]
) -> None:
    """Exponents without a sign, and packed numbers."""
    if not hasattr(torch, dtype):
        pytest.skip(f"this torch has no {dtype}")
    result = _measured(_tensor(first, dtype, 8), _tensor(second, dtype, 8))

    assert {name: result[name] for name in expected} == expected
    assert ("max_abs" in result) == ("max_abs" in expected)


def test_the_largest_of_each_measure_is_kept() -> None:
    """Each measure is that of the part in which it was largest; None is smaller than any."""
    first = torch.tensor([1.0, 2.0, 0.0, 4.0])
    others = [*map(torch.tensor, ([_INF] * 4, [1.0, 2.0, 9.0, 4.0], [2.0, 2.0, 0.0, 4.0])), first.clone()]
    result = _measured(first, *others)

    alone = [_measured(first, other) for other in others]
    assert result.pop("examined") == 4
    assert result == {name: max(one[name] for one in alone if one[name] is not None) for name in result}
    assert (result["max_abs"], result["max_rel"], result["not_finite"]) == (9.0, 1.0, 4)
    assert (result["v_c"], result["v_ermv"], result["max_ulp"]) == (1.0, 1 / 3, 0x41100000)
    # A part that never differed has no severity.
    assert SeverityAccumulator(first).result() is None


# Results of a simulated GPU, held to the CPU's.


def reference(op: Callable[..., Any], *args: Any, grad: bool = False) -> CpuReference:
    """Return what the CPU computes of a call."""
    direction = "backward" if grad else "forward"
    spec = spec_of(op, lambda t: call(*(t.leaf(a) if grad else a for a in args)))
    execution = Execution(spec, "one", direction=direction, dtype="float32", device="cpu", seed=0)
    if grad:
        execution()
    return CpuReference(execution)


def mixed(*shape: int) -> torch.Tensor:
    """Numbers of very different size."""
    generator = torch.Generator().manual_seed(1)
    return torch.randn(shape, generator=generator) * 10.0 ** torch.randint(-3, 4, shape, generator=generator)


def test_other_orders_of_additions_agree_and_a_lost_term_does_not() -> None:
    """Thousands of terms of mixed size, in any order; but each element is held to its own terms, not to the largest."""
    x = mixed(4, 20_000)
    x[1:] *= 1e-6
    held = reference(torch.sum, x, 1)
    forward = torch.stack([x.flip(1)[:, start::7].cumsum(1)[:, -1] for start in range(7)]).sum(0)
    lost = forward.clone()
    lost[2] -= x[2].abs().max()

    assert held.compare(forward, ())["agrees"] is True
    found = held.compare(lost, ())
    assert (found["agrees"], found["elements"], found["of"], found["output"]) == (False, 1, 4, "output")


def test_writers_race() -> None:
    """Those of one element may come in any order, whatever the dtype: what was given may be left, and nothing else."""
    index = torch.tensor([0, 0, 1])
    for values in map(torch.tensor, ([True, False, True], [1j, 2j, 3j], [1.0, 2.0, 3.0])):
        held = reference(torch.Tensor.index_put, torch.zeros(2, dtype=values.dtype), (index,), values)
        assert held.writers_race((values[::2].clone(), ()))
    assert not held.writers_race((torch.tensor([5.0, 3.0]), ()))
    held = reference(lambda x, s: x.index_copy(0, index, s), torch.zeros(2), torch.tensor([1.0, 2.0, 3.0]))
    assert held.compare(torch.tensor([1.0, 3.0]), ())["agrees"] is False
    assert held.writers_race((torch.tensor([1.0, 3.0]), ()))
    assert not held.writers_race((torch.tensor([1.5, 3.0]), ()))


def test_what_cancels_leaves_a_rounding() -> None:
    """The gradient of a softmax over one number is zero, of which a GPU may leave the rounding of its terms; not more."""

    def op(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.cat([(x * y).sum(1) - (y * x).flip(1).sum(1), x.sum(1)])

    x, y = mixed(4, 999), mixed(4, 999)
    held = reference(op, x, y)
    result = op(x, y)
    off = torch.zeros_like(result)
    off[1] = (op(x, y) - op(x.double(), y.double())).abs().max().float()
    assert [held.compare(result + some, ())["agrees"] for some in (off, 1000 * off)] == [True, False]


def test_seven_is_not_nine() -> None:
    """A gradient of nine contributions of which two are lost."""
    pad = torch.nn.ReflectionPad2d(3)
    held = reference(pad, torch.ones(1, 1, 6, 6), grad=True)
    (right,) = [one for _, one in held._judged]
    wrong = right.clone()
    wrong[0, 0, 2, 2] *= 7 / 9

    assert held.compare(None, (right,))["agrees"] is True
    assert held.compare(None, (wrong,))["elements"] == 1


POOL = torch.nn.MaxPool2d(2, return_indices=True)
PLANES = torch.tensor([1.0, 2.0]).view(1, 2, 1, 1).repeat(1, 1, 2, 2)
POOL_3D, HALVES = torch.nn.AvgPool3d(2), torch.arange(8).half().view(1, 1, 2, 2, 2)


@pytest.mark.parametrize(
    ("op", "args", "result", "agrees"),
    [
        (torch.neg, (torch.tensor([1.0, torch.nan, torch.inf]),), torch.tensor([-1.0, torch.nan, -torch.inf]), True),
        (torch.neg, (torch.tensor([1.0, torch.nan]),), torch.tensor([torch.nan, torch.nan]), False),
        (torch.neg, (torch.tensor([3, 4]),), torch.tensor([-3, -5]), False),
        (torch.neg, (torch.tensor([3.0]),), torch.tensor([[-3.0]]), False),
        (torch.neg, (torch.tensor([3.0]),), torch.tensor([-3.003]), False),
        (torch.argmax, (torch.tensor([1.0, 5.0, 5.0]),), torch.tensor(2), True),
        (torch.argmax, (torch.tensor([1.0, 5.0, 5.0]),), torch.tensor(0), False),
        (torch.argmax, (torch.tensor([1.0, 5.0, 5.0]),), torch.tensor(9), False),
        (torch.argsort, (torch.tensor([[2.0, 1.0, 1.0]]), 1), torch.tensor([[2, 1, 0]]), True),
        (torch.argsort, (torch.tensor([[2.0, 1.0, 1.0]]), 1), torch.tensor([[1, 1, 0]]), False),
        (torch.median, (torch.tensor([[2.0, 2.0, 1.0]]), 1), (torch.tensor([2.0]), torch.tensor([1])), True),
        (torch.median, (torch.tensor([[2.0, 2.0, 1.0]]), 1), (torch.tensor([2.0]), torch.tensor([2])), False),
        # The indices that pooling returns count within a plane.
        (POOL, (PLANES,), (PLANES[..., :1, :1], torch.tensor([[[[3]], [[2]]]])), True),
        (POOL, (PLANES,), (PLANES[..., :1, :1], torch.tensor([[[[3]], [[9]]]])), False),
        # Dtypes without a kernel on the CPU are compared with a wider one: average pools of three dims, histograms.
        (POOL_3D, (HALVES,), torch.full((1, 1, 1, 1, 1), 3.5).half(), True),
        (POOL_3D, (HALVES,), torch.full((1, 1, 1, 1, 1), 4.5).half(), False),
        (torch.histc, (torch.tensor([0, 1, 1, 3]), 4, 0, 4), torch.tensor([1, 2, 0, 1]), True),
    ],
)  # fmt: skip
def test_what_agrees_with_the_cpu(op: Any, args: Any, result: Any, agrees: bool) -> None:
    """NaN is NaN, integers are equal or wrong, and any index of equal elements is right."""
    assert reference(op, *args).compare(result, ())["agrees"] is agrees
