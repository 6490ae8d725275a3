"""Read run files: JSON Lines, one scan per file, valid up to the last whole line."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import force_setattr, replace

from detmatrix.scanner.errors import RunFileError
from detmatrix.scanner.observations.consistency import Check, check_counts
from detmatrix.scanner.observations.opening import UNDECODABLE, opening_of, readable, refuse_newer, what_it_is
from detmatrix.scanner.observations.records import (
    FORMAT,
    MOST_NAMES,
    BuildOverloads,
    Closing,
    Cost,
    Dispatch,
    Distrust,
    Enumerated,
    EnumeratedEntry,
    Header,
    Invariance,
    Observation,
    Record,
    Row,
    Sentinel,
    Source,
)

# What the message of an observation that a failed control voids begins with.
UNTRUSTED = "not trustworthy"
Line = (
    Header
    | EnumeratedEntry
    | Observation
    | Sentinel
    | Cost
    | BuildOverloads
    | Dispatch
    | Invariance
    | Distrust
    | Closing
)

_DECODER: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)
# Bytes; of a scan of all of PyTorch's databases they are 3 million and 100 thousand.
_LONGEST_HEADER = 128 << 20
_LONGEST_LINE = 16 << 20


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """What a run file holds."""

    path: str
    header: Header
    observations: tuple[Observation, ...]  # of the planned rows
    closing: Closing | None  # None: the scan did not finish
    end: int = 0  # bytes up to the end of the last whole line of its file
    controls: tuple[Observation, ...] = ()  # of the controls
    sentinels: tuple[Sentinel, ...] = ()
    costs: tuple[Cost, ...] = ()
    kernels: BuildOverloads | None = None  # the overloads of the build; None: not recorded
    dispatches: tuple[Dispatch, ...] = ()
    invariances: tuple[Invariance, ...] = ()  # those of controls included
    entries: frozenset[str] = frozenset()  # of databases, that were enumerated
    distrust: tuple[str, ...] = ()  # what was found out as the scan went on; the closing line has it too


class RunReader:
    """Yields the checked records of a run file behind its header, and holds nothing of those that it has yielded."""

    def __init__(self, path: str | Path, end: int | None = None) -> None:
        """Read the header; of a file that may have grown since it was looked at, bytes up to *end*."""
        self._path = str(path)
        self._most = end
        self._lines = _lines(Path(path))
        opening = next(self._lines, None)
        if opening is None:
            raise RunFileError(
                f"{path}: not a detmatrix run file (no whole line in it); give a file that scan wrote"
            )
        _check_format(self._path, opening)
        header = self.decode(1, opening)
        if not isinstance(header, Header):
            raise RunFileError(
                f"{path}, line 1: a run file starts with its header; give a file that scan wrote"
            )
        self.header = header
        self.end = len(opening) + 1  # bytes up to the end of the last whole line that was read
        self.check = Check(self._path, header)

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield the whole lines behind the header as they are, each with its number."""
        for number, line in enumerate(self._lines, start=2):
            if self._most is not None and self.end >= self._most:
                return
            self.end += len(line) + 1
            yield number, line

    def decode(self, number: int, line: bytes) -> Line:
        """Return the record that a line holds; an error names the line and the path of the field."""
        try:
            return _DECODER.decode(line)
        except UNDECODABLE as error:
            text = "restore the file, or cut it before this line and scan --resume"
            raise RunFileError(f"{self._path}, line {number}: {error}; {text}") from error

    def records(self) -> Iterator[Line]:
        """Yield the records behind the header; a line that no scan has written there is refused."""
        found: Counter[type] = Counter()
        closed = False
        for number, line in self.lines():
            record = self.decode(number, line)
            if closed or isinstance(record, Header):
                raise RunFileError(
                    f"{self._path}, line {number}: {type(record).__name__.lower()} after the "
                    f"{'closing line' if closed else 'header'}; two runs in one file? Split it at this line"
                )
            found[type(record)] += 1
            if isinstance(record, Closing):
                check_counts(self._path, number, record, found)
                closed = True
            elif isinstance(record, Distrust):
                if found[Distrust] > MOST_NAMES:
                    raise RunFileError(
                        f"{self._path}, line {number}: {found[Distrust]} reasons for distrust; restore the file"
                    )
            elif isinstance(record, EnumeratedEntry):
                self.check.plan(number, record)
            else:
                self.check.place(number, record)
            yield record


def read_run(path: str | Path) -> Run:
    """Read a run file; a torn last line is left out, as is everything a crash did not get to write.

    Raises:
        RunFileError: It is no run file, damaged, or of a newer format; names the line and the path of the field.
    """
    reader = RunReader(path)
    run = run_of(str(path), reader.header, reader.records())
    return replace(run, end=reader.end)


