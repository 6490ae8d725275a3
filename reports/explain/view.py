"""What every format says of one op."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

from reports.explain.further import further_advice, further_words, joined, showing
from reports.matrix.by_op import ops_view
from reports.matrix.columns import ColumnCell, all_columns, outranking
from reports.matrix.listed import SECTION_WORDS, hands_out
from reports.matrix.model import COMPARED, WORST_FIRST, Matrix
from reports.matrix.ops import OpRow, OpsView, OpView
from reports.matrix.view import UNLIKE_REFERENCE, RowView, row_view
from reports.matrix.words import bullet_words, machine_of_row, named_machines, percent
from reports.matrix.words import span as span_of
from reports.render.json import View
from reports.render.simulated import BESIDE_ADVICE, BESIDE_WORDS
from scanner.claims.matching import device_kind
from scanner.observations import versions
from scanner.observations.records import Claim
from scanner.plurals import several
from scanner.verdicts.findings import BESIDE_MEANING, FINDING_MEANING, Finding

# What to do about an op of this finding.
ADVICE: dict[Finding, str] = {
    "silent": "The flag does not help, and does not say so: use another op, or accept the difference.",
    "raises": "With the flag on it raises: use another op, or warn_only=True and accept the difference.",
    "over_alert": "With the flag on it raises, though no difference was seen: warn_only=True lets it run.",
    "order_dependent": "The order of its programs decides its bits: let each output be written by one program, in a fixed order, and "
    "measure it on a GPU, which may or may not take another order.",
    "fixed_by_mode": "Set the flag: torch.use_deterministic_algorithms(True).",
    "uninitialized": "It returns memory that nobody wrote: write it before it is read. The flag fills it, with "
    "torch.utils.deterministic.fill_uninitialized_memory, which is on unless turned off.",
    "mode_dependent": "Keep one setting, on or off: each gives the same bits every time, and other ones.",
    "inconclusive": "Not settled: see the reasons, and scan again.",
    "deterministic": "Nothing to do: no difference was seen. Other inputs may differ.",
}
# Of an op of PyTorch that is not to return such memory.
_READS = (
    "It reads memory that nobody wrote, which is a bug of the op: report it to PyTorch. The flag fills that memory, with "
    "torch.utils.deterministic.fill_uninitialized_memory, which is on unless turned off."
)
_BY_RELEASE = 2  # numbers of a release that tell it from the next


def explained(
    name: str,
    also: Sequence[str],
    why: Sequence[str],
    lists: dict[str, list[Claim]],
    matrices: Sequence[Matrix],
    paths: Sequence[str],
    *,
    libraries: Sequence[View],
) -> View:
    """Return what is known of one op.

    Args:
        name: Of the op.
        also: Of the specs that are of it.
        why: What could reorder, in the words of the catalog.
        lists: The claims about it, by release, the oldest first; releases without any are there too.
        matrices: Runs, with the rows of this op alone.
        paths: Of the run files.
        libraries: What those that it calls document.
    """
    views = [[row_view(row, one.run.header.environment.torch) for row in one.rows] for one in matrices]
    by_op = ops_view(matrices, views)
    ops = by_op.ops
    cells = joined(by_op.further, ops)
    measured = list(_measured(matrices, views, paths))
    rows = [row for of_run in views for row in of_run]
    worst = ops[0].finding if ops else None
    where = {
        device_kind(one.run.header.settings.device) for one, some in zip(matrices, views, strict=True) if some
    }
    latest = list(lists.values())[-1] if lists else []
    unmeasured = {
        kind: count
        for kind in dict.fromkeys(claim.device for claim in latest)
        if kind not in {"any", *where} and (count := sum(claim.device == kind for claim in latest))
    }
    return View(
        {
            "op": name,
            "specs": list(also),
            "releases": list(lists),
            "documented": list(_documented(lists)),
            "measured": measured,
            "unmeasured": unmeasured,
            # Runs tell it in the words of the catalog of their day.
            "why": list(dict.fromkeys(why or [row.why for row in rows if row.why])),
            "engines": list(dict.fromkeys(row.engines for row in rows if row.engines)),
            "libraries": list(libraries),
            "finding": worst,
            "action": " ".join(_advices(worst, by_op, cells)) if worst else None,
            "cost": {op.name: op.cost_words for op in ops if op.cost or op.fill},
            "commands": _commands(name, by_op, cells, matrices, paths),
        },
        meaning=FINDING_MEANING[worst] if worst else None,
        releases_words=span(list(lists), list(lists)),
    )


def _advices(worst: Finding, by_op: OpsView, cells: Sequence[ColumnCell]) -> Iterator[str]:
    """Yield what to do, by what off and on show, and by further columns where they were asked for."""
    op = by_op.ops[0]
    if unlike := sum(one.unlike_reference for one in by_op.ops):
        yield f"In {several(unlike, 'row')} it did not give what the reference of the case says, which holds in every mode."
    for name, meaning in BESIDE_MEANING.items():
        if count := sum(one.beside.get(name, 0) for one in by_op.ops):
            yield f"In {several(count, 'row')}: {meaning} {BESIDE_ADVICE[name]}"
    if any("wrong_with_flag" in one.beside for one in by_op.ops):
        return  # whatever the flag is good for otherwise
    if worst == "deterministic" and not op.doubts and not op.is_clean:
        yield "No difference was seen with the flag off and on."
    else:
        yield _advice(worst, op, _latest(by_op))
    yield from further_advice(by_op.further, cells)


def _advice(worst: Finding, op: OpView, rows: Sequence[RowView]) -> str:
    """Return what to do, with the cases that it is not true of."""
    if worst == "deterministic" and op.doubts:
        return (
            f"No difference was seen, but in a whole direction all rows are {' or '.join(op.doubts)}: that shows little. "
            f"It may differ with larger inputs, or where it was not measured."
        )
    reads = worst == "uninitialized" and all(
        row.op.startswith("torch.") and not hands_out(row.op) for row in rows if row.finding == worst
    )
    advice = _READS if reads else ADVICE[worst]
    if worst == "fixed_by_mode" and (
        both := _named(row for row in rows if row.finding == worst and row.unfilled.differing)
    ):
        advice += f" Leave torch.utils.deterministic.fill_uninitialized_memory on: {both} needs both."
    fixed = _named(row for row in rows if row.finding in ("fixed_by_mode", "uninitialized"))
    raising = _named(row for row in rows if row.on.verdict == "raises")
    if worst in {"raises", "over_alert"} and fixed:
        return f"{advice} Cases that raise: {raising}. The flag fixes: {fixed}."
    if worst in {"fixed_by_mode", "uninitialized"} and raising:
        return f"{advice} Cases that raise with it: {raising}."
    return advice


def _latest(by_op: OpsView) -> list[RowView]:
    """Return the rows of the latest release on each kind of device, of all runs that are of it."""
    latest: dict[str, tuple[int, ...]] = {}
    for place, column in enumerate(by_op.columns):
        if any(op.cells[place].finding for op in by_op.ops):
            latest[column.device] = column.runs
    runs = {run for some in latest.values() for run in some}
    return [it.row for op in by_op.ops for it in op.rows if it.run in runs]


def _named(rows: Iterable[RowView]) -> str:
    """Return the names of cases, each once."""
    return ", ".join(dict.fromkeys(row.case for row in rows))


def span(some: Sequence[str], releases: Sequence[str]) -> str:
    """Return releases in words, those that follow one another as a span: "2.0-2.8, 2.10"."""
    known = {release: place for place, release in enumerate(releases)}
    parts = []
    for _, group in groupby(enumerate(sorted(known[one] for one in some)), lambda pair: pair[1] - pair[0]):
        places = [place for _, place in group]
        ends = [".".join(releases[place].split(".")[:_BY_RELEASE]) for place in (places[0], places[-1])]
        parts.append("-".join(dict.fromkeys(ends)))
    return ", ".join(parts)


def _documented(lists: dict[str, list[Claim]]) -> Iterator[View]:
    """Yield each bullet once, with the releases that have it."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for release, claims in lists.items():
        for claim in claims:
            found.setdefault((SECTION_WORDS[claim.section], claim.device, bullet_words(claim)), []).append(
                release
            )
    for (section, device, text), some in found.items():
        yield View(
            {"list": section, "device": device, "text": text, "releases": list(dict.fromkeys(some))},
            span=span(list(dict.fromkeys(some)), list(lists)),
        )


