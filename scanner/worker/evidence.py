"""What stands behind a difference that a simulated GPU shows, and behind its inputs: rounding or a race, and the kernels of real life."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import torch

from detmatrix.opspecs.inputs import RealSizeInputs, WholeInputs
from detmatrix.scanner.schedules import CANONICAL
from detmatrix.scanner.worker import bits, simulated
from detmatrix.scanner.worker.agreement import CpuReference
from detmatrix.scanner.worker.execution import Execution, first_line, on_host, tensors_in

# Makes the execution of a case anew.
Prepare = Callable[..., Execution]
# For host code at real size, and kernels that are told.
_SECONDS, _MOST_TOLD = 10.0, 5
# Kernels of CUB that set up what others work with, each thread its own part.
_SETS_UP = re.compile(r"Device\w*InitKernel\b")


def exactness(
    prepare: Prepare, schedule: dict[str, Any], witness: dict[str, Any] | None, deadline: float
) -> dict[str, Any]:
    """Execute a case again with small integers, canonically and under the schedule that gave other bits.

    Returns:
        Fields of ``records.Simulation``.
    """
    digests, told, rounds = set(), None, False
    try:
        whole = prepare(drawn=WholeInputs)
        for name, number in ((CANONICAL, 0), (schedule["name"], schedule["number"])):
            simulated.begin(name, number, schedule["seed"], deadline, log=name == CANONICAL)
            whole.reseed()
            output, gradients = whole()
            outcome = bits.parts(on_host(list(gradients) if whole.backward else output), "output")
            digests.add(bits.digest(outcome))
            numbers = [one[one.isfinite()] for _, one in outcome if one.is_floating_point()]
            rounds |= any(not torch.equal(one, one.round()) for one in numbers)
            report = simulated.report()
            told = told or report.conflicts
            if report.faults:
                return {"exact_why": report.faults[0][1]}
    except Exception as error:  # noqa: BLE001 - what an op makes of such numbers says nothing of it
        return {"exact_why": first_line(error)}
    writers = witness is not None and set(witness["kinds"]) == {"write"}
    differs, in_conflict = len(digests) > 1, bool(told and told["told"])
    whys = {
        "it adds what is not exact with small integers either": differs and told and told["inexact"],
        "it approximates, so that small integers do not stay exact": differs
        and report.approximates
        and not writers,
        "its results of small integers are no integers": differs and rounds and not writers,
        "its writers write the same small integers": writers and not differs and not in_conflict,
    }
    if why := next((text for text, holds in whys.items() if holds), ""):
        return {"exact_why": why}
    return {"exact": "stays" if differs else "vanishes"}


def rests_on_approximations(
    execution: Execution, reference: CpuReference, seed: int, deadline: float
) -> bool:
    """Tell whether canonical results are no more those of the CPU where approximations of the GPU have another last bit."""
    try:
        simulated.begin(CANONICAL, 0, seed, deadline, moved=True)
        execution.reseed()
        output, gradients = on_host(list(execution()))
        return not simulated.report().faults and reference.compare(output, gradients)["agrees"] is False
    except Exception:  # noqa: BLE001 - what it makes of them says nothing of the op
        return False


def real_size(prepare: Prepare, launched: dict[str, int], seed: int) -> dict[str, Any]:
    """Let host code choose kernels for the size that a case has on a GPU, execute none, and tell which were not executed here.

    Returns:
        Fields of ``records.Simulation``.
    """
    simulated.begin(CANONICAL, 0, seed, time.perf_counter() + _SECONDS, skip=True)
    try:
        real = prepare(drawn=RealSizeInputs)
        simulated.report()  # what the inputs launched
        output = real.forward(real.arguments())
        if real.backward:
            differentiable = [one for one in tensors_in(output) if one.requires_grad]
            upstream = [torch.empty_like(one, requires_grad=False) for one in differentiable]
            real.differentiate(differentiable, upstream)
        report = simulated.report()
    except Exception as error:  # noqa: BLE001 - host code may trip over results that are not there
        return {"real_size_why": first_line(error)}
    others = dict.fromkeys(report.names[name] for name in report.launches if name not in launched)
    alone = [
        report.names[name] for name, count in report.most_blocks.items() if count > 1 == launched.get(name)
    ]
    others |= dict.fromkeys(f"{name} of several blocks" for name in alone if not _SETS_UP.match(name))
    if others and report.reads:
        return {"real_size_why": "its host code reads results"}
    return {"other_kernels": list(others)[:_MOST_TOLD]}
