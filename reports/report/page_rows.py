"""The rows of the page as data: an array for each row, op by op, in which what rows share stands once, in a pool.

The page's script draws an op's rows when the op is unfolded, and all that is known of a row when the row is. Its shapes
(``reports/templates/report.js``) name the fields in the order in which they are written here.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

from reports.libraries import libraries_told
from reports.matrix.columns import Column
from reports.matrix.cost import cost_words, timed
from reports.matrix.ops import RunRow
from reports.matrix.rows import differences, row_view
from reports.matrix.words import percent, serial_word
from reports.render.json import View
from reports.render.page import Pool
from scanner.claims.matching import claimed_kind
from scanner.observations.records import Mode, Observation, Output, Provoked, Timing
from scanner.plurals import several
from scanner.verdicts.cells import Cell
from scanner.verdicts.findings import MatrixRow
from scanner.verdicts.vocabulary import BESIDE, FINDING

# What could expose a difference where no spec has said it.
_UNPROVOKED: dict[Provoked, str] = {
    "": "Nothing: these inputs leave the op no choice of order.",
    "samples": "Hardly anything: a sample of PyTorch's database, too small for kernels to run in parallel.",
    "enlarged": "Its size.",
}


def op_facts(report: View, pool: Pool) -> Iterator[list[object]]:
    """Yield for each op, in the page's order, what the script knows of it, its rows last."""
    for op in report["ops"]:
        call = op.rows[0][1].row.op
        told: list[Hashable] = [op.finding, op.family, call, _counts(op), _lists(op, report["columns"])]
        rows = [_row(it, call, report, pool) for it in _worst_first(op.rows)]
        facts = [*map(pool.place, told), rows]
        # Of most ops there is nothing more to know.
        notable = op.beside or (op.finding == "deterministic" and not op.is_clean)
        yield [*facts, [*op.beside]] if notable else facts


def overload_facts(one: View, report: View, pool: Pool) -> list[object]:
    """Return the overloads of a build: those that were executed, with the op that shows the worst, and those that never were."""
    ops = {op.name: place for place, op in enumerate(report["ops"])}
    executed = []
    for it in one.by_finding:
        found = it["evidence"][0].rsplit(":", 3)[0]
        texts = map(pool.place, (it["name"], (it["sort"], it["kernel"], it["worst"])))
        executed.append([*texts, ops.get(found, found), it["rows"]])
    never = [(title, [*map(pool.place, names)]) for title, names in one.never_lists.items()]
    return [f"torch {one['torch']} on {one['device']}", executed, never]


def documented_words(op: View, columns: Sequence[View]) -> str:
    """Return what the lists say of an op; where releases differ on a device that was measured, one after the other."""
    turned = []
    for device in dict.fromkeys(it.device for it in columns):
        words = [
            " and ".join(cell.documented[claimed_kind(device)]) or "none"
            for it, cell in zip(columns, op.cells, strict=True)
            if it.device == device and cell.documented is not None
        ]
        parts = [word for place, word in enumerate(words) if not place or word != words[place - 1]]
        turned += [" → ".join(parts)] if len(parts) > 1 else []
    return " · ".join([op.docs_words, *turned])


def _counts(op: View) -> str:
    rows = several(sum(op.counts.values()), "row")
    found = [f"{count} {name}" for name, count in op.beside.items()]
    found += [f"{count} {finding}" for finding, count in op.counts.items() if finding != "deterministic"]
    return f"{', '.join(found)} of {rows}" if found else rows


def _lists(op: View, columns: Sequence[View]) -> tuple[Hashable, ...]:
    """Return what each release documents of each kind of device, the same of several releases once."""
    said: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for column, cell in zip(columns, op.cells, strict=True):
        if cell.documented is not None:
            words = ((kind.upper(), " and ".join(of) or "none") for kind, of in cell.documented.items())
            said.setdefault(tuple(sorted(words)), []).append(column.torch)
    return tuple((", ".join(dict.fromkeys(torches)), lines) for lines, torches in said.items())


def _worst_first(rows: Sequence[RunRow]) -> list[RunRow]:
    """Order an op's rows by the worst that any run found; what several runs have of one row stands together."""
    places: dict[str, tuple[int, int]] = {}
    for _, row in rows:
        rank, place = places.get(row.row.id, (len(FINDING), len(places)))
        places[row.row.id] = (min(rank, FINDING[row.finding].rank), place)
    return sorted(rows, key=lambda it: places[it[1].row.id])


