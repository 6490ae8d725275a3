"""Which rows of a run file are whole: of these another machine need not ask anything again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from scanner.claims.matching import matches
from scanner.modes import CHOSEN_MODES, FURTHER_MODES, MODE_TABLE, unconcerned
from scanner.observations.one_case import Key
from scanner.observations.records import MODES, Mode
from scanner.observations.runfile import Run
from scanner.verdicts.findings import MatrixRow, is_cured, matrix, runs_missing


def whole_rows(run: Run) -> frozenset[Key]:
    """Return the keys of the rows of which all is known that the scan asks.

    All modes that concern them have spoken, often enough, and cost, overloads and invariance are there where they are asked for:
    a merged file has all lines of a row from one machine.
    """
    settings = run.header.settings
    costs = {one.key for one in run.costs}
    dispatches = {one.key for one in run.dispatches}
    invariances = {(one.key, one.what) for one in run.invariances}
    seen = Counter((one.key, one.mode) for one in run.observations if one.process < settings.processes)
    whole = set()
    for found in matrix(run.header, run.observations, closed=False):
        key = found.row.key
        needed = _needed(run, found)
        properties = settings.invariance if found.off.verdict == "deterministic" else ()
        if (
            all(seen[key, mode] >= count for mode, count in needed)
            and not any(runs_missing(found, mode) for mode in FURTHER_MODES)
            and (key in costs or not settings.cost)
            and (key in dispatches or not settings.overloads)
            and all((key, what) in invariances for what in properties)
        ):
            whole.add(key)
    return frozenset(whole)


def _needed(run: Run, found: MatrixRow) -> Iterator[tuple[Mode, int]]:
    """Yield the modes that concern a row, each with the processes it takes."""
    settings, row = run.header.settings, found.row
    yield from ((mode, settings.processes) for mode in MODES)
    if found.on.verdict == "raises":
        yield "warn_only", sum(one.mode == "on" and one.outcome == "raised" for one in found.observations)
    if is_cured(found.off, found.on):
        yield "unfilled", settings.processes
    if "no_workspace" in settings.modes and any(
        matches(row, claim) for claim in run.header.claims if claim.section == "cublas"
    ):
        yield "no_workspace", settings.processes
    for mode in settings.modes:
        concerned = mode in CHOSEN_MODES and unconcerned(mode, row) is None
        if concerned and (row.compiled or MODE_TABLE[mode].concern != "one_case"):
            yield mode, settings.processes
