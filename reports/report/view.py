"""What the formats of the report read: runs, their families, ops and rows, and every sentence said of them, made once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec import UNSET, Struct

from reports.matrix import perturbations, trust, words
from reports.matrix.by_op import ops_view
from reports.matrix.chart import Chart, chart, costs
from reports.matrix.columns import Column, all_columns, idle_words, telling
from reports.matrix.model import Matrix
from reports.matrix.ops import OpsView
from reports.matrix.trust import TableSection
from reports.matrix.view import Difference, RowView, row_view
from reports.render.simulated import BESIDE_ADVICE, CONFLICT_MEANING
from scanner.observations.one_case import Key
from scanner.observations.records import Header
from scanner.plurals import several
from scanner.verdicts.cells import VERDICT_MEANING
from scanner.verdicts.findings import BESIDE_MEANING, FINDING_MEANING, Finding, MatrixRow


class RowLine(NamedTuple):
    """A row in its run."""

    run: RunView
    row: RowView
    record: MatrixRow


class OpLines(Struct, frozen=True):
    """One op, with its rows in every run."""

    name: str
    lines: list[RowLine]


class FamilyView(Struct, frozen=True):
    """The ops of one family."""

    name: str
    slug: str  # numbered, since two names may have one
    ops: list[OpLines]

    @property
    def lines(self) -> list[RowLine]:
        """Every line, op by op."""
        return [line for op in self.ops for line in op.lines]


class RunView(Struct, frozen=True, kw_only=True):
    """One run."""

    number: int  # among those of the report, from 0
    name: str  # of the run file
    matrix: Matrix
    header: Header
    trusted: bool  # nothing is said against the scan
    rows: list[RowView]
    states: list[tuple[words.State, str]]  # what a reader must know before believing anything
    further: tuple[Column, ...]  # beside off and on, that say something of its rows
    idle: list[str]  # why others that were asked for say nothing
    n: str
    shown: str | None  # which rows are left out, if any are
    serial: str | None  # how many rows one thread did alone
    libraries_called: str | None  # which rows of a simulated run call what is not executed
    weak_places: dict[str, int]  # why rows of the whole scan are of low power, numbered
    controls: TableSection
    sentinels: TableSection
    revealed: TableSection
    costs: TableSection
    chart: Chart | None
    environment: list[tuple[str, str]]
    settings: list[tuple[str, str]]
    options: str  # of the command that runs a row again

    @property
    def machine(self) -> str:
        """What its ops ran on."""
        return words.machine_words(self.matrix)

    @property
    def families(self) -> list[FamilyView]:
        """The families of this run alone."""
        return _families([self])

    @property
    def far(self) -> list[tuple[str, Difference]]:
        """What differed in each row, by the row's id."""
        return [(row.id, it) for row in self.rows for it in row.differences]

    @property
    def libraries(self) -> dict[str, tuple[str, ...]]:
        """The ops that call libraries which document something of it, with these."""
        return {row.spec: row.libraries for row in self.rows if row.libraries}

    @property
    def weak(self) -> dict[str, list[str]]:
        """Why rows are of low power, the most frequent reason of the scan first, and the ids of those shown."""
        found: dict[str, list[str]] = {reason: [] for reason in self.matrix.weak}
        for row in self.rows:
            if row.low_power is not None:
                found[row.low_power].append(row.id)
        return found

    @property
    def reasons(self) -> dict[str, list[tuple[str, str]]]:
        """Why there is no usable verdict: the row's id and the mode, none where it is for what both say together."""
        found: dict[str, list[tuple[str, str]]] = {}
        for row in self.rows:
            for mode, cell in row.cells.items():
                if cell.failure is not None and mode in ("off", "on", *self.header.settings.modes):
                    found.setdefault(cell.failure, []).append((row.id, mode))
        for row in self.rows:
            if row.joint_reason:
                found.setdefault(row.joint_reason, []).append((row.id, ""))
        return found


