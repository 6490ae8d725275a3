"""What ``detmatrix locate`` finds in a program, as its process writes it and reports read it, and what is said of it in words.

Of the standard library: what runs inside a stranger's program, or prints in a notebook, needs nothing of ours but a torch.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from detmatrix.scanner.errors import one_line
from detmatrix.scanner.plurals import several

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
# schedule   the op gave other bits when a simulated GPU ran its threads in another order
Cause = Literal["replay", "runs", "unwritten", "input", "changed", "generator", "schedule"]
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


@dataclass(eq=False)
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


@dataclass(eq=False, repr=False)
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

    def __str__(self) -> str:
        return text(self) if self.seconds else "The block has not ended."

    __repr__ = __str__

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


# --- In words: for a terminal, and for whoever prints it in a notebook


# What an op that differed did with the flag on.
WITH_FLAG: dict[WithFlag | None, str] = {
    None: "",
    "cured": "stable",
    "filled": "stable by the fill",
    "raises": "raises",
    "differs": "differs",
    "failed": "not known",
    "rare": "too rare to tell",
}
CAUSE_MEANING: dict[Cause, str] = {
    "replay": "The op gave other bits when it was executed again on the same inputs.",
    "runs": "The op gave other bits in another run, on the same inputs.",
    "unwritten": "The op read memory that nothing had written, and its result depends on it.",
    "input": "The op was given something else in another run, and no op that was seen made it so: a data loader, a "
    "number that Python computed, another tensor that Python chose, an op that takes part in communication.",
    "changed": "Memory that was equal in both runs differs where the op reads it, and no op wrote to it in between: "
    "numpy, or an extension that writes through a pointer.",
    "generator": "A random generator is in another state in another run: it was not seeded, or drawn from otherwise.",
    "schedule": "The op gave other bits when a simulated GPU ran its threads in another order that CUDA permits; nothing of it "
    "was measured on a GPU.",
}
# How often it differed, or what else makes it a root.
_DIFFERED: dict[Cause, str] = {
    "replay": "{0.differing} of {0.executions}",
    "runs": "{0.differing} of {0.executions} runs",
    "schedule": "{0.differing} of {0.executions} simulated schedules",
    "unwritten": "unwritten memory",
    "input": "other input",
    "changed": "changed between ops",
    "generator": "other generator state",
}
# Partings that are told one by one.
_MOST_PARTINGS = 5
_HEADS = ("differed", "op", "line", "module", "phase", "reached", "with the flag on", "runs", "ranks")
_SET = "torch.use_deterministic_algorithms(True)"
_DO: dict[Cause, str] = {
    "unwritten": "write the memory before it is read (torch.zeros in place of torch.empty)",
    "input": "look at what makes this input: seed the data loader and Python's generators, sort what is read from sets",
    "changed": "look for what writes to this tensor without an op: numpy on the same memory, a kernel of an extension",
    "generator": "call torch.manual_seed at the start, and give data loaders a generator",
}
_DO_IN_KERNEL = (
    "let each output be written by one program, in a fixed order; a GPU may or may not take another order, so measure it "
    "there"
)
_ROUNDS = (
    "compiled code rounds in other places than eager code, and draws other random numbers; leave out of torch.compile what "
    "must have the same bits. If it is not that: "
)
_USES = (
    "something that it uses beside its arguments may differ and is in no record (an object of your own, an array, memory "
    "that nothing had written), or what compiled it"
)
_DO_WITH_FLAG: dict[WithFlag | None, str] = {
    "cured": f"{_SET} cures it: with the flag on no execution differed",
    "raises": f"{_SET} stops it with an error; choose another op, or compute it on another device",
    "differs": "the flag does not cure it; choose another op, and report it to who wrote the kernel",
    "rare": "execute it more often (--replay) to see what the flag does: it did not differ again without it either",
}


def in_order(located: Located) -> list[Root]:
    """Return roots, those that reached and differed most first; of recorded runs in the order in which ops were called."""
    if located.records:
        return sorted(located.roots, key=lambda root: root.first)
    return sorted(located.roots, key=lambda root: (-root.reached, -root.differing, root.first))


def line_words(line: CodeLine | None) -> str:
    """Return ``train.py:12``, the path from the current folder if it lies below."""
    if line is None:
        return "unknown"
    path = Path(line.file)
    if path.is_absolute() and path.is_relative_to(Path.cwd()):
        path = path.relative_to(Path.cwd())
    return one_line(f"{path}:{line.line}")


def site_words(site: OpSite) -> str:
    """Return the user's line, and the library's if it is one of these that called the op."""
    return line_words(site.line or site.library)


def phase_words(site: OpSite) -> str:
    """Say which phase of the program called an op."""
    return f"backward ({one_line(site.node)})" if site.node else site.phase


def table(located: Located) -> tuple[list[str], list[list[str]]]:
    """Return the heads and the rows of the table of roots, without columns that say nothing."""
    rows = [_cells(located, root) for root in in_order(located)]
    said = [place for place in range(len(_HEADS)) if any(row[place] for row in rows)]
    return [_HEADS[place] for place in said], [[row[place] for place in said] for row in rows]


def _cells(located: Located, root: Root) -> tuple[str, ...]:
    numbers = ", ".join(map(str, root.in_runs))
    alert = f" ({one_line(root.alert)})" if root.flag == "raises" and root.alert else ""
    return (
        _DIFFERED[root.cause].format(root),
        one_line(root.site.op),
        site_words(root.site),
        one_line(root.site.module or ""),
        phase_words(root.site),
        several(root.reached, "op"),
        f"{WITH_FLAG[root.flag]}{alert}",
        numbers if located.runs > 2 else "",  # noqa: PLR2004 - the first and one more
        numbers if located.ranks else "",
    )


def details(root: Root) -> list[str]:
    """Say of a root what its line in the table has no room for."""
    calls = f"{root.differing_calls} of {root.calls} calls" if root.calls else f"{root.differing_calls} calls"
    found = [
        f"{calls}, the first as op {root.first}, given {', '.join(map(one_line, root.tensors)) or 'no tensor'}"
    ]
    far = root.distance
    if far.elements:
        size = [f"{far.differing / far.elements:.2g} of the elements"]
        size += [f"by up to {far.max_ulp} ULP"] if far.max_ulp is not None else []
        size += [f"{far.max_abs:.2g} absolute"] if far.max_abs is not None else []
        found.append(", ".join(size))
    if root.site.library is not None and root.site.line is not None:
        found.append(f"called by {line_words(root.site.library)}")
    if root.argument is not None:
        found.append(f"what differs is {one_line(root.argument)}")
    if root.origin is not None:
        known = {
            "unwritten": "the memory is of {}",
            "schedule": "seen first with {} in another order",
            "runs": "{}",
        }.get(root.cause, "{} was in another state there")
        found.append(known.format(one_line(root.origin)))
    if root.numbers:
        found.append(
            f"Python was handed what it gave, and gave another number to {several(root.numbers, 'later op')}, of this or by itself"
        )
    if root.saved is not None:
        found.append(f"inputs saved in {one_line(root.saved)}")
    return found


def advice(root: Root) -> str:
    """Say what to do about a root."""
    if root.site.op.startswith(REGION) and root.cause == "runs":
        return f"{_ROUNDS if root.origin == COMPILED_IN_ONE else ''}{_USES}"
    if root.cause == "generator" and root.argument is not None:
        return "seed the torch.Generator that the op is given: generator.manual_seed(0); .seed() draws another seed in each run"
    if root.cause == "input" and root.origin is not None:
        names = one_line(root.origin).split(", ")
        return f"call {' and '.join(f'{one}.seed(0)' for one in names)} at the start: it was drawn from, and not seeded alike"
    if root.cause == "input" and " against " in (root.argument or ""):
        return "look at what gives another number or shape there: settings, data, releases"
    if root.site.op.startswith("triton::"):
        return _DO_IN_KERNEL
    return _DO.get(root.cause) or _DO_WITH_FLAG.get(root.flag, f"try {_SET}")


def summary(located: Located) -> str:
    """Return what was done and found in one sentence."""
    count = len(located.roots)
    if located.records and count:
        first = in_order(located)[0]
        return (
            f"{several(count, 'call site')} {'differ' if count > 1 else 'differs'}, first {one_line(first.site.op)} at "
            f"{site_words(first.site)}, op {first.first} of {located.ops}, of which {located.compared} have their like."
        )
    sites = (
        f"{several(count, 'call site')} {'are' if count > 1 else 'is'} not reproducible"
        if count
        else "The runs call different ops"
        if located.partings
        else "No call site differed"
        if located.judged
        else "Nothing was judged"
    )
    if located.runs > 1:
        others = located.runs - 1
        done = f"{located.compared} of {located.ops} ops held against {several(others, 'more run')}"
        done += f", {located.ops - located.compared} without their like" if located.partings else ""
        done += f", {located.propagated} given what earlier ones had made different"
    else:
        times = (
            f"in {located.replays} simulated orders of each class that can change anything"
            if located.simulated
            else f"{located.replays} more times"
        )
        done = f"{several(located.ops, 'op')}, {located.replayed} of them executed {times}"
    return f"{sites}: {done} (torch {one_line(located.torch)}, {several(located.threads, 'thread')})."


def sentinel_words(located: Located) -> list[str]:
    """Say whether a difference could have been seen."""
    found = [
        f"The sentinel {one_line(op)} on {device}, which differs wherever anything races, differed in "
        f"{differing} of {executions} executions"
        + (
            "."
            if located.races_show and differing
            else f": low power, {located.replays} executions miss a race as rare as that in {located.missed:.0%} of "
            f"calls; give a larger --replay, or a quieter machine."
            if differing
            else ": nothing raced here, so that sameness says nothing."
        )
        for (op, device), (differing, executions) in located.sentinel_counts.items()
    ]
    if not located.bound:
        found.append(
            "Threads are not bound to cores, and hardly race where they share one; that cannot be changed once torch runs: "
            "start Python with OMP_PROC_BIND=true."
        )
    return found


def notes(located: Located) -> list[str]:
    """Return what must be known of what was not seen."""
    found = [f"Run {number} is {one_line(name)}." for number, name in enumerate(located.records, 1)]
    if located.records and not located.partings and located.compared < located.ops:
        steps = "Held against each other are" if located.compared else "No op is of"
        found.append(f"{steps} the steps that all of them have.")
    for parting in located.partings[:_MOST_PARTINGS]:
        first, second = (
            f"{one_line(one.op)} at {site_words(one)}" if one else "no op any more"
            for one in (parting.first, parting.second)
        )
        found.append(
            f"Run 1 and run {parting.run} part: run 1 calls {first}, run {parting.run} {second} ({parting.only_first} and "
            f"{parting.only_second} ops without their like)."
        )
    calls = [{it.op.partition("::")[0] for it in (one.first, one.second) if it} for one in located.partings]
    if any("compiled" in one and len(one) > 1 for one in calls):
        found.append("One of them calls compiled code: record the other with --eager, of the same program.")
    if more := located.partings[_MOST_PARTINGS:]:
        found.append(f"Runs part at {several(len(more), 'more place')}.")
    if located.simulated:
        what = (
            f"The GPU ({located.device}) was"
            if located.device
            else "The program used no GPU: one would have been"
        )
        found.append(f"{what} simulated: what CUDA permits, and nothing that was measured on a GPU.")
        found.append(
            f"{several(located.race_free, 'op')} had no two accesses in conflict there: no order changes their bits, given these inputs."
        )
    found += sentinel_words(located)
    if located.runs == 1 and located.judged and not (located.roots or located.simulated):
        found.append(
            "What was executed again had the same inputs. If two runs of the program differ all the same, their inputs may: "
            "detmatrix locate --runs 2 PROGRAM finds unseeded generators and data in another order."
        )
    what = "Not executed again" if located.runs == 1 else "Outputs not digested"
    found += [
        f"{what}: {several(count, 'call')} to ops that {one_line(reason)}: {', '.join(map(one_line, located.left_out_ops.get(reason, ())))}."
        for reason, count in located.left_out.items()
    ]
    found += _unseen(located)
    if located.compiled:
        found.append(
            f"torch.compile is asked for at {', '.join(map(one_line, located.compiled))}: such code ran uncompiled here, or "
            f"as one op; what compiled kernels do was not seen."
        )
    if located.ended is not None:
        found.append(f"The program ended early: {one_line(located.ended)}.")
    return found


def _unseen(located: Located) -> list[str]:
    """Say what the program did without being looked at."""
    found = []
    if not located.judged and located.runs == 1:
        found.append(
            f"No op was {'executed again' if located.ops else 'looked at'}, so that nothing is known."
        )
    elsewhere = [f"{several(located.thread_ops, 'op')} that other threads called"] * bool(located.thread_ops)
    elsewhere += [f"the ops of {several(located.processes, 'more process', 'es')}"] * bool(located.processes)
    if elsewhere:
        found.append(f"Not looked at: {' and '.join(elsewhere)}.")
    if located.outside_site is not None:
        first = located.outside_site
        found.append(
            f"Not executed again: what wrote to the inputs of {several(located.outside, 'op')} and is no op itself (numpy, a kernel of an "
            f"extension, another thread), first seen by {one_line(first.op)} at {site_words(first)}; --runs 2 compares it."
        )
    return found


def text(located: Located, more: Mapping[int, str] | None = None) -> str:
    """Return the whole report for a terminal, with a further line for some roots, by their place among the worst first."""
    lines = [summary(located)]
    roots = in_order(located)
    if roots:
        heads, rows = table(located)
        lines += ["", *columns(["", *heads], [[f"{place}", *row] for place, row in enumerate(rows, 1)])]
        for place, root in enumerate(roots, 1):
            lines += ["", f"{place}. {'; '.join(details(root))}.", f"   To do: {advice(root)}."]
            if more and place - 1 in more:
                lines.append(f"   {more[place - 1]}")
    return "\n".join([*lines, "", *notes(located)]) + "\n"


def columns(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return lines whose columns begin below one another."""
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (heads, *rows)
    ]
