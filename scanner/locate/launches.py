"""Launches of Triton kernels, which no dispatcher sees: a simulated GPU runs them again on the same memory in other orders."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from detmatrix.scanner.locate.memory import COMPOUND, sort_of
from detmatrix.scanner.locate.mode import IGNORED, LARGE, LocateMode
from detmatrix.scanner.locate.replay import measure, settled, too_large
from detmatrix.scanner.locate.simulated import LEFT_OPEN, SimulatedOp, on_host
from detmatrix.scanner.schedules import MEMORY, phrase

_FAILED = "raised when their programs ran in another order"
_ELSEWHERE = "are launched by other threads"
_ADDRESSES = "are given addresses of memory"
_COMPOUND = "are given tensors that are sparse, nested, quantized or conjugate"


class LaunchReplay:
    """Stands for what runs a grid in Triton while a program is observed on a simulated GPU."""

    def __init__(self, mode: LocateMode) -> None:
        """Nothing is looked at yet.

        Raises:
            ImportError: There is no Triton.
        """
        self._mode = mode
        self._owner = importlib.import_module("triton.runtime.jit").JITFunction
        self._run = self._owner.run
        # There is one simulated GPU: no thread's programs may run in an order that was begun for another's.
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

        self._owner.run = looked_at

    def stop(self) -> None:
        """Look at none any longer."""
        self._owner.run = self._run

    def _look(self, name: str, launch: Callable[[], Any], arguments: tuple[Any, ...]) -> Any:
        """Run a launch as the program asked, and again in other orders."""
        mode = self._mode
        key = mode.call_sites.of(name)
        mode.count(key)
        mode.launching = True
        try:
            with torch.no_grad():
                tensors, addresses = given_to(arguments, mode.unwritten.untouched)
                given = [one for one in tensors if sort_of(one) < COMPOUND]
                memories = _memories(given)
                # What it writes could not be put back before each order, and behind the last.
                reason = _ADDRESSES if addresses else _COMPOUND if len(given) < len(tensors) else None
                if reason or too_large(memories, mode.settings.max_bytes // 3):
                    reason = reason or LARGE
                    mode.leave_out(reason, name)
                    result = launch()
                    mode.outside.forget(given)
                    return result
                before = _on_cpu(memories)
                again = SimulatedOp(launch, None, mode.replays)
                result = again()
                after = _on_cpu(memories)
                changed = [
                    one
                    for one, now, was in zip(memories, after, before, strict=True)
                    if not torch.equal(now, was)
                ]
                if reached := mode.downstream.reach(given):
                    mode.downstream.mark(reached, changed)
                mode.outside.forget(changed)
                mode.seen.race_free += again.race_free
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

    def _again(
        self,
        launch: SimulatedOp,
        name: str,
        given: list[torch.Tensor],
        memories: list[tuple[torch.Tensor, torch.Tensor]],
        key: Any,
    ) -> None:
        mode, root = self._mode, None
        kept = _on_cpu(given)
        mode.seen.replayed += 1
        mode.seen.launches += 1
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
                root = mode.root(key, "schedule", given)
                root.origin = root.origin or phrase(launch.schedule) or None
                root.differing_calls += 1
                root.executions += launch.times
                mode.downstream.mark(frozenset({root}), [given[place] for place in found])
            root.differing += 1
            root.outputs = tuple(sorted({*root.outputs, *found}))
            measure(root.distance, kept, now, found)


def _on_cpu(given: list[torch.Tensor]) -> list[torch.Tensor]:
    return [one.to("cpu", copy=True) for one in given]


def _memories(given: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return the memory of tensors as bytes, each once."""
    storages = {one.untyped_storage().data_ptr(): one.untyped_storage() for one in given}
    return [torch.empty(0, dtype=torch.uint8, device=one.device).set_(one) for one in storages.values()]


# --- What a kernel reaches: the tensors in its arguments, and whether numbers among them are addresses of memory


# Where the process has its memory, on Linux.
_MAPS = Path("/proc/self/maps")
# Where nothing tells: numbers that are no size.
_ANYWHERE = [(1 << 32, (1 << 63) - 1)]
# Below it no process has memory.
_LOWEST = 1 << 16
_WORDS = {torch.int64, getattr(torch, "uint64", torch.int64)}


def given_to(
    arguments: Sequence[Any], untouched: Callable[[torch.Tensor], bool]
) -> tuple[list[torch.Tensor], bool]:
    """Return the tensors in the arguments of a kernel, and whether these hold addresses of other memory.

    No address in a tensor that is *untouched*, as nothing was written to it, is the program's.
    """
    leaves = list(_leaves(arguments))
    tensors = [one.detach() for one in leaves if isinstance(one, torch.Tensor)]
    numbers = [one for one in leaves if isinstance(one, int) and _LOWEST <= one < 1 << 63]
    words = [
        _words(one)
        for one in tensors
        if one.dtype in _WORDS and sort_of(one) < COMPOUND and not untouched(one)
    ]
    # An object of another kind has memory that is not known how to put back.
    other = any(hasattr(one, "data_ptr") for one in leaves if not isinstance(one, torch.Tensor))
    return tensors, other or _addresses([torch.tensor(numbers, dtype=torch.int64), *words])


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list, Mapping)):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _leaves(item)
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from _leaves(getattr(value, field.name))
    # Triton's own kinds of argument stand for a tensor.
    elif isinstance(base := getattr(value, "base", None), torch.Tensor):
        yield base
    else:
        yield value


def _words(tensor: torch.Tensor) -> torch.Tensor:
    """Return all that stands in the memory of a tensor of such words and can be an address."""
    memory = torch.empty(0, dtype=torch.int64, device=tensor.device).set_(tensor.untyped_storage())
    return memory[memory >= _LOWEST].cpu()


def _addresses(values: Sequence[torch.Tensor]) -> bool:
    """Tell whether any of these numbers lies in memory that the process may write to."""
    every = torch.cat(list(values))
    if not every.numel():
        return False
    ranges = torch.tensor(_writable(), dtype=torch.int64)
    places = torch.searchsorted(ranges[:, 0].contiguous(), every, right=True) - 1
    return bool(((places >= 0) & (every < ranges[places.clamp(min=0), 1])).any())


def _writable() -> list[tuple[int, int]]:
    """Return where memory that can be written to begins and ends, in order."""
    try:
        lines = _MAPS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return _ANYWHERE
    found = []
    for line in lines:
        place, rights = line.split(maxsplit=2)[:2]
        begin, end = (int(one, 16) for one in place.split("-"))
        if "w" in rights and end < 1 << 63:
            found.append((begin, end))
    return found
