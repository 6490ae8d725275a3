"""One shard of a run, from what its lines say: what is planned, what was measured, whether it is complete."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from scanner.cluster.files import ShardFiles
from scanner.errors import RunFileError
from scanner.observations.invariance_records import Invariance
from scanner.observations.overload_records import Dispatch
from scanner.observations.records import MODES, Closing, Cost, EnumeratedEntry, Header, Observation, Row
from scanner.observations.runfile import Line
from scanner.verdicts.cells import Verdict, observation_verdict

_DECODER: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)


class ShardMeasurement(NamedTuple):
    """One row in one process, or its cost, its overloads, or its invariance to a property."""

    row: Row
    what: str  # as progress says it
    verdict: Verdict | None
    new: bool  # else an earlier file of the shard has it
    planned: bool  # else it came beyond those that were known when the rows were


class ClusterShard:
    """A shard, scanned by one interpreter on one kind of nodes or GPUs, on whatever node that is."""

    def __init__(self, files: ShardFiles, python: str | None, number: int, count: int) -> None:
        self.files = files
        self.python = python  # None: that of the node
        self.shard = f"{number}/{count}"
        self.header: Header | None = None  # as its first file has it
        self.complete = False  # its last file is
        self.host = ""
        self.fruitless = 0  # tasks in a row that ended without a new measurement
        self._rows: dict[tuple[str, ...], Row] = {}
        self._seen: set[Any] = set()
        self._invariances = 0
        self._last = 1  # the number of its last file

    @property
    def planned(self) -> int:
        """How many measurements it has, as far as it is planned."""
        if self.header is None:
            return 0
        settings = self.header.settings
        ordinary = len(self._rows) * (settings.processes * len(MODES) + settings.cost + settings.overloads)
        # Which rows are asked of their invariance is known only when they were.
        asked = self._invariances if self.complete else len(self._rows) * len(settings.invariance)
        return ordinary + asked

    def read(self, number: int, lines: bytes) -> Iterator[ShardMeasurement]:
        """Take in lines of its file of a number, and yield what they measure.

        Raises:
            RunFileError: They are none of a run file.
        """
        for line in lines.splitlines():
            try:
                record = _DECODER.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise RunFileError(
                    f"{self.files.name}: what came from {self.host or 'a node'} is no run file of this detmatrix ({error}); "
                    f"install the same detmatrix on all nodes"
                ) from error
            # A further file begins anew, with the rows that are not whole: what closes one before it finishes nothing.
            if number >= self._last:
                self._last, self.complete = number, isinstance(record, Closing)
            if self.complete:
                self._seen.clear()
            match record:
                case Header():
                    self.header = self.header or record
                    self._plan(record.planned)
                case EnumeratedEntry():
                    self._plan(record.rows)
                case Observation(mode=mode, process=process) if record.key in self._rows:
                    assert self.header is not None
                    ordinary = mode in MODES and process < self.header.settings.processes
                    row = self._rows[record.key]
                    verdict = observation_verdict(record, row)
                    new = self._is_new(record.key, mode, process)
                    yield ShardMeasurement(row, f"{mode}, process {process}", verdict, new, ordinary and new)
                case Cost() | Dispatch() if record.key in self._rows:
                    what = "cost" if isinstance(record, Cost) else "overloads"
                    new = self._is_new(record.key, what)
                    yield ShardMeasurement(self._rows[record.key], what, None, new, new)
                case Invariance(what=what) if record.key in self._rows:
                    new = self._is_new(record.key, what)
                    self._invariances += new
                    yield ShardMeasurement(self._rows[record.key], f"invariance to {what}", None, new, new)

    def _plan(self, rows: tuple[Row, ...]) -> None:
        for row in rows:
            self._rows.setdefault(row.key, row)

    def _is_new(self, *measurement: object) -> bool:
        new = measurement not in self._seen
        self._seen.add(measurement)
        return new
