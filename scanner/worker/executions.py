"""The ways in which a worker makes an execution, by its mode; what was not compiled under ``torch.compile`` says nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch

from detmatrix.scanner.alerts import alert_caller
from detmatrix.scanner.modes import ExecutionKind
from detmatrix.scanner.worker import global_state, simulated
from detmatrix.scanner.worker.execution import (
    Around,
    Execution,
    InvalidCaseError,
    NotRunnableError,
    called,
    first_line,
)


class SwitchedExecution(Execution):
    """Has the flag in the backward phase the other way than in the forward one."""

    @property
    def deterministic(self) -> bool:
        """Whether the flag is on in the phase that is judged."""
        return super().deterministic != self.backward

    def differentiate(
        self, outputs: Sequence[torch.Tensor], upstream: Sequence[torch.Tensor]
    ) -> tuple[torch.Tensor, ...]:
        """Return the gradients of the leaves."""
        with global_state.flag_set(self.deterministic):
            return super().differentiate(outputs, upstream)


class CompiledExecution(Execution):
    """Calls the op under ``torch.compile``, with its default backend, and sees to it that compiled code runs."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Draw the inputs, and forget what was compiled before: each case is compiled for its own shapes."""
        from torch._dynamo.utils import counters  # noqa: PLC0415 - loads the compiler, which eager workers need not
        from torch._inductor import metrics  # noqa: PLC0415

        super().__init__(*args, **kwargs)
        torch._dynamo.reset()  # noqa: SLF001 - the package has no public name
        counters.clear()
        metrics.reset()
        self._counters, self._metrics = counters, metrics
        # Compiled graphs, and calls of their forward phases.
        counts = self._counts = Counter[str]()
        eager = self._eager = self.op

        def call(*args: Any, **kwargs: Any) -> Any:
            return eager(*args, **kwargs)

        # As ``torch.compile`` compiles by default. PyTorch keeps it: it must not hold the case, whose inputs would stay in memory.
        def backend(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
            compiled = torch._dynamo.lookup_backend("inductor")(graph, inputs)  # noqa: SLF001
            counts["graphs"] += 1

            def counted(*args: Any) -> Any:
                counts["calls"] += 1
                return compiled(*args)

            return counted

        # The shapes of a case never change, and those of another case are none of its business.
        self.op = torch.compile(call, backend=backend, dynamic=False)

    def __call__(
        self, args: tuple[Any, ...] | None = None, around: Around = called
    ) -> tuple[Any, tuple[torch.Tensor, ...]]:
        """Execute once; refuse what ran eagerly, and raise an alert as it is: the compiler meets it as it traces, and wraps it."""
        before = self._counts["calls"]
        try:
            executed = super().__call__(args, around)
        except Exception as error:
            if (alert := _alert_in(error)) is not None:
                raise alert from error
            raise
        if not self._counts["graphs"]:
            # The first line of what the compiler says of the first graph break.
            said = next(iter(self._counters["graph_break"]), "").strip().split("\n", 1)[0][:300]
            reason = said or "torch.compile found no tensor operation in it"
            raise NotRunnableError(f"not compiled: {reason}")
        if self._counts["calls"] == before:
            raise InvalidCaseError("compiled code ran in some executions, and not in all")
        return executed

    def eagerly(self) -> Execution:
        """Return what executes the case without compiling it."""
        eager = Execution.__new__(Execution)
        vars(eager).update(vars(self))
        eager.op = self._eager
        return eager

    def facts(self) -> dict[str, Any]:
        """Return what was compiled, as fields of an observation."""
        breaks = sum(self._counters["graph_break"].values())
        kernels = self._metrics.generated_kernel_count
        return {"compiled": {"graphs": self._counts["graphs"], "breaks": breaks, "kernels": kernels}}


def _alert_in(error: BaseException | None) -> BaseException | None:
    """Return PyTorch's alert, if that is why an exception was raised."""
    while error is not None and alert_caller(type(error).__name__, str(error)) is None:
        error = error.__cause__ or error.__context__
    return error


def failure(device: str) -> str | None:
    """Compile a function and run it on a device; return why that fails, ``None`` if it does not.

    On a simulated GPU nobody can measure which configuration of a kernel is the fastest: the first one is taken.
    """
    try:
        torch.compile(lambda x: x.sin() + 1, dynamic=False)(torch.ones(64, device=device))
        if simulated.active():
            from torch._inductor.runtime.triton_heuristics import CachingAutotuner  # noqa: PLC0415

            CachingAutotuner.bench = lambda *_, **__: 0.0
    except Exception as error:  # noqa: BLE001 - a compiler that is missing, or broken, fails in any way it likes
        return _cause(error)
    return None


def _cause(error: BaseException) -> str:
    """Return the last cause in words: what the compiler's wrappers say of it holds a page."""
    while (inner := getattr(error, "inner_exception", None) or error.__cause__) is not None:
        error = inner
    return first_line(error)


EXECUTIONS: dict[ExecutionKind, type[Execution]] = {
    "eager": Execution,
    "switched": SwitchedExecution,
    "compiled": CompiledExecution,
}
