"""How many threads work while a case is executed, of real ops: what one thread did alone cannot have raced."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from detmatrix.opspecs.inputs import Inputs
from detmatrix.opspecs.model import Call, call
from detmatrix.scanner.worker import threads
from tests.observed import observed, spec_of
from tests.planted import work_in_another_thread

pytestmark = [
    pytest.mark.usefixtures("quiet_torch"),
    pytest.mark.skipif(sys.platform != "linux", reason="threads have clocks on Linux only"),
]


@pytest.fixture(autouse=True)
def _two_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let PyTorch use two threads, and be patient beside other tests."""
    monkeypatch.setattr(threads, "_PATIENCE", 5.0)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def _observed(
    op: str | Callable[..., Any], inputs: Callable[[Inputs], Call], direction: str = "forward", **more: Any
) -> dict[str, Any]:
    spec = spec_of(op, inputs, in_place=more.pop("in_place", False))
    usual: dict[str, Any] = {"perturbations": ["quiet", "stress"], "count_threads": True}
    return observed(spec, direction=direction, runs=8, **usual | more)


def _from_another_thread(x: Any) -> Any:
    """Work in a thread that is gone when the op returns."""
    work_in_another_thread()
    return x * 2


@pytest.mark.parametrize(
    ("op", "inputs", "direction", "in_place", "working"),
    [
        ("torch.sum", lambda t: call(t.normal(1 << 18)), "forward", False, 2),
        ("torch.index_put", lambda t: call(t.normal(64), (t.index(1 << 16, high=64),), t.normal(1 << 16), accumulate=True),
         "forward", False, 2),
        # The kernel itself is serial along a dimension, however large.
        ("torch.cumsum", lambda t: call(t.leaf(t.normal(1 << 17)), 0), "forward", False, 1),
        ("torch.cumsum", lambda t: call(t.leaf(t.normal(1 << 17)), 0), "backward", False, 2),
        # Its forward phase is the work of several threads.
        ("torch.gather", lambda t: call(t.leaf(t.normal(4096)), 0, t.index(1 << 16, high=4096)), "backward", False, 1),
        ("torch.sum", lambda t: call(t.normal(64)), "forward", False, 1),
        # 64 elements are written; the copy of what they are written into is ours.
        ("torch.Tensor.put_", lambda t: call(t.normal(1 << 17), t.permutation(64), t.normal(64)), "forward", True, 1),
        (_from_another_thread, lambda t: call(t.normal(64)), "forward", False, 2),
    ],
    ids=["sum", "index_put", "cumsum", "cumsum_backward", "gather_backward", "small_sum", "put_", "own_thread"],
)  # fmt: skip
def test_working_threads_are_counted(
    op: str, inputs: Callable[[Inputs], Call], direction: str, in_place: bool, working: int
) -> None:
    """Forward and backward, in a pool and in threads of the op's own; what one thread does is not run under stress."""
    seen = _observed(op, inputs, direction, in_place=in_place)

    assert seen["threads"] == working
    assert [group["perturbation"] for group in seen["groups"]] == ["quiet", "stress"][:working]
    assert sum(group["executions"] for group in seen["groups"]) == seen["executions"]


def test_threads_that_spin_are_not_taken_for_work() -> None:
    """Right behind an op whose threads still wait for more, one thread is one thread."""
    large, small = torch.ones(1 << 20), torch.ones(8)

    for _ in range(20):
        large.sum()
        assert threads.working_threads(small.sum)[1] == 1


def test_nothing_is_said_where_other_processes_have_worked() -> None:
    """An op may have children do its work, side by side."""

    def op(x: Any) -> Any:
        subprocess.run([sys.executable, "-S", "-c", "sum(range(100_000))"], check=True)
        return x * 2

    assert _observed(op, lambda t: call(t.normal(64)))["threads"] is None


def test_nothing_is_said_where_another_thread_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not knowing is not serial: beside a thread that never sleeps, and without a quiet share, nothing is measured."""
    monkeypatch.setattr(threads, "_PATIENCE", 0.01)
    stop = threading.Event()

    def spin() -> None:
        while not stop.is_set():
            time.perf_counter()

    busy = threading.Thread(target=spin)
    busy.start()
    try:
        seen = _observed("torch.sum", lambda t: call(t.normal(64)))
    finally:
        stop.set()
        busy.join()

    assert seen["threads"] is None
    assert [group["perturbation"] for group in seen["groups"]] == ["quiet", "stress"]
    assert _observed("torch.sum", lambda t: call(t.normal(64)), perturbations=["stress"])["threads"] is None


@pytest.mark.parametrize("tick", [10_000_000, None], ids=["coarse", "missing"])
def test_nothing_is_said_without_clocks_that_show_little_work(
    monkeypatch: pytest.MonkeyPatch, tick: int | None
) -> None:
    """A clock that ticks in milliseconds, or none at all, would call what is parallel serial."""
    real = time.clock_gettime_ns

    def clock(which: int) -> int:
        if tick is None:
            raise OSError
        return real(which) // tick * tick

    monkeypatch.setattr(time, "clock_gettime_ns", clock)
    threads._fine.cache_clear()
    try:
        assert _observed("torch.sum", lambda t: call(t.normal(64)))["threads"] is None
    finally:
        threads._fine.cache_clear()
