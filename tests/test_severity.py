"""How far outputs differ, held against arithmetic on Python numbers."""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from detmatrix.opspecs.model import Case, OpSpec, call
from detmatrix.scanner.worker import difference
from detmatrix.scanner.worker.agreement import CpuReference
from detmatrix.scanner.worker.difference import SeverityAccumulator
from detmatrix.scanner.worker.execution import Execution

pytestmark = pytest.mark.usefixtures("quiet_torch")

_INF, _NAN = math.inf, math.nan
_FARTHEST = sys.float_info.max

# Of each floating dtype: bits of an element, and how Python reads them where it can.
_WIDTHS = {"float64": 64, "float32": 32, "float16": 16, "bfloat16": 16}
_WIDTHS |= {name: 8 for name in vars(torch) if name.startswith("float8_") and name != "float8_e8m0fnu"}


def _tensor(raw: Sequence[int], dtype: str, width: int) -> Any:
    """Return a tensor whose elements, or their components, have these bits."""
    data = b"".join(bits.to_bytes(width // 8, "little") for bits in raw)
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).clone().view(getattr(torch, dtype))


def _value(bits: int, dtype: str, width: int) -> float:
    """Return what bits mean."""
    match dtype:
        case "float64":
            return float(struct.unpack("<d", bits.to_bytes(8, "little"))[0])
        case "float32":
            return float(struct.unpack("<f", bits.to_bytes(4, "little"))[0])
        case "float16":
            return float(struct.unpack("<e", bits.to_bytes(2, "little"))[0])
        case "bfloat16":
            return float(struct.unpack("<f", (bits << 16).to_bytes(4, "little"))[0])
    return float(_tensor([bits], dtype, width).to(torch.float32).item())


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
    differing = unequal = not_finite = 0
    distances, ratios, steps = [], [], []
    for start in range(0, len(first), parts):
        one, other = first[start : start + parts], second[start : start + parts]
        a, b = ([_value(bits, dtype, width) for bits in raw] for raw in (one, other))
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
    elements = len(first) // parts
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
    """Any bits of any floating dtype are measured as one element after the other is, in blocks of any length."""
    width = _WIDTHS[dtype]
    first, second = zip(*data.draw(_pairs(width)), strict=True)

    with mock.patch.object(difference, "_BLOCK", block):
        actual = _measured(_tensor(first, dtype, width), _tensor(second, dtype, width))

    assert _close(_expected(first, second, dtype, width, 1), actual), actual


@given(pairs=_pairs(32), block=st.integers(1, 50))
@settings(max_examples=60)
def test_complex_numbers_are_one_element_each(pairs: list[tuple[int, int]], block: int) -> None:
    """Distances of complex numbers are those in the plane; steps are those of the component that took more."""
    first, second = zip(*pairs, *pairs[::-1], strict=True)

    with mock.patch.object(difference, "_BLOCK", block):
        actual = _measured(_tensor(first, "complex64", 32), _tensor(second, "complex64", 32))

    assert _close(_expected(first, second, "float32", 32, 2), actual), actual


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "int64", "bool"])
def test_integers_are_counted_and_never_subtracted(dtype: str) -> None:
    """Indices and booleans have no distance."""
    first = torch.tensor([0, 1, 1, 0]).to(getattr(torch, dtype))

    assert _measured(first, first ^ torch.tensor([1, 0, 1, 1]).to(first.dtype)) == {
        "examined": 1,
        "elements": 4,
        "differing_elements": 3,
        "v_c": 0.75,
    }


