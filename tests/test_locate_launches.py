"""Which launches of Triton kernels are run again; the interpreter is a stand-in, Triton's own is in test_triton.py."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from scanner.locate import launches
from scanner.locate.launches import LaunchReplay
from scanner.locate.mode import LocateMode

Kernel = Callable[..., None]


class Interpreter:
    """Runs a kernel in the order that was begun."""

    def __init__(self) -> None:
        self.order = 0

        class GridExecutor:
            def __init__(self, kernel: Kernel) -> None:
                self.fn = kernel

            def __call__(self, *args: Any) -> None:
                self.fn(*args)

        self.GridExecutor = GridExecutor

    def begin(self, order: int) -> None:
        """Take the place of ``LaunchOrders``."""
        self.order = order


@pytest.fixture
def interpreter(monkeypatch: pytest.MonkeyPatch) -> Interpreter:
    """Return one that stands for Triton's."""
    one = Interpreter()
    monkeypatch.setattr(launches, "importlib", SimpleNamespace(import_module=lambda _: one))
    monkeypatch.setattr(launches, "launch_orders", lambda: one)
    return one


@contextmanager
def observed(*ignored: str) -> Iterator[LocateMode]:
    """Look at ops and launches."""
    with LocateMode(replays=2, max_bytes=1 << 20, ignored=frozenset(ignored)) as mode:
        replay = LaunchReplay(mode, 1 << 20)
        replay.start()
        try:
            yield mode
        finally:
            replay.stop()


def launch(interpreter: Interpreter, kernel: Kernel | None = None) -> torch.Tensor:
    """Launch a kernel; by default one whose result is the order that its programs ran in."""

    def write_order(out: torch.Tensor) -> None:
        out.numpy()[:] = interpreter.order

    out = torch.full((4,), 9.0)
    interpreter.GridExecutor(kernel or write_order)(out)
    return out


@pytest.mark.parametrize(
    ("ignored", "roots", "left_out"),
    [
        ((), ["triton::write_order"], {}),
        (("triton::write_order",), [], {"are ignored on request": ["triton::write_order"]}),
        (("triton::other",), ["triton::write_order"], {}),
    ],
)
def test_an_ignored_kernel_is_no_root(
    interpreter: Interpreter, ignored: tuple[str, ...], roots: list[str], left_out: dict[str, list[str]]
) -> None:
    """It runs once, as the program asked, and is told of as ops are."""
    with observed(*ignored) as mode:
        out = launch(interpreter)

    assert out.tolist() == [0.0] * 4
    assert [root.site.op for root in mode.found()] == roots
    assert (mode.ops, mode.launches) == (2, 0 if left_out else 1)
    assert {reason: list(names) for reason, names in mode.left_out_ops.items()} == left_out


def test_a_launch_of_another_thread_waits_and_is_not_run_again(interpreter: Interpreter) -> None:
    """While a launch is run again in another order, none runs in that order for another thread."""
    results: list[torch.Tensor] = []
    other = threading.Thread(target=lambda: results.append(launch(interpreter)))

    def start_other(out: torch.Tensor) -> None:
        if interpreter.order and not other.ident:
            other.start()
            other.join(0.05)
        out.numpy()[:] = 1

    with observed() as mode:
        launch(interpreter, start_other)
        other.join()

    assert [one.tolist() for one in results] == [[0.0] * 4]
    assert mode.found() == ()
    assert {reason: list(names) for reason, names in mode.left_out_ops.items()} == {
        "are launched by other threads": ["triton::write_order"]
    }
    assert mode.launches == 1


def test_a_window_that_ends_during_a_launch_stays_ended(interpreter: Interpreter) -> None:
    """A step that another thread counts meanwhile pauses the mode for good, not until the launch is over."""
    with observed() as mode:

        def end_window(_: torch.Tensor) -> None:
            mode.paused = True

        launch(interpreter, end_window)
        before = mode.ops
        torch.ones(3).sum()

        assert mode.paused
        assert mode.ops == before
