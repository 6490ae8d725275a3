"""Repeat one case and compare every execution with the first, bit by bit: what a worker does with a row.

On the CPU each output is compared at once. On a GPU the comparison is queued on the device behind the
execution and the mismatch flags are read once per chunk, so that no execution waits for the host.
"""

from __future__ import annotations

import time
from typing import Any

import torch

from opspecs.model import MissingError, OpSpec
from scanner import bits, state
from scanner.execution import Execution, InvalidCaseError, NotRunnableError, first_line

# Outputs kept on a GPU until their flags are read; the differing ones are then digested.
_CHUNK_BYTES = 1 << 30
# Stands for the digest of an output that differed and was overwritten before it was digested.
_OVERWRITTEN = "overwritten"


def observe(
    spec: OpSpec, case: str, *, direction: str, dtype: str, device: str, seed: int, runs: int
) -> dict[str, Any]:
    """Execute a case *runs* times and return the observation, as fields of ``records.Observation``."""
    before = state.snapshot()
    observed: dict[str, Any] = {"outcome": "invalid"}
    try:
        _observe(
            observed,
            lambda: Execution(spec, case, direction=direction, dtype=dtype, device=device, seed=seed),
            runs,
        )
    except (NotRunnableError, MissingError) as error:
        observed.update(outcome="not_run", message=str(error))
    except InvalidCaseError as error:
        observed.update(outcome="invalid", message=str(error))
    except BaseException as error:  # noqa: BLE001 - an op may raise anything, sys.exit included; all of it is data
        observed.update(outcome="raised", exception=type(error).__name__, message=_message(error))
    if changed := state.changes(before, state.snapshot()):
        observed.update(outcome="invalid", message=f"changed global state ({changed})")
    return observed


def _message(error: BaseException) -> str:
    """Return the first line of an exception's text; the alerts say all that matters in it."""
    return first_line(error).removeprefix(type(error).__name__).removeprefix(": ")


def _observe(observed: dict[str, Any], prepare: Any, runs: int) -> None:
    """Fill in *observed* step by step, so that what was seen before an exception is kept."""
    started = time.perf_counter()
    execution: Execution = prepare()
    inputs = execution.inputs()
    inputs_digest = bits.digest(inputs)
    observed.update(
        inputs=[_summary(name, tensor) for name, tensor in inputs],
        inputs_digest=inputs_digest,
        setup_seconds=time.perf_counter() - started,
    )
    started = time.perf_counter()
    try:
        comparison = _repeat(execution, runs, observed)
    finally:
        observed["seconds"] = time.perf_counter() - started
    observed.update(comparison)
    if bits.digest(execution.inputs()) != inputs_digest:
        raise InvalidCaseError("the op changed its inputs")
    observed["outcome"] = "ran"


def _summary(name: str, tensor: torch.Tensor) -> str:
    """Say dtype and shape, and strides where they are not the contiguous ones."""
    told = f"{name}: {str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"
    return told if tensor.is_contiguous() else f"{told}, strides {tensor.stride()}"


def _repeat(execution: Execution, runs: int, observed: dict[str, Any]) -> dict[str, Any]:
    """Execute *runs* times and compare."""
    execution.reseed()
    fresh = execution.random_state()
    forward, judged = _judged(execution)
    observed["seeded"] = any(
        not torch.equal(old, new) for old, new in zip(fresh, execution.random_state(), strict=True)
    )
    if not sum(tensor.numel() for _, tensor in judged):
        raise InvalidCaseError("there is nothing to compare: no output has elements")
    compare = Comparison(judged, runs)
    forward_compare = Comparison(forward, runs) if forward else None
    for index in range(1, runs):
        execution.reseed()
        forward, judged = _judged(execution)
        compare.add(index, judged)
        if forward_compare:
            forward_compare.add(index, forward)
        observed["executions"] = index + 1
    result = compare.result()
    if forward_compare:
        result["forward_differing"] = runs - next(iter(forward_compare.result()["digests"].values()))
    return result


