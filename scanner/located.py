"""What ``detmatrix locate`` finds in a program, as the program's process writes it and reports read it.

Plain data of the standard library: what runs inside a stranger's program needs nothing of ours but a torch.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from typing import Literal

# What places the threads of OpenMP; a user who sets one has chosen.
PLACES = frozenset({"GOMP_CPU_AFFINITY", "KMP_AFFINITY", "OMP_PLACES", "OMP_PROC_BIND"})
# Further executions of an op that are enough where the sentinel differs half of the time, the most that are chosen, and how
# probable it may be that a race as frequent as the sentinel's shows in none of them.
FEW_REPLAYS, MOST_REPLAYS, MISSED = 4, 16, 0.05
# In a record: what is not compared, what begins the digest of a generator's state, of what was written to without an op, and of the
# part of a tensor that was written, with a digest of which part that is, a dot between the two.
NOT_COMPARED, GENERATOR, CHANGED, PART = "-", "g", "c", "p"
# What the names of compiled regions begin with, and the origin of one that differs where only one of the runs compiled it.
REGION, COMPILED_IN_ONE = "compiled::", "compiled in one of the runs only"
# How a root was found.
#
# replay     the op gave other bits when it was executed again on the same inputs
# runs       the op gave other bits in another run of the program, on the same inputs
# unwritten  the op read memory that nothing had written, and its result depends on it
# input      the inputs differ between runs, and no op that was seen made them so
# changed    memory that was equal in both runs differs where the op reads it, and no op wrote to it in between
# generator  a random generator is in another state in another run
# order      a Triton kernel gave other bits when the interpreter ran its programs in another order
# schedule   the op gave other bits when a simulated GPU ran its threads in another order
Cause = Literal["replay", "runs", "unwritten", "input", "changed", "generator", "order", "schedule"]
# forward, backward: the phase of the program that called the op. recomputed: forward again, under checkpointing.
Phase = Literal["forward", "backward", "recomputed"]
# What an op that differed does with the flag on: the same bits each time (cured), so only because uninitialized memory is
# filled (filled), its alert (raises), other bits all the same (differs). failed: it could not be executed so. rare: the same
# bits each time, but so it gave without the flag when it was looked at closer.
WithFlag = Literal["cured", "filled", "raises", "differs", "failed", "rare"]


@dataclass(frozen=True)
class CodeLine:
    """A line of Python."""

    file: str
    line: int
    function: str
    source: str | None = None  # digest of the file's text


@dataclass(frozen=True)
class OpSite:
    """Where the program called an op, in words its author knows."""

    op: str  # "aten::index_put_"
    phase: Phase
    line: CodeLine | None  # of the user's own file; for backward that of the forward call
    library: CodeLine | None  # of the library that called it, if one did
    module: str | None  # "Net.layers.3.attn"
    node: str | None  # of autograd, for backward: "IndexBackward0"


@dataclass
class Distance:
    """How far outputs that differed were apart, the farthest seen."""

    elements: int = 0  # of the outputs that differed
    differing: int = 0  # of these, in one execution
    max_abs: float | None = None
    max_ulp: int | None = None


@dataclass
class Root:
    """One call site whose op is not reproducible."""

    site: OpSite
    cause: Cause
    tensors: tuple[str, ...]  # what it was given where it first differed: "float32[4, 128]"
    first: int  # number of that call among the ops of the program
    calls: int = 0  # of this site, up to the end
    differing_calls: int = 0
    executions: int = 0  # further ones of the calls that differed
    differing: int = 0  # of these
    outputs: tuple[int, ...] = ()  # which ones differed; arguments it changes stand behind what it returns
    distance: Distance = field(default_factory=Distance)
    reached: int = 0  # later ops that were given what came of it
    numbers: int = 0  # of these, ops given another number of Python, which may or may not have come of it
    flag: WithFlag | None = None
    alert: str | None = None  # the caller it names
    # The op that handed out unwritten memory; Python's generators that were in another state; the orders that first differed;
    # that a compiled region was compiled in one of the runs only.
    origin: str | None = None
    argument: str | None = None  # what differed of that which it was given, as both runs have it
    # Numbers of the runs in which it differs from the first, or of ranks in which it differs.
    in_runs: tuple[int, ...] = ()
    saved: str | None = None  # the file that holds its inputs


@dataclass
class SentinelSeen:
    """What an op that must differ wherever anything races showed in the same process, under the same mode."""

    op: str
    device: str
    executions: int
    differing: int


@dataclass
class Parting:
    """A place where two runs call different ops; what follows is held against each other again where that is possible."""

    first: OpSite | None  # what the first run calls there; None: it had ended
    second: OpSite | None
    only_first: int  # ops that only the first run called there
    only_second: int
    run: int  # number of the other run


@dataclass
class Located:
    """All that one process found."""

    torch: str
    python: str
    threads: int
    bound: bool = True  # whether OpenMP's threads are bound to cores
    replays: int = 0  # of each op; 0: none
    ops: int = 0  # that reached the dispatcher; views, and what only hands out memory, left out
    replayed: int = 0
    launches: int = 0  # of Triton kernels, run again in other orders; they are among the ops
    steps: int = 0
    seconds: float = 0.0
    left_out: dict[str, int] = field(default_factory=dict)  # why calls were not executed again -> how many
    left_out_ops: dict[str, tuple[str, ...]] = field(default_factory=dict)  # the first few of these
    thread_ops: int = 0  # that other threads of Python called: not looked at
    processes: int = 0  # that multiprocessing started: not looked at
    called: tuple[tuple[OpSite, int], ...] = ()  # call sites and calls, where ops were only counted
    settings: dict[str, str] = field(default_factory=dict)  # what was set at its end, as its process says
    device: str | None = None  # the GPU that was used: "sm_90"
    simulated: bool = False  # whether that GPU was simulated
    race_free: int = 0  # ops no two of whose accesses were without an order there
    outside: int = 0  # ops given memory that something else than an op had written to; in one run
    outside_site: OpSite | None = None  # the first of these
    compiled: tuple[str, ...] = ()  # places that ask for compilation
    sentinels: tuple[SentinelSeen, ...] = ()
    roots: tuple[Root, ...] = ()
    # Of the runs that were held against each other, if they were recorded before.
    records: tuple[str, ...] = ()
    ranks: int = 0  # of a program of several processes, each of which was observed; 0: it is one
    runs: int = 1
    compared: int = 0  # ops of the first run that had their like in another one
    # Of these, calls that were given something else because an earlier op gave something else.
    propagated: int = 0
    partings: tuple[Parting, ...] = ()
    ended: str | None = None  # how the program ended, if not at its end

    @property
    def sentinel_counts(self) -> dict[tuple[str, str], tuple[int, int]]:
        """How often each sentinel differed on a device, and in how many executions."""
        seen: dict[tuple[str, str], tuple[int, int]] = {}
        for one in self.sentinels:
            differing, executions = seen.get((one.op, one.device), (0, 0))
            seen[one.op, one.device] = differing + one.differing, executions + one.executions
        return seen

    @property
    def missed(self) -> float:
        """How probable it is that a race as frequent as the sentinel's showed in no execution of a call."""
        seen = self.sentinel_counts
        # On an accelerator the CPU's says nothing.
        shown = {which: rate for which, rate in seen.items() if which[1] != "cpu"} or seen
        rate = min((differing / executions for differing, executions in shown.values()), default=0.0)
        return (1 - rate) ** max(self.replays, 1)

    @property
    def judged(self) -> int:
        """Ops that were compared with themselves, or with their like in another run."""
        return self.replayed if self.runs == 1 else self.compared

    @property
    def races_show(self) -> bool:
        """Whether the sentinel differs often enough; of runs held against each other, that it ever differs is enough."""
        return bool(self.records) or (self.missed <= MISSED if self.replays else self.missed < 1)

    @property
    def could_see(self) -> bool:
        """Whether sameness says something."""
        return self.judged > 0 and self.races_show


def of_rank(path: str) -> str:
    """Return the name for the record of this process: of one of several that torchrun has started it has the rank."""
    rank = os.environ.get("RANK", "")
    if not rank.isdecimal() or os.environ.get("WORLD_SIZE", "1") == "1":
        return path
    folder, name = os.path.split(path)
    stem, *endings = name.split(".")
    return os.path.join(folder, ".".join([stem, f"rank{rank}", *endings]))  # noqa: PTH118 - a text


def replays_for(seen: SentinelSeen) -> int:
    """Return how often an op must be executed again for a race as frequent as the sentinel's to show."""
    rate = seen.differing / seen.executions
    if rate in {0, 1}:
        return FEW_REPLAYS
    return min(max(FEW_REPLAYS, math.ceil(math.log(MISSED) / math.log(1 - rate))), MOST_REPLAYS)
