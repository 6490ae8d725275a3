"""From the cell of a mode that ``--modes`` chose to what differs there from the flag off: pure functions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

from scanner.modes import MODE_TABLE, Mode
from scanner.observations.records import Row
from scanner.verdicts.cells import Cell
from scanner.verdicts.power import too_seldom

ModeFinding = Literal[
    "silent",
    "raises",
    "differs",
    "also_differs",
    "fixed_by_mode",
    "mode_dependent",
    "refused",
    "not_compiled",
    "inconclusive",
    "as_off",
]

# One sentence each, printed with every report that has such a mode; the worst first.
MODE_FINDING_MEANING: dict[ModeFinding, str] = {
    "silent": "The flag is on in the phase that is compared, nothing was raised, and the bits differ.",
    "raises": "Raises PyTorch's alert in this mode.",
    "differs": "Differs in this mode, and did not with the flag off.",
    "also_differs": "Differs in this mode, as it does with the flag off.",
    "fixed_by_mode": "Differs with the flag off, did not differ in this mode.",
    "mode_dependent": "Did not differ in this mode nor with the flag off, but the two give different bits.",
    "refused": "PyTorch refused to run a backward phase with the flag on that was compiled with it off; this is no alert.",
    "not_compiled": "torch.compile ran the op eagerly; this says nothing of compiled code.",
    "inconclusive": "This mode, or the flag off, has no usable verdict; the reason is given.",
    "as_off": "As with the flag off: did not differ, and gives the same bits.",
}
# What voids a finding, whatever was seen: other inputs may give other bits.
UNEQUAL_INPUTS = "the inputs differed between processes or modes"


class ChosenCell(Struct, frozen=True, kw_only=True):
    """One row in a mode that ``--modes`` chose."""

    cell: Cell
    finding: ModeFinding | None  # None: the mode has nothing to say of the row
    reason: str | None = None  # why the finding is inconclusive
    weak: str | None = None  # low power: why that it did not differ says little
    remarks: tuple[
        str, ...
    ] = ()  # modes under torch.compile: what was compiled, and how its bits are to eager ones


def chosen_cell(
    mode: Mode,
    row: Row,
    eager: tuple[Cell, Cell],
    cell: Cell,
    *,
    weak: str | None = None,
    unequal: bool = False,
) -> ChosenCell:
    """Return what a row shows in a mode, held against the flag off.

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
        return ChosenCell(
            cell=cell, finding="not_compiled" if eagerly else None, reason=cell.reason if eagerly else None
        )
    if cell.refused:
        return ChosenCell(cell=cell, finding="refused", reason=cell.reason)
    flag = MODE_TABLE[mode].flag_in(row.direction)
    finding, reason = ("inconclusive", UNEQUAL_INPUTS) if unequal else _finding(mode, off, cell, flag=flag)
    still = cell.verdict == "deterministic" and not row.constant
    return ChosenCell(
        cell=cell,
        finding=finding,
        reason=reason,
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
