"""Join run files that hold shards of one plan.

The merged file depends on what is joined alone, not on the order: its parts stand by shard, the lines of each as its scan
wrote them. Two passes are made over the files. The first takes in what is planned; the
second writes line after line and holds none.
"""

from __future__ import annotations

import gzip
import os
import secrets
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path

from msgspec.structs import force_setattr, replace

from detmatrix.scanner.errors import RunFileError, UsageError
from detmatrix.scanner.observations.consistency import COUNTED
from detmatrix.scanner.observations.opening import opening_of
from detmatrix.scanner.observations.parts import BUILD, common_settings, missing_words, part_name, parts_of
from detmatrix.scanner.observations.records import (
    BuildOverloads,
    Closing,
    Cost,
    Dispatch,
    Distrust,
    EnumeratedEntry,
    Header,
    Invariance,
    Observation,
    Row,
    Sentinel,
    SimulatedDevice,
)
from detmatrix.scanner.observations.runfile import Line, RunReader, Shared
from detmatrix.scanner.observations.settings import SETTINGS, written
from detmatrix.scanner.observations.writer import encode

# Lines that are of one part.
_Placed = Observation | Sentinel | Distrust | Cost | Dispatch | Invariance


class _Source:
    """A file to be merged: what it plans, and its lines."""

    def __init__(self, path: Path, shared: Shared) -> None:
        reader = RunReader(path)
        self.path = path
        self.header = header = reader.header
        if not (header.plan and header.groups):
            raise UsageError(f"{path}: names no plan, an earlier detmatrix wrote it; scan again to merge")
        if header.parts:
            raise UsageError(f"{path}: is a merged file; give the files that it was made of")
        self.kernels: BuildOverloads | None = None
        closing: Closing | None = None
        self.entries: dict[str, EnumeratedEntry] = {}
        for number, text in reader.lines():
            if opening_of(text).kind not in ("entry", "kernels", "closing"):
                continue
            match reader.decode(number, text):
                case EnumeratedEntry() as entry:
                    reader.check.plan(number, entry)
                    self.entries[entry.spec] = entry
                case BuildOverloads() as kernels:
                    self.kernels = kernels
                case Closing() as one:
                    closing = one
        self.end = reader.end
        (self.part,) = parts_of(header, closing)
        self.rows = (*header.planned, *(row for entry in self.entries.values() for row in entry.rows))
        shared.plan(self.rows)
        if both := {row.spec for row in header.planned} & self.entries.keys():
            raise RunFileError(f"{path}: plans rows of {min(both)} in its header and in a line of their own")


def merge(paths: Sequence[Path]) -> tuple[Header, str, Iterator[Line]]:
    """Return the header, what is missing of the plan in words, and the lines of the merged file, which are read as they are asked for.

    Files that are not of one plan are refused, and so are two of one shard.
    """
    shared = Shared()
    sources: dict[int, _Source] = {}
    kernels: list[BuildOverloads] = []
    for path in paths:
        source = _Source(path, shared)
        first = next(iter(sources.values()), source)
        if (text := difference(first.header, source.header)) is not None:
            raise UsageError(f"{path}: is of another plan than {first.path}: {text}")
        if (other := sources.setdefault(source.part.shard, source)) is not source:
            name = part_name(source.part.shard, source.header.shards)
            raise UsageError(f"{path}: has {name}, and so has {other.path}; give one of them")
        kernels += [source.kernels] if source.kernels else []
    # The overloads of a build are the same for all of its files, unless one could not ask for them.
    told = min(kernels, key=lambda one: (one.message is not None, repr(one)), default=None)
    merger = _Merger([sources[shard] for shard in sorted(sources)], told)
    return merger.header, merger.missing, merger.lines()


@contextmanager
def merged_beside(paths: Sequence[Path], path: Path) -> Iterator[tuple[Path, str]]:
    """Merge run files into a file beside *path*, compressed if that ends in ``.gz``, which goes in the end unless it is renamed.

    It is yielded with what is missing of the plan in words.

    Raises:
        OSError: The folder cannot be written.
        RunFileError: A file cannot be read, or is damaged.
        UsageError: The files are not of one plan, or two are of one shard.
    """
    header, missing, lines = merge(paths)
    beside = Path(os.path.realpath(path)).with_name(f".detmatrix-{secrets.token_hex(8)}.part")
    try:
        # Nothing but the lines may decide the bytes: no name, no time.
        with (
            beside.open("wb") as plain,
            gzip.GzipFile("", "wb", fileobj=plain, mtime=0) if path.suffix == ".gz" else plain as file,
        ):
            for line in chain([header], lines):
                file.write(encode(line) + b"\n")
        yield beside, missing
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)


