"""What the user asked of a scan, and the settings that follow from it."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import msgspec

from scanner.errors import UsageError
from scanner.observations.records import MOST_RUNS, WORKER_MODES, Settings, Source
from scanner.worker.perturb import DEFAULT as DEFAULT_PERTURB
from scanner.worker.perturb import PERTURBATIONS

DEFAULT_RUNS = 50
DEFAULT_PROCESSES = 2
DEFAULT_TIMEOUT = 60.0
DEFAULT_SEED = 0
DEFAULT_CONFIDENCE = 0.95
DEFAULT_SOURCES: tuple[Source, ...] = ("documented",)
DEFAULT_SAMPLES = 2
# All that a torch from 2.0 to 2.15 has; the main process has none to ask.
DTYPES = (
    *(
        "float32",
        "float64",
        "float16",
        "bfloat16",
        "complex64",
        "complex128",
        "complex32",
        "bcomplex32",
        "bool",
    ),
    *(
        "float8_e4m3fn",
        "float8_e4m3fnuz",
        "float8_e5m2",
        "float8_e5m2fnuz",
        "float8_e8m0fnu",
        "float4_e2m1fn_x2",
    ),
    *(f"{sign}int{width}" for sign in ("", "u") for width in (64, 32, 16, 8, 7, 6, 5, 4, 3, 2, 1)),
    *("bits16", "bits8", "bits4x2", "bits2x4", "bits1x8"),
    *("qint32", "qint8", "quint8", "quint4x2", "quint2x4"),
)


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
    overloads: bool | None = None
    timeout: float | None = None
    seed: int | None = None
    spec_files: tuple[str, ...] = ()
    sources: tuple[Source, ...] | None = None
    dtypes: tuple[str, ...] | None = None
    samples: int | None = None
    resume: bool = False
    force: bool = False
    python: str = sys.executable


def executions_for(confidence: float, max_rate: float) -> int:
    """Return the n with which a difference rate of *max_rate* is seen with probability *confidence*.

    Where executions give other bits independently at that rate, all n are equal with probability
    ``(1 - max_rate) ** n + max_rate ** n``: none gave them, or all did.
    """
    n = max(2, math.floor(math.log1p(-confidence) / math.log1p(-max_rate)))
    # A rate near 1 is as hard to see as one near 0: then nearly all give the other bits.
    while n <= MOST_RUNS and (1 - max_rate) ** n + max_rate**n > 1 - confidence:
        n += 1
    return n


def settings_for(plan: Plan, device: str) -> Settings:
    """Return the settings of a new scan on *device* (``"cpu"``, ``"cuda:N"``).

    Raises:
        UsageError: A perturbation does not exist on the device, or there would be too many executions.
    """
    perturb = ordered(DEFAULT_PERTURB if plan.perturb is None else plan.perturb)
    kind = device.partition(":")[0]
    for name in perturb:
        if kind not in PERTURBATIONS[name].devices:
            raise UsageError(f"--perturb: there is no {name} on {device}; leave it out, or use --device cpu")
    processes = DEFAULT_PROCESSES if plan.processes is None else plan.processes
    runs = DEFAULT_RUNS if plan.runs is None else plan.runs
    confidence = plan.confidence
    if plan.max_rate is not None:
        confidence = DEFAULT_CONFIDENCE if confidence is None else confidence
        share = math.ceil(executions_for(confidence, plan.max_rate) / processes)
        # The first perturbation has half of the executions, however many the others are.
        runs = share if len(perturb) == 1 else 2 * share
        if runs > MOST_RUNS:
            raise UsageError(
                f"--max-rate {plan.max_rate:g} needs more than {MOST_RUNS} executions per process; give a rate "
                f"farther from 0 and 1, a smaller --confidence, or more --processes"
            )
    sources = plan.sources or DEFAULT_SOURCES
    samples = DEFAULT_SAMPLES if plan.samples is None else plan.samples
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
        overloads=plan.overloads is not False,
        specs=plan.spec_files,
        sources=sources,
        dtypes=plan.dtypes or (),
        samples=samples if sources != DEFAULT_SOURCES else 0,
    )


def ordered(names: tuple[str, ...]) -> tuple[str, ...]:
    """Put those that are compared apart behind the others, of which there is at least one: the reference."""
    main = tuple(name for name in names if not PERTURBATIONS[name].apart)
    return (main or ("quiet",)) + tuple(name for name in names if PERTURBATIONS[name].apart)
