"""The ways in which a worker makes an execution, by the mode that it lives under (``scanner.modes.ExecutionKind``)."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from scanner.modes import ExecutionKind
from scanner.worker import global_state
from scanner.worker.compiled import CachedExecution, CompiledExecution
from scanner.worker.execution import Execution


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


EXECUTIONS: dict[ExecutionKind, type[Execution]] = {
    "eager": Execution,
    "switched": SwitchedExecution,
    "compiled": CompiledExecution,
    "cached": CachedExecution,
}
