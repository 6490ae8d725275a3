"""One row as JSON and CSV have it, and what the flag costs it. Absence is ``None``, never a blank, a zero or NaN.

The cost is the ratio of a row's median times with the flag on and off. A ratio whose two times lie within each other's quartiles
is not told apart from 1: it is marked, not hidden. A row that could not be timed has a word in its place.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from detmatrix.reports.cudnn import expected_engines
from detmatrix.reports.libraries import library_names
from detmatrix.reports.render import View, fields_of
from detmatrix.scanner.observations.records import MODES, Mode, Output, Timing
from detmatrix.scanner.verdicts.cells import Cell
from detmatrix.scanner.verdicts.findings import MatrixRow, runs_in

TIMES = "×"  # noqa: RUF001 - the sign for "times"
APPROXIMATELY = "≈"  # stands before a ratio that is not told apart from 1
NOT_MEASURED = "not measured"
SLOW = 2.0  # the ratio from which a row is listed
# Outcomes that verdicts call otherwise.
_UNTIMED: dict[str, str] = {"raised": "error", "invalid": "error"}
_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_SIZES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
# Matters to CUDA alone: both times are taken in one process, whose environment is that of the mode on.
_WORKSPACE = (
    ' "off" was timed in a process that has CUBLAS_WORKSPACE_CONFIG set, as "on" needs it: against a process without '
    "it the flag may cost more or less."
)
_ROUNDED, _WHOLE = 10, 100  # ratios from which one and no decimal are told


class Timed(NamedTuple):
    """The times of a row that was timed."""

    off: Timing
    on: Timing
    unfilled: Timing | None  # with fill_uninitialized_memory off

    @property
    def ratio(self) -> float:
        """The median time with the flag on over that with it off."""
        return self.on.median / self.off.median

    @property
    def told_apart(self) -> bool:
        """Whether the two times differ by more than their spread."""
        return _apart(self.off, self.on)

    @property
    def is_slow(self) -> bool:
        """Whether the row takes at least twice as long with the flag on, by more than the spread."""
        return self.ratio >= SLOW and self.told_apart

    @property
    def unfilled_ratio(self) -> float | None:
        """The same with fill_uninitialized_memory off."""
        return self.unfilled.median / self.off.median if self.unfilled else None

    @property
    def filling(self) -> float | None:
        """The ratio with fill_uninitialized_memory off, if filling makes a difference of more than the spread."""
        return self.unfilled_ratio if self.unfilled and _apart(self.on, self.unfilled) else None

    @property
    def flag(self) -> float:
        """The ratio without what filling takes, and 1 where the times are not told apart: that is no difference."""
        timing = self.on if self.filling is None else self.unfilled
        return (timing.median / self.off.median) if timing and _apart(self.off, timing) else 1.0

    @property
    def spread(self) -> tuple[float, float]:
        """The ratios that the quartiles of both times leave plausible."""
        high = self.on.high / self.off.low if self.off.low else math.inf
        return self.on.low / self.off.high, high

    @property
    def ratio_words(self) -> str:
        """The ratio, marked where the spread of the times could make it 1."""
        return f"{'' if self.told_apart else APPROXIMATELY}{times(self.ratio)}"

    @property
    def spread_words(self) -> str:
        """The ratios that the quartiles leave plausible."""
        low, high = self.spread
        return f"{times(low)} to {times(high)}" if math.isfinite(high) else f"{times(low)} and more"


def timed(row: MatrixRow) -> Timed | None:
    """Return a row's times; ``None`` if it has none."""
    cost = row.cost
    if cost is None or cost.off is None or cost.on is None or not cost.off.median:
        return None
    return Timed(cost.off, cost.on, cost.unfilled)


def cost_words(row: MatrixRow) -> str:
    """Return the cost of a row as a table shows it, or in a word why there is none."""
    if (times_ := timed(row)) is not None:
        filling = f" (fill off: {times(times_.filling)})" if times_.filling is not None else ""
        return f"{times_.ratio_words}{filling}"
    if row.on.verdict == "raises":
        return "none: raises"
    if row.cost is None or row.cost.outcome == "ran":
        return NOT_MEASURED
    return f"none: {_UNTIMED.get(row.cost.outcome, row.cost.outcome)}"


