"""One row as JSON and CSV have it. Absence is ``None``, never a blank, a zero or NaN; what was not asked has no key."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping

from detmatrix.reports.cudnn import expected_engines
from detmatrix.reports.libraries import library_names
from detmatrix.reports.matrix.cost import NOT_MEASURED, cost_view
from detmatrix.reports.render.json import View, fields_of
from detmatrix.scanner.observations.records import MODES, Mode, Output
from detmatrix.scanner.verdicts.cells import Cell
from detmatrix.scanner.verdicts.findings import MatrixRow, runs_in

_PLANNED = ("spec", "case", "direction", "dtype", "device")
_COUNTS = ("runs", "differing", "distinct")  # absent, not zero, where nothing was compared
# Of these only bits are compared.
_BITS = ("int", "uint", "bool", "quint", "qint", "bits")
_WHOLE = 1_000_000  # ULPs beyond it are rounded
_MOST_ULP = 2**63 - 1
_LAST = ("groups", "other_threads", "orders", "alerts", "launches")


def row_view(row: MatrixRow, torch: str = "", machine: str | None = None) -> View:
    """Return one row.

    Args:
        row: The row.
        torch: The build; where it is given, with the engines of cuDNN that the row may meet.
        machine: Of a merged run, what the row ran on.
    """
    planned = row.row
    modes = {
        mode: chosen_view(cell)
        for mode, cell in row.chosen.items()
        if cell.finding is not None or runs_in(mode, planned) is None
    }
    known = row.off.simulated
    calls = known is not None and any("(cuDNN)" in call for call in known.libraries)
    asked: dict[str, object] = {
        "machine": machine,
        "modes": modes,
        "invariance": row.invariance,
        # Those that a row on a simulated GPU that only called cuDNN may meet.
        "engines": expected_engines(planned, torch).text if calls else "",
        "libraries": library_names(frozenset((planned.op, *planned.documented))),
    }
    return View(
        {
            **fields_of(planned, *_PLANNED),
            "finding": row.finding,
            "off": cell_view(row.off),
            "on": cell_view(row.on),
            **fields_of(planned, "family", "op"),
            "provokes": planned.provokes or None,
            "why": planned.why or None,
            "reason": row.reason,
            "inputs": row.inputs or None,
            **{mode: _further(row.cells[mode]) for mode in ("warn_only", "unfilled", "no_workspace")},
            "alerts": row.alerts,
            "low_power": row.weak,
            "serial": row.serial,
            **{name: it for name in ("unlike_reference", "beside") if (it := getattr(row, name))},
            "constant": row.constant,
            "source": planned.source,
            "provoked": planned.provoked or None,
            "recipe": planned.enlargement or None,
            "samples": planned.samples or None,
            "cost": cost_view(row.cost),
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
            **fields_of(cell, *_LAST),
            **rare,
        },
        cell,
    )


def flag_cells(row: MatrixRow) -> dict[str, object]:
    """Return in short what one row showed with the flag off and on."""
    names = ("verdict", "runs", "differing", "upper_bound", "alert", "reason")
    return {mode: fields_of(cell_view(row.cell(mode)), *names) for mode in MODES}


def _further(cell: Cell) -> Mapping[str, object]:
    """Return the cell of a mode that only some rows are run in."""
    return cell_view(cell) if cell.verdict != "not_run" else fields_of(cell, "verdict", "reason")


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
        # Where only processes differ, or thread counts among themselves, no output was held against another.
        alone = f"{NOT_MEASURED}: differs {cell.where}" if not cell.within else NOT_MEASURED
        for output in outputs or [None]:
            yield (
                mode,
                (counted, cell.under, cell.where or "none", first),
                output.name if output else "not known",
                distance(output, NOT_MEASURED if output else alone),
            )


def distance(output: Output | None, unknown: str = NOT_MEASURED) -> tuple[str, ...]:
    """Say how far an output was from the first.

    Args:
        output: ``None`` stands for one that was measured nowhere.
        unknown: What is said of that one.

    Returns:
        How many of the differing executions were examined, the elements that differ, and the largest absolute,
        relative and ULP distance, V_ermv and V_c.
    """
    severity = output.severity if output else None
    if output is None or severity is None:
        return (unknown, *[NOT_MEASURED] * 6)
    share = f"{100 * severity.differing_elements / severity.elements:.3g} %" if severity.elements else "none"
    none = "not subtracted" if output.dtype.startswith(_BITS) else "none comparable"
    return (
        f"{severity.examined} of {output.differing}",
        f"{severity.differing_elements} of {severity.elements} ({share})",
        _number(severity.max_abs, none),
        _number(severity.max_rel, none),
        _ulps(severity.max_ulp, none),
        _number(severity.v_ermv, none),
        _number(severity.v_c, none),
    )


def _number(value: float | None, none: str) -> str:
    if value is None:
        return none
    return f"at least {value:.3g}" if value == sys.float_info.max else f"{value:.3g}"


def _ulps(value: int | None, none: str) -> str:
    if value is None or value < _WHOLE:
        return none if value is None else str(value)
    return f"{'at least ' if value == _MOST_ULP else ''}{value:.3g}"
