"""Launches of Triton kernels, which no dispatcher sees: run again on the same memory in other orders, interpreted or on a simulated GPU."""

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
from detmatrix.scanner.locate.simulated import LEFT_OPEN, SimulatedOp, on_host
from detmatrix.scanner.schedules import MEMORY, phrase
from detmatrix.scanner.worker import simulated
from detmatrix.scanner.worker.launch_orders import NATURAL, launch_orders

_LARGE = "are larger than --max-bytes"
_FAILED = "raised when their programs ran in another order"
_ELSEWHERE = "are launched by other threads"
_ADDRESSES = "are given addresses of memory"
_COMPOUND = "are given tensors that are sparse, nested, quantized or conjugate"


class InterpretedLaunch:
    """Runs a launch with its programs in their natural order, and then in another one each time."""

    schedule = unjudged = ""
    race_free = False

    def __init__(self, launch: Callable[[], Any], times: int) -> None:
        self._launch, self.times, self._number = launch, times, NATURAL

    def __call__(self) -> Any:
        """Run it."""
        launch_orders().begin(self._number)
        self._number += 1
        try:
            return self._launch()
        finally:
            launch_orders().begin(NATURAL)


class LaunchReplay:
    """Stands for what runs a grid, of the interpreter or of Triton itself, while a program is observed."""

    def __init__(self, mode: LocateMode) -> None:
        """Nothing is looked at yet.

        Raises:
            ImportError: There is no Triton.
        """
        self._mode = mode
        if simulated.active():
            self._owner, self._name = importlib.import_module("triton.runtime.jit").JITFunction, "run"
        else:
            launch_orders()
            self._owner = importlib.import_module("triton.runtime.interpreter").GridExecutor
            self._name = "__call__"
        self._run = getattr(self._owner, self._name)
        # There is one interpreter: no thread's programs may run in an order that was begun for another's.
        self._turn = threading.RLock()

    def start(self) -> None:
        """Look at launches of this thread from now on."""
        mode, thread = self._mode, threading.get_ident()

        def looked_at(kernel: Any, /, *args: Any, **kwargs: Any) -> Any:
            def launch() -> Any:
                return self._run(kernel, *args, **kwargs)

            # Asked for first: a forked process, which is paused, would wait for a thread that it does not have.
            if mode.paused or mode.ended or kwargs.get("warmup"):
                return launch()
            name = f"triton::{kernel.fn.__name__}"
            with self._turn:
                # Threads of autograd are under the mode, too.
                if threading.get_ident() != thread and mode not in _get_current_dispatch_mode_stack():
                    mode.leave_out(_ELSEWHERE, name)
                    return launch()
                return self._look(name, launch, (*args, *kwargs.values()))

        setattr(self._owner, self._name, looked_at)

    def stop(self) -> None:
        """Look at none any longer."""
        setattr(self._owner, self._name, self._run)

    def _look(self, name: str, launch: Callable[[], Any], arguments: tuple[Any, ...]) -> Any:
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
                    result = launch()
                    mode.outside.forget(given)
                    return result
                before = _on_cpu(memories)
                again = (
                    SimulatedOp(launch, None, mode.replays)
                    if simulated.active()
                    else InterpretedLaunch(launch, mode.replays)
                )
                result = again()
                after = _on_cpu(memories)
                changed = [
                    one
                    for one, now, was in zip(memories, after, before, strict=True)
                    if not torch.equal(now, was)
                ]
                mode.follow(given, changed)
                mode.outside.forget(changed)
                mode.race_free += again.race_free
                if reason := again.unjudged or (IGNORED if mode.ignores(name) else ""):
                    mode.leave_out(reason, name)
                    return result
                try:
                    self._again(again, name, given, list(zip(memories, before, strict=True)), key)
                except Exception:  # noqa: BLE001 - the program's own launch went well
                    mode.leave_out(_FAILED, name)
                finally:
                    for one, now in zip(memories, after, strict=True):
                        one.copy_(now)
                return result
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
        launch: SimulatedOp | InterpretedLaunch,
        name: str,
        given: list[torch.Tensor],
        memories: list[tuple[torch.Tensor, torch.Tensor]],
        key: Any,
    ) -> None:
        mode, root = self._mode, None
        kept = _on_cpu(given)
        mode.replayed += 1
        mode.launches += 1
        for _ in range(launch.times):
            for one, before in memories:
                one.copy_(before)
            launch()
            now = on_host(given)
            if not (found := settled(kept, now)):
                continue
            if launch.schedule == MEMORY:
                mode.leave_out(LEFT_OPEN, name)
                continue
            if root is None:
                differing = [given[place] for place in found]
                root = mode.root_of_launch(key, given, differing, phrase(launch.schedule), launch.times)
            root.differing += 1
            root.outputs = tuple(sorted({*root.outputs, *found}))
            measure(root.distance, kept, now, found)


def _on_cpu(given: list[torch.Tensor]) -> list[torch.Tensor]:
    return [one.to("cpu", copy=True) for one in given]


def _memories(given: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return the memory of tensors as bytes, each once."""
    storages = {one.untyped_storage().data_ptr(): one.untyped_storage() for one in given}
    return [torch.empty(0, dtype=torch.uint8, device=one.device).set_(one) for one in storages.values()]