def times(ratio: float) -> str:
    """Return a ratio with as many digits as it deserves."""
    digits = 2 if ratio < _ROUNDED else 1 if ratio < _WHOLE else 0
    return f"{ratio:.{digits}f}{TIMES}"


def duration(timing: Timing) -> str:
    """Return a median with its quartiles, "12.3 µs (12.1 to 12.9)"."""
    unit, name = next(((unit, name) for unit, name in _UNITS if timing.median >= unit), _UNITS[-1])
    median, low, high = (f"{value / unit:.3g}" for value in (timing.median, timing.low, timing.high))
    return f"{median} {name} ({low} to {high})"


def memory(count: int | None) -> str:
    """Return bytes in the largest unit that fits."""
    if count is None:
        return NOT_MEASURED
    unit, name = next(((unit, name) for unit, name in _SIZES if count >= unit), (1, "bytes"))
    return f"{count / unit:.3g} {name}" if unit > 1 else f"{count} {name}"


def _apart(one: Timing, other: Timing) -> bool:
    return one.high < other.low or other.high < one.low


def costs_words(rows: Sequence[MatrixRow]) -> str:
    """Say how many rows were timed and take at least twice as long, and why others were not timed."""
    found = [one for row in rows if (one := timed(row))]
    untimed = Counter(cost_words(row) for row in rows if timed(row) is None)
    rest = ", ".join(f"{count} {word.removeprefix('none: ')}" for word, count in untimed.most_common())
    if not found:
        return f"The cost of the flag was not measured in any of these rows{f' ({rest})' if rest else ''}."
    slow, ratios = [one for one in found if one.is_slow], [one.ratio for one in found]
    filled = sum(one.flag < SLOW for one in slow)
    return (
        f"{len(slow)} of {len(found)} timed rows shown here {'takes' if len(slow) == 1 else 'take'} at least twice as "
        f"long with the flag on{f', {filled} of them through the fill of uninitialized memory' if filled else ''}; the "
        f"median ratio is {times(statistics.median(ratios))}, the highest {times(max(ratios))}."
        f"{f' Without a cost: {rest}.' if rest else ''}"
        f"{_WORKSPACE if any(row.row.device.startswith('cuda') and timed(row) for row in rows) else ''}"
    )


# --- One row

_COUNTS = ("runs", "differing", "distinct")  # absent, not zero, where nothing was compared
# Of these only bits are compared.
_BITS = ("int", "uint", "bool", "quint", "qint", "bits")
_MANY_ULPS = 1_000_000  # ULPs beyond it are rounded
_MOST_ULP = 2**63 - 1


def engines_of(row: MatrixRow, torch: str) -> str:
    """Return which engines of a build's cuDNN a row may meet that called cuDNN on a simulated GPU, which runs none of them."""
    known = row.off.simulated
    calls = known is not None and any("(cuDNN)" in call for call in known.libraries)
    return expected_engines(row.row, torch) if calls else ""


def row_view(row: MatrixRow, torch: str, machine: str | None = None) -> View:
    """Return one row of a build of torch; of a merged run with the *machine* that it ran on."""
    planned, cost, known = row.row, row.cost, timed(row)
    modes = {
        mode: chosen_view(cell)
        for mode, cell in row.chosen.items()
        if cell.finding is not None or runs_in(mode, planned) is None
    }
    asked: dict[str, object] = {
        "machine": machine,
        "modes": modes,
        "invariance": row.invariance,
        "engines": engines_of(row, torch),
        "libraries": library_names(frozenset((planned.op, *planned.documented))),
    }
    return View(
        {
            **fields_of(planned, "spec", "case", "direction", "dtype", "device"),
            "finding": row.finding,
            "off": cell_view(row.off),
            "on": cell_view(row.on),
            **fields_of(planned, "family", "op"),
            "provokes": planned.provokes or None,
            "why": planned.why or None,
            "reason": row.reason,
            "inputs": row.inputs or None,
            # Modes that only some rows are run in.
            **{
                mode: cell_view(it) if it.verdict != "not_run" else fields_of(it, "verdict", "reason")
                for mode in ("warn_only", "unfilled", "no_workspace")
                for it in [row.cells[mode]]
            },
            "alerts": row.alerts,
            "low_power": row.weak,
            "serial": row.serial,
            **{name: it for name in ("unlike_reference", "beside") if (it := getattr(row, name))},
            "constant": row.constant,
            "source": planned.source,
            "provoked": planned.provoked or None,
            "recipe": planned.enlargement or None,
            "samples": planned.samples or None,
            # Timings with their ratios; none of a row that has no record of any.
            "cost": cost
            and {
                "ratio": known and known.ratio,
                "unfilled_ratio": known and known.unfilled_ratio,
                **fields_of(cost, "outcome", "message", "samples", "calls", "off", "on", "unfilled"),
                **fields_of(cost, "off_memory", "on_memory"),
            },
            **{name: it for name, it in asked.items() if it},
        },
        row,
    )


