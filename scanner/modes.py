"""The modes that a worker may live under: what each sets, and of which rows it has something to say; both sides read the table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from detmatrix.scanner.accelerators import SIMULATED, kind_of

Mode = Literal[
    "off",
    "on",
    "warn_only",
    "unfilled",
    "no_workspace",
    "backward_only",
    "forward_only",
    "cudnn_deterministic",
    "cudnn_benchmark",
    "cudnn_both",
    "compile_off",
    "compile_on",
    "compile_on_cached",
]

Concern = Literal["all", "raising", "cured", "cublas", "backward", "cudnn", "one_case"]
# Which rows that are.
CONCERN_MEANING: dict[Concern, str] = {
    "all": "all",
    "raising": "those that raised with the flag on",
    # Known when the processes of other modes have spoken.
    "cured": "those that differed with the flag off, and not with it on",
    "cublas": "those that the lists of torch up to 2.9 say raise unless CUBLAS_WORKSPACE_CONFIG is set",
    "backward": "those of the direction backward",
    "cudnn": "those of convolutions, RNNs, CTC loss and batch norm",
    # A compilation takes seconds.
    "one_case": "one case of each op in each direction, all with --compile-all",
}
# How a worker makes an execution (``detmatrix.scanner.worker.execution``).
#
# eager     calls the op, and differentiates
# switched  likewise, with the flag in the backward phase the other way than in the forward one
# compiled  calls the op under torch.compile, and differentiates
ExecutionKind = Literal["eager", "switched", "compiled"]

# PyTorch's documentation asks for the workspace when the flag is on; users who leave the flag off live without it.
_WORKSPACE = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
# PyTorch's compiler then starts no processes of its own, which would be load beside the rows.
_COMPILER = {"TORCHINDUCTOR_COMPILE_THREADS": "1"}
# Executions, at least, of which 0 differed, before that is said to be what a mode does: as many as a scan of the catalog
# makes by default. Ten executions do not tell a race that shows in one of a hundred from what a mode does.
LEAST_RUNS = 100
# Modes in which a further process executes rows oftener, each by what those before it have shown.
FURTHER_MODES: tuple[Mode, ...] = ("off", "unfilled", "on")


class WorkerMode(NamedTuple):
    """What a worker sets before it executes anything, and where it turns to another mode (``turns``)."""

    meaning: str
    deterministic: bool = True  # use_deterministic_algorithms
    warn_only: bool = False
    fill: bool = True  # fill_uninitialized_memory
    cudnn: tuple[str, ...] = ()  # the switches of torch.backends.cudnn that are on
    variables: Mapping[str, str] = _WORKSPACE  # of its environment, beside those it inherits
    execution: ExecutionKind = "eager"
    concern: Concern = "all"
    cuda_alone: bool = False
    least_runs: int = 0  # executions of a row, at least, in all processes, however few were asked for
    head: str = ""  # of its column, in three letters; empty: there is such a worker without ``--modes``
    since: tuple[int, int] = (0, 0)  # the oldest torch that has what it needs
    retired: bool = False  # earlier releases ran it, and their files are read

    @property
    def chosen(self) -> bool:
        """Whether there is such a worker only where ``--modes`` names the mode."""
        return bool(self.head)

    @property
    def alerts(self) -> bool:
        """Whether an op without a deterministic implementation raises; of its forward phase."""
        return self.deterministic and not self.warn_only

    @property
    def compiles(self) -> bool:
        """Whether ops run under torch.compile."""
        return self.execution == "compiled"

    @property
    def rows(self) -> str:
        """Which rows are run in it."""
        also = ["on CUDA"] * self.cuda_alone
        if self.since > (0, 0):
            also.append(f"torch {'.'.join(map(str, self.since))} or newer")
        return "; ".join([CONCERN_MEANING[self.concern], *also])

    def flag_in(self, direction: str) -> bool:
        """Return whether the flag is on in the phase that rows of a direction compare."""
        switched = direction == "backward" and self.execution == "switched"
        return self.deterministic != switched


def _cudnn(head: str, *switches: str) -> WorkerMode:
    """Return the mode in which these switches of cuDNN are on, and the flag is off."""
    said = " and ".join(f"torch.backends.cudnn.{switch}" for switch in switches)
    return WorkerMode(
        f"the flag off and {said} on",
        deterministic=False,
        cudnn=switches,
        variables={},
        concern="cudnn",
        cuda_alone=True,
        head=head,
    )


def _compiler(head: str, text: str, *, deterministic: bool = True, retired: bool = False) -> WorkerMode:
    """Return a mode in which one row of an op and direction runs under torch.compile."""
    return WorkerMode(
        text,
        deterministic=deterministic,
        variables=_COMPILER | _WORKSPACE if deterministic else _COMPILER,
        execution="compiled",
        concern="one_case",
        head=head,
        since=(2, 1),
        retired=retired,
    )


MODE_TABLE: dict[Mode, WorkerMode] = {
    "off": WorkerMode("the flag off", deterministic=False, variables={}),
    "on": WorkerMode("the flag on"),
    "warn_only": WorkerMode("the flag on with warn_only=True", warn_only=True, concern="raising"),
    # What it says of few rows decides what users are advised to do, so that ten executions are not enough.
    "unfilled": WorkerMode(
        "the flag on without the fill of memory", fill=False, concern="cured", least_runs=LEAST_RUNS
    ),
    "no_workspace": WorkerMode(
        "the flag on without CUBLAS_WORKSPACE_CONFIG", variables={}, concern="cublas", cuda_alone=True
    ),
    "backward_only": WorkerMode(
        "the flag off in the forward phase and on in the backward one",
        deterministic=False,
        execution="switched",
        concern="backward",
        head="BWO",
    ),
    "forward_only": WorkerMode(
        "the flag on in the forward phase and off in the backward one",
        execution="switched",
        concern="backward",
        head="FWO",
    ),
    "cudnn_deterministic": _cudnn("CUD", "deterministic"),
    "cudnn_benchmark": _cudnn("CUB", "benchmark"),
    "cudnn_both": _cudnn("CDB", "deterministic", "benchmark"),
    "compile_off": _compiler("CPF", "the flag off, under torch.compile", deterministic=False),
    "compile_on": _compiler("CPN", "the flag on, under torch.compile"),
    "compile_on_cached": _compiler(
        "CPC",
        "the flag on, under torch.compile, with a cache that a process filled whose flag was off in its first backward phase",
        retired=True,
    ),
}
# The modes of the matrix; the others only some rows live under, or some scans.
MODES: tuple[Mode, ...] = ("off", "on")
WORKER_MODES: tuple[Mode, ...] = tuple(MODE_TABLE)
CHOSEN_MODES: tuple[Mode, ...] = tuple(mode for mode, it in MODE_TABLE.items() if it.chosen)
# Those that ``--modes`` offers beside off and on.
OFFERED_MODES: tuple[Mode, ...] = tuple(mode for mode in CHOSEN_MODES if not MODE_TABLE[mode].retired)
# Of a scan that was asked for none.
DEFAULT_MODES: tuple[Mode, ...] = tuple(mode for mode, it in MODE_TABLE.items() if not it.chosen)

# Why a mode that there is on CUDA alone is not run elsewhere.
_NOT_HERE: dict[Concern, str] = {
    "cublas": "cuBLAS computes on CUDA alone",
    "cudnn": "cuDNN computes on CUDA alone",
}
ONE_CASE = "one case of each op is compiled in each direction; --compile-all compiles all"
_NOT_SIMULATED = "kernels of libraries are not simulated"


def modes_on(device: str) -> tuple[Mode, ...]:
    """Return the modes that there are on a device: ``"cpu"``, ``"cuda"``, ``"cuda:N"``."""
    return tuple(mode for mode, it in MODE_TABLE.items() if why_not_on(it, device) is None)


def why_not_on(it: WorkerMode, device: str) -> str | None:
    """Return why there is no such mode on a device; ``None`` if there is."""
    if device == SIMULATED:
        return _NOT_SIMULATED if it.cuda_alone else None
    return _NOT_HERE[it.concern] if it.cuda_alone and kind_of(device) != "cuda" else None


def with_chosen(names: Iterable[str]) -> tuple[Mode, ...]:
    """Return the modes of a scan for which these were chosen, in the order of the table."""
    asked = set(names)
    return tuple(mode for mode in WORKER_MODES if mode in DEFAULT_MODES or mode in asked)


def said_modes(modes: Iterable[Mode]) -> tuple[Mode, ...]:
    """Return what ``--modes`` says of the modes of a scan: the others follow."""
    asked = set(modes)
    return (*MODES, *(mode for mode in CHOSEN_MODES if mode in asked))


def turns(before: Mode, after: Mode) -> bool:
    """Tell whether a process may execute rows of one mode that has executed rows of another: only what raises is another there.

    What it keeps is the same then: memory that was filled, or was not, and code that was compiled to fill it.
    """
    of_both = (MODE_TABLE[before], MODE_TABLE[after])
    kinds = {(it.deterministic, it.fill, it.execution, it.variables == _WORKSPACE) for it in of_both}
    return kinds == {(True, True, "eager", True)}


def idle_modes(modes: Iterable[Mode], device: str) -> dict[str, list[Mode]]:
    """Return the chosen modes that there are not on a device, by why they are not."""
    idle: dict[str, list[Mode]] = {}
    for mode in modes:
        why = why_not_on(MODE_TABLE[mode], device)
        if mode in CHOSEN_MODES and why is not None:
            idle.setdefault(why, []).append(mode)
    return idle