class _Merger:
    """What the joined files plan, and where in it each of their lines belongs."""

    def __init__(self, sources: Sequence[_Source], kernels: BuildOverloads | None) -> None:
        self._sources, self._kernels = sources, kernels
        parts = tuple(source.part for source in sources)
        base = sources[0].header
        self.missing = missing_words(base, parts)
        rows: dict[str, list[Row]] = {}
        for number, source in enumerate(sources):
            for row in source.rows:
                force_setattr(row, "part", number)
                rows.setdefault(row.spec, []).append(row)
        entries = {spec: entry for source in sources for spec, entry in source.entries.items()}
        # In the order of the plan, whatever was joined first.
        self._entries = [entries[spec] for spec in base.groups if spec in entries]
        planned = [row for spec in base.groups if spec not in entries for row in rows.get(spec, ())]
        # A plan may have a million rows: what is known of each is a number.
        self._rows = [*planned, *(row for entry in self._entries for row in entry.rows)]
        self._places = {row.key: place for place, row in enumerate(self._rows)}
        self.header = replace(base, planned=tuple(planned), parts=parts, shard=1)
        self._observed = bytearray(len(self._rows))

    def lines(self) -> Iterator[Line]:
        """Yield the lines of the merged file behind its header."""
        yield from self._entries
        if self._kernels is not None:
            yield self._kernels
        counts: Counter[type] = Counter()
        first = 0
        for source in self._sources:
            for record in self._translated(source, first):
                counts[type(record)] += 1
                if isinstance(record, Observation) and (place := self._places.get(record.key)) is not None:
                    self._observed[place] = True
                yield record
            first += source.part.workers
        if not self.missing:
            if (place := self._observed.find(False)) >= 0:
                row = self._rows[place]
                path = self._sources[row.part].path
                raise RunFileError(f"{path}: has no observation of {row.id}; scan with --resume")
            yield self._closing(counts)

    def _translated(self, source: _Source, first: int) -> Iterator[_Placed]:
        """Yield the lines of a file that stay, as the merged file has them: its workers come behind so many *first* ones."""
        places = array("q", [*(self._places[row.key] for row in source.rows), len(self._places)])
        for record in RunReader(source.path, source.end).records():
            if isinstance(record, (Observation, Sentinel, Distrust, Invariance)):
                if record.worker >= source.part.workers:
                    raise RunFileError(
                        f"{source.path}: has a line of worker {record.worker}, and {source.part.workers} workers; restore the file"
                    )
                force_setattr(record, "worker", record.worker + first)
                _move(record, places)
            if isinstance(record, _Placed):
                yield record

    def _closing(self, counts: Counter[type]) -> Closing:
        closings = [part.closing for part in self.header.parts if part.closing is not None]
        return Closing(
            seconds=round(sum(one.seconds for one in closings), 3),
            load=closings[0].load,
            **{name: counts[kind] for name, kind in COUNTED.items()},
            distrust=tuple(dict.fromkeys(text for one in closings for text in one.distrust)),
        )


def _move(record: _Placed, places: Sequence[int]) -> None:
    """Let a record that names rows by their places name them as the merged file does."""
    if isinstance(record, Sentinel):
        force_setattr(record, "before", places[record.before])
    elif isinstance(record, Distrust) and record.mode is not None:
        for name in ("since", "before"):
            force_setattr(record, name, places[min(getattr(record, name), len(places) - 1)])


def difference(one: Header, other: Header) -> str | None:
    """Say in what two plans differ; ``None`` if they are the same."""
    pairs: list[tuple[str, object, object]] = [("detmatrix", one.tool, other.tool)]
    pairs += [(name, getattr(one.environment, name), getattr(other.environment, name)) for name in BUILD]
    settings = [common_settings(header.settings) for header in (one, other)]
    pairs += [
        (setting.option or f"the list of {setting.label}", *(getattr(it, name) for it in settings))
        for name, setting in SETTINGS.items()
    ]
    pairs.append(("the number of shards", one.shards, other.shards))
    for name, there, here in pairs:
        if there != here:
            return f"{name} is {value_words(here)}, not {value_words(there)}"
    if one.groups.keys() != other.groups.keys():
        name = min(one.groups.keys() ^ other.groups.keys())
        return f"only one of them has {name}"
    if [*one.groups.items()] != [*other.groups.items()]:
        return "its ops are divided otherwise among the shards"
    return None if one.plan == other.plan else "the catalogs or files of specs were not the same"


def value_words(value: object) -> str:
    """Write what plans differ in as the user would."""
    match value:
        case None | ():
            return "none"
        case bool():
            return "yes" if value else "no"
        case SimulatedDevice():
            return f"{value.architecture}, {value.multiprocessors} multiprocessors, build {value.build}"
        case tuple():
            return " ".join(map(str, value))
    return written(value)
