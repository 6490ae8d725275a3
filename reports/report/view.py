"""What the formats of the report read, runs, their ops and rows, and every sentence said of them, made once; and it for machines."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from detmatrix.reports.libraries import library_names
from detmatrix.reports.matrix import run_words
from detmatrix.reports.matrix.chosen_columns import COLUMN_FIELDS, all_columns, idle_words, telling
from detmatrix.reports.matrix.model import NOT_LISTED, Matrix
from detmatrix.reports.matrix.ops import ops_view
from detmatrix.reports.matrix.rows import cost_words, costs_words, differences, row_view
from detmatrix.reports.matrix.run_words import machine_of_row, machine_words
from detmatrix.reports.render import View, fields_of, grouped, json_of, markdown_pieces, object_pieces
from detmatrix.scanner.accelerators import label_of
from detmatrix.scanner.errors import one_line
from detmatrix.scanner.observations.parts import in_common, shard_words
from detmatrix.scanner.observations.records import MODES, Environment
from detmatrix.scanner.plurals import several
from detmatrix.scanner.verdicts.controls import check_controls
from detmatrix.scanner.verdicts.simulated import CONFLICT_MEANING
from detmatrix.scanner.verdicts.vocabulary import BESIDE, FINDING_MEANING, FINDINGS, VERDICT_MEANING, meanings

if TYPE_CHECKING:
    import pandas as pd


def report_view(matrices: Sequence[Matrix]) -> View:
    """Return what every format reads of these runs."""
    runs = [_run(number, one) for number, one in enumerate(matrices)]
    ops, many = ops_view(matrices), len(runs) > 1
    whole_scan = "The counts above are those of the whole scan."
    notes = grouped((f"{run.n} {run.shown} {whole_scan}" if run.shown else run.n, run.name) for run in runs)

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
    bounds = ", ".join(dict.fromkeys(run_words.bound_words(one) for one in matrices))
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
        glossary=run_words.GLOSSARY,
        further_findings={
            name: meaning for column in ops.further for name, meaning in column.findings.items()
        },
        further={column.name: f"{column.meaning}." for column in ops.further},
    )


def _run(number: int, one: Matrix) -> View:
    """Return one run: under its keys all that JSON says of it but its rows, which are many."""
    header, closing, rows = one.run.header, one.run.closing, one.rows
    by_op = grouped(((row.row.family, row.row.spec), row) for row in rows)
    failures = (
        (cell.failure, (row.row.id, str(mode)))
        for row in rows
        for mode, cell in row.shown.items()
        if cell.failure is not None and mode in ("off", "on", *header.settings.modes)
    )
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
            "environment": {name: in_common(header, name) for name in Environment.__struct_fields__},
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
            "perturbations": {name: run_words.meaning_of(name) for name in header.settings.perturb},
            "seconds": closing.seconds if closing else None,
            "load_after": closing.load if closing else None,
            "upper_bound": one.upper_bound,
            **({"beside": one.beside, "beside_meanings": meanings(BESIDE)} if one.simulated else {}),
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
        machine=run_words.machine_words(one),
        states=run_words.states(one),  # what a reader must know before believing anything
        further=further,  # columns beside off and on, that say something of its rows
        idle=idle,  # why others that were asked for say nothing
        n=run_words.n_words(one),
        shown=run_words.shown_words(one),  # which rows are left out, if any are
        serial=run_words.serial_words(one),
        libraries_called=run_words.library_words(one),
        controls=run_words.controls_words(one),
        witnesses=[(row.row.id, text) for row in rows for text in row.witnesses],
        costs=costs_words(rows),
        cost_words=cost_words,
        lists={"Environment": run_words.environment_words(one), "Scan": run_words.settings_words(one)},
        options=run_words.rerun_options(header.settings),
        # Op by op, in order of first appearance.
        families=grouped((family, row) for (family, _), some in by_op.items() for row in some),
        far=[(row.row.id, *it) for row in rows for it in differences(row)],
        libraries={
            row.row.spec: names
            for row in rows
            if (names := library_names(frozenset((row.row.op, *row.row.documented))))
        },
        # Why rows are of low power, the most frequent reason of the scan first, and the ids of those shown.
        weak={reason: [row.row.id for row in rows if row.weak == reason] for reason in one.weak},
        # Why there is no usable verdict: the row's id and the mode, none where it is for what both say together.
        reasons=grouped(
            (*failures, *((row.joint_reason, (row.row.id, "")) for row in rows if row.joint_reason))
        ),
    )


def markdown(matrices: Sequence[Matrix], *, whole: bool = False, excerpt: bool = False) -> Iterator[str]:
    """Yield the report in pieces: a line an op; if *whole*, then also every row and what lies behind it, run by run.

    An excerpt is what a page shows that is about something else: what was scanned, the counts, the ops, if *whole* the rows.
    """
    name = f"report{'' if whole else '_ops'}{'_excerpt' if excerpt else ''}"
    return markdown_pieces(name, report_view(matrices))


def squares(report: View) -> tuple[dict[str, list[tuple[str, list[str | None]]]], list[str]]:
    """Return the ops of each family with the worst that each kind of device shows of them, and the names of those devices."""
    kinds = list(dict.fromkeys(column["device"] for column in report["columns"]))
    families: dict[str, list[tuple[str, list[str | None]]]] = {}
    for op in report["ops"]:
        by_kind = {it["device"]: it for it in op.devices} or {kinds[0]: op}
        worst = [next(iter(by_kind[kind]["beside"]), None) or by_kind[kind]["finding"] for kind in kinds]
        families.setdefault(op["family"], []).append((op["name"], worst))
    return families, [label_of(kind) for kind in kinds]


# --- The matrix for machines: JSON with the environment beside the rows, tables of rows and of ops, and these as CSV

_ROW = ("family", "spec", "op", "case", "direction", "dtype", "device", "finding")
_CELL = ("verdict", "runs", "differing", "distinct", "upper_bound", "alert", "reason", "seeded", "seconds")
_FAR = ("where", *(f"severity.{name}" for name in ("v_c", "v_ermv", "max_abs", "max_rel", "max_ulp")))
_COST = ("ratio", "unfilled_ratio", "off.median", "on.median", "unfilled.median", "off_memory", "on_memory")
# Column -> where its value stands in a row's view. Columns are added behind those that were there first.
_COLUMNS = {
    path.replace("severity.", "").replace(".", "_"): path
    for path in (
        *_ROW,
        *(f"{mode}.{name}" for mode in MODES for name in _CELL),
        *("provokes", "low_power", "serial", "constant", "source", "provoked", "recipe"),
        *(f"{mode}.{name}" for mode in MODES for name in _FAR),
        *(f"warn_only.{name}" for name in ("verdict", "runs", "differing", "alerts")),
        *(f"cost.{name}" for name in _COST),
        *(f"{mode}.{name}" for mode in ("unfilled", "no_workspace") for name in _CELL[:3]),
        "libraries",
    )
}
# Columns of simulated runs alone.
_SIMULATED = {
    "beside": "beside",
    **{
        f"{mode}_{name}": f"{mode}.simulated.{place}"
        for mode in MODES
        for name, place in (
            ("schedule", "schedule.name"),
            ("schedule_number", "schedule.number"),
            ("schedule_seed", "schedule.seed"),
            ("as_on_cpu", "cpu.agrees"),
            ("race_free", "race_free"),
            ("libraries", "libraries"),
            ("products", "products"),
        )
    },
}
_DEVICES = ("cpu", "cuda", "mps")
_OP_COLUMNS = (
    *("op", "family", "device", "torch", "finding"),
    *("forward_off", "forward_on", "backward_off", "backward_on", "forward_doubts", "backward_doubts"),
    *(f"documented_{device}" for device in _DEVICES),
    *("missing", "op_finding", "action", "cost_low", "cost_high", "fill_low", "fill_high", "rows"),
)
# With these a spreadsheet takes a cell for a formula.
_FORMULA = ("=", "+", "-", "@")
_DTYPES: dict[type | None, Any] = {int: "Int64", float: "Float64", bool: "boolean"}
_NA = "NA"  # what does not exist: pandas and R read it as missing


def render_json(matrices: Sequence[Matrix]) -> Iterator[str]:
    """Yield one object for one run, and ``{"runs": […], …}`` for several, with the ops of all; one row and one op a line."""
    report = report_view(matrices)
    # Rows are made as they are written.
    runs = (run | {"rows": _views(run.matrix)} for run in report["runs"])
    if len(matrices) == 1:
        ops = {name: it for name, it in report.items() if name != "runs"}
        yield from object_pieces(next(runs) | ops, "rows", "ops")
    else:
        yield from object_pieces(
            report | {"runs": runs},
            "runs",
            "ops",
            each=lambda one: object_pieces(one, "rows") if "environment" in one else [json_of(one)],
        )
    yield "\n"


def _views(one: Matrix) -> Iterator[View]:
    header = one.run.header
    for row in one.rows:
        machine = machine_of_row(header, row.row) if header.parts else None
        yield row_view(row, header.environment.torch, machine)


def table_of(matrices: Sequence[Matrix], level: str) -> pd.DataFrame:
    """Return the table of rows or of ops; what a cell does not have is ``<NA>``, and counts with gaps stay integers."""
    import pandas as pd  # noqa: PLC0415 - the formats need not wait for it

    names, lines = _ops(matrices) if level == "ops" else _rows(matrices)

    def column(values: Sequence[object]) -> pd.Series[Any]:
        # Left to itself, pandas makes floats of integers with gaps, and of booleans with gaps objects.
        kinds = {type(value) for value in values if value is not None}
        kind = float if kinds == {int, float} else next(iter(kinds)) if len(kinds) == 1 else None
        return pd.Series(values, dtype=_DTYPES.get(kind, object))

    every = [*lines]
    return pd.DataFrame({name: column([line[name] for line in every]) for name in names})


def render_csv(matrices: Sequence[Matrix], *, level: str = "rows") -> Iterator[str]:
    """Yield the flat table of rows, or of ops: a line for each op in each release on each kind of device."""
    names, lines = _ops(matrices) if level == "ops" else _rows(matrices)
    yield ",".join(names) + "\n"
    for line in lines:
        written = io.StringIO()
        csv.writer(written, lineterminator="\n").writerow([_cell(line[name]) for name in names])
        yield written.getvalue()


def _rows(matrices: Sequence[Matrix]) -> tuple[list[str], Iterator[dict[str, object]]]:
    """Return the names of the columns of the table of rows, and its lines."""
    further = all_columns(matrices)
    simulated = _SIMULATED if any(one.simulated for one in matrices) else {}
    merged = any(one.run.header.parts for one in matrices)
    paths = _COLUMNS | simulated

    def lines() -> Iterator[dict[str, object]]:
        for one in matrices:
            asked, machine = {column.name for column in all_columns([one])}, machine_words(one)
            told = {"run": one.name, "distrust": "; ".join(one.distrust) or None}
            for row, view in zip(one.rows, _views(one), strict=True):
                line = told | {name: _value(view, path) for name, path in paths.items()}
                line["provokes"] = line["provokes"] or "nothing"
                line["machine"] = view.get("machine") or machine
                for column in further:
                    flat = column.flat(row) if column.name in asked else {}
                    line |= {f"{column.name}_{name}": flat.get(name) for name in column.fields}
                yield line

    flat = (f"{column.name}_{name}" for column in further for name in column.fields)
    return ["run", *_COLUMNS, "distrust", *flat, *simulated, *["machine"] * merged], lines()


def _ops(matrices: Sequence[Matrix]) -> tuple[list[str], Iterator[dict[str, object]]]:
    """Return the names of the columns of the table of ops, and its lines."""
    view = ops_view(matrices)
    names = [f"{column.name}_{name}" for column in view.further for name in COLUMN_FIELDS]
    lines = (_line(op, cell, view) for op in view["ops"] for cell in op["cells"])
    return [*_OP_COLUMNS, *FINDINGS, *names], lines


def _line(op: View, cell: View, view: View) -> dict[str, object]:
    """Return what one column shows of an op."""
    ways = {way: cell[way] for way in ("forward", "backward")}
    actions = {it["device"]: it["action"] for it in op.devices}
    listed = cell["documented"] or {}
    return {
        "op": op["name"],
        **fields_of(cell, "device", "torch", "finding", "missing"),
        **{f"{way}_{mode}": it[mode]["verdict"] for way, it in ways.items() for mode in MODES},
        **{f"{way}_doubts": " and ".join(it["doubts"]) or None for way, it in ways.items()},
        **{
            f"documented_{it}": (" and ".join(listed[it]) or NOT_LISTED) if it in listed else None
            for it in _DEVICES
        },
        "family": op["family"],
        "op_finding": op["finding"],
        "action": actions.get(cell["device"], op["action"]),
        **{f"{of}_{end}": (op[of] or {}).get(end) for of in ("cost", "fill") for end in ("low", "high")},
        "rows": sum(cell["counts"].values()),
        **{finding: cell["counts"].get(finding, 0) for finding in FINDINGS},
        **{
            f"{column.name}_{name}": it[name]
            for column, it in zip(view.further, op.further, strict=True)
            for name in COLUMN_FIELDS
        },
    }


def _cell(value: object) -> object:
    """Return a value that stays in its cell: on one line, and text for a spreadsheet, whatever a run file says."""
    if not isinstance(value, str):
        return _NA if value is None else value
    text = one_line(value)
    return f"'{text}" if text.startswith(_FORMULA) else text


def _value(view: View, path: str) -> object:
    value: object = view
    for name in path.split("."):
        value = value.get(name) if type(value) is dict else getattr(value, name, None)
    # The names of calls hold blanks.
    separator = "; " if path.endswith((".libraries", ".products")) else " "
    return (separator.join(value) or None) if isinstance(value, tuple) else value
