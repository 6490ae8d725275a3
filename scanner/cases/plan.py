"""What the user asked of a scan, and the settings that follow from it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from detmatrix.opspecs.pytorch.sources import databases
from detmatrix.scanner.accelerators import ACCELERATORS, SIMULATED, kind_of
from detmatrix.scanner.errors import UsageError
from detmatrix.scanner.modes import CHOSEN_MODES, modes_on
from detmatrix.scanner.observations.settings import SETTINGS, Settings
from detmatrix.scanner.perturbations import PERTURBATIONS
from detmatrix.scanner.schedules import SCHEDULES

# All that a torch from 2.0 to 2.15 has; the main process has none to ask.
DTYPES = (
    *("float32", "float64", "float16", "bfloat16"),
    *("complex64", "complex128", "complex32", "bcomplex32", "bool"),
    *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"),
    *("float8_e8m0fnu", "float4_e2m1fn_x2"),
    *(f"{sign}int{width}" for sign in ("", "u") for width in (64, 32, 16, 8, 7, 6, 5, 4, 3, 2, 1)),
    *("bits16", "bits8", "bits4x2", "bits2x4", "bits1x8"),
    *("qint32", "qint8", "quint8", "quint4x2", "quint2x4"),
)


# Of a scan that simulates a GPU, where nothing was said; below them what cannot be said of it.
_SIMULATED: dict[str, Any] = {
    "runs": 8,
    "processes": 1,
    "timeout": 300.0,
    "max_time": None,
    "device": SIMULATED,
    "perturb": SCHEDULES,
    "cost": False,
    "overloads": False,
}
# Where whole databases are scanned, whose rows are thousands: further executions in a process hardly lower the bound.
_OF_DATABASES: dict[str, Any] = {"runs": 25, "max_time": 0.02}
NOT_SIMULATED = ("device", "perturb", "cost", "overloads", "invariance")


class Shard(NamedTuple):
    """One of the shards that the groups of rows of a scan are divided among."""

    number: int = 1
    total: int = 1

    def __str__(self) -> str:
        return f"{self.number}/{self.total}"


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What the user asked for."""

    output: Path
    settings: Settings  # by default where nothing was said
    said: frozenset[str] = frozenset()  # the names of those settings that the user gave
    resume: bool = False
    force: bool = False
    shard: Shard | None = None  # None: not said, so all of the plan, or what a scan that goes on has
    python: str = sys.executable


def asked_for(**said: Any) -> Settings:
    """Return settings as they are said, by default where they are not."""
    defaults = {name: setting.default for name, setting in SETTINGS.items()}
    whole = databases(said.get("sources")) and not said.get("patterns")
    defaults |= _SIMULATED if said.get("simulate") else _OF_DATABASES if whole else {}
    return Settings(**(defaults | said))


def settings_for(asked: Settings, device: str, workers: int = 1) -> Settings:
    """Return the settings of a new scan on *device* (``"cpu"``, ``"cuda:N"``), with so many workers unless asked.

    A perturbation or a property that does not exist there is refused.
    """
    for name in asked.perturb:
        if device != "cpu" and PERTURBATIONS[name].cpu_alone:
            raise UsageError(f"--perturb: there is no {name} on {device}; leave it out, or use --device cpu")
    if "threads" in asked.invariance and device != "cpu":
        raise UsageError(
            f"--invariance: threads are those of a CPU, and the device is {device}; leave them out"
        )
    lacks = {} if device == "cpu" else ACCELERATORS[kind_of(device)].lacks
    return msgspec.structs.replace(
        asked,
        device=device,
        perturb=tuple(name for name in asked.perturb if name not in lacks) or ("quiet",),
        workers=asked.workers or workers,
        modes=tuple(mode for mode in asked.modes if mode in (*CHOSEN_MODES, *modes_on(device))),
        samples=asked.samples if asked.sources != SETTINGS["sources"].default else 0,
    )