def cell_view(cell: Cell) -> View:
    """Return one row in one mode."""
    first = cell.first_differing
    rare = {name: it for name in ("reference", "simulated") if (it := getattr(cell, name))}
    return View(
        {
            "verdict": cell.verdict,
            **{name: getattr(cell, name) if cell.compared else None for name in _COUNTS},
            "upper_bound": cell.bound,
            **fields_of(cell, "alert", "reason", "seeded", "seconds", "first", "forward_differing"),
            **fields_of(cell, "outputs", "constant", "within", "between", "where"),
            "first_differing": dict(zip(("execution", "process"), first, strict=True)) if first else None,
            **fields_of(cell, "groups", "alerts"),
            **rare,
        },
        cell,
    )


def flag_cells(row: MatrixRow) -> dict[str, object]:
    """Return in short what one row showed with the flag off and on."""
    names = ("verdict", "runs", "differing", "upper_bound", "alert", "reason")
    return {mode: fields_of(cell_view(row.cell(mode)), *names) for mode in MODES}


def chosen_view(cell: Cell) -> View:
    """Return the cell of a mode that the scan was asked for, with what differs there from the flag off."""
    told = {
        **fields_of(cell, "finding", "finding_reason"),
        "low_power": cell.weak,
        **fields_of(cell, "remarks", "compiled"),
        "processes": dict(zip(("differing", "of"), cell.processes, strict=True)) if cell.processes else None,
    }
    return View(cell_view(cell) | told, cell)


def differences(row: MatrixRow) -> Iterator[tuple[Mode, tuple[str, ...], str, tuple[str, ...]]]:
    """Yield what differed, one output of one mode at a time: the mode, how it differed, the output, and how far."""
    for mode, cell in row.shown.items():
        if cell.verdict != "nondeterministic":
            continue
        unseen = "the first of a process" if cell.between else "not recorded"
        first = "{} (process {})".format(*cell.first_differing) if cell.first_differing else unseen
        counted = cell.counted
        if not cell.simulated:
            counted = f"{cell.differing} of {cell.runs}, {cell.distinct} distinct"
        outputs: list[Output | None] = [output for output in cell.outputs if output.differing]
        # Where only processes differ no output was held against another.
        alone = f"{NOT_MEASURED}: differs {cell.where}" if not cell.within else NOT_MEASURED
        for output in outputs or [None]:
            yield (
                mode,
                (counted, cell.under, cell.where or "none", first),
                output.name if output else "not known",
                _distance(output, NOT_MEASURED if output else alone),
            )


def _distance(output: Output | None, unknown: str) -> tuple[str, ...]:
    """Say how far an output was from the first, or what is *unknown* of one that was measured nowhere.

    How many of the differing executions were examined, the elements that differ, and the largest absolute, relative and ULP
    distance, V_ermv and V_c.
    """
    severity = output.severity if output else None
    if output is None or severity is None:
        return (unknown, *[NOT_MEASURED] * 6)
    share = f"{100 * severity.differing_elements / severity.elements:.3g} %" if severity.elements else "none"
    none = "not subtracted" if output.dtype.startswith(_BITS) else "none comparable"
    return (
        f"{severity.examined} of {output.differing}",
        f"{severity.differing_elements} of {severity.elements} ({share})",
        *(
            _number(getattr(severity, name), none)
            for name in ("max_abs", "max_rel", "max_ulp", "v_ermv", "v_c")
        ),
    )


def _number(value: float | None, none: str) -> str:
    if value is None:
        return none
    if isinstance(value, int) and value < _MANY_ULPS:
        return str(value)
    least = value in (sys.float_info.max, _MOST_ULP)
    return f"{'at least ' if least else ''}{value:.3g}"
