"""One row in one mode as every report shows it; absence is as in ``view``."""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from reports.matrix.difference import first_differing, worst
from reports.matrix.model import COMPARED, bound_of, cell_of_mode, outputs_of
from reports.render import simulated as words
from reports.render.markdown import NONE
from scanner.observations.records import Compiled, Mode, Output, Severity, Simulation
from scanner.verdicts.cells import Cell, GroupCount, OrderCount, ReferenceCount, Verdict
from scanner.verdicts.chosen import ModeFinding
from scanner.verdicts.findings import MatrixRow

# What a cell view takes from a cell as it is.
_SAME = (
    *("verdict", "alert", "reason", "seconds"),
    *("first", "constant", "within", "between", "where", "groups", "other_threads", "orders", "alerts"),
    "launches",
)
# Likewise where executions were compared.
_COUNTS = ("runs", "differing", "distinct")
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
    launches: int = 0  # Triton kernels that the interpreter ran in an execution
    reference: ReferenceCount | UnsetType = UNSET  # of cases whose reference holds in every mode
    simulated: Simulation | UnsetType = UNSET  # on a simulated GPU

    @property
    def compared(self) -> bool:
        """Whether executions were compared."""
        return self.verdict in COMPARED

    @cached_property
    def details(self) -> str:
        """What the cell says behind its verdict if executions were compared, else nothing."""
        if not self.compared:
            return ""
        # Schedules are compared in one process, and end where one gives other bits.
        counts = (
            [] if self.simulated else [f"{self.distinct} distinct", self.where if not self.within else None]
        )
        parts = (
            counted(self),
            *(["constant", *counts[1:]] if self.constant else counts),
            *(words.cell_words(self.simulated) if self.simulated else []),
            # What a backward row is judged by are its gradients.
            f"{self.forward_differing} in the forward phase" if self.forward_differing else None,
            self.reference.words if self.reference else None,
            self._threads,
            self._orders,
            "seeded" if self.seeded else None,
        )
        return ", ".join(filter(None, parts))

    @property
    def short(self) -> str:
        """The verdict, or k of n as a fraction."""
        if self.simulated and self.simulated.schedule and self.compared:
            return self.simulated.schedule.name
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


class ProcessCount(Struct, frozen=True, kw_only=True):
    """The processes that compiled a row, each anew."""

    differing: int  # that saw other bits than the first execution of all
    of: int


class ChosenView(CellView, frozen=True, kw_only=True):
    """The cell of a mode that the scan was asked for, with what differs there from the flag off."""

    finding: ModeFinding | None  # None: it was not run
    finding_reason: str | None
    low_power: str | None
    remarks: tuple[str, ...]
    compiled: Compiled | None  # the least that torch.compile made of it in a process
    processes: ProcessCount | None  # under torch.compile

    @cached_property
    def details(self) -> str:
        """What the cell says behind its verdict; of compiled code also in how many processes, each of which compiled it anew."""
        counted = super().details
        if self.processes is None:
            return counted
        of = self.processes.of
        seen = f"{self.processes.differing} of {of}" if self.differing else str(of)
        return f"{counted}, in {seen} {'process' if of == 1 else 'processes'}"


def counted(cell: Cell | CellView) -> str:
    """Return "k of n differed" of a cell in which executions were compared, or the schedule that differs; else nothing."""
    if cell.verdict not in COMPARED:
        return ""
    if not cell.simulated:
        return f"{cell.differing} of {cell.runs} differed"
    schedule = cell.simulated.schedule
    return (
        f"differs under {words.schedule_words(schedule)}"
        if schedule
        else words.still_words(cell.simulated, cell.runs)
    )


def cell_view(row: MatrixRow, mode: Mode) -> CellView:
    """Return one cell of a row."""
    return CellView(**cell_fields(row, mode))


def cell_fields(row: MatrixRow, mode: Mode) -> dict[str, Any]:
    """Return the fields of one cell of a row."""
    cell = cell_of_mode(row, mode)
    mine = [observation for observation in row.observations if observation.mode == mode]
    first = first_differing(mine)
    names = (*_SAME, *_COUNTS) if cell.verdict in COMPARED else _SAME
    same: dict[str, Any] = {name: getattr(cell, name) for name in names}
    return {
        **same,
        "upper_bound": bound_of(cell),
        "reference": cell.reference or UNSET,
        "simulated": cell.simulated or UNSET,
        "seeded": any(observation.seeded for observation in mine),
        "forward_differing": sum(observation.forward_differing for observation in mine) if mine else None,
        "outputs": outputs_of(mine),
        "first_differing": dict(zip(("execution", "process"), first, strict=True)) if first else None,
    }


def further_cell(row: MatrixRow, mode: Mode) -> CellView:
    """Return the cell of a mode that only some rows are run in."""
    cell = cell_of_mode(row, mode)
    return _not_run(cell.reason) if cell.verdict == "not_run" else cell_view(row, mode)


@lru_cache(maxsize=16)
def _not_run(reason: str | None) -> CellView:
    return NotRun(verdict="not_run", reason=reason)
