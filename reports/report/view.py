"""What the formats of the report read: runs, their ops and rows, and every sentence said of them, made once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import asdict

from detmatrix.reports.libraries import library_names
from detmatrix.reports.matrix import words
from detmatrix.reports.matrix.columns import all_columns, idle_words, telling
from detmatrix.reports.matrix.model import Matrix
from detmatrix.reports.matrix.ops import ops_view
from detmatrix.reports.matrix.rows import cost_words, costs_words, differences
from detmatrix.reports.render import View, fields_of, markdown_pieces
from detmatrix.scanner.accelerators import label_of
from detmatrix.scanner.observations.parts import in_common, shard_words
from detmatrix.scanner.observations.records import Environment
from detmatrix.scanner.plurals import several
from detmatrix.scanner.verdicts.controls import check_controls
from detmatrix.scanner.verdicts.findings import MatrixRow
from detmatrix.scanner.verdicts.simulated import CONFLICT_MEANING
from detmatrix.scanner.verdicts.vocabulary import (
    BESIDE,
    BESIDE_MEANING,
    FINDING_MEANING,
    FINDINGS,
    VERDICT_MEANING,
)


def report_view(matrices: Sequence[Matrix]) -> View:
    """Return what every format reads of these runs."""
    runs = [_run(number, one) for number, one in enumerate(matrices)]
    ops, many = ops_view(matrices), len(runs) > 1
    notes: dict[str, list[str]] = {}
    for run in runs:
        more = f" {run.shown} The counts above are those of the whole scan." if run.shown else ""
        notes.setdefault(run.n + more, []).append(run.name)

    def of(run: View, text: str) -> str:
        """Return what is said of one run, which is named if there are several."""
        return f"{run.name}: {text}" if many else text

    # What is said of whole scans is beside the point of a few selected rows, each of which tells its doubts.
    whole = [] if ops.narrowed else runs
    limits = [
        ops.doubted_words,
        *(of(run, it) for run in whole for it in (run.serial, run.libraries_called, run.sampled) if it),
        *(of(run, text) for run in whole for text in run.idle),
    ]
    rows = several(sum(one.planned for one in matrices), "row")
    places = ", ".join(column.title for column in ops["columns"])
    bounds = ", ".join(dict.fromkeys(words.bound_words(one) for one in matrices))
    told = {name: f"{word.meaning} {word.advice}" for name, word in BESIDE.items()} | CONFLICT_MEANING
    return View(
        {"runs": runs, **ops},
        ops=ops,
        # What was scanned, with n and what 0 of n leaves possible.
        head=f"{several(sum(ops.counts.values()), 'op')}, {rows}{f' in {len(runs)} runs' if many else ''} · torch {places} · "
        f"{bounds}",
        machines=" and ".join(dict.fromkeys(run.machine for run in runs)),
        states=[(state, of(run, text)) for run in runs for state, text in run.states],
        limits=[text for text in limits if text],
        counts={finding: sum(one.counts[finding] for one in matrices) for finding in FINDINGS},
        devices=sorted({row.row.device for one in matrices for row in one.rows}),
        notes=notes,  # what is said of n and of the rows left out, and the runs it is said of
        verdicts=VERDICT_MEANING,
        findings=FINDING_MEANING,
        # What a simulated GPU shows beside findings, and what to do about it.
        beside_meanings=told if any(one.simulated for one in matrices) else {},
        glossary=words.GLOSSARY,
        further_findings={
            name: meaning for column in ops.further for name, meaning in column.findings.items()
        },
        further={column.name: f"{column.meaning}." for column in ops.further},
    )


def _run(number: int, one: Matrix) -> View:
    """Return one run: under its keys all that JSON says of it but its rows, which are many."""
    header, closing, rows = one.run.header, one.run.closing, one.rows
    asked, planned = all_columns([one]), [row.row for row in one.scanned]
    further, idle = telling(asked, planned), idle_words(asked, planned)
    columns = {
        "further": {column.name: column.meaning for column in further},
        "further_findings": {column.name: column.findings for column in further},
        "idle": idle,
    }
    of_parts = ["parts"] if header.parts else ["shard", "file"]
    return View(
        {
            # Of a merged run what all machines have in common, and ``None`` for the rest.
            "environment": {name: in_common(header, name) for name in Environment.__struct_fields__}
            if header.parts
            else header.environment,
            "settings": header.settings,
            # Which shard of a plan a file holds, or the parts of a merged one.
            **(fields_of(header, "plan", "shards", *of_parts) if shard_words(header) else {}),
            "rows": (),
            "path": one.name,
            **fields_of(header, "format", "tool", "started"),
            "complete": not one.missing,
            **({"missing": one.missing} if one.missing else {}),
            **fields_of(one, "distrust", "serial", "serial_unknown", "executions", "planned", "counts"),
            "controls": [asdict(it) | {"ok": it.ok} for it in check_controls(header, one.run.controls)],
            "sentinels": one.run.sentinels,
            "low_power": one.weak,
            "perturbations": {name: words.meaning_of(name) for name in header.settings.perturb},
            "seconds": closing.seconds if closing else None,
            "load_after": closing.load if closing else None,
            "upper_bound": one.upper_bound,
            **({"beside": one.beside, "beside_meanings": BESIDE_MEANING} if one.simulated else {}),
            "only": one.only or FINDINGS,
            "verdicts": VERDICT_MEANING,
            "findings": FINDING_MEANING,
            **(columns if further or idle else {}),
        },
        one,
        torch=header.environment.torch,
        number=number,  # among those of the report, from 0
        matrix=one,
        header=header,
        trusted=not one.distrust,
        rows=rows,
        machine=words.machine_words(one),
        states=words.states(one),  # what a reader must know before believing anything
        further=further,  # columns beside off and on, that say something of its rows
        idle=idle,  # why others that were asked for say nothing
        n=words.n_words(one),
        shown=words.shown_words(one),  # which rows are left out, if any are
        serial=words.serial_words(one),
        libraries_called=words.library_words(one),
        controls=words.controls_words(one),
        witnesses=[(row.row.id, text) for row in rows for text in row.witnesses],
        costs=costs_words(rows),
        cost_words=cost_words,
        lists={"Environment": words.environment_words(one), "Scan": words.settings_words(one)},
        options=words.rerun_options(header.settings),
        families=_families(rows),
        far=[(row.row.id, *it) for row in rows for it in differences(row)],
        libraries={
            row.row.spec: names
            for row in rows
            if (names := library_names(frozenset((row.row.op, *row.row.documented))))
        },
        # Why rows are of low power, the most frequent reason of the scan first, and the ids of those shown.
        weak={reason: [row.row.id for row in rows if row.weak == reason] for reason in one.weak},
        reasons=_reasons(rows, ("off", "on", *header.settings.modes)),
    )


def _reasons(rows: Iterable[MatrixRow], modes: Sequence[str]) -> dict[str, list[tuple[str, str]]]:
    """Return why there is no usable verdict: the row's id and the mode, none where it is for what both say together."""
    found: dict[str, list[tuple[str, str]]] = {}
    for row in rows:
        for mode, cell in row.shown.items():
            if cell.failure is not None and mode in modes:
                found.setdefault(cell.failure, []).append((row.row.id, mode))
    for row in rows:
        if row.joint_reason:
            found.setdefault(row.joint_reason, []).append((row.row.id, ""))
    return found


