"""Ops of a program on a simulated GPU: each execution in another order, and the CPU where a library would compute."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, count
from typing import Any

import torch

from detmatrix.scanner.locate.memory import substituted
from detmatrix.scanner.locate.overloads import KnownOverload, among, tensors
from detmatrix.scanner.schedules import CANONICAL, LEAST_RUNS, MEMORY, SCHEDULES, SCOPES, split
from detmatrix.scanner.worker import simulated

_SEED = 0
# Seconds that the kernels of one execution may take.
_SECONDS = 300.0
_LIBRARY = "call a library that is not simulated, so that the CPU computed them: not judged"
_FAULT = "the simulated GPU did not execute whole, so that the CPU computed them: not judged"
_PRODUCT = "are matrix products, which the CPU computed in the place of a library: not judged"
LEFT_OPEN = "leave a part of their output unwritten"

_MOST_TEXT = 200
_ADVICE = {
    "cudnn": "; set torch.backends.cudnn.enabled = False",
    "attention": "; use torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)",
}


def _norm(*args: Any) -> tuple[torch.Tensor, ...]:
    return (*torch.ops.aten.native_batch_norm(*args), torch.empty(0, dtype=torch.uint8, device="cpu"))


def _norm_backward(given: torch.Tensor, grad: torch.Tensor, *args: Any) -> Any:
    *saved, eps, _ = args
    return torch.ops.aten.native_batch_norm_backward(grad, given, *saved, True, eps, [True] * 3)


# What the CPU has under another name.
_CPU_OPS: dict[str, Any] = {
    "aten::cudnn_batch_norm": _norm,
    "aten::cudnn_batch_norm_backward": _norm_backward,
}


class SimulatedOp:
    """Executes one call of an op, or of a kernel that is none: first in the canonical order, then in orders of the classes that can change anything.

    Attributes:
        times: Further executions that are asked for.
        schedule: The class of the last one.
        ordered: Whether it launched kernels.
        race_free: Whether no two of their accesses are without an order.
        unjudged: Why further executions would tell nothing.
    """

    def __init__(self, func: Any, op: KnownOverload | None, replays: int) -> None:
        self._func, self._op = func, op
        self.times, self.schedule, self.unjudged = replays, CANONICAL, ""
        self._called = self.ordered = self.race_free = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Execute it.

        Raises:
            SimulationError: Another order was not executed as a GPU would.
        """
        if not self._called:
            self._called = True
            return self._first(args, kwargs)
        if not self.ordered:
            return self._func(*args, **kwargs)
        # With the flag on other kernels run, in which other threads may be in conflict.
        flag = torch.are_deterministic_algorithms_enabled()
        self.schedule, number = next(self._any_orders if flag else self._orders)
        _begin(self.schedule, number)
        try:
            result = self._func(*args, **kwargs)
            report = simulated.report()
        finally:
            _begin()
        if report.faults or report.libraries:
            raise simulated.SimulationError(str(report.faults or report.libraries))
        return result

    def _first(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        changed = self._op.changed(args, kwargs) if self._op else ()
        before = {id(one): one.to("cpu", copy=True) for one in changed if _on_gpu(one)}
        _begin(log=True)
        raised, result = None, None
        try:
            result = self._func(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - it is the program's, or a library's
            raised = error
        report = simulated.report()
        _begin()
        if report.libraries or report.faults:
            self.unjudged = _LIBRARY if report.libraries else _FAULT
            if self._op:
                return self._on_cpu(self._op, args, kwargs, before, report)
        if raised is not None:
            raise raised
        self.ordered = bool(report.launches)
        self.unjudged = _PRODUCT if report.products else ""
        if self.ordered:
            conflicts = report.conflicts
            scopes: Sequence[str] = SCOPES
            if conflicts is not None and not conflicts["doubts"]:
                scopes = [one for one, pairs in zip(SCOPES, conflicts["pairs"], strict=True) if pairs]
            self.race_free = not scopes
            classes = [name for name in SCHEDULES[2:] if split(LEAST_RUNS + len(SCHEDULES), scopes)[name]]
            orders = [(name, number) for name in classes for number in range(self.times)] + [(MEMORY, 0)]
            self.times = len(orders)
            self._orders = chain(orders, _drawn(classes or [MEMORY], len(orders)))
            self._any_orders = _drawn(SCHEDULES[2:], 0)
        return result

    def _on_cpu(
        self,
        op: KnownOverload,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        before: Mapping[int, torch.Tensor],
        report: simulated.Report,
    ) -> Any:
        """Let the CPU compute it, and move what it gives to the GPU.

        Raises:
            RuntimeError: The CPU has no such op.
        """
        given = {id(one): one for one in among(args, kwargs) if _on_gpu(one)}
        copies = {number: before.get(number, one).cpu() for number, one in given.items()}
        moved = [_on_cpu(one) for one in substituted(tuple(args), copies)]
        named = {key: _on_cpu(one) for key, one in substituted(dict(kwargs), copies).items()}
        try:
            result = _CPU_OPS.get(op.base, self._func)(*moved, **named)
        except Exception as error:  # noqa: BLE001 - whatever it is, the program asked for something else
            what = ", ".join(report.libraries or [text for _, text in report.faults])[:_MOST_TEXT]
            advice = next((said for word, said in _ADVICE.items() if word in f"{op.name} {what}"), "")
            raise RuntimeError(
                f"{op.name}: the simulated GPU cannot execute it ({what}), nor can the CPU "
                f"({type(error).__name__}){advice}"
            ) from None
        for number in before:
            given[number].copy_(copies[number])
        whose = {id(copy): given[number] for number, copy in copies.items()}
        device = next(iter(given.values())).device if given else torch.device("cuda")
        back = {id(one): whose[id(one)] if id(one) in whose else one.to(device) for one in tensors(result)}
        return substituted(result, back)


def _begin(schedule: str = CANONICAL, number: int = 0, **asked: bool) -> None:
    simulated.begin(schedule, number, _SEED, time.perf_counter() + _SECONDS, **asked)


def _drawn(classes: Sequence[str], first: int) -> Iterator[tuple[str, int]]:
    return ((name, number) for number in count(first) for name in classes)


def _on_cpu(value: Any) -> Any:
    return torch.device("cpu") if isinstance(value, torch.device) else value


def _on_gpu(tensor: torch.Tensor) -> bool:
    return bool(tensor.device.type == "cuda")


def on_host(values: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return what is compared: of a simulated GPU the copies on the CPU, so that no kernel of ours runs there."""
    return [one.cpu() for one in values] if simulated.active() else values
