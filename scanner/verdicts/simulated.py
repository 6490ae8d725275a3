"""What reports say of a simulated GPU: the device, its schedules, how many of them it took, and what it shows beside a finding."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable
from math import isfinite
from typing import TYPE_CHECKING

from detmatrix.scanner.observations.records import Header, Schedule, Simulation, Witness
from detmatrix.scanner.plurals import several
from detmatrix.scanner.schedules import FREEDOMS, LEAST_RUNS, PERMITTED, SCHEDULES, SCOPES, phrase, split
from detmatrix.scanner.verdicts.vocabulary import BESIDE

if TYPE_CHECKING:
    from detmatrix.scanner.verdicts.findings import MatrixRow

NOT_MEASURED = "nothing was measured on a GPU"
PROVED, NOT_EXERCISED = "proved for these inputs", "not exercised"
# What conflicts among threads say of a row that did not differ.
CONFLICT_MEANING = {
    PROVED: "No two threads were in conflict (the row is race-free): every order gives these bits, which no sample could say. "
    "Of memory that nobody wrote one other content was tried.",
    NOT_EXERCISED: "Threads were in conflict, but by too few additions to one place to show an order.",
}
_LONGEST = 100  # of a kernel's name
# Numbers of executions that are told, as far as a scan had so many.
_TOLD = (4, 8, 16, 32, 64)


def schedule_words(schedule: Schedule) -> str:
    """Name the class that shows a difference by itself, what replays it, and its standing."""
    standing = "" if FREEDOMS[schedule.name].headline else f"; {PERMITTED}"
    return f"{schedule.name} (number {schedule.number}, seed {schedule.seed}{standing})"


def cell_words(known: Simulation) -> list[str]:
    """Return what a cell says behind how it differed."""
    cpu = known.cpu
    return [
        *([cpu.words] if cpu and not cpu.agrees else []),
        *([BESIDE["value_race"].phrase] if known.raced else []),
        *(["approximation-sensitive"] if known.approximation_sensitive else []),
        *([f"look at it: {known.contradiction}"] if known.contradiction else []),
        *([f"the CPU computed {', '.join(known.products)}"] if known.products else []),
        *(known.conflicts.doubts if known.conflicts else ()),
        *others(known),
    ]


def others(known: Simulation) -> list[str]:
    """Name a kernel that the row launches at real size, and did not launch here."""
    kernels = known.other_kernels or ()
    more = f" and {len(kernels) - 1} more" if len(kernels) > 1 else ""
    return [f"other kernel at real size: {kernels[0]}{more}"] if kernels else []


def proved(*known: Simulation) -> str:
    """Say that a row is proved, and which kernel of real size the proof is not about."""
    return ", ".join(dict.fromkeys([PROVED, *(text for one in known for text in others(one))]))


def standing(known: Simulation, runs: int) -> str:
    """Say what a verdict rests on: "resident blocks", "proved for these inputs", "not exercised", "8 schedules"."""
    if known.schedule:
        return phrase(known.schedule.name)
    return PROVED if known.race_free else NOT_EXERCISED if known.not_exercised else several(runs, "schedule")


def behind_standing(known: Simulation) -> list[str]:
    """Return what replays a difference, or how many conflicting pairs came in the other order."""
    it, schedule = known.conflicts, known.schedule
    if schedule:
        permitted = [] if FREEDOMS[schedule.name].headline else [PERMITTED]
        return [f"number {schedule.number}", f"seed {schedule.seed}", *permitted]
    return [f"{it.reversed} of {it.sampled} conflicting pairs reversed"] if it and it.sampled else []


def witness_words(known: Simulation) -> str:
    """Name the pair of accesses that differ when they are swapped, with all that a reader recomputes it from."""
    it = known.witness
    if it is None:
        return "none"
    first, second = (
        f"{kind} {value} by block {block}, thread {thread}"
        for kind, value, block, thread in zip(it.kinds, it.values, it.blocks, it.threads, strict=True)
    )
    source = f" ({it.source})" if it.source else ""
    alone = "" if it.shows else ". The pair did not show it alone: other accesses moved with it"
    return (
        f"{it.kernel[:_LONGEST]}{source} at {it.address:#x}, which held {it.old}: {first}, then {second}{_sums(it)}. "
        f"Element {it.element} of {it.output} is {it.canonical}, swapped {it.swapped}{alone}"
    )


def _sums(it: Witness) -> str:
    """Return what two additions of float32 or float64 give in both orders; nothing where hardware may flush or overflow."""
    kind = {8: "f", 16: "d"}.get(len(it.canonical))
    if set(it.kinds) != {"float add"} or kind is None:
        return ""
    size, least = (4, 2.0**-126) if kind == "f" else (8, 2.0**-1022)

    def rounded(value: float) -> float:
        number: float = struct.unpack(f">{kind}", struct.pack(f">{kind}", value))[0]
        if not isfinite(number) or 0 < abs(number) < least:
            raise OverflowError
        return number

    try:
        old, one, other = (
            rounded(struct.unpack(f">{kind}", int(bits, 16).to_bytes(size, "big"))[0])
            for bits in (it.old, *it.values)
        )
        sums = [rounded(rounded(old + a) + b) for a, b in ((one, other), (other, one))]
    except OverflowError:
        return ""
    this, swapped = (struct.pack(f">{kind}", it).hex() for it in sums)
    return f" gives {this}, in the other order {swapped}"


def gpu_words(header: Header) -> str:
    """Say which GPU a run simulates, and what executed its kernels."""
    of = header.environment.simulated
    assert of is not None
    multiprocessors = several(of.multiprocessors, "multiprocessor")
    return f"{of.name}, simulated ({of.architecture}, {multiprocessors}, build {of.build})"


def n_words(header: Header) -> str:
    """Say which schedules a row has, and what they show."""
    of = header.environment.simulated
    assert of is not None
    counts = ", ".join(f"{name} {count}" for name, count in of.executions.items())
    meanings = "; ".join(f"{name}: {FREEDOMS[name].meaning}" for name in of.executions)
    permitted = ", ".join(name for name in of.executions if not FREEDOMS[name].headline)
    standing = f" Of {permitted}: {PERMITTED}." if permitted else ""
    return (
        f"PyTorch's own CUDA code ran on {gpu_words(header)}; {NOT_MEASURED}. Each row ran in each mode under up to "
        f"{sum(of.executions.values())} schedules, which seed {header.settings.seed} draws: {counts}. Where threads are in "
        f"conflict decides which classes get executions, and they end behind the first that gives other bits ({meanings}).{standing} Schedules are chosen, no samples of a rate: that none of n gave other "
        f"bits bounds nothing. Weak memory, several streams and the timing of the host are not explored."
    )


def bound_words(header: Header) -> str:
    """Say in short what n is."""
    of = header.environment.simulated
    assert of is not None
    count = sum(of.executions.values())
    return f"up to {several(count, 'schedule')} per row and mode, none of them on a GPU"


def recall(rows: Iterable[MatrixRow], runs: int) -> tuple[dict[str, int], dict[int, int]]:
    """Count the cells of a run, off and on, that differ: each once, in the weakest class that showed it.

    Returns:
        How many each class showed, and how many so many executions would have shown in the same class; another one may have
        shown more.
    """
    found = [one.simulated for row in rows for one in (row.off, row.on) if one.verdict == "nondeterministic"]
    needed = [_needed(one, runs) for one in found if one]
    classes = Counter(one.schedule.name for one in found if one and one.schedule)
    return (
        {name: classes[name] for name in SCHEDULES if classes[name]},
        {count: sum(it <= count for it in needed) for count in _TOLD if count <= runs},
    )


def _needed(known: Simulation, runs: int) -> int:
    """Return the least number of executions in which the schedule that showed a difference has its turn."""
    schedule, found = known.schedule, known.conflicts
    if schedule is None:
        return runs
    whole = found is None or bool(found.doubts)
    scopes = [it for place, it in enumerate(SCOPES) if whole or (found and found.pairs[place])]
    counts = range(LEAST_RUNS, runs)
    return next((n for n in counts if split(n, scopes)[schedule.name] > schedule.number), runs)


def recall_words(rows: Iterable[MatrixRow], header: Header) -> list[str]:
    """Say which classes of schedules showed what differs, and how many schedules that took; nothing where nothing differs."""
    of = header.environment.simulated
    assert of is not None
    shown, with_n = recall(rows, sum(of.executions.values()))
    if not shown:
        return []
    classes = ", ".join(f"{name} {count}" for name, count in shown.items())
    runs = ", ".join(f"{count} with n = {n}" for n, count in with_n.items())
    cells = sum(shown.values())
    return [f"{several(cells, 'cell')} {'differs' if cells == 1 else 'differ'}: {classes}; {runs}"]
