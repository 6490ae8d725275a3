"""Which launches of Triton kernels are run again; Triton and the simulated GPU are stand-ins, theirs are in test_gpu_wheel.py."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from detmatrix.scanner.locate import launches, simulated
from detmatrix.scanner.locate.launches import LaunchReplay, given_to
from detmatrix.scanner.locate.mode import LocateMode, LocateSettings
from detmatrix.scanner.locate.overloads import known
from detmatrix.scanner.locate.simulated import SimulatedOp
from detmatrix.scanner.worker import simulated as worker
from detmatrix.scanner.worker.simulated import Report, SimulationError

Kernel = Callable[..., None]
# Blocks are in conflict: two classes of orders may change something.
CONFLICT = Report(["kernel"], [], [], [], {"pairs": [1, 0, 0], "doubts": []})


@dataclass
class Descriptor:
    """Stands for Triton's tensor descriptor."""

    base: torch.Tensor
    shape: list[int]


class Gpu:
    """Stands for a simulated GPU whose blocks are in conflict, and for Triton, whose kernels run in the order that was begun."""

    class JITFunction:
        """Stands for a kernel."""

        def __init__(self, kernel: Kernel) -> None:
            self.fn = kernel

        def run(self, *args: Any) -> None:
            """Launch it."""
            self.fn(*args)

    def __init__(self) -> None:
        self.order = 0  # 0 is the canonical one
        self.asked: list[tuple[str, int]] = []
        self.told = CONFLICT

    def begin(self, name: str, number: int, *_: Any, **__: Any) -> None:
        """Let launches run in an order from now on."""
        self.asked.append((name, number))
        self.order = 0 if name in {"canonical", "memory"} else 1 + number


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    """Return one that stands for both, to which all tensors belong."""
    one = Gpu()
    monkeypatch.setattr(launches, "importlib", SimpleNamespace(import_module=lambda _: one))
    monkeypatch.setattr(worker, "begin", one.begin)
    monkeypatch.setattr(worker, "report", lambda: one.told)
    monkeypatch.setattr(simulated, "_on_gpu", lambda _: True)
    return one


@contextmanager
def observed(*ignored: str) -> Iterator[LocateMode]:
    """Look at ops and launches."""
    with LocateMode(LocateSettings(replays=2, max_bytes=1 << 20, ignored=ignored)) as mode:
        replay = LaunchReplay(mode)
        replay.start()
        try:
            yield mode
        finally:
            replay.stop()


def launch(gpu: Gpu, kernel: Kernel | None = None) -> torch.Tensor:
    """Launch a kernel; by default one whose result is the order that its programs ran in."""

    def write_order(out: torch.Tensor) -> None:
        out.numpy()[:] = gpu.order

    out = torch.full((4,), 9.0)
    gpu.JITFunction(kernel or write_order).run(out)
    return out


@pytest.mark.parametrize(("ignored", "looked_at"), [([], True), (["write_order"], False), (["other"], True)])
def test_an_ignored_kernel_is_no_root(gpu: Gpu, ignored: list[str], looked_at: bool) -> None:
    """It runs once, as the program asked, and is told of as ops are."""
    with observed(*(f"triton::{one}" for one in ignored)) as mode:
        out = launch(gpu)

    assert out.tolist() == [0.0] * 4
    assert [root.site.op for root in mode.found()] == ["triton::write_order"] * looked_at
    assert (mode.seen.ops, mode.seen.launches) == (2, int(looked_at))
    assert mode.seen.left_out_ops == (
        {} if looked_at else {"are ignored on request": ("triton::write_order",)}
    )


# How a kernel is given a tensor: as one, which is found wherever it is, or by its address.
TENSORS: dict[str, Callable[[torch.Tensor], Any]] = {
    "tuple": lambda one: (one,),
    "mapping in a list": lambda one: [{"x": one}],
    "descriptor": lambda one: Descriptor(one, [2]),
    "descriptor in tuples": lambda one: (3, (Descriptor(one, [2]),)),
    "another dtype's": lambda one: SimpleNamespace(base=one, data_ptr=one.data_ptr),
}
ADDRESSES: dict[str, Callable[[torch.Tensor], Any]] = {
    "number": lambda one: one.data_ptr(),
    "inside": lambda one: one.data_ptr() + 4,
    "nested number": lambda one: ([one.data_ptr()],),
    "tensor of addresses": lambda one: torch.tensor([3, one.data_ptr()]),
    "beside a view": lambda one: (torch.tensor([one.data_ptr(), 3])[1:],),
    "unsigned": lambda one: torch.tensor([one.data_ptr()]).view(getattr(torch, "uint64", torch.int64)),
    "object": lambda one: SimpleNamespace(data_ptr=one.data_ptr),
}


