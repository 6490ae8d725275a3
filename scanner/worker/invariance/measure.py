"""Ask of one case whether a property changes its bits: execute it at each value, and hold it against the case as it is."""

from __future__ import annotations

import itertools
import time
import warnings
from typing import Any

import torch

from opspecs.model import OpSpec
from scanner.invariance import EXECUTIONS, EXECUTIONS_IF_OTHER, Property
from scanner.worker import bits, global_state
from scanner.worker.comparison import OutputComparison
from scanner.worker.execution import DRAWS, Execution, InvalidCaseError, failed, first_line
from scanner.worker.invariance.variants import NotAskedError, Variant, Variants, variants_of


def measure(
    spec: OpSpec,
    case: str,
    *,
    property: Property,  # noqa: A002 - the word of the command line
    direction: str,
    dtype: str,
    device: str,
    seed: int,
    max_time: float,
) -> dict[str, Any]:
    """Try a case at each value of a property and return fields of ``records.Invariance``.

    Args:
        spec: The op.
        case: Name of the case.
        property: ``"threads"``, ``"batch"`` or ``"layout"``.
        direction: ``"forward"`` or ``"backward"``.
        dtype: Of the inputs.
        device: ``"cpu"`` or ``"cuda:N"``.
        seed: Of inputs and random ops.
        max_time: Seconds after which no further value is tried.
    """
    before = global_state.snapshot()
    deadline = time.perf_counter() + max_time
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            batch = spec.cases[case].batch
            execution = Execution(
                spec, case, direction=direction, dtype=dtype, device=device, seed=seed, kept=DRAWS
            )
            measured = _measure(property, variants_of(property, execution, batch), deadline)
    except BaseException as error:  # noqa: BLE001 - an op may raise anything, sys.exit included; all of it is data
        measured = failed(error)
    return global_state.changed_since(before) or measured


def _measure(what: Property, variants: Variants, deadline: float) -> dict[str, Any]:
    baseline = variants.baseline
    baseline.reseed()
    fresh = baseline.random_state()
    value = _value(baseline)
    drew = any(not torch.equal(old, new) for old, new in zip(fresh, baseline.random_state(), strict=True))
    if drew and what == "batch":
        raise NotAskedError("it draws random numbers, and which item gets which depends on the batch")
    first = _parts(baseline, value)
    if not sum(tensor.numel() for _, tensor in first):
        raise InvalidCaseError("there is nothing to compare: no output has elements")
    again = OutputComparison(first, 3 * EXECUTIONS_IF_OTHER)
    for number in range(1, EXECUTIONS_IF_OTHER):
        again.add(number, _executed(baseline))
    tried = [_tried(variant, baseline, value, deadline) for variant in variants.tried]
    # What an op leaves behind may be other bits from then on.
    again.add(EXECUTIONS_IF_OTHER, _executed(baseline))
    again.settle()
    return {
        "outcome": "ran",
        "baseline": variants.named,
        "left_out": variants.left_out,
        "executions": EXECUTIONS_IF_OTHER + 1,
        "differing": again.differing,
        "trials": tried,
    }


def _tried(variant: Variant, baseline: Execution, value: Any, deadline: float) -> dict[str, Any]:
    """Execute a case at one value: often, where its bits are not those of the baseline."""
    if time.perf_counter() > deadline:
        return {"value": variant.name, "outcome": "not_tried", "message": "the time was over"}
    try:
        with variant.around():
            return {"value": variant.name, **_compared(variant, baseline, value)}
    except NotAskedError as error:
        return {"value": variant.name, "outcome": "not_tried", "message": str(error)}
    except Exception as error:  # noqa: BLE001 - what an op raises at one value is an answer
        return {"value": variant.name, "outcome": "raised", "message": first_line(error)}


def _compared(variant: Variant, baseline: Execution, value: Any) -> dict[str, Any]:
    execution = variant.prepare()
    compare = OutputComparison(_parts(baseline, variant.expected(value)), EXECUTIONS_IF_OTHER + 1)
    for number in itertools.count(1):
        compare.add(number, _executed(execution))
        if number == EXECUTIONS:
            compare.settle()
        if number >= (EXECUTIONS_IF_OTHER if compare.differing else EXECUTIONS):
            break
    result = compare.result()
    others = list(result["digests"])[1:]
    outcome = "same"
    if compare.differing:
        once = compare.differing == number and len(others) == 1
        outcome = "varies" if once else "not_repeatable"
    return {
        "outcome": outcome,
        "executions": number,
        "outputs": [one for one in result["outputs"] if one["differing"]],
    }


def _executed(execution: Execution) -> list[bits.Part]:
    execution.reseed()
    return _parts(execution, _value(execution))


def _value(execution: Execution) -> Any:
    """Execute once, and return what is compared: the output, or the gradients."""
    output, gradients = execution()
    return gradients if execution.backward else output


def _parts(execution: Execution, value: Any) -> list[bits.Part]:
    if not execution.backward:
        return bits.parts(value, "output")
    named = zip(execution.leaf_names, value, strict=True)
    return [part for name, one in named for part in bits.parts(one, f"grad of {name}")]
