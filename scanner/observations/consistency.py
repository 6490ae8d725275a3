"""What a whole line of a run file may say: nothing that was not planned, stands twice or contradicts itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from detmatrix.scanner.errors import RunFileError
from detmatrix.scanner.modes import FURTHER_MODES
from detmatrix.scanner.observations.parts import foreign, misplaced, part_by_worker, parts_of
from detmatrix.scanner.observations.records import (
    MODES,
    WORKER_MODES,
    BuildOverloads,
    Closing,
    Cost,
    Dispatch,
    EnumeratedEntry,
    Header,
    Invariance,
    Observation,
    OfRow,
    Row,
    Sentinel,
    Settings,
)
from detmatrix.scanner.observations.settings import MOST_FURTHER

Placed = Observation | Sentinel | Cost | BuildOverloads | Dispatch | Invariance


# What the closing line counts, by its fields.
COUNTED: dict[str, type] = {
    "observations": Observation,
    "sentinels": Sentinel,
    "costs": Cost,
    "dispatches": Dispatch,
    "invariances": Invariance,
}
# Of PyTorch 2.0 to 2.15 none speaks of an op in more than three bullets.
_MOST_OF_AN_OP = 20


class Check:
    """Refuses records that the header did not plan, that stand in the file twice or that contradict themselves."""

    def __init__(self, path: str, header: Header) -> None:
        self._path = path
        self._settings = header.settings
        self._header = header
        self._workers = len(part_by_worker(header))
        self._shards = [part.shard for part in parts_of(header)]
        if max(header.shard, *self._shards) > header.shards or self._shards != sorted({*self._shards}):
            raise self._refused(1, "parts are out of order, or of no shard of the plan - at `$.parts`")
        # Controls have places below zero.
        self._planned = {row.key: -1 - place for place, row in enumerate(header.controls)}
        if len(self._planned) < len(header.controls):
            raise self._refused(1, "a row is planned twice - at `$.planned`")
        self._rows = 0
        self._add(1, header.planned, "planned")
        # Were every pair of bullets to speak of one op, what is said of pairs would have no end.
        spoken = Counter(target for claim in header.claims for target in set(claim.targets))
        for target, count in spoken.most_common(1):
            if count > _MOST_OF_AN_OP:
                text = f"{count} claims speak of {target}, a release has {_MOST_OF_AN_OP} at most - at `$.claims`"
                raise self._refused(1, text)
        self._seen: dict[object, int] = {}  # place -> line
        self._sentinels = 0

    def _refused(self, number: int, text: str) -> RunFileError:
        return RunFileError(f"{self._path}, line {number}: {text}; restore the file")

    def plan(self, number: int, entry: EnumeratedEntry) -> None:
        """Add the rows of an entry; refuse one that stands behind what was observed, or belongs to another shard or op."""
        if any(row.spec != entry.spec for row in entry.rows):
            text = "has rows of another op"
        elif self._seen or self._sentinels:
            text = "stands behind what was observed; put it before that"
        elif wrong := foreign(self._header, entry.spec, self._shards):
            text = wrong
        else:
            self._add(number, entry.rows, "rows")
            return
        raise self._refused(number, f"the entry {entry.spec} {text}")

    def _add(self, number: int, rows: Sequence[Row], field: str) -> None:
        """Plan rows behind those that are planned."""
        for row in rows:
            if row.key in self._planned:
                raise self._refused(number, f"a row is planned twice - at `$.{field}`")
            if wrong := misplaced(self._header, row):
                raise self._refused(number, f"the row {row.id} {wrong} - at `$.{field}`")
            self._planned[row.key] = self._rows
            self._rows += 1

    def place(self, number: int, record: Placed) -> None:
        """Refuse a line that no scan with these settings has written there."""
        row = self._planned.get(record.key) if isinstance(record, OfRow) else None
        known = row is not None and row >= 0
        of_row = ":".join(record.key) if isinstance(record, OfRow) else ""
        place: object = None
        if isinstance(record, Sentinel):
            # They may stand twice where a scan was interrupted: around each row, and more wherever it went on.
            name = f"the sentinel before row {record.before}"
            self._sentinels += 1
            passes = len(self._settings.modes) * self._settings.processes * self._workers
            planned = record.before <= self._rows and self._lives(record)
            planned = planned and self._sentinels <= 2 * (self._rows + 1) * passes + 1000
        elif isinstance(record, BuildOverloads):
            name, place, planned = "the list of overloads", "kernels", True
        elif isinstance(record, Observation):
            name = f"the observation of {of_row}"
            place = self._cell(row or 0, record)
            planned = row is not None and self._lives(record)
        elif isinstance(record, Invariance):
            name = f"the {record.what} of {of_row}"
            # Controls of it stand in no plan, and each part of a merged file asked them.
            control = record.spec.startswith("control.")
            place = (record.what, *record.key, record.worker if control else 0)
            planned = (known or control) and record.what in self._settings.invariance
            planned = planned and record.worker < self._workers
        else:
            said = "cost" if isinstance(record, Cost) else "overloads"
            name, place, planned = f"the {said} of {of_row}", (said, row), known
        if not planned:
            process = f" (process {record.process})" if isinstance(record, (Observation, Sentinel)) else ""
            raise self._refused(number, f"{name}{process} was never planned")
        if wrong := fault(record, self._settings):
            raise self._refused(number, f"{name} {wrong}")
        if place in self._seen:
            text = f"{name} stands twice (first in line {self._seen[place]}); remove one of them"
            raise RunFileError(f"{self._path}, line {number}: {text}")
        if place is not None:
            self._seen[place] = number

    def _cell(self, row: int, record: Observation) -> object:
        """Return what an observation is the only one of."""
        # A number, for there may be a million of them.
        cell = row * len(WORKER_MODES) + WORKER_MODES.index(record.mode)
        place = cell * (self._settings.processes + 1) + record.process
        # Each of the workers side by side answers the controls.
        return (place, record.worker) if row < 0 else place

    def _lives(self, record: Observation | Sentinel) -> bool:
        # A further process executes rows that were executed too seldom for their findings.
        further = record.mode in FURTHER_MODES
        return (
            record.process < self._settings.processes + further
            and record.mode in self._settings.modes
            and record.worker < self._workers
        )


def fault(record: Placed, settings: Settings) -> str | None:
    """Return the first thing that a record says and no scan with these settings can have seen; ``None`` if there is none."""
    faults: Iterator[str] = iter(())
    if isinstance(record, Observation):
        further = record.process >= settings.processes
        runs = settings.runs_in(record.mode)
        faults = _observation_faults(record, max(runs, MOST_FURTHER) if further else runs)
    elif isinstance(record, (Sentinel, Invariance)):
        faults = _too_many("differing", record.differing, record.executions)
    elif isinstance(record, Cost) and record.outcome == "ran":
        faults = (
            f"has no timing though the row ran - at `$.{name}`"
            for name in MODES
            if getattr(record, name) is None
        )
    elif isinstance(record, Dispatch) and record.outcome == "ran" and not set(MODES) <= record.modes.keys():
        faults = iter(["ran, and not in both modes - at `$.modes`"])
    return next(faults, None)


def _too_many(field: str, differing: int, executions: int) -> Iterator[str]:
    """Say that more differ than can: the first execution is what the others are held against."""
    if differing > max(executions - 1, 0):
        yield f"counts {differing} differing of {executions} executions, the first included - at `$.{field}`"


def _observation_faults(observation: Observation, runs: int) -> Iterator[str]:
    executions = observation.executions
    counted = sum(observation.digests.values())
    if counted > executions or (observation.outcome == "ran" and counted != max(executions, 1)):
        yield f"counts {executions} executions but {counted} digests - at `$.digests`"
    total = executions
    if observation.groups:
        yield from _group_faults(observation)
        total += sum(group.executions for group in observation.groups if group.digests is not None)
    # No group has more than all. Retired ones were compared among themselves; where all were, the very first execution is one more.
    if total > (runs + 1) * max(len(observation.groups), 1):
        yield f"counts {total} executions, the scan makes {runs} - at `$.executions`"
    first = observation.first_differing
    if first is not None and not 0 < first < total:
        yield f"names execution {first} of {total} as the first that differed - at `$.first_differing`"
    yield from _too_many("forward_differing", observation.forward_differing, executions)
    for place, output in enumerate(observation.outputs):
        yield from _too_many(f"outputs[{place}].differing", output.differing, executions)


def _group_faults(observation: Observation) -> Iterator[str]:
    groups = observation.groups
    seen: set[str] = set()
    # Where the first group is a retired one, the very first execution belongs to none.
    counted = int(groups[0].digests is not None)
    for place, group in enumerate(groups):
        name = group.perturbation
        if name in seen:
            yield f"has the executions under {name} twice - at `$.groups[{place}].perturbation`"
        seen.add(name)
        if group.differing > group.executions:
            yield (
                f"counts {group.differing} differing of {group.executions} executions under {name} "
                f"- at `$.groups[{place}].differing`"
            )
        if group.digests is None:
            counted += group.executions
    if observation.outcome == "ran" and counted != observation.executions:
        yield f"counts {observation.executions} executions but {counted} in its groups - at `$.groups`"


def check_counts(path: str, number: int, closing: Closing, found: Mapping[type, int]) -> None:
    """Refuse a complete run from which whole lines are missing."""
    for name, kind in COUNTED.items():
        count = getattr(closing, name)
        if count != found[kind]:
            raise RunFileError(
                f"{path}, line {number}: the scan closed with {count} {name}, the file holds {found[kind]} "
                f"- at `$.{name}`; restore the file"
            )
