"""The matrix as one web page that needs no network: a line an op, the worst first, and behind each line its rows.

The lines of ops stand in the page and need no script. The rows are data, tables with a column for each field, so that
six thousand of them take a megabyte; the page's script draws those of an op when it is unfolded, and all that is known of a
row when the row is. jinja2 escapes all of it, data included, and a content security policy lets no other script run.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import count, groupby
from urllib.parse import quote

from msgspec.structs import replace

from detmatrix.reports.coverage import coverages
from detmatrix.reports.explain import instead_of
from detmatrix.reports.libraries import libraries_told
from detmatrix.reports.matrix.chosen_columns import Column
from detmatrix.reports.matrix.model import Matrix
from detmatrix.reports.matrix.ops import LISTED_MEANING, RunRow
from detmatrix.reports.matrix.rows import cost_words, differences, duration, engines_of, memory, timed, times
from detmatrix.reports.matrix.run_words import bound_words, percent, serial_word
from detmatrix.reports.render import Tables, View, fields_of, grouped, page_pieces
from detmatrix.reports.report.view import report_view, squares
from detmatrix.scanner.claims.matching import claimed_kind
from detmatrix.scanner.modes import MODE_TABLE
from detmatrix.scanner.observations.records import Mode, Observation, Provoked
from detmatrix.scanner.plurals import several
from detmatrix.scanner.verdicts.cells import Cell
from detmatrix.scanner.verdicts.findings import MatrixRow
from detmatrix.scanner.verdicts.simulated import witness_words
from detmatrix.scanner.verdicts.vocabulary import BESIDE, FINDING, WORST_FIRST

# More than this no browser filters at once; ten thousand rows are a page of some megabytes.
MOST_ROWS = 20_000
# What could expose a difference where no spec has said it.
_UNPROVOKED: dict[Provoked, str] = {
    "": "Nothing: these inputs leave the op no choice of order.",
    "samples": "Hardly anything: a sample of PyTorch's database, too small for kernels to run in parallel.",
    "enlarged": "Its size.",
}
# Of a mode that every scan has: the head of its column, and what stands above what a row does in it.
_MODES: dict[Mode, tuple[str, str]] = {
    "off": ("Off", "With the flag off"),
    "on": ("On", "With the flag on"),
    "warn_only": ("warn_only", "The flag on, with warn_only"),
    "unfilled": ("fill off", "The flag on, fill off"),
    "no_workspace": ("no workspace", "The flag on, without CUBLAS_WORKSPACE_CONFIG"),
}


def render(matrices: Sequence[Matrix]) -> Iterator[str]:
    """Yield the page in pieces."""
    report, covered, tables = (report_view(_most(matrices)), coverages(matrices), Tables())
    ops = [_op(op, report, tables) for op in report["ops"]]
    # The overloads of a build: those that were executed, with the op that shows the worst, and those that never were.
    overloads = [
        {
            "title": f"torch {one['torch']} on {one['device']}",
            "executed": [
                tables.place(
                    "overloads",
                    **{name: it[name] for name in ("name", "sort", "kernel", "rows", "worst")},
                    op=it["evidence"][0].rsplit(":", 3)[0],
                )
                for it in one.by_finding
            ],
            "never": one.never_lists,
        }
        for one in covered
        if one["aten"]
    ]
    families, devices = squares(report)
    beside = sum((Counter(run.matrix.beside) for run in report.runs), Counter[str]())
    every, most = (sum(len(one.rows) for one in some) for some in (matrices, report.runs))
    titles = {tuple(column["runs"]): column.title for column in report["columns"]}
    yield from page_pieces(
        "report",
        report=report,
        rows=ops,
        further=[(column.name, column.meaning) for column in report.ops.further],
        limit=f"A page holds {most} rows at most: these are {most} of {every}, those with the worst findings. Choose others "
        f"with --only and --rows; the reports in Markdown, CSV and JSON have all of them."
        if every != most
        else None,
        coverages=covered,
        overloads=overloads,
        tables=tables.columns(),
        documented_words=documented_words,
        # Each run by its column, or by its file where several share one.
        labels=[titles.get((run.number,), run.name) for run in report.runs],
        bounds=[bound_words(one) for one in matrices],
        simulated=all(one.simulated for one in matrices),
        worst_first=WORST_FIRST,
        # What switches a finding: its name and meaning, how many ops have it, and how many rows.
        tiles=[
            *(
                (name, report.beside_meanings[name], number, several(beside[name], "row"))
                for name, number in report.ops.beside.items()
            ),
            *(
                (name, report.findings[name], report.ops.counts[name], several(report.counts[name], "row"))
                for name in WORST_FIRST
                if report.ops.counts[name]
            ),
        ],
        rates=rates([run.matrix for run in report.runs]),
        dear=costs(report["ops"]),
        families=families,
        family_devices=devices,
        address=lambda name: f"#q={quote(name)}",
        all_ops=sum(report.ops.counts.values()),
        all_rows=sum(report.counts.values()),
        listed_meaning=LISTED_MEANING,
        styles=("ops",),
    )


def _most(matrices: Sequence[Matrix]) -> Sequence[Matrix]:
    """Leave out what a browser cannot hold: of all rows those stay whose findings are the worst, in their order."""
    ranks = [FINDING[row.finding].rank for one in matrices for row in one.rows]
    if len(ranks) <= MOST_ROWS:
        return matrices
    kept = set(sorted(range(len(ranks)), key=ranks.__getitem__)[:MOST_ROWS])
    place = count()
    return [replace(one, rows=tuple(row for row in one.rows if next(place) in kept)) for one in matrices]


def _op(op: View, report: View, tables: Tables) -> dict[str, object]:
    """Return what the script knows of an op, with the places of its rows."""
    rows, instead = sum(op["counts"].values()), instead_of({row.row.spec for _, row in op.rows})
    found = [f"{number} {name}" for name, number in op["beside"].items()]
    found += [f"{number} {name}" for name, number in op["counts"].items() if name != "deterministic"]
    counts = f"{', '.join(found)} of {several(rows, 'row')}" if found else several(rows, "row")
    notable = [*op.beside] if op.beside or (op.finding == "deterministic" and not op.is_clean) else None
    return {
        "about": tables.place(
            "ops", finding=op["finding"], family=op["family"], counts=counts, lists=_lists(op)
        ),
        "rows": [_row(it, report, tables) for it in _worst_first(op.rows)],
        **({"notable": notable} if notable is not None else {}),
        # What may be written instead of it: what is known of each spelling, and its code.
        **({"instead": [([it["note"], *it.words], it["code"]) for it in instead]} if instead else {}),
    }


def _lists(op: View) -> tuple[tuple[str, str], ...]:
    """Return what each release documents of each kind of device, the same of several releases once."""
    cells = [cell for cell in op["cells"] if cell["documented"] is not None]
    told = (
        sorted(f"{kind.upper()} {' and '.join(of) or 'none'}" for kind, of in cell["documented"].items())
        for cell in cells
    )
    said = grouped((", ".join(words), cell["torch"]) for words, cell in zip(told, cells, strict=True))
    return tuple((", ".join(dict.fromkeys(torches)), words) for words, torches in said.items())


def documented_words(op: View) -> str:
    """Return what the lists say of an op; where releases differ on a device that was measured, one after the other."""
    turned = []
    for device in dict.fromkeys(cell["device"] for cell in op["cells"]):
        words = [
            " and ".join(cell["documented"][claimed_kind(device)]) or "none"
            for cell in op["cells"]
            if cell["device"] == device and cell["documented"] is not None
        ]
        parts = [word for word, _ in groupby(words)]
        turned += [" → ".join(parts)] if len(parts) > 1 else []
    return " · ".join([op.docs_words, *turned])


def _worst_first(rows: Iterable[RunRow]) -> list[RunRow]:
    """Order an op's rows by the worst that any run found; what several runs have of one row stands together."""
    rows, ranks = list(rows), dict[str, int]()
    for _, row in rows:
        rank = FINDING[row.finding].rank
        ranks[row.row.id] = min(ranks.get(row.row.id, rank), rank)
    places = {id_: place for place, id_ in enumerate(ranks)}
    return sorted(rows, key=lambda it: (ranks[it[1].row.id], places[it[1].row.id]))


