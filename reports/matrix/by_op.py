"""From the rows of runs to one line an op."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from reports.matrix.cells import counted
from reports.matrix.columns import Column, all_columns, cell_of, outranking, pointer, telling
from reports.matrix.cost import Timed, cost_view
from reports.matrix.listed import SECTION_WORDS, is_filled, is_missing, lists_of, sections
from reports.matrix.model import FINDINGS, WORST_FIRST, Matrix, beside_counts
from reports.matrix.ops import (
    ACTION,
    MISSING,
    NONE_LISTED,
    UNKNOWN,
    UNSCANNED,
    USABLE,
    CostRange,
    ModeMark,
    OpCell,
    OpColumn,
    OpDevice,
    OpDirection,
    OpRow,
    OpsView,
    OpView,
)
from reports.matrix.view import UNLIKE_REFERENCE, RowView, doubts
from reports.render.simulated import BESIDE_WORDS
from scanner.accelerators import label_of
from scanner.claims.matching import claimed_kind, device_kind, names_of
from scanner.observations import versions
from scanner.observations.records import Claim, Row
from scanner.plurals import several
from scanner.verdicts.cells import Cell
from scanner.verdicts.findings import BESIDE_MEANING, Finding, MatrixRow

# The list of cuBLAS (up to 2.9) is one of what raises.
_SHORT = SECTION_WORDS | {"cublas": "raises"}
_FIXED = ("fixed_by_mode", "uninitialized")  # findings that the flag mends


class _Lists:
    """The claims of a run by the ops that they are about."""

    def __init__(self, matrix: Matrix) -> None:
        self.claims = list(lists_of(matrix).claims)
        self.devices = [
            kind for kind in ("cpu", "cuda", "mps") if any(it.device == kind for it in self.claims)
        ]
        self._unparsed = [claim for claim in self.claims if not claim.parsed]
        self._of: dict[str, list[Claim]] = {}
        for claim in self.claims:
            for name in claim.targets if claim.parsed else ():
                self._of.setdefault(name, []).append(claim)

    def about(self, row: Row) -> list[Claim]:
        """Return the claims that could be about a row."""
        return [*(claim for name in names_of(row) for claim in self._of.get(name, ())), *self._unparsed]

    def lack(self, row: MatrixRow) -> bool:
        """Tell whether there are lists, and none speaks of a row that raises or differs."""
        return bool(self.claims) and is_missing(row, self.about(row.row))


class _Record(NamedTuple):
    """A row of a run, measured."""

    run: int
    row: MatrixRow


def ops_view(matrices: Sequence[Matrix], views: Sequence[Sequence[RowView]]) -> OpsView:
    """Return the ops of these runs.

    Args:
        matrices: The runs.
        views: The rows that the report shows of each.
    """
    columns = _columns(matrices)
    lists = [_Lists(one) for one in matrices]
    records: dict[str, list[_Record]] = {}
    shown: dict[str, list[OpRow]] = {}
    for number, (one, rows) in enumerate(zip(matrices, views, strict=True)):
        for record in one.scanned:
            records.setdefault(record.row.spec, []).append(_Record(number, record))
        for record, row in zip(one.rows, rows, strict=True):
            shown.setdefault(row.spec, []).append(OpRow(number, row, record))
    short = _short_names(records)
    planned = [record.row for one in matrices for record in one.scanned]
    further = telling(all_columns(matrices), planned)
    ops = [
        _op((name, short[name]), of, shown.get(name, ()), columns, further, lists)
        for name, of in records.items()
    ]
    counts = Counter(op.finding for op in ops)
    latest = max(
        range(len(matrices)), key=lambda place: versions.key(_release(matrices[place])), default=None
    )
    measured = {column.device for column in columns}
    told: list[Claim] = []
    if latest is not None:
        told = lists[latest].claims
        if any(one.only or one.patterns for one in matrices):
            about = {
                id(it)
                for rows in shown.values()
                for row in rows
                for it in lists[latest].about(row.record.row)
            }
            told = [claim for claim in told if id(claim) in about]
    claims = Counter(claim.device for claim in told)
    return OpsView(
        columns=columns,
        further=further,
        ops=tuple(
            sorted(
                (op for op in ops if op.rows),
                key=lambda op: (_beside_rank(op.beside), WORST_FIRST.index(op.finding), op.is_clean),
            )
        ),
        narrowed=any(one.only or one.patterns for one in matrices),
        counts={finding: counts[finding] for finding in FINDINGS},
        beside=beside_counts(op.beside for op in ops),
        unmeasured={kind: claims[kind] for kind in claims if kind not in {"any", *measured}},
        by_device=_by_device(ops),
    )


def _by_device(ops: Sequence[OpView]) -> dict[str, dict[str, int]]:
    """Count the ops of each kind of device by what it shows, the worst first; empty if there is one kind."""
    found: dict[str, list[OpDevice]] = {}
    for it in (it for op in ops for it in op.devices):
        found.setdefault(it.label, []).append(it)
    counted: dict[str, dict[str, int]] = {}
    for label, those in found.items():
        counts = Counter(it.finding for it in those)
        told: dict[str, int] = {
            name: counts[name] for name in WORST_FIRST if counts[name] or name == "silent"
        }
        counted[label] = {**beside_counts(it.beside for it in those), **told}
        if counts[None]:
            counted[label][UNSCANNED] = counts[None]
    return counted


def _beside_rank(beside: Iterable[str]) -> int:
    """Order ops by the worst that stands beside a finding, which is worse than any finding."""
    names = [*BESIDE_MEANING]
    return min(map(names.index, beside), default=len(names))


def _short_names(names: Iterable[str]) -> dict[str, str]:
    """Return the shortest ending of each name that no other has; those of databases stay whole."""
    owners: dict[str, set[str]] = {}
    for name in names:
        for ending in _endings(name):
            owners.setdefault(ending, set()).add(name)
    return {name: next((it for it in _endings(name) if len(owners[it]) == 1), name) for name in names}


def _endings(name: str) -> list[str]:
    parts = name.split(".") if name.startswith("torch.") else [name]
    return [".".join(parts[-count:]) for count in range(1, len(parts) + 1)]


def _release(one: Matrix) -> str:
    return versions.release(one.run.header.environment.torch)


def _columns(matrices: Sequence[Matrix]) -> tuple[OpColumn, ...]:
    """Return a column for each release on each kind of device."""
    runs: dict[tuple[str, str], list[int]] = {}
    for number, one in enumerate(matrices):
        runs.setdefault((device_kind(one.run.header.settings.device), _release(one)), []).append(number)
    measured = [
        OpColumn(
            device=device,
            torch=torch,
            runs=tuple(numbers),
            executions=tuple(matrices[number].executions for number in numbers),
            trusted=not any(matrices[number].distrust for number in numbers),
        )
        for (device, torch), numbers in runs.items()
    ]
    return tuple(sorted(measured, key=lambda it: (it.device, versions.key(it.torch))))


def _op(
    names: tuple[str, str],
    records: Sequence[_Record],
    shown: Sequence[OpRow],
    columns: Sequence[OpColumn],
    further: Sequence[Column],
    lists: Sequence[_Lists],
) -> OpView:
    cells, latest = [], dict[str, int]()
    for place, column in enumerate(columns):
        mine = [record for record in records if record.run in column.runs]
        cells.append(_cell(mine, column, lists))
        if mine:
            latest[column.device] = place
    judged = [cells[place] for place in latest.values()]
    finding = min((cell.finding for cell in judged if cell.finding), key=WORST_FIRST.index)
    counts = sum((Counter(cell.counts) for cell in judged), Counter[Finding]())
    runs = {number for place in latest.values() for number in columns[place].runs}
    rows = [record.row for record in records if record.run in runs]
    weak = [text for cell in judged for it in cell.directions.values() for text in it.doubts]
    elsewhere = _elsewhere(latest, judged)
    told = [cell_of(column, rows) for column in further]
    unlike = sum(bool(row.unlike_reference) for row in rows)
    beside = beside_counts(row.beside for row in rows)
    kinds = dict.fromkeys(column.device for column in columns)
    devices = []
    for device in kinds if len(kinds) > 1 else ():
        scanned = latest.get(device)
        cell = None if scanned is None else cells[scanned]
        of = [record.row for record in records if scanned is not None and record.run in columns[scanned].runs]
        devices.append(_device(device, cell, of, further))
    comforted = latest if elsewhere else ()
    action = "; ".join(f"{it.label}: {it.action}" for it in devices)
    return OpView(
        name=names[0],
        short=names[1],
        family=records[0].row.row.family,
        finding=finding,
        action=action or _action(finding, rows, weak, comforted, further),
        listed=_listed(latest, judged),
        elsewhere=elsewhere,
        doubts=tuple(dict.fromkeys(weak)) if finding == "deterministic" else (),
        counts={it: counts[it] for it in WORST_FIRST if counts[it]},
        cost=_range(rows, fill=False),
        fill=_range(rows, fill=True),
        cells=tuple(cells),
        rows=tuple(shown),
        further=tuple(told),
        unlike_reference=unlike,
        beside=beside,
        devices=tuple(devices),
    )


def _device(
    device: str, cell: OpCell | None, rows: Sequence[MatrixRow], further: Sequence[Column]
) -> OpDevice:
    """Return what one of several kinds of devices shows of an op, apart from the others."""
    action = UNSCANNED
    if cell is not None and cell.finding is not None:
        weak = [text for it in cell.directions.values() for text in it.doubts]
        action = _action(cell.finding, rows, weak, (), further)
        action = "none seen" if action == ACTION["deterministic"] else action
    return OpDevice(
        device=device,
        finding=cell.finding if cell else None,
        action=action,
        listed=_listed([device], [cell]) if cell else NONE_LISTED,
        counts={it: cell.counts[it] for it in WORST_FIRST if it in cell.counts} if cell else {},
        beside=beside_counts(row.beside for row in rows),
    )


def _cell(records: Sequence[_Record], column: OpColumn, lists: Sequence[_Lists]) -> OpCell:
    """Return what the runs of a column show of an op."""
    rows = [record.row for record in records]
    finding = min((row.finding for row in rows), key=WORST_FIRST.index, default=None)
    worst = [record for record in records if record.row.finding == finding]
    return OpCell(
        finding=finding,
        forward=direction_of([row for row in rows if row.row.direction == "forward"]),
        backward=direction_of([row for row in rows if row.row.direction == "backward"]),
        counts=dict(Counter(row.finding for row in rows)),
        documented=_documented(records, worst, column.device, lists),
        missing=sum(column.trusted and lists[run].lack(row) for run, row in records),
    )


def _documented(
    records: Sequence[_Record], worst: Sequence[_Record], device: str, lists: Sequence[_Lists]
) -> dict[str, tuple[str, ...]] | None:
    """Return what the lists say: of the device of the runs, for the worst rows; of others for all rows."""
    runs = {run for run, _ in records}
    if not any(lists[run].claims for run in runs):
        return None
    found: dict[str, tuple[str, ...]] = {}
    measured = claimed_kind(device)
    for kind in dict.fromkeys([measured, *(kind for run in runs for kind in lists[run].devices)]):
        words = (
            _SHORT[section]
            for run, record in (worst if kind == measured else records)
            if (claims := lists[run].about(record.row))
            for section in sections(replace(record.row, device=kind), claims)
        )
        found[kind] = tuple(dict.fromkeys(words))
    return found


def direction_of(rows: Sequence[MatrixRow]) -> OpDirection:
    """Return the worst row of a direction; of those that did not differ, the one that shows least."""
    if not rows:
        nothing = ModeMark(verdict=None, text="no row", has_row=False)
        return OpDirection(off=nothing, on=nothing)
    worst = min(
        rows,
        key=lambda row: (
            WORST_FIRST.index(row.finding),
            row.off.verdict != "nondeterministic",
            min(row.off.runs, row.on.runs),
        ),
    )
    doubted = [doubts(row.weak, serial=row.serial) for row in rows]
    return OpDirection(
        off=_mark(worst.off),
        on=_mark(worst.on, other_bits=worst.finding == "mode_dependent"),
        finding=worst.finding,
        row=worst.row.id,
        doubts=tuple(dict.fromkeys(text for texts in doubted for text in texts)) if all(doubted) else (),
    )


def _mark(cell: Cell, *, other_bits: bool = False) -> ModeMark:
    text = counted(cell) or f"{cell.verdict} {cell.alert or ''}".strip()
    return ModeMark(
        verdict=cell.verdict, text=f"{text}, other bits" if other_bits else text, other_bits=other_bits
    )


def _action(
    finding: Finding,
    rows: Sequence[MatrixRow],
    weak: Iterable[str],
    comforted: Iterable[str],
    further: Sequence[Column],
) -> str:
    """Return what to do about an op, and which further column to look at.

    Args:
        finding: The worst.
        rows: Of the latest releases.
        weak: Why a direction shows little.
        comforted: The devices that were measured, of an op that the lists name for another.
        further: The columns beside off and on.
    """
    told = [cell_of(column, rows) for column in further]
    unlike = sum(bool(row.unlike_reference) for row in rows)
    see = pointer(further, told) if finding == "deterministic" or outranking(finding, further, told) else None
    own = f"{UNLIKE_REFERENCE}: {several(unlike, 'row')}" if unlike else None
    if beside := beside_counts(row.beside for row in rows):
        worst = next(iter(beside))
        own = f"{BESIDE_WORDS[worst]}: {several(beside[worst], 'row')}"
    if own is None and (see is None or finding != "deterministic"):
        own = _of_flag(finding, rows, weak, comforted)
    return "; ".join(filter(None, (own, see)))


def _of_flag(
    finding: Finding, rows: Sequence[MatrixRow], weak: Iterable[str], comforted: Iterable[str]
) -> str:
    """Return what to do about an op, by its worst rows with the flag off and on.

    Args:
        finding: The worst.
        rows: Of the latest releases.
        weak: Why a direction shows little.
        comforted: The devices that were measured, of an op that the lists name for another.
    """
    of = [row for row in rows if row.finding == finding]
    raising = sum(row.on.verdict == "raises" for row in rows)
    fixed = sum(row.finding in _FIXED for row in rows)
    if finding in {"raises", "over_alert"} and fixed:
        return f"raises in {several(raising, 'row')}; flag fixes {fixed}"
    if finding in _FIXED and raising:
        return f"{ACTION['fixed_by_mode']}; raises in {several(raising, 'row')}"
    if finding == "fixed_by_mode" and all(map(is_filled, of)):
        return ACTION["uninitialized"]  # a run that was made before there was such a finding
    if finding == "inconclusive":
        more = (cell for row in of for cell in (row.unfilled, row.warn_only) if cell.verdict != "not_run")
        cells = (*(cell for row in of for cell in (row.off, row.on)), *more)
        failed = (_failure_words(cell) for cell in cells if cell.verdict not in USABLE)
        return f"{ACTION[finding]}: {next(failed, 'too few runs')}"
    if finding != "deterministic":
        return ACTION[finding]
    doubts, devices = " and ".join(dict.fromkeys(weak)), " and ".join(map(label_of, comforted))
    return f"none seen: {doubts}" if doubts else f"none seen on {devices}" if devices else ACTION[finding]


def _failure_words(cell: Cell) -> str:
    """Return the verdict of a cell without result; of one that rests on a library that is not simulated, the call."""
    known = cell.simulated if cell.verdict == "not_run" else None
    if known and known.libraries:
        return f"calls {known.libraries[0]}"
    return "products by the CPU" if known and known.products else cell.verdict


def _listed(latest: Iterable[str], cells: Sequence[OpCell]) -> str:
    """Return in a word what the lists say of an op on the devices that it was measured on."""
    if any(cell.missing for cell in cells):
        return MISSING
    if all(cell.documented is None for cell in cells):
        return UNKNOWN
    pairs = zip(latest, cells, strict=True)
    words = dict.fromkeys(
        word for device, cell in pairs for word in (cell.documented or {}).get(claimed_kind(device), ())
    )
    return " and ".join(words) or NONE_LISTED


def _elsewhere(latest: Iterable[str], cells: Sequence[OpCell]) -> str | None:
    """Return what the lists say of an op on devices that it was not measured on; ``None`` if they are silent."""
    said: dict[str, dict[str, None]] = {}
    measured = {*map(claimed_kind, latest)}
    for cell in cells:
        for device, words in (cell.documented or {}).items():
            if words and device not in measured:
                said.setdefault(device, {}).update(dict.fromkeys(words))
    return ", ".join(f"{device.upper()}: {' and '.join(words)}" for device, words in said.items()) or None


def _range(rows: Sequence[MatrixRow], *, fill: bool) -> CostRange | None:
    """Return the range of an op's ratios: of the flag alone, or of flag and fill in rows in which the fill matters."""
    ratios = list(_fills(rows) if fill else _flags(rows))
    return CostRange(min(ratios), max(ratios)) if ratios else None


def _fills(rows: Iterable[MatrixRow]) -> Iterator[float]:
    for row in rows:
        cost = cost_view(row.cost)
        if isinstance(cost, Timed) and (cost.filling is not None or is_filled(row)):
            yield cost.ratio if cost.told_apart else 1.0


def _flags(rows: Iterable[MatrixRow]) -> Iterator[float]:
    for row in rows:
        cost = cost_view(row.cost)
        # Without a time of its own nobody knows what the flag takes beside the fill.
        if isinstance(cost, Timed) and (cost.unfilled is not None or not is_filled(row)):
            yield cost.flag
