"""The variables that the scripts of ``detmatrix repro`` set: those that steered the threads and kernels of a scan."""

from __future__ import annotations

import re
from collections.abc import Mapping

from scanner.errors import UsageError, one_line
from scanner.modes import MODE_TABLE
from scanner.observations.records import Environment, Header

# The variables of a worker's environment that change what is computed, or in what order; no others are set.
_STEERING = (
    "ATEN_CPU_CAPABILITY",
    "GOMP_CPU_AFFINITY",
    "KMP_AFFINITY",
    "MKL_CBWR",
    "MKL_NUM_THREADS",
    "NVIDIA_TF32_OVERRIDE",
    "OMP_NUM_THREADS",
    "OMP_PLACES",
    "OMP_PROC_BIND",
)
# What such variables consist of: "granularity=fine,compact,1,0", "{0:4},{4:4}".
_VALUE = re.compile(r"[\w ,:;=+*!.{}()-]{0,200}", re.ASCII)


def steering_of(header: Header) -> dict[str, str]:
    """Return the variables that steered the threads and kernels of a run."""
    recorded = header.environment.variables.get("off", {})
    return {name: _value(recorded[name]) for name in _STEERING if name in recorded}


def set_variables(variables: Mapping[str, str]) -> list[str]:
    """Return the statements that set them, unless whoever runs the script has."""
    return [f"os.environ.setdefault({name!r}, {value!r})" for name, value in variables.items()]


def set_by_mode(env: Environment) -> dict[str, str]:
    """Return the variables that a scan sets when the flag is on, and only then."""
    off, on = (env.variables.get(mode, {}) for mode in ("off", "on"))
    return {name: _value(on[name]) for name in MODE_TABLE["on"].variables if name in on and name not in off}


def _value(recorded: str) -> str:
    """Return the value of a variable.

    Raises:
        UsageError: It is none that any of them has.
    """
    if not _VALUE.fullmatch(recorded):
        raise UsageError(
            f"no script can be written: the run file has {one_line(recorded[:80])!r} as the value of a variable that steers "
            f"threads or kernels; restore the file"
        )
    return recorded
