"""Backward without the engine gives what the engine gives, by the same calls."""

from __future__ import annotations

import pytest

from opspecs.model import OpSpec, Planned
from opspecs.registry import select

torch = pytest.importorskip("torch")

from scanner.worker.dispatcher.backward import differentiate  # noqa: E402
from scanner.worker.dispatcher.native_functions import parsed  # noqa: E402
from scanner.worker.dispatcher.overloads import Overloads  # noqa: E402 - it needs torch
from scanner.worker.execution import Execution  # noqa: E402

ROWS = [
    row
    for row in select((), "cpu")
    if row[1].direction == "backward" and row[1].dtype in ("float32", "complex64")
]


def _execution(spec: OpSpec, planned: Planned) -> Execution:
    return Execution(
        spec, planned.case, direction="backward", dtype=planned.dtype, device="cpu", seed=0
    )  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("family", sorted({spec.family for spec, _ in ROWS}))
def test_walk_calls_what_the_engine_calls(family: str) -> None:
    """Each overload is called as often, and the gradients are the same up to the order of additions."""
    for spec, planned in ROWS:
        if spec.family != family:
            continue
        calls, gradients = [], []
        for way in ("engine", "walk"):
            execution = _execution(spec, planned)
            execution.reseed()
            outputs, upstream = execution.upstream(execution.forward(execution.arguments()))
            with Overloads() as reached:
                gradients.append(
                    differentiate(outputs, upstream, execution.leaves)
                    if way == "walk"
                    else torch.autograd.grad(outputs, execution.leaves, upstream, allow_unused=True)
                )
            calls.append(dict(reached.counts))
        assert calls[0] == calls[1], planned.id
        for one, other in zip(*gradients, strict=True):
            dense = [
                tensor.to_dense() if tensor.layout != torch.strided else tensor for tensor in (one, other)
            ]
            torch.testing.assert_close(*dense, rtol=1e-3, atol=1e-3, equal_nan=True, msg=planned.id)


def test_walk_adds_what_meets_and_leaves_out_what_does_not() -> None:
    """A leaf used twice gets the sum, one that is the output gets what came, an unused one gets nothing."""
    x, unused = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    y = x * 2 + x.exp() * x
    ones = torch.ones(2)

    (walked, none) = differentiate([y], [ones], [x, unused])
    (itself,) = differentiate([x], [ones * 3], [x])

    assert walked is not None
    assert torch.equal(walked, torch.autograd.grad(y, x, ones)[0])
    assert none is None
    assert itself is not None
    assert itself.tolist() == [3, 3]


def test_declarations_are_read() -> None:
    """Keys that share a function, comments, structured kernels: as native_functions.yaml writes them."""
    text = """
# NB: a comment
- func: put_(Tensor(a!) self) -> Tensor(a!)
  variants: method
  dispatch:
    CPU, CUDA: put_  # both
    MPS: put_mps_
  autogen: put.out

- func: cumsum(Tensor self, int dim) -> Tensor
  structured_delegate: cumsum.out  # there
  variants: function

- func: cumsum.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)
  structured: True
"""
    assert parsed(text) == {
        "put_": {
            "dispatch": {"CPU": "put_", "CUDA": "put_", "MPS": "put_mps_"}, "variants": "method", "autogen": "put.out"
        },
        "cumsum": {"dispatch": {}, "structured_delegate": "cumsum.out", "variants": "function"},
        "cumsum.out": {"dispatch": {}, "structured": "True"},
    }  # fmt: skip