def _row(it: RunRow, call: str, report: View, pool: Pool) -> list[object]:
    run, row = it
    planned, engines = row.row, row_view(row, report["runs"][run].torch).get("engines", "")
    texts: list[Hashable] = [
        planned.case,
        (planned.direction, planned.dtype, planned.device),
        (
            planned.op if planned.op != call else "",
            pool.place(planned.provokes or _UNPROVOKED[planned.provoked]),
            pool.place(planned.why or None),
            pool.place(libraries_told(frozenset((planned.op, *planned.documented)))),
            pool.place(engines),
        ),
        _result(row, row.observations, pool) + _further(row, report.ops.further),
        tuple(map(pool.place, row.inputs)),
        tuple(
            pool.place((pool.place(one.name), one.shape, pool.place(one.dtype)))
            for one in _outputs([*row.shown.values()])
        ),
    ]
    times = [
        _short(1e3 * one.seconds, 2) for one in row.observations
    ]  # in milliseconds, which have the fewest digits
    return [run, *map(pool.place, texts), _cost(row, pool), times]


def _result(row: MatrixRow, observations: Sequence[Observation], pool: Pool) -> tuple[Hashable, ...]:
    """Return all that a row showed, which many rows have in common."""
    cells = list(row.shown.values())
    texts: list[Hashable] = [
        row.finding,
        ", ".join(filter(None, (row.note, *(BESIDE[name].phrase for name in row.beside)))),
        row.reason,
        row.joint_reason,
        row.weak,
        row.constant,
        serial_word(row.serial),
    ]
    groups = _by_mode(
        [[(one.perturbation, f"{one.differing} of {one.executions}") for one in it.groups] for it in cells]
    )
    counts = _by_mode([[(one.name, one.differing) for one in it.outputs] for it in cells])
    return (
        *map(pool.place, texts),
        row.alerts,
        pool.place(row.further_words),
        tuple(pool.place(_cell(mode, cell, row, pool)) for mode, cell in row.shown.items()),
        groups,
        tuple(line[1:] for line in counts) if any(any(line[1:]) for line in counts) else (),
        tuple((mode, output, seen[-1], *far) for mode, seen, output, far in differences(row)),
        tuple(pool.place(_process(one)) for one in observations),
    )


def _further(row: MatrixRow, columns: Sequence[Column]) -> tuple[Hashable, ...]:
    """Return what each further column finds of a row and what it says beside that; nothing where there are no columns."""
    said = tuple((found := column.finding(row), _beside(found, column.words(row))) for column in columns)
    return (said,) if said else ()


def _beside(found: str | None, words: str) -> str:
    """Return what stands behind the finding that *words* begin with, which the page shows as a badge."""
    if found is None:
        return words
    return words.removeprefix(found).removeprefix(found.replace("_", " ")).lstrip(",:; ")


def _outputs(cells: Sequence[Cell]) -> list[Output]:
    """Return the compared tensors of all modes, each once."""
    return list({one.name: one for cell in reversed(cells) for one in cell.outputs}.values())


def _by_mode(modes: Sequence[Sequence[tuple[Hashable, ...]]]) -> tuple[tuple[Hashable, ...], ...]:
    """Join the lines of several modes that begin alike: each ends in its last value in every mode."""
    lines: dict[Hashable, list[Hashable]] = {}
    for place, seen in enumerate(modes):
        for *start, value in seen:
            line = lines.setdefault(start[0], [*start, *[None] * len(modes)])
            line[len(start) + place] = value
    return tuple(map(tuple, lines.values()))


def _cell(mode: Mode, cell: Cell, row: MatrixRow, pool: Pool) -> tuple[Hashable, ...]:
    # Where nothing could race, no number of executions bounds anything.
    bound = percent(cell.bound) if cell.bound and not row.serial else None
    cause = cell.cause if cell.failure else None
    where = None if cell.simulated else cell.where
    texts = (mode, cell.verdict, cell.details, bound, cause, cell.reason, where)
    return (*map(pool.place, texts), int(cell.seeded), cell.alerts)


def _process(one: Observation) -> tuple[Hashable, ...]:
    told = ": ".join(filter(None, (one.exception, one.message))) or one.message
    counts = (one.executions, len(one.digests), one.first_differing, one.forward_differing)
    return (one.mode, one.process, one.outcome, *counts, told)


def _cost(row: MatrixRow, pool: Pool) -> object:
    """Return the words of a row's cost; of one that was timed also its ratio and, in microseconds, every timing."""
    one, cost = timed(row), row.cost
    words = (cost_words(row), one.is_slow if one else None, cost.message if cost else None)
    if one is None or cost is None:
        return pool.place(words)
    times = [_timing(it) for it in (one.off, one.on, one.unfilled) if it]
    return [
        pool.place(words),
        _short(one.ratio, 4),
        cost.samples,
        cost.calls,
        times,
        cost.off_memory,
        cost.on_memory,
    ]


def _timing(one: Timing) -> list[float]:
    return [_short(value / 1e-6, 3) for value in (one.median, one.low, one.high)]


def _short(value: float, digits: int) -> float:
    """Round to some digits, and to an integer where that reads the same."""
    rounded = float(f"{value:.{digits}g}")
    return int(rounded) if rounded.is_integer() else rounded
