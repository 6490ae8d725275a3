"""Trace a case: which overloads it reaches in each mode, with fake tensors; what a worker does with a row.

A fake tensor (``torch._subclasses.FakeTensorMode``) has a shape, a dtype and a device, CUDA where there is no GPU
included, and no values. Everything above the kernels runs as it is: Python, composite ops, autograd. No kernel
runs, so what a kernel decides, and the alert it raises, is not seen here.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from opspecs.model import MissingError, OpSpec
from scanner.alerts import caller_in
from scanner.worker import global_state
from scanner.worker.dispatcher.backward import differentiate
from scanner.worker.dispatcher.overloads import Overloads
from scanner.worker.execution import Execution, InvalidCaseError, NotRunnableError, first_line, tensors_in

# An op with none of these for its tensors, and with a composite kernel, is what that kernel calls.
_COMPOSITE = "CompositeExplicitAutograd"
# Composite kernels that are not made of other ops: they read and write memory, of which a fake tensor has none.
_COMPUTES = {"aten::copy_", "aten::convolution_backward", "aten::_convolution"}
# What the exceptions of fake tensors mean.
_LIMITS = {
    "DataDependentOutputException": "needs the values of a tensor, which a fake one has not",
    "DynamicOutputShapeException": "needs the values of a tensor, which a fake one has not",
    "UnsupportedOperatorException": "this torch cannot tell the result of the op from shapes alone",
}
# The flag in the forward and in the backward phase.
_MODES = {"off": (False, False), "on": (True, True), "late": (False, True)}


class ReachedOverloads(Overloads):
    """Counts also what composite ops call: those without a kernel of their own for the device.

    A dispatch mode sees such an op and not what is inside it, because it is called below the modes.
    """

    def __init__(self, device: str) -> None:
        super().__init__()
        self._backend = device.partition(":")[0].upper()

    def called(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Count the call of an overload and, if it is a composite op, what is called inside it; make it."""
        if func.namespace == "prim":
            # How C++ asks a fake tensor for its device; an exception there would end the process.
            return func(*args, **kwargs)
        if not self._is_composite(func, args):
            return super().called(func, args, kwargs)
        self.counts[func.name()] += 1
        before = self.counts.copy()
        key = getattr(torch._C.DispatchKey, _COMPOSITE)  # noqa: SLF001 - has no public name
        try:
            with torch._C._AutoDispatchBelowAutograd(), self:  # noqa: SLF001
                result = func._op_dk(key, *args, **kwargs)  # noqa: SLF001
        except Exception as error:
            if caller_in(str(error)):
                raise
        else:
            if all(isinstance(tensor, FakeTensor) for tensor in tensors_in(result)):
                return result
        # It made more of a fake tensor than there is to it; how its result looks is known all the same.
        self.counts = before
        return func(*args, **kwargs)

    def _is_composite(self, func: Any, args: tuple[Any, ...]) -> bool:
        if func.name() in _COMPUTES:
            return False
        # Views compute nothing, and some of them make their result of the tensor's own parts.
        if any(one.alias_info and not one.alias_info.is_write for one in func._schema.arguments):  # noqa: SLF001
            return False
        # Other layouts have kernels of their own.
        tensors = [one for one in args if isinstance(one, torch.Tensor)]
        if any(one.layout != torch.strided or one.is_quantized for one in tensors):
            return False
        has = torch._C._dispatch_has_kernel_for_dispatch_key  # noqa: SLF001
        return has(func.name(), _COMPOSITE) and not has(func.name(), self._backend)


class _FakeExecution(Execution):
    """Has gradients without values, which nothing can change."""

    def _gradients_digest(self) -> str:
        return ""


def trace(spec: OpSpec, case: str, **options: Any) -> list[dict[str, Any]]:
    """Run a case with fake tensors once in each mode, and return the fields of ``trace.records.Reach``.

    Args:
        spec: What to call.
        case: Its name.
        options: Those of ``Execution``: direction, dtype, device and seed. The device need not be there. The
            backward direction has a third mode, in which the flag is turned on between the two phases.
    """
    backward = options["direction"] == "backward"
    modes = tuple(_MODES) if backward else ("off", "on")
    if backward and options["device"] != "cpu" and torch.version.cuda is None and torch.version.hip is None:
        # Autograd asks for the device at a place where the answer, that there is none, ends the process.
        text = "a CPU build of torch has no autograd on CUDA; trace a CUDA build, which needs no GPU"
        return [{"mode": mode, "outcome": "not_traced", "message": text} for mode in modes]
    with FakeTensorMode(allow_fallback_kernels=False) as fake:
        try:
            execution = _FakeExecution(spec, case, **options)
        except Exception as error:  # noqa: BLE001 - a case of the user's may raise anything
            return [{"mode": mode, "stopped": "inputs", **_failure(error)} for mode in modes]
        # What is remembered of a call in one mode would be given again in the other.
        fake.cache_enabled = False
        before = global_state.snapshot()
        return [_trace(execution, mode, before) for mode in modes]


def _trace(execution: Execution, mode: str, before: dict[str, Any]) -> dict[str, Any]:
    """Execute once in one mode; *before* is the state of the process that it is to leave as it was."""
    forward, backward = ReachedOverloads(execution.device), ReachedOverloads(execution.device)
    fields: dict[str, Any] = {"mode": mode, "outcome": "traced", "stopped": "forward"}
    in_forward, in_backward = _MODES[mode]
    try:
        args = execution.arguments()
        torch.use_deterministic_algorithms(in_forward)
        with forward:
            output = execution.forward(args)
        if execution.backward:
            fields["stopped"] = "backward"
            outputs, upstream = execution.upstream(output)
            torch.use_deterministic_algorithms(in_backward)
            with backward:
                gradients = differentiate(outputs, upstream, execution.leaves)
            execution.check_gradients(gradients)
        fields["stopped"] = None
    except BaseException as error:  # noqa: BLE001 - an op may raise anything, sys.exit included; all of it is data
        fields.update(_failure(error))
    finally:
        torch.use_deterministic_algorithms(False)
    # Parts of torch note in the environment where they keep files.
    after = global_state.snapshot() | {"environment": before["environment"]}
    if changed := global_state.changes(before, after):
        fields.update(outcome="not_traced", message=f"changed global state ({changed})")
    return fields | {"forward": dict(forward.counts), "backward": dict(backward.counts)}


def _failure(error: BaseException) -> dict[str, Any]:
    """Say why a trace ended early: by the alert, or because fake tensors go no further."""
    if isinstance(error, (NotRunnableError, MissingError)):
        return {"outcome": "not_run", "message": str(error)}
    if isinstance(error, RuntimeError) and (caller := caller_in(str(error))):
        return {"outcome": "alert", "caller": caller}
    text = str(error) if isinstance(error, InvalidCaseError) else first_line(error)
    for name, meaning in _LIMITS.items():
        if type(error).__name__ == name:
            text = f"{meaning} ({text})"
    return {"outcome": "not_traced", "message": text}