def _families(rows: Iterable[MatrixRow]) -> dict[str, list[MatrixRow]]:
    """Group rows by family, and op by op, in order of first appearance."""
    families: dict[str, dict[str, list[MatrixRow]]] = {}
    for row in rows:
        families.setdefault(row.row.family, {}).setdefault(row.row.spec, []).append(row)
    return {name: [row for some in ops.values() for row in some] for name, ops in families.items()}


def markdown(matrices: Sequence[Matrix], *, whole: bool = False) -> Iterator[str]:
    """Yield the report in pieces: a line an op; if *whole*, then also every row and what lies behind it, run by run."""
    return markdown_pieces("report" if whole else "report_ops", report_view(matrices))


def excerpt(matrices: Sequence[Matrix], *, whole: bool = False) -> Iterator[str]:
    """Yield what a page that is about something else shows: what was scanned, the counts, the ops, if *whole* the rows."""
    return markdown_pieces("report_excerpt" if whole else "report_ops_excerpt", report_view(matrices))


def squares(report: View) -> tuple[dict[str, list[tuple[str, list[str | None]]]], list[str]]:
    """Return the ops of each family with the worst that each kind of device shows of them, and the names of those devices."""
    kinds = list(dict.fromkeys(column["device"] for column in report["columns"]))
    families: dict[str, list[tuple[str, list[str | None]]]] = {}
    for op in report["ops"]:
        by_kind = {it["device"]: it for it in op.devices} or {kinds[0]: op}
        worst = [next(iter(by_kind[kind]["beside"]), None) or by_kind[kind]["finding"] for kind in kinds]
        families.setdefault(op["family"], []).append((op["name"], worst))
    return families, [label_of(kind) for kind in kinds]
