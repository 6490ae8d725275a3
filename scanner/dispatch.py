"""Which overloads of ATen (and of other namespaces) an execution reaches, as PyTorch's dispatcher names them.

A dispatch mode sees an op after autograd and after the decomposition of composite ops, which is where a kernel is
chosen; the backward pass runs under it too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode


class Overloads(TorchDispatchMode):  # type: ignore[misc] # torch is not there when types are checked
    """While active, counts the overloads that are called, in the order of their first call.

    Names are those of the schema: ``"aten::index_put"``, ``"aten::add.Tensor"``.
    """

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        self.counts[func.name()] += 1
        return func(*args, **(kwargs or {}))
