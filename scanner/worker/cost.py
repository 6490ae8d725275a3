"""Time one case with the flag off and on, in turns and in one process, so that the ratio is the flag's doing.

Two processes differ in where their memory lies, and a machine's clock wanders; executions that take turns within
milliseconds share both.
"""

from __future__ import annotations

import gc
import math
import statistics
import time
from typing import Any, NamedTuple

import torch

from detmatrix.opspecs.model import OpSpec
from detmatrix.scanner.worker import accelerator, global_state
from detmatrix.scanner.worker.execution import Execution, InvalidCaseError, attempt

_FEWEST, _MOST = 5, 9  # samples of each variant
# A shorter sample would time the clock and the loop.
_SAMPLE_SECONDS = 100e-6


class _Variant(NamedTuple):
    """What the flag is set to for an execution."""

    name: str
    deterministic: bool
    fill: bool = True

    def set(self) -> None:
        torch.use_deterministic_algorithms(self.deterministic)
        if _FILLS:
            torch.utils.deterministic.fill_uninitialized_memory = self.fill


# The setting came with torch 2.2; in 2.1 the flag filled memory, and nothing could stop it.
_FILLS = hasattr(getattr(torch.utils, "deterministic", None), "fill_uninitialized_memory")
_OFF, _ON = _Variant("off", deterministic=False), _Variant("on", deterministic=True)
_UNFILLED = _Variant("unfilled", deterministic=True, fill=False)
_VARIANTS = (_OFF, _ON, _UNFILLED) if _FILLS else (_OFF, _ON)
# The op that the case is another spelling of.
_OP = _Variant("op", deterministic=False)


def measure(spec: OpSpec, case: str, *, max_seconds: float, **drawn: Any) -> dict[str, Any]:
    """Time a case and return fields of ``records.Cost``; one that raises, with the flag off or on, has a message in place of timings.

    An execution is what it is in an observation: in the backward direction the forward call is timed with it. All samples together
    take *max_seconds*; the fewest that quartiles need are taken even if that takes longer.
    """

    def use(execution: Execution) -> dict[str, Any]:
        fill = _FILLS and torch.utils.deterministic.fill_uninitialized_memory
        try:
            return _measure(execution, max_seconds)
        finally:
            _OFF._replace(fill=fill).set()

    # A collection would be charged to the sample that made the one object too many.
    gc.disable()
    try:
        return attempt(use, spec, case, **drawn)
    finally:
        gc.enable()


def _measure(execution: Execution, max_seconds: float) -> dict[str, Any]:
    timed = dict.fromkeys(_VARIANTS, execution)
    if (op := execution.of_op()) is not None:
        timed[_OP] = op
    for variant, one in timed.items():
        _warm_up(one, variant)
    once = [_sample(one, variant, calls=1) for variant, one in timed.items()]
    # Enough executions for the fastest variant, unless the slowest would then outlast its share.
    enough = math.ceil(_SAMPLE_SECONDS / min(once))
    calls = max(1, min(enough, int(max_seconds / _FEWEST / sum(once))))
    samples: dict[_Variant, list[float]] = {variant: [] for variant in timed}
    variants = tuple(timed)
    started = time.perf_counter()
    for turn in range(_MOST):
        if turn >= _FEWEST and time.perf_counter() - started > max_seconds:
            break
        # No variant always goes first.
        first = turn % len(variants)
        for variant in (*variants[first:], *variants[:first]):
            samples[variant].append(_sample(timed[variant], variant, calls=calls))
    return {
        "outcome": "ran",
        "samples": len(samples[_OFF]),
        "calls": calls,
        "off": _timing(samples[_OFF]),
        "on": _timing(samples[_ON]),
        "unfilled": _timing(samples[_UNFILLED]) if _FILLS else None,
        **({"op": _timing(samples[_OP])} if op else {}),
        "off_memory": _peak_memory(execution, _OFF),
        "on_memory": _peak_memory(execution, _ON),
    }


def _warm_up(execution: Execution, variant: _Variant) -> None:
    """Execute once, for whatever is made or chosen at the first call."""
    variant.set()
    execution.reseed()
    before = global_state.snapshot()
    execution()
    if changed := global_state.changes(before, global_state.snapshot()):
        raise InvalidCaseError(f"changed global state ({changed})")


def _sample(execution: Execution, variant: _Variant, *, calls: int) -> float:
    """Return the seconds of one execution, the mean over *calls* of them."""
    variant.set()
    execution.reseed()
    accelerator.synchronize(execution.device)
    started = time.perf_counter()
    for _ in range(calls):
        execution()
    accelerator.synchronize(execution.device)
    return (time.perf_counter() - started) / calls


def _timing(samples: list[float]) -> dict[str, float]:
    low, median, high = statistics.quantiles(samples, n=4, method="inclusive")
    return {"median": median, "low": low, "high": high}


def _peak_memory(execution: Execution, variant: _Variant) -> int | None:
    """Return the bytes that one execution takes at its peak, beyond what was allocated before it."""
    variant.set()
    execution.reseed()
    return accelerator.peak_memory(execution.device, execution)