_RAW: dict[str, tuple[str, int, list[int], list[int], dict[str, Any]]] = {
    # NaN equals NaN in value, and no distance is taken between them.
    "NaNs of other payloads": (
        "float64", 64, [0x7FF8000000000000, 0x3FF0000000000000], [0xFFF8000000000001, 0x3FF0000000000000],
        {"differing_elements": 1, "v_c": 0.0, "not_finite": 1, "max_abs": 0.0, "max_ulp": 0},
    ),
    # The highest bit is a part of the exponent; 255 is NaN.
    "exponents have no sign": (
        "float8_e8m0fnu", 8, [127, 127, 255], [129, 126, 0],
        {"max_abs": 3.0, "max_rel": 3.0, "max_ulp": 2, "not_finite": 1},
    ),
    # A byte that holds two numbers cannot be taken apart; that it differs can be told.
    "packed numbers are counted": (
        "float4_e2m1fn_x2", 8, [1, 2], [1, 3],
        {"examined": 1, "elements": 2, "differing_elements": 1, "v_c": 0.5},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("dtype", "width", "first", "second", "expected"), _RAW.values(), ids=_RAW)
def test_measures_of_raw_bits(
    dtype: str, width: int, first: list[int], second: list[int], expected: dict[str, Any]
) -> None:
    """What no Python number stands for."""
    if not hasattr(torch, dtype):
        pytest.skip(f"this torch has no {dtype}")
    result = _measured(_tensor(first, dtype, width), _tensor(second, dtype, width))

    assert {name: result[name] for name in expected} == expected
    assert ("max_abs" in result) == ("max_abs" in expected)


def test_the_largest_of_each_measure_is_kept() -> None:
    """Each measure is that of the part in which it was largest; None is smaller than any."""
    first = torch.tensor([1.0, 2.0, 0.0, 4.0])
    others = [
        torch.tensor([_INF, _INF, _INF, _INF]),
        torch.tensor([1.0, 2.0, 9.0, 4.0]),
        torch.tensor([2.0, 2.0, 0.0, 4.0]),
        first.clone(),
    ]
    result = _measured(first, *others)

    assert result == {
        "examined": 4,
        "elements": 4,
        "differing_elements": 4,
        "v_c": 1.0,
        "v_ermv": 1 / 3,
        "max_abs": 9.0,
        "max_rel": 1.0,
        "max_ulp": _ulp(0, struct.unpack("<I", struct.pack("<f", 9.0))[0], 32),
        "not_finite": 4,
    }
    alone = [_measured(first, other) for other in others]
    for name in result.keys() - {"examined"}:
        assert result[name] == max(one[name] for one in alone if one[name] is not None)
    # A part that never differed has no severity.
    assert SeverityAccumulator(first).result() is None


# Results of a simulated GPU, held to the CPU's.


def reference(op: Callable[..., Any], *args: Any, grad: bool = False) -> CpuReference:
    """Return what the CPU computes of a call."""
    direction = "backward" if grad else "forward"
    spec = OpSpec(
        name="own",
        op=op,
        why="",
        cases={"one": Case(inputs=lambda t: call(*(t.leaf(a) if grad else a for a in args)))},
    )
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


def test_a_dtype_without_a_kernel_on_the_cpu_is_compared_with_a_wider_one() -> None:
    """Average pools of three dims have none of half, histograms none of integers."""
    x = mixed(1, 2, 6, 6, 6).clamp(-9, 9)
    pooled = torch.nn.functional.avg_pool3d(x, 2)
    held = reference(torch.nn.functional.avg_pool3d, x.half(), 2)
    assert [held.compare(pooled.half() + off, ())["agrees"] for off in (0, 1)] == [True, False]
    counted = reference(torch.histc, torch.tensor([0, 1, 1, 3]), 4, 0, 4)
    assert counted.compare(torch.tensor([1, 2, 0, 1]), ())["agrees"] is True


def test_writers_of_any_dtype_race() -> None:
    """What was given may be left."""
    index = (torch.tensor([0, 0, 1]),)
    for values in map(torch.tensor, ([True, False, True], [1j, 2j, 3j], [1.0, 2.0, 3.0])):
        held = reference(torch.Tensor.index_put, torch.zeros(2, dtype=values.dtype), index, values)
        assert held.writers_race((values[::2].clone(), ()))
    assert not held.writers_race((torch.tensor([5.0, 3.0]), ()))


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
    ],
)  # fmt: skip
def test_what_agrees_with_the_cpu(op: Any, args: Any, result: Any, agrees: bool) -> None:
    """NaN is NaN, integers are equal or wrong, and any index of equal elements is right."""
    assert reference(op, *args).compare(result, ())["agrees"] is agrees


def test_flat_indices_of_windows_may_be_those_of_ties() -> None:
    """What pooling returns counts within a plane."""
    pool = torch.nn.MaxPool2d(2, return_indices=True)
    held = reference(pool, torch.ones(1, 2, 4, 4))
    values, indices = pool(torch.ones(1, 2, 4, 4))

    assert held.compare((values, indices + 1), ())["agrees"] is True
    assert held.compare((values, indices + 100), ())["agrees"] is False


def test_writers_of_one_element_may_come_in_any_order() -> None:
    """Only numbers that were given are such writers."""
    index = torch.tensor([0, 0, 1])
    held = reference(lambda x, s: x.index_copy(0, index, s), torch.zeros(2), torch.tensor([1.0, 2.0, 3.0]))

    assert held.compare(torch.tensor([1.0, 3.0]), ())["agrees"] is False
    assert held.writers_race((torch.tensor([1.0, 3.0]), ()))
    assert not held.writers_race((torch.tensor([1.5, 3.0]), ()))