@pytest.mark.parametrize("name", [*TENSORS, *ADDRESSES])
def test_a_launch_is_run_again_where_what_it_writes_can_be_put_back(gpu: Gpu, name: str) -> None:
    """The program computes what it computes without us; behind an address nobody knows how much is written."""
    out = torch.zeros(2)

    def add_order(_: Any) -> None:
        out.numpy()[:] += 1 + gpu.order

    with observed() as mode:
        gpu.JITFunction(add_order).run((TENSORS | ADDRESSES)[name](out))

    assert out.tolist() == [1.0, 1.0]
    roots = [(root.site.op, root.differing) for root in mode.found()]
    if name in TENSORS:
        assert (roots, mode.seen.left_out_ops) == ([("triton::add_order", 4)], {})
    else:
        assert (roots, mode.seen.launches) == ([], 0)
        assert mode.seen.left_out_ops == {"are given addresses of memory": ("triton::add_order",)}


def test_numbers_that_are_no_addresses(gpu: Gpu) -> None:
    """Sizes, seeds and indices are none, nor is what stands in memory that nothing has written."""
    out, index = torch.zeros(2), torch.tensor([1 << 20, 1 << 40, -1])
    with observed() as mode:
        gpu.JITFunction(lambda *_: None).run(out, index, 1 << 20, 1 << 40, -5, True, None, 1 << 63)
        left_over = torch.empty(2, dtype=torch.int64)

    assert mode.unwritten.untouched(left_over)
    left_over.numpy()[:] = out.data_ptr()
    assert not mode.unwritten.untouched(left_over)
    assert (mode.seen.launches, dict(mode.seen.left_out)) == (1, {})
    assert given_to([left_over], mode.unwritten.untouched)[1]
    assert not given_to([left_over], torch.is_tensor)[1]


def test_a_launch_of_another_thread_waits_and_is_not_run_again(gpu: Gpu) -> None:
    """While a launch is run again in another order, none runs in that order for another thread."""
    results: list[torch.Tensor] = []
    other = threading.Thread(target=lambda: results.append(launch(gpu)))

    def start_other(out: torch.Tensor) -> None:
        if gpu.order and not other.ident:
            other.start()
            other.join(0.05)
        out.numpy()[:] = 1

    with observed() as mode:
        launch(gpu, start_other)
        other.join()

    assert [one.tolist() for one in results] == [[0.0] * 4]
    assert mode.found() == ()
    assert mode.seen.left_out_ops == {"are launched by other threads": ("triton::write_order",)}
    assert mode.seen.launches == 1


def test_a_window_that_ends_during_a_launch_stays_ended(gpu: Gpu) -> None:
    """A step that another thread counts meanwhile pauses the mode for good, not until the launch is over."""
    with observed() as mode:

        def end_window(_: torch.Tensor) -> None:
            mode.paused = True

        launch(gpu, end_window)
        before = mode.seen.ops
        torch.ones(3).sum()

        assert mode.paused
        assert mode.seen.ops == before


# --- Ops on a simulated GPU: in which orders they are executed, and who computes what it cannot


ADD = torch.ops.aten.add_.Tensor


def test_orders_are_those_that_can_change_something(gpu: Gpu) -> None:
    """A conflict of blocks: two orders of each class of blocks alone; then other memory; between them the canonical order."""
    op = SimulatedOp(lambda: None, known(ADD), 2)
    op()
    del gpu.asked[:]
    for _ in range(op.times):
        op()

    assert gpu.asked[0::2] == [
        *(("resident-blocks", 0), ("resident-blocks", 1), ("any-blocks", 0), ("any-blocks", 1)),
        ("memory", 0),
    ]
    assert set(gpu.asked[1::2]) == {("canonical", 0)}
    gpu.told = Report(["kernel"], [], [], [], {"pairs": [0, 0, 0], "doubts": []})
    free = SimulatedOp(lambda: None, known(ADD), 2)
    free()
    assert (op.race_free, free.race_free, free.times) == (False, True, 1)


def test_the_cpu_computes_what_a_library_would(gpu: Gpu) -> None:
    """On what the arguments held before the library was called; what an argument holds is changed in place, once."""
    gpu.told = Report([], [], ["cublasSgemm"], [])
    into = torch.ones(3)
    op = SimulatedOp(ADD, known(ADD), 4)

    assert op(into, torch.ones(3)) is into
    assert into.tolist() == [2, 2, 2]
    assert "library" in op.unjudged


def test_what_nobody_can_compute_is_said(gpu: Gpu) -> None:
    """With the library; and a fault in another order is no answer of the op."""

    def failing() -> None:
        raise ValueError("no")

    gpu.told = Report([], [], ["cudnnRNNForward"], [])
    with pytest.raises(
        RuntimeError, match=r"\(cudnnRNNForward\), nor can the CPU \(ValueError\); set torch.backends.cudnn"
    ):
        SimulatedOp(failing, known(ADD), 4)()
    gpu.told = CONFLICT
    op = SimulatedOp(lambda: None, known(ADD), 4)
    op()
    gpu.told = Report(["kernel"], [("timeout", "took too long")], [], [])
    with pytest.raises(SimulationError, match="took too long"):
        op()
