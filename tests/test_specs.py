"""The catalog as data: every spec resolves, every case builds to the same bits and runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves

from detmatrix.opspecs.inputs import Inputs, SimulatedInputs
from detmatrix.opspecs.model import Call, OpSpec, Planned
from detmatrix.opspecs.registry import SPECS, select
from detmatrix.scanner.cases.rows import planned_rows
from detmatrix.scanner.observations.runfile import read_run
from detmatrix.scanner.worker.bits import digest, parts
from detmatrix.scanner.worker.execution import resolve
from tests.observed import observed
from tests.runs import SETTINGS

# What one case may draw. Several worker processes draw it, and none may be short of memory.
CPU_BYTES = 4 << 20
CUDA_BYTES = 512 << 20

# Previews and ops on their way out say so once; none of it is about what they compute.
pytestmark = [
    pytest.mark.usefixtures("one_thread"),  # nothing here asks for races
    pytest.mark.filterwarnings("ignore:index_reduce.. is in beta"),
    pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta"),
    pytest.mark.filterwarnings("ignore:The reduce argument of torch.scatter"),
]

ROWS = [pytest.param(spec, planned, id=planned.id) for spec, planned in select((), "cpu")]

RECORDED = Path(__file__).parent.parent / "reports" / "runs" / "torch-2.13.0-cpu.jsonl.gz"


def drawn(spec: OpSpec, planned: Planned) -> tuple[Inputs, Call]:
    t = Inputs(planned.id, dtype=planned.dtype, device="cpu", direction=planned.direction)
    return t, spec.cases[planned.case].inputs(t)


def tensors(value: Any) -> list[torch.Tensor]:
    return [one for one in tree_leaves(value) if isinstance(one, torch.Tensor)]


def stored(tensor: torch.Tensor) -> list[torch.Tensor]:
    """Return what is stored of a tensor of any layout."""
    if tensor.layout == torch.sparse_coo:
        return [tensor._indices(), tensor._values()]
    if tensor.layout == torch.sparse_csr:
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    return [tensor]


def argument_bytes(call: Call) -> int:
    """Return the bytes of all tensors among the arguments."""
    arguments = tensors((call.args, dict(call.kwargs)))
    return sum(part.numel() * part.element_size() for tensor in arguments for part in stored(tensor))


def argument_digest(call: Call) -> str:
    """Return a digest of the raw bytes of the tensors among the arguments."""
    return digest(parts((call.args, call.kwargs), "arguments", skip_others=True))


def finite(values: Any) -> bool:
    """Tell whether there are no NaN and no infinities; an overflow would hide what was reordered."""
    return all(bool(part.isfinite().all()) for _, part in parts(values, "values"))


def run(spec: OpSpec, call: Call) -> list[torch.Tensor]:
    args = (call.args[0].clone(), *call.args[1:]) if spec.in_place else call.args
    return tensors(resolve(spec.op)(*args, **call.kwargs))


def ids(*patterns: str, device: str = "cpu") -> list[str]:
    return [planned.id for _, planned in select(patterns, device)]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_spec_is_well_formed(spec: OpSpec) -> None:
    """It gives its reason in a sentence, has a case that could expose it, and an op of this torch.

    The id of a case stands in row ids, shells and file names as it is.
    """
    assert spec.why.endswith(".")
    assert any(case.provokes for case in spec.cases.values())
    assert callable(resolve(spec.op))
    assert not [name for name in spec.cases if not re.fullmatch(r"[A-Za-z0-9_.-]+", name)]


@pytest.mark.parametrize(("spec", "planned"), ROWS)
def test_builds_twice_to_the_same_bits_and_runs(spec: OpSpec, planned: Planned) -> None:
    """Inputs are equal in two processes, and of bounded size; there are outputs and, if asked for, gradients of all leaves."""
    t, call = drawn(spec, planned)
    assert argument_digest(call) == argument_digest(drawn(spec, planned)[1])
    assert argument_bytes(call) <= CPU_BYTES

    outputs = run(spec, call)

    assert all(output.numel() for output in outputs)
    assert outputs
    if planned.direction == "backward":
        differentiable = [output for output in outputs if output.requires_grad]
        upstream = [torch.randn_like(output) for output in differentiable]
        outputs = list(torch.autograd.grad(differentiable, t.leaves, upstream, allow_unused=True))
        assert t.leaves
        assert all(gradient is not None for gradient in outputs)
    # What nobody wrote may be anything.
    if spec.family != "memory" or planned.direction == "backward":
        assert finite(outputs)


REFERRED = [(spec, planned) for spec, planned in select((), "cpu") if spec.cases[planned.case].reference]


@pytest.mark.parametrize(("spec", "planned"), REFERRED, ids=[planned.id for _, planned in REFERRED])
def test_gives_what_its_reference_says(spec: OpSpec, planned: Planned) -> None:
    """With the flag on, a case that has a reference gives its bits, in several executions."""
    seen = observed(spec, planned.case, "on", direction=planned.direction, dtype=planned.dtype)

    assert (seen["outcome"], seen.get("message")) == ("ran", None)
    assert ("reference" in seen) == spec.cases[planned.case].holds_always
    assert seen.get("reference", {}).get("elements", 0) == 0


@pytest.mark.parametrize(
    ("size", "limit"),
    [(lambda _, **sizes: sizes["cuda"], CUDA_BYTES), (SimulatedInputs.size, CPU_BYTES)],
    ids=["cuda", "simulated"],
)
@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_cuda_inputs_bounded(
    monkeypatch: pytest.MonkeyPatch, spec: OpSpec, size: Callable[..., Any], limit: int
) -> None:
    """What CUDA gets fits in memory, and a simulated GPU, which interprets each instruction, gets as little as a CPU."""
    monkeypatch.setattr(Inputs, "size", size)
    with FakeTensorMode():
        sizes = {planned.id: argument_bytes(drawn(spec, planned)[1]) for planned in spec.rows("cuda")}

    assert not [row for row, size in sizes.items() if size > limit]


def test_select_by_device() -> None:
    """CUDA adds dtypes and has cases of its own, as the CPU has; "any" has them all. Each is there once: observations refer to rows by id."""
    cpu, cuda, either = (ids(device=device) for device in ("cpu", "cuda", "any"))

    assert all(len(rows) == len(set(rows)) for rows in (cpu, cuda, either))
    assert "torch.nn.Conv2d:weight_grad:backward:float16" in set(cuda) - set(cpu)
    assert any(":cudnn:" in row for row in set(cuda) - set(cpu))
    assert "torch.Tensor.resize_:grow_quantized:forward:quint8" in set(cpu) - set(cuda)
    assert set(either) == set(cpu) | set(cuda)


def test_ops_of_the_catalog_keep_the_names_that_runs_were_recorded_with() -> None:
    """A recorded row joins the row of today, wherever the code of its op lies by now."""
    recorded = {row.key: row.op for row in read_run(RECORDED).header.planned}
    today = {planned_row.key: planned_row.op for planned_row in planned_rows(SETTINGS, SPECS)}

    moved = {key: (recorded[key], op) for key, op in today.items() if key in recorded and recorded[key] != op}
    assert moved == {}
    assert any(op.startswith("opspecs.") for op in recorded.values())