def _row(it: RunRow, report: View, tables: Tables) -> int:
    run, row = it
    planned = row.row
    outputs = {one.name: one for cell in reversed(row.shown.values()) for one in cell.outputs}
    return tables.place(
        "rows",
        run=run,
        **fields_of(planned, "case", "direction", "dtype", "device"),
        call=planned.op,
        provokes=planned.provokes or _UNPROVOKED[planned.provoked],
        why=planned.why,
        libraries=tuple(libraries_told(frozenset((planned.op, *planned.documented)))),
        engines=engines_of(row, report["runs"][run].torch),
        inputs=tuple(tables.place("inputs", text=text) for text in row.inputs),
        outputs=tuple(
            tables.place("outputs", name=one.name, shape=str(one.shape), dtype=one.dtype)
            for one in outputs.values()
        ),
        result=_result(row, report.ops.further, tables),
        cost=_cost(row, tables),
        # In milliseconds, which have the fewest digits.
        times=tuple(_short(1e3 * one.seconds, 2) for one in row.observations),
    )


def _result(row: MatrixRow, columns: Sequence[Column], tables: Tables) -> int:
    """Return all that a row showed, which many rows have in common."""
    cells = list(row.shown.values())
    groups = _by_mode(
        [[(one.perturbation, f"{one.differing} of {one.executions}") for one in it.groups] for it in cells]
    )
    counts = _by_mode([[(one.name, one.differing) for one in it.outputs] for it in cells])
    return tables.place(
        "results",
        finding=row.finding,
        note=", ".join(filter(None, (row.note, *(BESIDE[name].phrase for name in row.beside)))),
        reason=row.reason,
        joint=row.joint_reason,
        **fields_of(row, "weak", "constant"),
        serial=serial_word(row.serial),
        alerts=row.alerts,
        further=row.further_words,
        cells=tuple(_cell(mode, cell, row, tables) for mode, cell in row.shown.items()),
        groups=tuple(tables.place("groups", line=line) for line in groups),
        differing=tuple(line[1:] for line in counts) if any(any(line[1:]) for line in counts) else (),
        differences=tuple((mode, output, seen[-1], *far) for mode, seen, output, far in differences(row)),
        processes=tuple(_process(one, tables) for one in row.observations),
        said=tuple((found := column.finding(row), _beside(found, column.words(row))) for column in columns),
    )


