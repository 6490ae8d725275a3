"""One row as every report shows it: its fields are what JSON says of it, its properties the words of all other formats.

Absence is ``None`` in a field and a word in a text ("none", "not measured"), never a blank, a zero or NaN.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import UNSET, Struct, UnsetType, field

from reports.cudnn import expected_engines
from reports.libraries import library_names
from reports.matrix.cells import (
    NO_REASON,
    CellView,
    ChosenView,
    ProcessCount,
    cell_fields,
    cell_view,
    counted,
    further_cell,
)
from reports.matrix.cost import CostView, Timed, cost_text, cost_view
from reports.matrix.difference import NOT_MEASURED, distance
from reports.matrix.model import COMPARED, alerts_of, constant_of
from reports.render.markdown import NONE
from reports.render.simulated import RACE_FREE, beside_words
from scanner.invariance import Property
from scanner.modes import DEFAULT_MODES, unconcerned
from scanner.observations.records import Direction, Mode, Output, Provoked, Source
from scanner.verdicts.cells import Cell
from scanner.verdicts.findings import Finding, MatrixRow
from scanner.verdicts.invariance import PropertyVerdict

UNLIKE_REFERENCE = "not its reference"  # said of what a row gave, whatever its finding
# What a row view takes from a planned row: as it is, and with absence in place of an empty text.
_PLANNED = ("spec", "case", "direction", "dtype", "device", "family", "op", "source")
_OPTIONAL = ("provokes", "why", "provoked", "enlargement", "samples")


class Difference(Struct, frozen=True):
    """One output of one cell that differed."""

    mode: Mode
    differed: str  # "7 of 100, 5 distinct"
    under: str
    where: str
    first: str
    output: str  # its name, "not known" where only processes differ
    distance: tuple[str, ...]


class RowView(Struct, frozen=True, kw_only=True):
    """One row of the matrix: what is promised to machines first, then what else is known of it."""

    spec: str
    case: str
    direction: Direction
    dtype: str
    device: str
    finding: Finding
    off: CellView
    on: CellView
    family: str
    op: str
    provokes: str | None
    why: str | None
    reason: str | None  # why the finding is inconclusive, or order_dependent
    inputs: tuple[str, ...] | None
    warn_only: CellView
    unfilled: CellView
    no_workspace: CellView
    alerts: tuple[str, ...]  # callers of all alerts
    low_power: str | None  # why that the row did not differ says little
    serial: bool | None  # one thread did all the work; None: not measured
    unlike_reference: tuple[Mode, ...] | UnsetType  # modes in which it did not give what its reference says
    beside: tuple[str, ...] | UnsetType  # what a simulated GPU shows beside the finding, the worst first
    constant: str | None
    source: Source
    provoked: Provoked | None
    enlargement: str | None = field(name="recipe")
    samples: int | None
    cost: CostView | None
    machine: str | UnsetType = UNSET  # of a merged run: what the row ran on
    modes: dict[Mode, ChosenView] | UnsetType = (
        UNSET  # by those that the scan was asked for beside off and on, and that concern it
    )
    invariance: dict[Property, PropertyVerdict] | UnsetType = UNSET  # by what the scan asked for
    engines: str | UnsetType = (
        UNSET  # of the cuDNN that it calls: those noted nondeterministic for layers like it
    )
    libraries: tuple[str, ...] | UnsetType = UNSET  # that its op calls and that document something of it

    @property
    def id(self) -> str:
        """``spec:case:direction:dtype``, as patterns match it."""
        return f"{self.spec}:{self.case}:{self.direction}:{self.dtype}"

    @property
    def cells(self) -> dict[Mode, CellView]:
        """The cells by mode; those of further modes only of rows that are run in them."""
        cells: dict[Mode, CellView] = {mode: getattr(self, mode) for mode in DEFAULT_MODES}
        if self.on.verdict != "raises":
            del cells["warn_only"]
        if self.unfilled.verdict == "not_run":
            del cells["unfilled"]
        if self.no_workspace.verdict == "not_run":
            del cells["no_workspace"]
        return cells | {mode: cell for mode, cell in self.chosen.items() if cell.finding}

    @property
    def chosen(self) -> dict[Mode, ChosenView]:
        """The cells of the modes that the scan was asked for beside off and on."""
        return {} if self.modes is UNSET else self.modes

    @property
    def dependences(self) -> dict[Property, PropertyVerdict]:
        """What its bits depend on beyond a run, by what the scan asked for."""
        return {} if self.invariance is UNSET else self.invariance

    @property
    def warn_only_words(self) -> str:
        """What an op that raises does under warn_only; nothing of one that does not raise."""
        if self.on.verdict != "raises":
            return ""
        if self.warn_only.verdict == "not_run":
            return "warn_only not run"
        return f"warn_only: {', '.join(filter(None, (self.warn_only.verdict, self.warn_only.details)))}"

    @property
    def on_words(self) -> str:
        """The cell of the flag on, with what the row does under warn_only."""
        return "; ".join(filter(None, (self.on.words, self.further_words)))

    @property
    def further_words(self) -> str:
        """What the row does in the modes beside off and on that it was run in."""
        cells = self.cells
        names: dict[Mode, str] = {"unfilled": "fill off", "no_workspace": "no workspace"}
        said = [
            f"{name}: {', '.join(filter(None, (cells[mode].verdict, cells[mode].details)))}"
            for mode, name in names.items()
            if mode in cells
        ]
        return "; ".join(filter(None, (self.warn_only_words, *said)))

    @property
    def note(self) -> str:
        """What the finding rests on, if it is the one that says "deterministic"; else nothing."""
        if self.finding != "deterministic" or self.off.runs is None or self.on.runs is None:
            return ""
        count = min(self.off.runs, self.on.runs)
        n = f"n = {count} per mode"
        if self.off.simulated and self.on.simulated:
            proved = self.off.simulated.race_free and self.on.simulated.race_free
            n = RACE_FREE if proved else f"{count} schedules per mode"
        return n if self.constant is None else f"constant: {self.constant}"

    @property
    def joint_reason(self) -> str:
        """Why a row whose modes both have a usable verdict has a finding that no mode shows; else nothing."""
        usable = self.off.failure is None and self.on.failure is None
        unshown = self.finding in {"inconclusive", "order_dependent"}
        return (self.reason or NO_REASON) if unshown and usable else ""

    @property
    def is_slow(self) -> bool | None:
        """Whether the row surely takes at least twice as long with the flag on; ``None`` if it was not timed."""
        return self.cost.is_slow if isinstance(self.cost, Timed) else None

    @property
    def remarks(self) -> list[str]:
        """What stands beside the finding."""
        return [*[UNLIKE_REFERENCE] * bool(self.unlike_reference), *beside_words(self.beside or ())]

    @property
    def doubts(self) -> list[str]:
        """Why it shows little that the row did not differ."""
        return doubts(self.low_power, serial=self.serial)

    @property
    def cost_words(self) -> str:
        """The cost as a table shows it."""
        return cost_text(self.cost, self.on.verdict)

    @property
    def differences(self) -> Iterator[Difference]:
        """What differed, one output of one mode at a time."""
        for mode, cell in self.cells.items():
            if cell.verdict != "nondeterministic":
                continue
            first = cell.first_differing
            unseen = "the first of a process" if cell.between else "not recorded"
            outputs: list[Output | None] = [output for output in cell.outputs if output.differing]
            # Where only processes differ, or thread counts among themselves, no output was held against another.
            alone = f"{NOT_MEASURED}: differs {cell.where}" if not cell.within else NOT_MEASURED
            for output in outputs or [None]:
                yield Difference(
                    mode=mode,
                    differed=counted(cell)
                    if cell.simulated
                    else f"{cell.differing} of {cell.runs}, {cell.distinct} distinct",
                    under=cell.under,
                    where=cell.where or NONE,
                    first="{execution} (process {process})".format_map(first) if first else unseen,
                    output=output.name if output else "not known",
                    distance=distance(output, NOT_MEASURED if output else alone),
                )

    def finding_words(self, *, trusted: bool = True) -> str:
        """Return the finding with all that must not be read without it."""
        finding = f"{self.finding} ({self.note})" if self.note else self.finding
        return ", ".join(
            [finding, *self.remarks, *doubts(self.low_power, serial=self.serial, trusted=trusted)]
        )


def doubts(weak: str | None, *, serial: bool | None, trusted: bool = True) -> list[str]:
    """Return why it shows little what a row showed: of low power, serial, or of a scan that cannot be trusted."""
    marks = {"low power": weak is not None, "serial": serial, "not trustworthy": not trusted}
    return [mark for mark, holds in marks.items() if holds]


def row_view(row: MatrixRow, torch: str = "", machine: str | UnsetType = UNSET) -> RowView:
    """Return one row; where the build of torch is given, with the engines of cuDNN that it may meet."""
    planned: dict[str, Any] = {name: getattr(row.row, name) for name in _PLANNED}
    planned |= {name: getattr(row.row, name) or None for name in _OPTIONAL}
    return RowView(
        **planned,
        finding=row.finding,
        off=cell_view(row, "off"),
        on=cell_view(row, "on"),
        reason=row.reason,
        inputs=next((one.inputs for one in row.observations if one.inputs), None),
        warn_only=further_cell(row, "warn_only"),
        unfilled=further_cell(row, "unfilled"),
        no_workspace=further_cell(row, "no_workspace"),
        alerts=alerts_of(row),
        low_power=row.weak,
        serial=row.serial,
        unlike_reference=row.unlike_reference or UNSET,
        beside=row.beside or UNSET,
        constant=constant_of(row),
        cost=cost_view(row.cost),
        machine=machine,
        modes={
            mode: ChosenView(
                **cell_fields(row, mode),
                finding=it.finding,
                finding_reason=it.reason,
                low_power=it.weak,
                remarks=it.remarks,
                compiled=it.cell.compiled,
                processes=_processes(it.cell),
            )
            for mode, it in row.chosen.items()
            if it.finding is not None or unconcerned(mode, row.row) is None
        }
        or UNSET,
        invariance=row.invariance or UNSET,
        engines=_engines(row, torch) or UNSET,
        libraries=library_names(frozenset((row.row.op, *row.row.documented))) or UNSET,
    )


def _processes(cell: Cell) -> ProcessCount | None:
    """Return how many processes compiled a row, and in how many of them it differed."""
    if cell.compiled is None or cell.verdict not in COMPARED:
        return None
    return ProcessCount(differing=cell.differing_processes, of=len(cell.by_process))


def _engines(row: MatrixRow, torch: str) -> str:
    """Return which engines of cuDNN a row on a simulated GPU that only called it may meet."""
    known = row.off.simulated
    calls = known is not None and any("(cuDNN)" in call for call in known.libraries)
    return expected_engines(row.row, torch).text if calls else ""
