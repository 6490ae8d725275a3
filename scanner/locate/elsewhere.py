"""What a program does where it is not looked at: ops of other threads are counted, and processes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode


class Elsewhere:
    """Counts ops that other threads of Python call, and processes that ``multiprocessing`` starts."""

    def __init__(self) -> None:
        self.ops = self.processes = 0

    def begin(self) -> list[Callable[[], Any]]:
        """Count from now on; return what ends that."""
        # Has no public name: a class of the program's own may put another method in the place of `run`.
        run_thread: Any = threading.Thread._bootstrap_inner  # type: ignore[attr-defined] # noqa: SLF001
        start_process = BaseProcess.start

        def counted_thread(thread: threading.Thread) -> None:
            with _Counting(self):
                run_thread(thread)

        def counted_process(process: BaseProcess) -> None:
            self.processes += 1
            start_process(process)

        _set(threading.Thread, "_bootstrap_inner", counted_thread)
        _set(BaseProcess, "start", counted_process)
        return [
            lambda: _set(threading.Thread, "_bootstrap_inner", run_thread),
            lambda: _set(BaseProcess, "start", start_process),
        ]


def _set(kind: type, name: str, function: Any) -> None:
    setattr(kind, name, function)


class _Counting(TorchDispatchMode):
    """Lets ops run as they do without it."""

    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Otherwise the first op would import the compiler.
        return False

    def __init__(self, counts: Elsewhere) -> None:
        super().__init__()
        self._counts = counts

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._counts.ops += 1
        return func(*args, **(kwargs or {}))
