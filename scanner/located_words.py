"""What was found in a program, in words: for a terminal, and for whoever prints it in a notebook."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from detmatrix.scanner.errors import one_line
from detmatrix.scanner.located import (
    COMPILED_IN_ONE,
    REGION,
    Cause,
    CodeLine,
    Located,
    OpSite,
    Root,
    WithFlag,
)
from detmatrix.scanner.plurals import several

# What an op that differed did with the flag on.
WITH_FLAG: dict[WithFlag, str] = {
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
    "number that Python computed, an op that takes part in communication.",
    "changed": "Memory that was equal in both runs differs where the op reads it, and no op wrote to it in between: "
    "numpy, or an extension that writes through a pointer.",
    "generator": "A random generator is in another state in another run: it was not seeded, or drawn from otherwise.",
    "order": "The Triton kernel gave other bits when the interpreter ran its programs in another order, one that a GPU may or "
    "may not take; nothing of it was measured on a GPU.",
    "schedule": "The op gave other bits when a simulated GPU ran its threads in another order that CUDA permits; nothing of it "
    "was measured on a GPU.",
}
# How often it differed, or what else makes it a root.
_DIFFERED: dict[Cause, str] = {
    "replay": "{0.differing} of {0.executions}",
    "runs": "{0.differing} of {0.executions} runs",
    "order": "{0.differing} of {0.executions} orders",
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
    "order": "let each output be written by one program, in a fixed order; a GPU may or may not take another order, so "
    "measure it there",
}
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
    """Return ``train.py:12 (forward)``, the path from the current folder if it lies below."""
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


def flag_words(root: Root) -> str:
    """Say what the op does with the flag on."""
    if root.flag is None:
        return ""
    return (
        f"raises ({one_line(root.alert)})" if root.flag == "raises" and root.alert else WITH_FLAG[root.flag]
    )


def table(located: Located) -> tuple[list[str], list[list[str]]]:
    """Return the heads and the rows of the table of roots, without columns that say nothing."""
    rows = [_cells(located, root) for root in in_order(located)]
    said = [place for place in range(len(_HEADS)) if any(row[place] for row in rows)]
    return [_HEADS[place] for place in said], [[row[place] for place in said] for row in rows]


def _cells(located: Located, root: Root) -> tuple[str, ...]:
    numbers = ", ".join(map(str, root.in_runs))
    return (
        _DIFFERED[root.cause].format(root),
        one_line(root.site.op),
        site_words(root.site),
        one_line(root.site.module or ""),
        phase_words(root.site),
        several(root.reached, "op"),
        flag_words(root),
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
    cause = "order" if root.site.op.startswith("triton::") else root.cause
    if cause in _DO:
        return _DO[cause]
    return _DO_WITH_FLAG.get(root.flag, f"try {_SET}")


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
        done = f"{located.ops} ops, {located.replayed} of them executed {times}"
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
    if located.launches and not located.simulated:
        found.append(
            f"{several(located.launches, 'launch', 'es')} of Triton kernels ran in Triton's interpreter, with their "
            f"programs in {located.replays} other orders, which a GPU may or may not take."
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