def _beside(found: str | None, words: str) -> str:
    """Return what stands behind the finding that *words* begin with, which the page shows as a badge."""
    if found is None:
        return words
    return words.removeprefix(found).removeprefix(found.replace("_", " ")).lstrip(",:; ")


def _by_mode(modes: Sequence[Sequence[tuple[Hashable, Hashable]]]) -> tuple[tuple[Hashable, ...], ...]:
    """Join the lines of several modes that begin alike: each ends in its value in every mode."""
    lines: dict[Hashable, list[Hashable]] = {}
    for place, seen in enumerate(modes):
        for name, value in seen:
            lines.setdefault(name, [name, *[None] * len(modes)])[1 + place] = value
    return tuple(map(tuple, lines.values()))


def _cell(mode: Mode, cell: Cell, row: MatrixRow, tables: Tables) -> int:
    head, title = _MODES.get(mode, (mode, f"{mode}: {MODE_TABLE[mode].meaning}"))
    where = None if cell.simulated else cell.where
    told = [", ".join(filter(None, (cell.words, where)))]
    # Where nothing could race, no number of executions bounds anything.
    if cell.bound and not row.serial:
        told.append(f"0 of n leaves a rate of differing up to {percent(cell.bound)} plausible (95 %).")
    if cell.simulated and cell.simulated.witness:
        told.append(f"One pair of executions that shows it: {witness_words(cell.simulated)}")
    if cell.seeded:
        told.append("Draws random numbers: the generator was seeded before every execution.")
    return tables.place(
        "cells",
        mode=mode,
        head=head,
        title=title,
        **fields_of(cell, "verdict", "details"),
        cause=cell.cause if cell.failure else None,
        reason=cell.reason,
        told=tuple(told),
        seeded="seeded" if cell.seeded else "",
        alerts=cell.alerts,
    )


def _process(one: Observation, tables: Tables) -> int:
    """Return what one process saw; counts of one that never ran a row are none."""
    ran = one.executions > 0
    return tables.place(
        "processes",
        **fields_of(one, "mode", "process", "outcome"),
        executions=one.executions or None,
        distinct=len(one.digests) if ran else None,
        first=one.first_differing if ran else None,
        forward=one.forward_differing if ran else None,
    )


