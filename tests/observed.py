"""Ops and cases observed in this process, as a worker does, and tensors of given bytes; loading this takes a torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from detmatrix.opspecs.inputs import Inputs
from detmatrix.opspecs.model import Call, Case, OpSpec, call
from detmatrix.scanner.modes import MODE_TABLE, Mode
from detmatrix.scanner.worker import bits
from detmatrix.scanner.worker.observe import observe


def spec_of(op: Any, inputs: Callable[[Inputs], Call] | None = None, **fields: Any) -> OpSpec:
    """Return a spec of an op with one case, of 64 numbers if no other inputs are given."""
    cases = {"one": Case(inputs or (lambda t: call(t.leaf(t.normal(64)))))}
    return OpSpec(name="planted.op", op=op, why="Planted.", cases=cases, **fields)


def observed(spec: OpSpec, case: str = "", mode: Mode = "off", **options: Any) -> dict[str, Any]:
    """Return what a worker answers of a case, the first if none is named: forward, twice, in float32, unless told otherwise."""
    options = {"direction": "forward", "dtype": "float32", "device": "cpu", "seed": 0, "runs": 2, **options}
    it = MODE_TABLE[mode]
    torch.use_deterministic_algorithms(it.deterministic)
    try:
        return observe(spec, case or next(iter(spec.cases)), execution=it.execution, **options)
    finally:
        torch.use_deterministic_algorithms(False)


def raw(data: bytes, dtype: str) -> Any:
    """Return a tensor of any dtype with exactly these bytes."""
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).clone().view(getattr(torch, dtype))


def same_bits(left: Any, right: Any) -> bool:
    """Compare in all ways, which must agree, and return what they say."""
    one, other = bits.parts(left, "output"), bits.parts(right, "output")
    if not bits.same_structure(one, other):
        assert bits.digest(one) != bits.digest(other)
        return False
    pairs = [(a, b) for (_, a), (_, b) in zip(one, other, strict=True)]
    answers = {
        all(bits.equal_on_cpu(a, b) for a, b in pairs),
        bits.unchanged(one)(other),
        not any(bits.differ_on_device(a, b).item() for a, b in pairs),
        bits.digest(one) == bits.digest(other),
    }
    (answer,) = answers
    return answer
