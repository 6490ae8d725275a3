"""The modes that a worker may live under: what each of them sets, and which rows it has something to say of.

A table that the parent's side and the worker read, so that a mode is an entry here and in ``Mode``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from scanner.accelerators import kind_of

Mode = Literal["off", "on", "warn_only", "unfilled", "no_workspace"]

# all      of every row
# raising  of rows that raised with the flag on
# cured    of rows that differed with the flag off, and not with it on; known when the processes of other modes have spoken
# cublas   of rows that the lists of torch up to 2.9 say raise unless CUBLAS_WORKSPACE_CONFIG is set
Concern = Literal["all", "raising", "cured", "cublas"]

# PyTorch's documentation asks for the workspace when the flag is on; users who leave the flag off live without it.
_WORKSPACE = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}


class WorkerMode(NamedTuple):
    """What a worker sets before anything else happens, for its whole life."""

    meaning: str
    deterministic: bool = True  # use_deterministic_algorithms
    warn_only: bool = False
    fill: bool = True  # fill_uninitialized_memory
    variables: Mapping[str, str] = _WORKSPACE  # of its environment, beside those it inherits
    concern: Concern = "all"
    cuda_alone: bool = False

    @property
    def alerts(self) -> bool:
        """Whether an op without a deterministic implementation raises."""
        return self.deterministic and not self.warn_only


MODE_TABLE: dict[Mode, WorkerMode] = {
    "off": WorkerMode("the flag off", deterministic=False, variables={}),
    "on": WorkerMode("the flag on"),
    "warn_only": WorkerMode("the flag on with warn_only=True", warn_only=True, concern="raising"),
    "unfilled": WorkerMode("the flag on without the fill of memory", fill=False, concern="cured"),
    "no_workspace": WorkerMode(
        "the flag on without CUBLAS_WORKSPACE_CONFIG", variables={}, concern="cublas", cuda_alone=True
    ),
}
# The modes of the matrix; the others only some rows live under.
MODES: tuple[Mode, ...] = ("off", "on")
WORKER_MODES: tuple[Mode, ...] = tuple(MODE_TABLE)


def modes_on(device: str) -> tuple[Mode, ...]:
    """Return the modes that there are on a device: ``"cpu"``, ``"cuda"``, ``"cuda:N"``."""
    return tuple(mode for mode, it in MODE_TABLE.items() if not it.cuda_alone or kind_of(device) == "cuda")
