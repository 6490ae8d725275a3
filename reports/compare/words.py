"""What a comparison says in words, the same in every format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from reports.compare.rows.comparable import kind_of
from reports.compare.rows.judged import Change
from reports.compare.runs import Comparison, Pair
from reports.matrix.cells import counted
from reports.matrix.model import COMPARED, Matrix, constant_of
from reports.matrix.view import doubts
from reports.matrix.words import named_machines, states
from reports.render.simulated import beside_words
from scanner.accelerators import label_of
from scanner.observations import versions
from scanner.observations.parts import parts_of
from scanner.observations.records import Header
from scanner.plurals import several
from scanner.verdicts.cells import Cell
from scanner.verdicts.findings import MatrixRow

NOT_PLANNED = "not planned"

# The format of run files that brought digests of another kind.
_DIGESTS = 5


def title(comparison: Comparison) -> str:
    """Return the versions that are compared, in order."""
    return " → ".join(f"torch {one.run.header.environment.torch}" for one in comparison.matrices)


def labels(matrices: Sequence[Matrix]) -> list[str]:
    """Return what tells runs apart: the version of torch, and the file's name where several have the same."""
    versions = [one.run.header.environment.torch for one in matrices]
    return [
        version if versions.count(version) == 1 else f"{version} ({one.name})"
        for version, one in zip(versions, matrices, strict=True)
    ]


def class_words(change: Change) -> str:
    """Return the class of a change with what must not be read without it."""
    judged = change.judged
    if judged.apparent is not None:
        return f"{judged.kind} (seems {judged.apparent})"
    return f"{judged.kind} (unconfirmed)" if judged.confirmed is False else judged.kind


def finding_words(row: MatrixRow | None, one: Matrix) -> str:
    """Return the finding of a row in one run, with what must not be read without it."""
    if row is None:
        return NOT_PLANNED
    rests, marks = finding_notes(row, one)
    return ", ".join([f"{row.finding} ({rests})" if rests else row.finding, *marks])


def finding_notes(row: MatrixRow, one: Matrix) -> tuple[str, list[str]]:
    """Return what a finding rests on, and the doubts about it."""
    rests = ""
    if row.finding == "deterministic":
        n = min(row.off.runs, row.on.runs)
        rests = f"{n} schedules" if row.off.simulated else f"n = {n}"
        rests = rests if constant_of(row) is None else "constant"
    elif row.finding == "inconclusive":
        rests = f"{row.off.verdict}, {row.on.verdict}"
    return rests, beside_words(row.beside) + doubts(row.weak, serial=row.serial, trusted=not one.distrust)


def cell_words(cell: Cell) -> str:
    """Return a cell: its verdict, and k of n or the alert's caller."""
    if cell.verdict in COMPARED:
        return f"{cell.verdict}, {counted(cell)}"
    return f"{cell.verdict} ({cell.alert})" if cell.alert else cell.verdict


def arrow(before: str, after: str) -> str:
    """Return what something was and is; once if that is the same."""
    return before if before == after else f"{before} → {after}"


def again_words(again: Mapping[str, Any]) -> str:
    """Return how many rows were measured again, how often, and what came out.

    Args:
        again: What the report's view says of it.
    """
    if not again["rows"] and not again["left"]:
        return "No row that can be compared seems to differ without proof, and none was measured again."
    parts, outcome = [], again["outcome"]
    if again["rows"]:
        parts.append(
            f"{several(again['rows'], 'row')} that seemed to differ {'was' if again['rows'] == 1 else 'were'} measured again, both runs in turns: {again['rounds']} "
            f"rounds of fresh processes, up to {again['executions']} executions of each run in each mode. Of these "
            f"{outcome.confirmed} are confirmed, {outcome.same} the same, {outcome.undecided} undecided. Processes "
            f"in which hardly anything could race count only where the row differed."
        )
    if outcome.left:
        parts.append(f"{several(outcome.left, 'row')} could not be measured again.")
    if again["distrust"]:
        parts.append(f"The measurement cannot be trusted: {'; '.join(again['distrust'])}.")
    return " ".join(parts)


def caveats(comparison: Comparison) -> Iterator[str]:
    """Yield what a reader must know of the runs before believing any of it."""
    for one in comparison.matrices:
        yield from (f"{one.name}: {text}" for _, text in states(one))
    for pair in comparison.pairs:
        for obstacle in pair.obstacles:
            yield (
                f"{pair.old.name} → {pair.new.name}: no row can be compared, {obstacle.reason}: "
                f"{obstacle.detail}"
            )


def notes(comparison: Comparison) -> Iterator[str]:
    """Yield what else is missing from the runs."""
    for one in comparison.matrices:
        missing = [
            text
            for text, there in (
                ("no controls: nothing shows that the scan could see a difference", one.run.header.controls),
                (
                    "no sentinel: nothing shows whether anything could race",
                    one.run.sentinels or one.simulated,
                ),
            )
            if not there
        ]
        if missing:
            yield f"{one.name}: {'; '.join(missing)}."
    yield from build_notes(comparison)
    for pair in comparison.pairs:
        yield from _unlike(pair)
        for likely in pair.likely:
            yield (
                f"{pair.old.name} → {pair.new.name}: {likely.op} likely {likely.kind}: {several(len(likely.changes), 'row')} seem so, "
                f"each of which may be chance; together {'; '.join(map(str, likely.tests))}."
            )
    for one in comparison.alone:
        yield f"{one.name}: no other run is of {label_of(kind_of(one))}; it is compared with none."
    lists = (text for pair in comparison.pairs for text in pair.lists)
    yield from dict.fromkeys(text.note for text in lists if text.note is not None)


def build_notes(comparison: Comparison) -> Iterator[str]:
    """Yield a warning wherever the builds of two runs are of different kinds, as those for CPUs and for CUDA are."""
    for pair in comparison.pairs:
        sides = [(one.name, one.run.header.environment.torch) for one in (pair.old, pair.new)]
        yield from build_words(*sides)


def build_words(old: tuple[str, str], new: tuple[str, str]) -> Iterator[str]:
    """Yield a warning if two builds are of different kinds.

    Args:
        old: The name of a file, and the version of torch in it.
        new: The same of the later one.
    """
    if versions.build_kind(old[1]) != versions.build_kind(new[1]):
        yield (
            f"{old[0]} → {new[0]}: builds of different kinds, {old[1]} and {new[1]}; changes may be due to that, and not to the "
            f"release."
        )


def _unlike(pair: Pair) -> Iterator[str]:
    """Yield what else the runs do not have in common, which keeps nothing from being compared."""
    headers = pair.old.run.header, pair.new.run.header
    if len({header.format < _DIGESTS for header in headers}) > 1:
        yield (
            f"{pair.old.name} → {pair.new.name}: one of the files holds digests of an older kind, so that inputs were "
            f"compared by dtype and shape alone."
        )
    pairs = [("detmatrix", [header.tool for header in headers])]
    builds = [header.environment.simulated and header.environment.simulated.build for header in headers]
    if builds[0] and builds[1]:
        pairs.append(("the simulation", [str(build) for build in builds]))
    elif kind_of(pair.new) != "cpu":
        pairs.append(("the driver", [_drivers(header) for header in headers]))
    for what, (before, after) in pairs:
        if before != after:
            yield (
                f"{pair.old.name} → {pair.new.name}: {what} was another, {before} → {after}; changes may be due to that."
            )


def _drivers(header: Header) -> str:
    return named_machines(part.environment.driver or "unknown" for part in parts_of(header))
