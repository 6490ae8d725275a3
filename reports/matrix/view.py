"""One row as every report shows it: its fields are what JSON says of it, its properties the words of all other formats.

Absence is ``None`` in a field and a word in a text ("none", "not measured"), never a blank, a zero or NaN.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from typing import Any

from msgspec import UNSET, Struct, UnsetType, field

from reports.matrix.cost import CostView, Timed, cost_text, cost_view
from reports.matrix.difference import NOT_MEASURED, distance, first_differing, worst
from reports.matrix.expected import ExpectedRows, disagreement, link_fields
from reports.matrix.model import COMPARED, alerts_of, bound_of, cell_of_mode, constant_of, outputs_of
from reports.render.markdown import NONE
from scanner.invariance import Property
from scanner.modes import DEFAULT_MODES, unconcerned
from scanner.observations.records import Direction, Mode, Output, Provoked, Severity, Source
from scanner.verdicts.cells import Cell, GroupCount, OrderCount, Verdict
from scanner.verdicts.chosen import ModeFinding
from scanner.verdicts.findings import Finding, MatrixRow
from scanner.verdicts.invariance import PropertyVerdict

# What a cell view takes from a cell as it is.
_SAME = (
    *("verdict", "alert", "reason", "seconds"),
    *("first", "constant", "within", "between", "where", "groups", "other_threads", "orders", "alerts"),
)
# Likewise where executions were compared.
_COUNTS = ("runs", "differing", "distinct")
# What a row view takes from a planned row: as it is, and with absence in place of an empty text.
_PLANNED = ("spec", "case", "direction", "dtype", "device", "family", "op", "source")
_OPTIONAL = ("provokes", "why", "provoked", "enlargement", "samples")
NO_REASON = "no reason was recorded"


class CellView(Struct, frozen=True, kw_only=True, dict=True):
    """One row in one mode. Counts of a cell in which nothing was compared are absent, not zero."""

    verdict: Verdict
    runs: int | None = None
    differing: int | None = None
    distinct: int | None = None
    upper_bound: float | None = None  # absent too where 0 of n says nothing, as of a constant
    alert: str | None = None
    reason: str | None
    seeded: bool = False
    seconds: float = 0.0
    first: str | None = None
    forward_differing: int | None = None
    outputs: tuple[Output, ...] = ()
    constant: bool = False
    within: int = 0
    between: bool = False
    where: str | None = None
    first_differing: dict[str, int] | None = None  # an execution and its process
    groups: tuple[GroupCount, ...] = ()
    other_threads: tuple[str, ...] = ()
    orders: OrderCount | None = None
    alerts: tuple[str, ...] = ()

    @property
    def compared(self) -> bool:
        """Whether executions were compared."""
        return self.verdict in COMPARED

    @cached_property
    def details(self) -> str:
        """What the cell says behind its verdict if executions were compared, else nothing."""
        if not self.compared:
            return ""
        parts = (
            counted(self),
            "constant" if self.constant else f"{self.distinct} distinct",
            self.where if not self.within else None,
            self._threads,
            self._orders,
            "seeded" if self.seeded else None,
        )
        return ", ".join(filter(None, parts))

    @property
    def short(self) -> str:
        """The verdict, or k of n as a fraction."""
        return f"{self.differing}/{self.runs}" if self.compared else self.verdict

    @property
    def words(self) -> str:
        """The verdict, k of n, the distinct outputs, and where they differ."""
        seeded = ", seeded" if self.seeded else ""
        return f"{self.verdict}: {self.details}" if self.compared else f"{self.verdict}{seeded}"

    @property
    def under(self) -> str:
        """Under which perturbations executions differed from the first of their process."""
        if not self.groups:
            return "not recorded"
        counts = [
            f"{it.perturbation} {it.differing} of {it.executions}" for it in self.groups if it.differing
        ]
        return ", ".join(counts) or NONE

    @property
    def failure(self) -> str | None:
        """Why the cell has no usable verdict; ``None`` if it has one."""
        usable = self.compared or self.verdict == "raises"
        return None if usable else f"{self.verdict}: {self.cause}"

    @property
    def cause(self) -> str:
        """The reason in words."""
        return self.reason or NO_REASON

    @cached_property
    def severity(self) -> Severity | None:
        """The largest of each measure over all outputs."""
        return worst(self.outputs)

    @property
    def _threads(self) -> str | None:
        """Under which thread counts a cell that does not differ has other bits: one that does has others each time."""
        counts = [name.removeprefix("threads=") for name in self.other_threads if not self.differing]
        threads = "thread" if counts == ["1"] else "threads"
        return f"other bits with {' and '.join(counts)} {threads}" if counts else None

    @property
    def _orders(self) -> str | None:
        """What other orders of the programs of Triton kernels gave."""
        if self.orders is None:
            return None
        seen = f"other bits in {self.orders.differing}" if self.orders.differing else "the same bits in all"
        return f"{seen} of {self.orders.executions} orders of programs"


class NotRun(CellView, frozen=True, kw_only=True, omit_defaults=True):
    """The cell of a mode that a row was not run in: its verdict and why."""


class ChosenView(CellView, frozen=True, kw_only=True):
    """The cell of a mode that the scan was asked for, with what differs there from the flag off."""

    finding: ModeFinding | None  # None: it was not run
    finding_reason: str | None
    low_power: str | None
    remarks: tuple[str, ...]

    @property
    def finding_words(self) -> str:
        """The finding with all that must not be read without it; the verdict where the mode says nothing of the row."""
        if self.finding is None:
            return self.verdict
        return ", ".join([self.finding, *self.remarks, *doubts(self.low_power, serial=False)])


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
    serial: bool  # one thread did all the work
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
    expected: list[dict[str, object]] | UnsetType = UNSET  # what the files of each build say of it

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
        n = f"n = {min(self.off.runs, self.on.runs)} per mode"
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
                    differed=f"{cell.differing} of {cell.runs}, {cell.distinct} distinct",
                    under=cell.under,
                    where=cell.where or NONE,
                    first="{execution} (process {process})".format_map(first) if first else unseen,
                    output=output.name if output else "not known",
                    distance=distance(output, NOT_MEASURED if output else alone),
                )

    def finding_words(self, *, trusted: bool = True) -> str:
        """Return the finding with all that must not be read without it."""
        finding = f"{self.finding} ({self.note})" if self.note else self.finding
        return ", ".join([finding, *doubts(self.low_power, serial=self.serial, trusted=trusted)])


def doubts(weak: str | None, *, serial: bool, trusted: bool = True) -> list[str]:
    """Return why it shows little what a row showed: of low power, serial, or of a scan that cannot be trusted."""
    marks = {"low power": weak is not None, "serial": serial, "not trustworthy": not trusted}
    return [mark for mark, holds in marks.items() if holds]


def counted(cell: Cell | CellView) -> str:
    """Return "k of n differed" of a cell in which executions were compared, else nothing."""
    return f"{cell.differing} of {cell.runs} differed" if cell.verdict in COMPARED else ""


def cell_view(row: MatrixRow, mode: Mode) -> CellView:
    """Return one cell of a row."""
    return CellView(**_fields(row, mode))


def _fields(row: MatrixRow, mode: Mode) -> dict[str, Any]:
    """Return the fields of one cell of a row."""
    cell = cell_of_mode(row, mode)
    mine = [observation for observation in row.observations if observation.mode == mode]
    first = first_differing(mine)
    names = (*_SAME, *_COUNTS) if cell.verdict in COMPARED else _SAME
    same: dict[str, Any] = {name: getattr(cell, name) for name in names}
    return {
        **same,
        "upper_bound": bound_of(cell),
        "seeded": any(observation.seeded for observation in mine),
        "forward_differing": sum(observation.forward_differing for observation in mine) if mine else None,
        "outputs": outputs_of(mine),
        "first_differing": dict(zip(("execution", "process"), first, strict=True)) if first else None,
    }


def row_view(
    row: MatrixRow, builds: Sequence[ExpectedRows] = (), machine: str | UnsetType = UNSET
) -> RowView:
    """Return one row, with what the files of *builds* say of it."""
    planned: dict[str, Any] = {name: getattr(row.row, name) for name in _PLANNED}
    planned |= {name: getattr(row.row, name) or None for name in _OPTIONAL}
    return RowView(
        **planned,
        finding=row.finding,
        off=cell_view(row, "off"),
        on=cell_view(row, "on"),
        reason=row.reason,
        inputs=next((one.inputs for one in row.observations if one.inputs), None),
        warn_only=_further(row, "warn_only"),
        unfilled=_further(row, "unfilled"),
        no_workspace=_further(row, "no_workspace"),
        alerts=alerts_of(row),
        low_power=row.weak,
        serial=row.serial,
        constant=constant_of(row),
        cost=cost_view(row.cost),
        machine=machine,
        modes={
            mode: ChosenView(
                **_fields(row, mode),
                finding=it.finding,
                finding_reason=it.reason,
                low_power=it.weak,
                remarks=it.remarks,
            )
            for mode, it in row.chosen.items()
            if it.finding is not None or unconcerned(mode, row.row) is None
        }
        or UNSET,
        invariance=row.invariance or UNSET,
        expected=[_expected(row, build) for build in builds] or UNSET,
    )


def _further(row: MatrixRow, mode: Mode) -> CellView:
    """Return the cell of a mode that only some rows are run in."""
    cell = cell_of_mode(row, mode)
    return _not_run(cell.reason) if cell.verdict == "not_run" else cell_view(row, mode)


@lru_cache(maxsize=16)
def _not_run(reason: str | None) -> CellView:
    return NotRun(verdict="not_run", reason=reason)


def _expected(row: MatrixRow, build: ExpectedRows) -> dict[str, object]:
    """Return what the files of a build say of a row, and where the row measured something else."""
    said = build.of(row.row)
    return {
        "device": build.device,
        "torch": build.torch,
        "about": build.about or None,
        "documented": said.documented,
        "binary": said.binary,
        "engines": said.engines or None,
        "trace": said.trace,
        "way": said.way,
        "measured": build.measured(row.finding),
        "alerts": [link_fields(link) for link in said.alerts],
        "flags": [link_fields(link) for link in said.flags],
        "disagreement": disagreement(row, said) if build.same_device else None,
    }
