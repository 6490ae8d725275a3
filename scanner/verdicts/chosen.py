"""From the cell of a mode that ``--modes`` chose to what differs there from the flag off: pure functions."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from detmatrix.scanner.modes import MODE_TABLE, Mode
from detmatrix.scanner.observations.records import Row
from detmatrix.scanner.verdicts.cells import Cell
from detmatrix.scanner.verdicts.power import too_seldom
from detmatrix.scanner.verdicts.vocabulary import ModeFinding

# What voids a finding, whatever was seen: other inputs may give other bits.
UNEQUAL_INPUTS = "the inputs differed between processes or modes"


def chosen_cell(
    mode: Mode,
    row: Row,
    eager: tuple[Cell, Cell],
    cell: Cell,
    *,
    weak: str | None = None,
    unequal: bool = False,
) -> Cell:
    """Return the cell of a mode with what it shows, held against the flag off.

    Args:
        mode: The mode.
        row: The row as planned.
        eager: What was seen with the flag off, and with it on.
        cell: What was seen in the mode.
        weak: Why that nothing differed in the mode would say little.
        unequal: Whether its inputs were not those of all processes with the flag off and on.
    """
    off = eager[0]
    if cell.verdict == "not_run":
        eagerly = cell.compiled is not None and not cell.compiled.graphs
        return replace(cell, finding="not_compiled", finding_reason=cell.reason) if eagerly else cell
    if cell.refused:
        return replace(cell, finding="refused", finding_reason=cell.reason)
    flag = MODE_TABLE[mode].flag_in(row.direction)
    finding, reason = ("inconclusive", UNEQUAL_INPUTS) if unequal else _finding(mode, off, cell, flag=flag)
    still = cell.verdict == "deterministic" and not row.constant
    return replace(
        cell,
        finding=finding,
        finding_reason=reason,
        weak=weak if still else None,
        remarks=tuple(_remarks(cell, eager[flag])),
    )


def _remarks(cell: Cell, eager: Cell) -> Iterator[str]:
    """Yield what must be known of compiled code beside its finding.

    Args:
        cell: What was seen under ``torch.compile``.
        eager: What was seen eagerly with the flag as it was there.
    """
    compiled = cell.compiled
    if compiled is None:
        return
    if not compiled.graphs:
        yield "nothing compiled"
    elif compiled.breaks:
        yield "compiled in part"
    elif not compiled.kernels:
        yield "calls eager kernels"
    if (cell.verdict, eager.verdict) == ("deterministic", "deterministic") and cell.first != eager.first:
        yield "other bits than eager"


def _finding(mode: Mode, off: Cell, cell: Cell, *, flag: bool) -> tuple[ModeFinding, str | None]:
    if cell.verdict == "nondeterministic" and flag:
        return "silent", None
    if cell.verdict == "raises":
        return "raises", None
    findings: dict[tuple[str, str], ModeFinding] = {
        ("deterministic", "deterministic"): "as_off" if off.first == cell.first else "mode_dependent",
        ("deterministic", "nondeterministic"): "differs",
        ("nondeterministic", "deterministic"): "fixed_by_mode",
        ("nondeterministic", "nondeterministic"): "also_differs",
    }
    found = findings.get((off.verdict, cell.verdict), "inconclusive")
    if found == "inconclusive":
        failed = off if cell.verdict in {"deterministic", "nondeterministic"} else cell
        where = "off: " if failed is off else ""
        return found, f"{where}{failed.verdict}" + (f" ({failed.reason})" if failed.reason else "")
    few = too_seldom(off, "with the flag off") or too_seldom(cell, f"in {mode}")
    if found == "mode_dependent" and few:
        return "inconclusive", f"{few} whether the mode gives other bits, or a race does"
    return found, None