def run_of(path: str, header: Header, records: Iterable[Line]) -> Run:
    """Return the run that a header makes with the records behind it."""
    shared = Shared()
    shared.plan((*header.planned, *header.controls))
    found: defaultdict[type, list[Any]] = defaultdict(list)
    for record in records:
        if isinstance(record, EnumeratedEntry):
            shared.plan(record.rows)
        elif isinstance(record, (Observation, Cost, Dispatch, Invariance)):
            shared.share(record)
        found[type(record)].append(record)
    of_controls = {row.key for row in header.controls}
    entries: list[EnumeratedEntry] = found[EnumeratedEntry]
    observed: list[Observation] = [one for one in found[Observation] if one.key not in of_controls]
    distrust: list[Distrust] = found[Distrust]
    header = _whole(header, entries)
    said = [text for part in header.parts if part.closing for text in part.closing.distrust]
    return Run(
        path=path,
        header=header,
        observations=_believed(header, observed, distrust),
        closing=next(iter(found[Closing]), None),
        controls=tuple(one for one in found[Observation] if one.key in of_controls),
        sentinels=tuple(found[Sentinel]),
        costs=tuple(found[Cost]),
        kernels=next(iter(found[BuildOverloads]), None),
        dispatches=tuple(found[Dispatch]),
        invariances=tuple(found[Invariance]),
        entries=frozenset(entry.spec for entry in entries),
        distrust=(*said, *(one.reason for one in distrust if one.mode is None)),
    )


def _whole(header: Header, entries: Sequence[EnumeratedEntry]) -> Header:
    """Return a header with the rows of the entries that stand behind it, and what was counted of them."""
    if not entries:
        return header
    counted: dict[Source, Counter[str]] = {}
    for entry in entries:
        counts = {name: getattr(entry, name) for name in ("samples", "taken", "enlarged", "refused")}
        counted.setdefault(entry.source, Counter()).update(entries=1, **counts)
    return replace(
        header,
        planned=(*header.planned, *(row for entry in entries for row in entry.rows)),
        enumerated=tuple(Enumerated(source=source, **counts) for source, counts in counted.items()),
    )


def _believed(
    header: Header, observations: Iterable[Observation], distrust: Iterable[Distrust]
) -> tuple[Observation, ...]:
    """Return observations, each that a failed control voids as an error that says so."""
    voided = [one for one in distrust if one.mode is not None]
    if not voided:
        return tuple(observations)
    places = {row.key: place for place, row in enumerate(header.planned)}

    def believed(one: Observation) -> Observation:
        here, place = (one.mode, one.process, one.worker), places[one.key]
        for by in voided:
            if (by.mode, by.process, by.worker) == here and by.since <= place < by.before:
                names = ("spec", "case", "direction", "dtype", "mode", "process", "worker")
                fields: dict[str, Any] = {name: getattr(one, name) for name in names}
                return Observation(**fields, outcome="invalid", message=f"{UNTRUSTED}: {by.reason}")
        return one

    return tuple(map(believed, observations))


class Shared:
    """Lets records hold what they have in common once: a run may have a million observations."""

    def __init__(self) -> None:
        self._values: dict[object, object] = {}
        self._digests: dict[tuple[tuple[str, int], ...], dict[str, int]] = {}

    def plan(self, rows: Iterable[Row]) -> None:
        """Let rows hold once what they have in common."""
        for row in rows:
            self._share(
                row, ("family", "spec", "op", "case", "dtype", "device", "provokes", "why", "documented")
            )

    def _once(self, value: object) -> object:
        return self._values.setdefault(value, value)

    def _share(self, record: Record, names: Sequence[str]) -> None:
        for name in names:
            force_setattr(record, name, self._once(getattr(record, name)))

    def share(self, record: Observation | Cost | Dispatch | Invariance) -> None:
        """Put what is known already in place of what was decoded."""
        self._share(record, ("spec", "case", "dtype", "message"))
        if isinstance(record, Observation):
            self._share(record, ("inputs", "inputs_digest", "outputs"))
            if all(group.digests is None for group in record.groups):
                self._share(record, ("groups",))
            # Outputs that are the same in all processes and modes of a row.
            digests = self._digests.setdefault(tuple(record.digests.items()), record.digests)
            force_setattr(record, "digests", digests)
        elif isinstance(record, Dispatch):
            for mode, reached in record.modes.items():
                names = tuple(map(self._once, reached.overloads))
                force_setattr(reached, "overloads", self._once(names))
                record.modes[mode] = self._once(reached)  # type: ignore[assignment]


def _lines(path: Path) -> Iterator[bytes]:
    """Yield the whole lines of a file, decompressed if gzip packed it; a torn last one is left out."""
    with readable(path, "scan", RunFileError) as file:
        limit, number = _LONGEST_HEADER, 1
        while line := file.readline(limit + 1):
            if len(line) > limit:
                raise RunFileError(
                    f"{path}, line {number}: is longer than {limit >> 20} MB; give a file that scan wrote"
                )
            if line.endswith(b"\n"):
                yield line[:-1]
            limit, number = _LONGEST_LINE, number + 1


def _check_format(path: str, line: bytes) -> None:
    """Refuse files that are not ours, and those of a newer format, each with its advice."""
    opening = opening_of(line)
    if opening.kind is None and line.startswith(b'{"kind":"header"'):
        return  # decoding says what is wrong with it
    if opening.kind != "header":
        other = what_it_is(line) or " (no header line)"
        raise RunFileError(f"{path}: not a detmatrix run file{other}; give a file that scan wrote")
    if not isinstance(opening.format, int):
        return  # decoding says what is wrong with it
    refuse_newer(path, "run file format", opening.format, FORMAT, RunFileError)
    if opening.format < 1:
        raise RunFileError(f"{path}, line 1: no such run file format: {opening.format} - at `$.format`")