def _measured(
    matrices: Sequence[Matrix], views: Sequence[Sequence[RowView]], paths: Sequence[str]
) -> Iterator[View]:
    """Yield what runs measured, the latest release first; runs of the same findings stand together, told by the latest."""
    together: dict[object, list[int]] = {}
    places = sorted(
        range(len(matrices)), key=lambda place: versions.key(_torch(matrices[place])), reverse=True
    )
    for place in places:
        if rows := views[place]:
            kind = device_kind(matrices[place].run.header.settings.device)
            columns = all_columns([matrices[place]])
            findings = frozenset(
                (it.row.id, it.finding, *((column.name, column.finding(it)) for column in columns))
                for it in matrices[place].rows
            )
            together.setdefault((kind, findings), []).append(place)
    for same in together.values():
        one, rows = matrices[same[0]], views[same[0]]
        environment, settings = one.run.header.environment, one.run.header.settings
        ids = {row.id for row in rows}
        machines = (machine_of_row(one.run.header, it.row) for it in one.rows if it.row.id in ids)
        counts = {cell.runs for row in rows for cell in (row.off, row.on) if cell.runs is not None}
        directions = {
            direction: _cases([row for row in rows if row.direction == direction])
            for direction in ("forward", "backward")
            if any(row.direction == direction for row in rows)
        }
        yield View(
            {
                "run": paths[same[0]],
                "torch": environment.torch,
                "device": settings.device,
                "machine": named_machines(machines),
                "executions": one.executions,
                "distrust": list(one.distrust),
                "same": [_torch(matrices[place]) for place in same[1:]],
                "cases": directions,
                **({"further": further} if (further := further_words(one, rows)) else {}),
            },
            head="CUDA, SIMULATED" if one.simulated else f"MEASURED on {one.device}",
            where=one.device,
            n_words=f"up to {one.executions} schedules per mode; not measured on a GPU"
            if one.simulated
            else f"n = {span_of(sorted(counts))} per mode"
            if counts
            else "",
            further_words=further,
        )