def _judged(execution: Execution) -> tuple[list[bits.Part], list[bits.Part]]:
    """Execute once and return the parts of the forward output (backward only) and the parts that are judged."""
    output, gradients = execution()
    if not execution.backward:
        return [], bits.parts(output, "output")
    named = [
        part
        for name, gradient in zip(execution.leaf_names, gradients, strict=True)
        for part in bits.parts(gradient, f"grad of {name}")
    ]
    return bits.parts(output, "output"), named


class Comparison:
    """Compares the parts of each execution with those of the first.

    Executions equal to the first are counted under its digest; the others are digested, which tells how many
    distinct outputs there are.
    """

    def __init__(self, first: list[bits.Part], runs: int) -> None:
        self._first = bits.frozen(first)
        self._aliases = {tensor.data_ptr() for _, tensor in first}
        self._originals: list[bits.Part] | None = first
        self._digest = bits.digest(self._first)
        self._digests: dict[str, int] = {self._digest: 1}
        self._differing = [0] * len(first)
        self._first_differing: int | None = None
        self._on_cpu = all(tensor.device.type == "cpu" for _, tensor in first)
        self._copy = False
        self._pending: list[tuple[int, list[bits.Part]]] = []
        self._pending_bytes = 0
        if not self._on_cpu:
            device = next(tensor.device for _, tensor in first if tensor.device.type != "cpu")
            self._flags = torch.zeros((runs, len(first)), dtype=torch.bool, device=device)

    def add(self, index: int, judged: list[bits.Part]) -> None:
        """Compare execution *index*; on a GPU only queue the comparison."""
        if not bits.same_structure(self._first, judged):
            self._settle()
            self._differs(index, judged, [True] * len(self._differing))
        elif self._on_cpu:
            unequal = [
                not bits.equal_on_cpu(first, tensor)
                for (_, first), (_, tensor) in zip(self._first, judged, strict=True)
            ]
            if any(unequal):
                self._differs(index, judged, unequal)
            else:
                self._digests[self._digest] += 1
        else:
            self._queue(index, judged)

    def _queue(self, index: int, judged: list[bits.Part]) -> None:
        """Queue a comparison on the device and keep the output until its flags are read."""
        for column, ((_, first), (_, tensor)) in enumerate(zip(self._first, judged, strict=True)):
            if tensor.device.type == "cpu":
                self._flags[index, column] = not bits.equal_on_cpu(first, tensor)
            else:
                self._flags[index, column] = bits.differ_on_device(first, tensor)
        if self._originals is not None:
            # The first output is still alive, so only an op that reuses its buffer returns the same address.
            self._copy = any(tensor.data_ptr() in self._aliases for _, tensor in judged)
            self._originals = None
        self._pending.append((index, bits.frozen(judged) if self._copy else judged))
        self._pending_bytes += sum(tensor.numel() * tensor.element_size() for _, tensor in judged)
        if self._pending_bytes > _CHUNK_BYTES:
            self._settle()

    def _settle(self) -> None:
        """Read the flags of the queued comparisons, all at once, and digest what differed."""
        if not self._pending:
            return
        flags = self._flags.tolist()
        for index, judged in self._pending:
            if any(flags[index]):
                self._differs(index, judged, flags[index])
            else:
                self._digests[self._digest] += 1
        self._pending.clear()
        self._pending_bytes = 0

    def _differs(self, index: int, judged: list[bits.Part], unequal: list[bool]) -> None:
        digest = bits.digest(judged)
        if digest == self._digest:
            # The flags were computed when the output was fresh; an op that reuses buffers has changed it since.
            digest = _OVERWRITTEN
        self._digests[digest] = self._digests.get(digest, 0) + 1
        self._differing = [count + flag for count, flag in zip(self._differing, unequal, strict=True)]
        if self._first_differing is None:
            self._first_differing = index

    def result(self) -> dict[str, Any]:
        """Return digests, first differing execution and outputs, as fields of an observation."""
        self._settle()
        return {
            "executions": sum(self._digests.values()),
            "digests": self._digests,
            "first_differing": self._first_differing,
            "outputs": [
                {
                    "name": name,
                    "shape": list(tensor.shape),
                    "dtype": str(tensor.dtype).removeprefix("torch."),
                    "differing": differing,
                }
                for (name, tensor), differing in zip(self._first, self._differing, strict=True)
            ],
        }
