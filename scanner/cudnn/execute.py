"""The process that executes engines: a request on standard input, lines of JSON on standard output.

It loads cuDNN before torch, whose own libraries then find that one, and lets engines work on memory of torch. Each engine is
built as PyTorch builds it: in the configuration that the heuristics give it, else in its default one.
"""

from __future__ import annotations

import ctypes
import math
import sys
import time
from contextlib import ExitStack
from typing import Any

from scanner.cudnn.enums import Attribute, Kind
from scanner.cudnn.graphs import GraphBuilder, GraphTensor
from scanner.cudnn.library import CudnnError, CudnnLibrary, Descriptor
from scanner.cudnn.probe import configurations
from scanner.cudnn.problems import Problem
from scanner.cudnn.processes import Say, serve
from scanner.cudnn.record import ExecutedEngine, ExecuteRequest, Executions, Place, Ready
from scanner.errors import one_line

_SEED = 0
# Written over outputs before each execution: what an engine does not write is equal, and no sum is this.
_UNWRITTEN = 0xFF
_EPSILON = 1e-5


class ExecutedCell:
    """A graph of one operation, with memory for its tensors, that each of its engines works on."""

    def __init__(
        self, library: CudnnLibrary, stack: ExitStack, device: str, problem: Problem, place: Place
    ) -> None:
        """Describe and draw it.

        Raises:
            CudnnError: cuDNN refuses it.
        """
        import torch  # noqa: PLC0415 - behind cuDNN, which is loaded first

        self._torch: Any = torch
        self._library = library
        self._device = device
        handle = ctypes.c_void_p()
        library.check(library.c.cudnnCreate(ctypes.byref(handle)), "create a handle")
        stack.callback(library.c.cudnnDestroy, handle)
        self._handle = handle
        _, operation, _, dtype, layout = place
        builder = GraphBuilder(library, stack)
        self._graph = builder.graph(operation, problem, dtype, layout, handle.value)
        try:
            self._ranked = configurations(library, stack, self._graph)
        except CudnnError:
            self._ranked = {}
        torch.manual_seed(_SEED)
        self._memory = {one.id: self._draw(one, problem) for one in builder.tensors}
        self._outputs = [self._memory[one.id] for one in builder.tensors if one.output]

    def run(self, number: int, runs: int) -> Executions:
        """Execute an engine again and again; what cannot be done is said of it."""
        try:
            with ExitStack() as stack:
                return Executions(runs, self._run(stack, number, runs))
        except CudnnError as error:
            return Executions(failed=str(error))
        except RuntimeError as error:  # out of memory, and what a kernel did wrong
            return Executions(failed=f"{type(error).__name__}: {one_line(str(error))[:200]}")

    def _run(self, stack: ExitStack, number: int, runs: int) -> int:
        torch, library = self._torch, self._library
        configuration = self._ranked.get(number) or self._default(stack, number)
        plan = stack.enter_context(Descriptor(library, Kind.EXECUTION_PLAN))
        plan.set(Attribute.EXECUTION_PLAN_HANDLE, self._handle.value)
        plan.set(Attribute.EXECUTION_PLAN_ENGINE_CONFIG, configuration).finalize()
        size = plan.get(Attribute.EXECUTION_PLAN_WORKSPACE_SIZE)[0]
        workspace = torch.empty(max(size, 1), dtype=torch.uint8, device=self._device)
        pack = stack.enter_context(Descriptor(library, Kind.VARIANT_PACK))
        pack.set(Attribute.VARIANT_PACK_UNIQUE_IDS, *self._memory)
        pack.set(Attribute.VARIANT_PACK_DATA_POINTERS, *(one.data_ptr() for one in self._memory.values()))
        pack.set(Attribute.VARIANT_PACK_WORKSPACE, workspace.data_ptr()).finalize()
        first: list[Any] = []
        differed = 0
        for _ in range(runs):
            for one in self._outputs:
                one.view(torch.uint8).fill_(_UNWRITTEN)
            library.check(library.c.cudnnBackendExecute(self._handle, plan.handle, pack.handle), "execute")
            if not first:
                first = [one.clone() for one in self._outputs]
            differed += not all(
                torch.equal(one.view(torch.uint8), other.view(torch.uint8))
                for one, other in zip(self._outputs, first, strict=True)
            )
        return differed

    def _default(self, stack: ExitStack, number: int) -> Descriptor:
        engine = stack.enter_context(Descriptor(self._library, Kind.ENGINE))
        engine.set(Attribute.ENGINE_OPERATION_GRAPH, self._graph)
        engine.set(Attribute.ENGINE_GLOBAL_INDEX, number).finalize()
        configuration = stack.enter_context(Descriptor(self._library, Kind.ENGINECFG))
        return configuration.set(Attribute.ENGINECFG_ENGINE, engine).finalize()

    def _draw(self, tensor: GraphTensor, problem: Problem) -> Any:
        """Return memory for a tensor: normal numbers, and where those make no sense what does."""
        torch = self._torch
        if tensor.by_value:
            return torch.tensor([1 / math.sqrt(problem.channels) if tensor.role == "SCALEDESC" else _EPSILON])
        where = {"dtype": getattr(torch, tensor.dtype), "device": self._device}
        if tensor.output:
            return torch.empty(tensor.elements, **where)
        if tensor.role == "STATSDESC":
            # Of normal numbers the logarithm of the sum of exponentials is about this.
            return torch.full((tensor.elements,), math.log(problem.size[0]) + 0.5, **where)
        return torch.randn(tensor.elements, **where)

    def answers(self) -> bool:
        """Tell whether the device still does what it is told: behind a failed kernel it may not."""
        try:
            self._torch.zeros(1, device=self._device).item()
        except RuntimeError:
            return False
        return True


def answer(request: ExecuteRequest, say: Say) -> None:
    """Execute what is asked for; write a line for what is there, and two for each engine: before and after."""
    end = math.inf if request.seconds is None else time.monotonic() + request.seconds
    try:
        library = CudnnLibrary(request.library)
        ready = _ready(request.device)
    except (OSError, AttributeError, ImportError, RuntimeError) as error:
        ready = Ready(failed=one_line(str(error))[:200])
    say(ready)
    if ready.failed is not None:
        return
    for place, numbers in request.work:
        with ExitStack() as stack:
            try:
                cell = ExecutedCell(library, stack, request.device, request.problems[place[2]], place)
            except (CudnnError, RuntimeError) as error:
                for number in numbers:
                    say(ExecutedEngine(place, number, Executions(failed=one_line(str(error))[:200])))
                continue
            for number in numbers:
                if time.monotonic() > end:
                    return
                say(ExecutedEngine(place, number, None))
                executions = cell.run(number, request.runs)
                say(ExecutedEngine(place, number, executions))
                if executions.failed is not None and not cell.answers():
                    sys.exit(1)  # another process goes on


def _ready(device: str) -> Ready:
    """Start the device: torch initializes CUDA, before cuDNN asks for its context."""
    import torch  # noqa: PLC0415

    if device == "cuda" and not torch.cuda.is_available():
        return Ready(failed=f"torch {torch.__version__} of this Python finds no GPU for CUDA")
    torch.zeros(1, device=device)
    return Ready(torch.cuda.get_device_name() if device == "cuda" else device, str(torch.__version__))


def main() -> None:
    """Answer the request on standard input."""
    serve(ExecuteRequest, answer)
