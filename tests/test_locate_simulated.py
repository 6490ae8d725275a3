"""Ops of a program on a simulated GPU: in which orders they are executed, and who computes what it cannot."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from detmatrix.scanner.locate import simulated
from detmatrix.scanner.locate.overloads import known
from detmatrix.scanner.locate.simulated import SimulatedOp
from detmatrix.scanner.worker import simulated as worker
from detmatrix.scanner.worker.simulated import Report, SimulationError

ADD = torch.ops.aten.add_.Tensor
BLOCKS = {"pairs": [1, 0, 0], "doubts": []}


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Let a simulated GPU tell what stands here under "report", and note which orders are asked for."""
    told: dict[str, Any] = {"report": Report(["kernel"], [], [], [], BLOCKS), "orders": []}
    monkeypatch.setattr(worker, "begin", lambda name, number, *_, **__: told["orders"].append((name, number)))
    monkeypatch.setattr(worker, "report", lambda: told["report"])
    monkeypatch.setattr(simulated, "_on_gpu", lambda _: True)
    return told


def test_orders_are_those_that_can_change_something(gpu: dict[str, Any]) -> None:
    """A conflict of blocks: two orders of each class of blocks alone; then other memory; between them the canonical order."""
    op = SimulatedOp(lambda: None, known(ADD), 2)
    op()
    del gpu["orders"][:]
    for _ in range(op.times):
        op()

    assert gpu["orders"][0::2] == [
        *(("resident-blocks", 0), ("resident-blocks", 1), ("any-blocks", 0), ("any-blocks", 1)),
        ("memory", 0),
    ]
    assert set(gpu["orders"][1::2]) == {("canonical", 0)}
    gpu["report"] = Report(["kernel"], [], [], [], {"pairs": [0, 0, 0], "doubts": []})
    free = SimulatedOp(lambda: None, known(ADD), 2)
    free()
    assert (op.race_free, free.race_free, free.times) == (False, True, 1)


def test_the_cpu_computes_what_a_library_would(gpu: dict[str, Any]) -> None:
    """On what the arguments held before the library was called; what an argument holds is changed in place, once."""
    gpu["report"] = Report([], [], ["cublasSgemm"], [])
    into = torch.ones(3)
    op = SimulatedOp(ADD, known(ADD), 4)

    assert op(into, torch.ones(3)) is into
    assert into.tolist() == [2, 2, 2]
    assert "library" in op.unjudged


def test_what_nobody_can_compute_is_said(gpu: dict[str, Any]) -> None:
    """With the library; and a fault in another order is no answer of the op."""

    def failing() -> None:
        raise ValueError("no")

    gpu["report"] = Report([], [], ["cudnnRNNForward"], [])
    with pytest.raises(
        RuntimeError, match=r"\(cudnnRNNForward\), nor can the CPU \(ValueError\); set torch.backends.cudnn"
    ):
        SimulatedOp(failing, known(ADD), 4)()
    gpu["report"] = Report(["kernel"], [], [], [], BLOCKS)
    op = SimulatedOp(lambda: None, known(ADD), 4)
    op()
    gpu["report"] = Report(["kernel"], [("timeout", "took too long")], [], [])
    with pytest.raises(SimulationError, match="took too long"):
        op()
