"""What the user asked of a scan, and the settings that follow from it."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import msgspec

from scanner.errors import UsageError
from scanner.perturb import DEFAULT as DEFAULT_PERTURB
from scanner.perturb import PERTURBATIONS
from scanner.records import WORKER_MODES, Settings

DEFAULT_RUNS = 50
DEFAULT_PROCESSES = 2
DEFAULT_TIMEOUT = 60.0
DEFAULT_SEED = 0
DEFAULT_CONFIDENCE = 0.95


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What the user asked for; ``None`` where nothing was said, so that a resumed scan goes on as it began."""

    output: Path
    patterns: tuple[str, ...] = ()
    device: str = "auto"  # "auto", "cpu", "cuda", "cuda:N"
    runs: int | None = None
    processes: int | None = None
    confidence: float | None = None
    max_rate: float | None = None
    max_time: float | None = None
    perturb: tuple[str, ...] | None = None
    cost: bool | None = None
    timeout: float | None = None
    seed: int | None = None
    spec_files: tuple[str, ...] = ()
    resume: bool = False
    force: bool = False
    python: str = sys.executable


def executions_for(confidence: float, max_rate: float) -> int:
    """Return the n with which a difference rate of *max_rate* is seen with probability *confidence*.

    Of n executions that differ independently at that rate, none differs with probability
    ``(1 - max_rate) ** n``.
    """
    return max(2, math.ceil(math.log(1 - confidence) / math.log(1 - max_rate)))


def settings_for(plan: Plan, device: str) -> Settings:
    """Return the settings of a new scan on *device* (``"cpu"``, ``"cuda:N"``).

    Raises:
        UsageError: A perturbation does not exist on the device.
    """
    perturb = DEFAULT_PERTURB if plan.perturb is None else plan.perturb
    kind = device.partition(":")[0]
    for name in perturb:
        if kind not in PERTURBATIONS[name].devices:
            raise UsageError(f"--perturb: there is no {name} on {device}; leave it out, or use --device cpu")
    processes = DEFAULT_PROCESSES if plan.processes is None else plan.processes
    runs = DEFAULT_RUNS if plan.runs is None else plan.runs
    confidence = plan.confidence
    if plan.max_rate is not None:
        confidence = DEFAULT_CONFIDENCE if confidence is None else confidence
        runs = math.ceil(executions_for(confidence, plan.max_rate) / processes)
    return Settings(
        patterns=plan.patterns,
        device=device,
        runs=runs,
        processes=processes,
        timeout=DEFAULT_TIMEOUT if plan.timeout is None else plan.timeout,
        seed=DEFAULT_SEED if plan.seed is None else plan.seed,
        modes=WORKER_MODES,
        perturb=perturb,
        confidence=confidence,
        max_rate=plan.max_rate,
        max_time=plan.max_time,
        cost=plan.cost is not False,
        specs=plan.spec_files,
    )