class ReportView(Struct, frozen=True, kw_only=True):
    """All runs of a report."""

    runs: list[RunView]
    families: list[FamilyView]  # those of all runs; what several share stands together
    ops: OpsView
    counts: dict[Finding, int]  # over all scans
    devices: list[str]
    notes: dict[str, list[str]]  # what is said of n and of the rows left out, and the runs it is said of

    @property
    def head(self) -> str:
        """What was scanned, with n and what 0 of n leaves possible."""
        matrices = [run.matrix for run in self.runs]
        rows = several(sum(one.planned for one in matrices), "row")
        runs = f" in {len(matrices)} runs" if len(matrices) > 1 else ""
        places = ", ".join(column.title for column in self.ops.columns)
        bounds = ", ".join(dict.fromkeys(words.bound_words(one) for one in matrices))
        ops = several(sum(self.ops.counts.values()), "op")
        return f"{ops}, {rows}{runs} · torch {places} · {bounds}"

    @property
    def machines(self) -> str:
        """What the ops ran on."""
        return " and ".join(dict.fromkeys(run.machine for run in self.runs))

    @property
    def states(self) -> list[tuple[words.State, str]]:
        """What a reader must know before believing anything, each with what it is called."""
        return [(state, self._of(run, text)) for run in self.runs for state, text in run.states]

    @property
    def limits(self) -> list[str]:
        """What the ops that did not differ rest on, where that is little."""
        # What is said of whole scans is beside the point of a few selected rows, each of which tells its doubts.
        runs = [] if self.ops.narrowed else self.runs
        texts = [
            self._of(run, text)
            for run in runs
            for text in (run.serial, run.libraries_called, run.matrix.sampled)
            if text
        ]
        texts += [self._of(run, text) for run in runs for text in run.idle]
        if self.ops.doubted_words:
            texts.insert(0, self.ops.doubted_words)
        return texts

    def _of(self, run: RunView, text: str) -> str:
        """Return what is said of one run, which is named if there are several."""
        return f"{run.name}: {text}" if len(self.runs) > 1 else text

    verdicts = VERDICT_MEANING
    findings = FINDING_MEANING

    @property
    def beside(self) -> dict[str, str]:
        """What a simulated GPU shows beside findings, and what to do about it; empty if nothing is simulated."""
        if not any(run.matrix.simulated for run in self.runs):
            return {}
        told = {name: f"{meaning} {BESIDE_ADVICE[name]}" for name, meaning in BESIDE_MEANING.items()}
        return told | CONFLICT_MEANING

    glossary = words.GLOSSARY

    @property
    def further_findings(self) -> dict[str, str]:
        """What the findings of further columns mean; empty if there are none."""
        return {name: meaning for column in self.ops.further for name, meaning in column.findings.items()}

    @property
    def further(self) -> dict[str, str]:
        """What the further columns are."""
        return {column.name: f"{column.meaning}." for column in self.ops.further}


def report_view(matrices: Sequence[Matrix]) -> ReportView:
    """Return what every format reads of these runs."""
    runs = [_run(number, one) for number, one in enumerate(matrices)]
    notes: dict[str, list[str]] = {}
    for run in runs:
        more = f" {run.shown} The counts above are those of the whole scan." if run.shown else ""
        notes.setdefault(run.n + more, []).append(run.name)
    return ReportView(
        runs=runs,
        families=_families(runs),
        ops=ops_view(matrices, [run.rows for run in runs]),
        counts={finding: sum(one.counts[finding] for one in matrices) for finding in FINDING_MEANING},
        devices=sorted({row.device for run in runs for row in run.rows}),
        notes=notes,
    )


def _run(number: int, one: Matrix) -> RunView:
    header = one.run.header
    machines = (words.machine_of_row(header, row.row) if header.parts else UNSET for row in one.rows)
    torch = header.environment.torch
    rows = [row_view(row, torch, machine) for row, machine in zip(one.rows, machines, strict=True)]
    asked, planned = all_columns([one]), [row.row for row in one.scanned]
    return RunView(
        number=number,
        name=one.name,
        matrix=one,
        header=one.run.header,
        trusted=not one.distrust,
        rows=rows,
        states=words.states(one),
        further=telling(asked, planned),
        idle=idle_words(asked, planned),
        n=words.n_words(one),
        shown=words.shown_words(one),
        serial=trust.serial_words(one),
        libraries_called=trust.library_words(one),
        weak_places={reason: place for place, reason in enumerate(one.weak)},
        controls=trust.controls(one),
        sentinels=trust.sentinels(one),
        revealed=perturbations.revealed(rows),
        costs=costs(rows),
        chart=chart(rows),
        environment=words.environment_words(one),
        settings=words.settings_words(one),
        options=words.rerun_options(one.run.header.settings),
    )


def _families(runs: Sequence[RunView]) -> list[FamilyView]:
    """Group rows by family and op in order of first appearance; what several runs share stands together."""
    families: dict[str, dict[str, dict[Key, list[RowLine]]]] = {}
    for line in _lines(runs):
        same = families.setdefault(line.row.family, {}).setdefault(line.row.spec, {})
        same.setdefault(line.record.row.key, []).append(line)
    return [
        FamilyView(
            name,
            f"family-{number}-{re.sub('[^a-z0-9]+', '-', name.lower()).strip('-')}",
            [OpLines(op, [line for lines in same.values() for line in lines]) for op, same in ops.items()],
        )
        for number, (name, ops) in enumerate(families.items())
    ]


def _lines(runs: Sequence[RunView]) -> Iterator[RowLine]:
    for run in runs:
        yield from (RowLine(run, row, seen) for row, seen in zip(run.rows, run.matrix.rows, strict=True))
