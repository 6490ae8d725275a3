"""Launches of Triton kernels, which no dispatcher sees: run again on the same memory with their programs in other orders."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from detmatrix.scanner.locate.memory.comparison import COMPOUND, sort_of
from detmatrix.scanner.locate.memory.given import Given, given_to
from detmatrix.scanner.locate.mode import IGNORED, LocateMode
from detmatrix.scanner.locate.replay import measure, settled, too_large
from detmatrix.scanner.worker.launch_orders import NATURAL, launch_orders

_LARGE = "are larger than --max-bytes"
_FAILED = "raised when their programs ran in another order"
_ELSEWHERE = "are launched by other threads"
_ADDRESSES = "are given addresses of memory"
_COMPOUND = "are given tensors that are sparse, nested, quantized or conjugate"


class LaunchReplay:
    """Stands for what the interpreter runs a grid with, while a program is observed."""

    def __init__(self, mode: LocateMode) -> None:
        """Nothing is looked at yet.

        Raises:
            ImportError: There is no Triton.
        """
        self._mode = mode
        self._orders = launch_orders()
        self._executor: Any = importlib.import_module("triton.runtime.interpreter").GridExecutor
        self._run = self._executor.__call__
        # There is one interpreter: no thread's programs may run in an order that was begun for another's.
        self._turn = threading.RLock()

    def start(self) -> None:
        """Look at launches of this thread from now on."""
        mode, thread = self._mode, threading.get_ident()

        def looked_at(grid: Any, *args: Any, **kwargs: Any) -> None:
            def launch() -> None:
                self._run(grid, *args, **kwargs)

            # Asked for first: a forked process, which is paused, would wait for a thread that it does not have.
            if mode.paused or mode.ended:
                launch()
                return
            name = f"triton::{grid.fn.__name__}"
            with self._turn:
                # Threads of autograd are under the mode, too.
                if threading.get_ident() != thread and mode not in _get_current_dispatch_mode_stack():
                    mode.leave_out(_ELSEWHERE, name)
                    launch()
                else:
                    self._look(name, launch, (*args, *kwargs.values()))

        self._executor.__call__ = looked_at

    def stop(self) -> None:
        """Look at none any longer."""
        self._executor.__call__ = self._run

    def _look(self, name: str, launch: Callable[[], None], arguments: tuple[Any, ...]) -> None:
        """Run a launch as the program asked, and again in other orders."""
        mode = self._mode
        key = mode.begin_launch(name)
        mode.launching = True
        try:
            with torch.no_grad():
                found = given_to(arguments, mode.unwritten.untouched)
                given = [one for one in found.tensors if sort_of(one) < COMPOUND]
                memories = _memories(given)
                if reason := self._refusal(found, memories):
                    mode.leave_out(reason, name)
                    launch()
                    mode.outside.forget(given)
                    return
                before = [one.clone() for one in memories]
                launch()
                after = [one.clone() for one in memories]
                changed = [
                    one for one, was in zip(memories, before, strict=True) if not torch.equal(one, was)
                ]
                mode.follow(given, changed)
                mode.outside.forget(changed)
                if mode.ignores(name):
                    mode.leave_out(IGNORED, name)
                    return
                try:
                    self._again(launch, given, list(zip(memories, before, strict=True)), key)
                except Exception:  # noqa: BLE001 - the program's own launch went well
                    mode.leave_out(_FAILED, name)
                finally:
                    self._orders.begin(NATURAL)
                    for one, now in zip(memories, after, strict=True):
                        one.copy_(now)
        finally:
            mode.launching = False

    def _refusal(self, found: Given, memories: list[torch.Tensor]) -> str | None:
        """Tell why a launch is not run again: what it writes could not be put back before each order, and behind the last."""
        if found.addresses:
            return _ADDRESSES
        if any(sort_of(one) >= COMPOUND for one in found.tensors):
            return _COMPOUND
        return _LARGE if too_large(memories, self._mode.settings.max_bytes // 3) else None

    def _again(
        self,
        launch: Callable[[], None],
        given: list[torch.Tensor],
        memories: list[tuple[torch.Tensor, torch.Tensor]],
        key: Any,
    ) -> None:
        mode, root = self._mode, None
        kept = [one.clone() for one in given]
        mode.replayed += 1
        mode.launches += 1
        for number in range(1, mode.replays + 1):
            for one, before in memories:
                one.copy_(before)
            self._orders.begin(number)
            launch()
            if not (found := settled(kept, given)):
                continue
            if root is None:
                root = mode.root_of_launch(key, given, [given[place] for place in found])
            root.differing += 1
            root.outputs = tuple(sorted({*root.outputs, *found}))
            measure(root.distance, kept, given, found)


def _memories(given: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return the memory of tensors as bytes, each once."""
    storages = {one.untyped_storage().data_ptr(): one.untyped_storage() for one in given}
    return [torch.empty(0, dtype=torch.uint8, device=one.device).set_(one) for one in storages.values()]
