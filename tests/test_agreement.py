"""Results of a simulated GPU, held to the CPU's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from detmatrix.opspecs.model import Case, OpSpec, call
from detmatrix.scanner.worker.agreement import CpuReference
from detmatrix.scanner.worker.execution import Execution


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
