"""What a whole line of a run file may say: nothing that was not planned, stands twice or contradicts itself."""

from __future__ import annotations

from collections.abc import Iterator

from scanner.errors import RunFileError
from scanner.records import Closing, Cost, Header, Observation, Sentinel


class Check:
    """Refuses records that the header did not plan, that stand in the file twice or that contradict themselves."""

    def __init__(self, path: str, header: Header) -> None:
        self._path = path
        self._settings = header.settings
        self._first_format = header.format == 1
        if self._first_format and header.controls:
            raise RunFileError(
                f"{path}, line 1: a control belongs to format 2, the header says format 1 - at `$.controls`; "
                f"restore the file"
            )
        self._timed = {row.key for row in header.planned}
        self._planned = self._timed | {row.key for row in header.controls}
        if len(self._planned) < len(header.planned) + len(header.controls):
            raise RunFileError(f"{path}, line 1: a row is planned twice - at `$.planned`; restore the file")
        self._rows = len(header.planned)
        self._seen: dict[tuple[object, ...], int] = {}

    def place(self, number: int, record: Observation | Sentinel | Cost) -> None:
        """Check one line."""
        place: tuple[object, ...] | None = None  # sentinels may stand twice where a scan was interrupted
        if isinstance(record, Sentinel):
            told = f"{self._path}, line {number}: the sentinel before row {record.before}"
            planned = record.before <= self._rows and self._lives(record)
        elif isinstance(record, Cost):
            told = f"{self._path}, line {number}: the cost of {':'.join(record.key)}"
            place = ("cost", *record.key)
            planned = record.key in self._timed
        else:
            told = f"{self._path}, line {number}: the observation of {':'.join(record.key)}"
            place = (*record.key, record.mode, record.process)
            planned = record.key in self._planned and self._lives(record)
        if self._first_format and (field := _newer(record)):
            raise RunFileError(
                f"{told} belongs to format 2, the header says format 1 - at `$.{field}`; restore the file"
            )
        if not planned:
            process = "" if isinstance(record, Cost) else f" (process {record.process})"
            raise RunFileError(f"{told}{process} was never planned; restore the file")
        if wrong := next(_faults(record), None):
            raise RunFileError(f"{told} {wrong}; restore the file")
        if place is None:
            return
        if place in self._seen:
            raise RunFileError(f"{told} stands twice (first in line {self._seen[place]}); remove one of them")
        self._seen[place] = number

    def _lives(self, record: Observation | Sentinel) -> bool:
        return record.process < self._settings.processes and record.mode in self._settings.modes


def _newer(record: Observation | Sentinel | Cost) -> str | None:
    """Return the field by which a record belongs to format 2; ``None`` if format 1 had all that it holds."""
    if not isinstance(record, Observation):
        return "kind"
    for place, output in enumerate(record.outputs):
        if output.severity is not None:
            return f"outputs[{place}].severity"
    return next(
        (name for name in ("groups", "blank", "blank_output", "alerts") if getattr(record, name)), None
    )


def _faults(record: Observation | Sentinel | Cost) -> Iterator[str]:
    """Yield what a record says that no scan can have seen: a verdict would rest on it. The first is told."""
    if isinstance(record, Observation):
        return _observation_faults(record)
    return _sentinel_faults(record) if isinstance(record, Sentinel) else _cost_faults(record)


def _sentinel_faults(sentinel: Sentinel) -> Iterator[str]:
    if sentinel.differing > max(sentinel.executions - 1, 0):
        yield _excess(sentinel.differing, sentinel.executions, "differing")


def _observation_faults(observation: Observation) -> Iterator[str]:
    executions = observation.executions
    if observation.outcome == "ran":
        counted = sum(observation.digests.values())
        if not counted or counted != executions:
            yield f"counts {executions} executions but {counted} digests - at `$.digests`"
    total = executions
    if observation.groups:
        yield from _group_faults(observation)
        total += sum(group.executions for group in observation.groups if group.digests is not None)
    first = observation.first_differing
    if first is not None and not 0 < first < total:
        yield f"names execution {first} of {total} as the first that differed - at `$.first_differing`"
    behind = max(executions - 1, 0)  # the first
    if observation.forward_differing > behind:
        yield _excess(observation.forward_differing, executions, "forward_differing")
    for place, output in enumerate(observation.outputs):
        if output.differing > behind:
            yield _excess(output.differing, executions, f"outputs[{place}].differing")


def _group_faults(observation: Observation) -> Iterator[str]:
    groups = observation.groups
    seen: set[str] = set()
    # Where the first group is compared apart, the very first execution belongs to none.
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
        elif (digests := sum(group.digests.values())) != group.executions:
            yield f"counts {group.executions} executions under {name} but {digests} digests - at `$.groups`"
    if observation.outcome == "ran" and counted != observation.executions:
        yield f"counts {observation.executions} executions but {counted} in its groups - at `$.groups`"


def _cost_faults(cost: Cost) -> Iterator[str]:
    for name, timing in (("off", cost.off), ("on", cost.on), ("unfilled", cost.unfilled)):
        if timing is None:
            # The setting that leaves memory unfilled is not in every release.
            if cost.outcome == "ran" and name != "unfilled":
                yield f"has no timing though the row ran - at `$.{name}`"
        elif not timing.low <= timing.median <= timing.high:
            yield (
                f"has a median of {timing.median} s that is not between the quartiles {timing.low} and "
                f"{timing.high} s - at `$.{name}.median`"
            )


def _excess(differing: int, executions: int, field: str) -> str:
    """Say that more differ than can: the first execution is what the others are held against."""
    return f"counts {differing} differing of {executions} executions, the first included - at `$.{field}`"


def check_counts(path: str, number: int, closing: Closing, found: dict[type, int]) -> None:
    """Refuse a complete run from which whole lines are missing."""
    closed = {Observation: closing.observations, Sentinel: closing.sentinels, Cost: closing.costs}
    for kind, count in closed.items():
        if count != found[kind]:
            name = f"{kind.__name__.lower()}s"
            raise RunFileError(
                f"{path}, line {number}: the scan closed with {count} {name}, the file holds {found[kind]} "
                f"- at `$.{name}`; restore the file"
            )
