"""How many executions a simulated GPU needed for what it found: by class of schedules, and by number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from detmatrix.scanner.observations.records import Header, Simulation
from detmatrix.scanner.plurals import several
from detmatrix.scanner.schedules import LEAST_RUNS, SCHEDULES, SCOPES, split
from detmatrix.scanner.verdicts.findings import MatrixRow

# Numbers of executions that are told, as far as a scan had so many.
_TOLD = (4, 8, 16, 32, 64)


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