def _torch(one: Matrix) -> str:
    return one.run.header.environment.torch


def _cases(rows: Sequence[RowView]) -> list[View]:
    """Return what rows of one direction show, those of one finding together, the worst first."""
    found: dict[Finding, list[RowView]] = {}
    for row in rows:
        found.setdefault(row.finding, []).append(row)
    return [_finding(finding, found[finding]) for finding in WORST_FIRST if finding in found]


def _finding(finding: Finding, rows: Sequence[RowView]) -> View:
    """Return what rows of one finding show; the row that shows it most stands for them."""
    row = max(rows, key=_differing)
    cases: dict[str, list[str]] = {}
    for one in rows:
        name = one.case if ":" not in one.spec else f"{one.spec}:{one.case}"
        cases.setdefault(name, []).append(one.dtype)
    # Where nothing could race, no number of executions bounds anything.
    raced = [one for one in rows if not one.serial]
    bounds = [bound for one in raced for bound in (one.off.upper_bound, one.on.upper_bound) if bound]
    doubts = {
        "serial": sum(bool(one.serial) for one in rows),
        "with threads not counted": sum(one.serial is None for one in rows),
        "low power": sum(one.low_power is not None for one in rows),
        UNLIKE_REFERENCE: sum(bool(one.unlike_reference) for one in rows),
        **{text: sum(name in (one.beside or ()) for one in rows) for name, text in BESIDE_WORDS.items()},
    }
    differ = any(cell.verdict not in COMPARED or cell.differing for cell in (row.off, row.on))
    said: dict[str, Any] = {
        "finding": finding,
        "rows": [one.id for one in rows],
        "cases": {name: list(dict.fromkeys(dtypes)) for name, dtypes in cases.items()},
        "shown": row.id,
        "off": row.off.words,
        "on": row.on_words,
        "bound": max(bounds) if bounds else None,
        "doubts": {name: count for name, count in doubts.items() if count},
        "reasons": list(dict.fromkeys(one.reason for one in rows if one.reason)),
    }
    return View(said, differ=differ, bound_words=percent(max(bounds)) if bounds else None)


def _commands(
    name: str, by_op: OpsView, cells: Sequence[ColumnCell], matrices: Sequence[Matrix], paths: Sequence[str]
) -> list[str]:
    """Return the commands that show it: a script for the worst row, and for a column that finds worse; or the scan that measures it."""
    if not by_op.ops:
        return [shlex.join(["detmatrix", "scan", name])]
    op, shown = by_op.ops[0], list[tuple[list[OpRow], list[str]]]()
    if op.finding != "deterministic":
        shown.append(([one for one in op.rows if one.row.finding == op.finding], []))
    if found := outranking(op.finding, by_op.further, cells):
        shown.append(showing(by_op.ops, *found))
    return list(dict.fromkeys(_command(rows, options, matrices, paths) for rows, options in shown))


def _command(
    rows: Sequence[OpRow], options: Sequence[str], matrices: Sequence[Matrix], paths: Sequence[str]
) -> str:
    """Return the command for the row that differs most of those of the latest release."""
    latest = max(rows, key=lambda one: versions.key(_torch(matrices[one.run]))).run
    one = max((one for one in rows if one.run == latest), key=lambda one: _differing(one.row))
    own = ["--specs", "FILE.py"] if one.row.source == "own" else []
    if one.row.finding == "order_dependent":
        return shlex.join(["detmatrix", "scan", one.row.id, *own, "--perturb", "quiet,order"])
    command = ["detmatrix", "repro", paths[latest], one.row.id, *options, *own]
    # Without a GPU the schedule is replayed; without --replay a script needs one.
    python = ["--replay", "--python", "PYTHON_WITH_TORCH_FOR_CUDA"] if matrices[latest].simulated else []
    return shlex.join([*command, *python])


def _differing(row: RowView) -> tuple[int, int]:
    """Return how often a row differed, with the flag on before off."""
    return row.on.differing or 0, row.off.differing or 0