def _cost(row: MatrixRow, tables: Tables) -> int:
    """Return the words of a row's cost, and of one that was timed its ratio and a line for each setting of the flag."""
    one, cost = timed(row), row.cost
    lines, samples = [], ""
    if one and cost:
        timings = (
            ("off", one.off, memory(cost.off_memory)),
            ("on", one.on, memory(cost.on_memory)),
            ("on, fill off", one.unfilled, memory(None)),
        )
        lines = [(name, duration(timing), peak) for name, timing, peak in timings if timing]
        calls = several(cost.calls, "execution")
        samples = f"{cost.samples} samples of {calls} each, taken in turns."
    return tables.place(
        "costs",
        words=cost_words(row),
        ratio=_short(one.ratio, 4) if one else None,
        slow=bool(one and one.is_slow),
        told=cost.message if cost else None,
        lines=tuple(lines),
        samples=samples,
    )


def _short(value: float, digits: int) -> float:
    """Round to some digits, and to an integer where that reads the same."""
    rounded = float(f"{value:.{digits}g}")
    return int(rounded) if rounded.is_integer() else rounded


# --- What the page draws of measured rows: how often each differed and how far, by family, and what the flag costs each op

_WIDTH, _HEIGHT = 720, 220
_DECADES = 7  # of ULPs; those beyond stand at the upper edge
_BELOW = 40  # below the axis: where rows stand that differ by no ULP that is known
_SIZE = 14  # of a point
_COLOURS = 7  # of families; their letters tell them apart without
_BARS, _DEAR = 15, 1.1  # ops, and the ratio from which one is drawn


def rates(matrices: Sequence[Matrix]) -> View | None:
    """Return points of the rows that differed on a real device, by mode, and the letters of families; ``None`` if none did.

    Rows of a family in one place are one point, which leads to the first. A simulated GPU says nothing of how often.
    """
    found = [
        (number, row, mode, cell)
        for number, one in enumerate(matrices)
        for row in (() if one.simulated else one.rows)
        for mode, cell in row.shown.items()
        if cell.differing
    ]
    if not found:
        return None
    families = Counter(row.row.family for _, row, _, _ in found)
    letters = {name: _letter(place) for place, (name, _) in enumerate(families.most_common())}
    points = dict[tuple[int, int, str], dict[str, object]]()
    there, hidden = dict[tuple[int, int], dict[str, None]](), Counter[tuple[int, int, str]]()
    for number, row, mode, cell in found:
        ulp = max((it.severity.max_ulp or 0 for it in cell.outputs if it.severity), default=0)
        level = _HEIGHT * (1 - min(math.log10(ulp), _DECADES) / _DECADES) if ulp else _HEIGHT + _BELOW
        anchor = f"@{number + 1}" if len(matrices) > 1 else ""
        far = f"up to {ulp} ULP" if ulp else "by no number of ULP"
        x, y = round(_WIDTH * cell.differing / cell.runs), round(level)
        place = (x // _SIZE, y // _SIZE)
        if (*place, row.row.family) in points:
            hidden[(*place, row.row.family)] += 1
            continue
        # Families that meet in one place stand beside one another.
        beside = there.setdefault(place, {})
        beside.setdefault(row.row.family)
        points[(*place, row.row.family)] = {
            "x": x - _SIZE * [*beside].index(row.row.family),
            "y": y,
            "letter": letters[row.row.family],
            "colour": [*letters].index(row.row.family) % _COLOURS,
            "address": f"#{row.row.id}{anchor}",
            "text": f"{row.row.id}, {mode}: {cell.differing} of {cell.runs}, {far} ({row.row.family}, {row.finding})",
        }
    for point, more in hidden.items():
        points[point]["text"] = f"{points[point]['text']}, and {several(more, 'row')} more of its family"
    key = [(letters[name], place % _COLOURS, name, families[name]) for place, name in enumerate(letters)]
    size = {"width": _WIDTH, "height": _HEIGHT, "below": _BELOW}
    return View({"points": [*points.values()], "key": key}, **size, decades=range(_DECADES + 1))


def _letter(place: int) -> str:
    """Return A to Z, and from there on AA, AB."""
    first, last = divmod(place, 26)
    return f"{_letter(first - 1) if first else ''}{chr(ord('A') + last)}"


def costs(ops: Iterable[View]) -> list[tuple[str, str, int]]:
    """Return the ops whose dearest row takes longer with the flag on, each with its ratio and a width in percent, on a log scale."""
    dear = sorted(
        ((op["cost"]["high"], op["name"]) for op in ops if op["cost"] and op["cost"]["high"] >= _DEAR),
        reverse=True,
    )[:_BARS]
    return [
        (name, times(ratio), max(round(100 * math.log(ratio) / math.log(dear[0][0])), 1))
        for ratio, name in dear
    ]
