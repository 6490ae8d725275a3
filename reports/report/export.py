"""The matrix for machines: JSON with the environment beside the rows, and CSV, one line per row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from msgspec import UNSET
from msgspec.structs import asdict, astuple

from reports.matrix.columns import ColumnCell, all_columns
from reports.matrix.difference import MEASURES
from reports.matrix.listed import NOT_LISTED
from reports.matrix.model import FINDINGS, Matrix
from reports.matrix.ops import OpsView, OpView
from reports.matrix.perturbations import meaning_of
from reports.matrix.view import RowView
from reports.render.json import fields_of, json_of, object_pieces
from reports.report.view import RunView, report_view
from scanner.errors import one_line
from scanner.observations.parts import in_common, shard_words
from scanner.observations.records import MODES, Environment, Header
from scanner.verdicts.cells import VERDICT_MEANING
from scanner.verdicts.controls import check_controls
from scanner.verdicts.findings import BESIDE_MEANING, FINDING_MEANING

if TYPE_CHECKING:
    import pandas as pd

_ROW = ("family", "spec", "op", "case", "direction", "dtype", "device", "finding")
_CELL = ("verdict", "runs", "differing", "distinct", "upper_bound", "alert", "reason", "seeded", "seconds")
_COST = ("ratio", "unfilled_ratio", "off.median", "on.median", "unfilled.median", "off_memory", "on_memory")
_ORDERS = ("executions", "differing", "distinct")
# Column -> where its value stands in a row's view. Columns are added behind those that were there first.
_COLUMNS = {
    **{name: name for name in _ROW},
    **{f"{mode}_{name}": f"{mode}.{name}" for mode in MODES for name in _CELL},
    **{name: name for name in ("provokes", "low_power", "serial", "constant", "source", "provoked")},
    "recipe": "enlargement",
    **{
        f"{mode}_{name}": f"{mode}.{'severity.' if name in MEASURES else ''}{name}"
        for mode in MODES
        for name in ("where", *MEASURES)
    },
    **{f"warn_only_{name}": f"warn_only.{name}" for name in ("verdict", "runs", "differing", "alerts")},
    **{f"cost_{name.replace('.', '_')}": f"cost.{name}" for name in _COST},
    **{
        f"{mode}_{name}": f"{mode}.{name}"
        for mode in ("unfilled", "no_workspace")
        for name in ("verdict", "runs", "differing")
    },
    **{f"{mode}_orders_{name}": f"{mode}.orders.{name}" for mode in MODES for name in _ORDERS},
    "libraries": "libraries",
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
# Rows of the flat table that are in memory at a time.
_AT_ONCE = 1000
# With these a spreadsheet takes a cell for a formula.
_FORMULA = ("=", "+", "-", "@")
_NA = "NA"  # what does not exist: pandas and R read it as missing


def render_json(matrices: Sequence[Matrix]) -> Iterator[str]:
    """Yield one object for one run, and ``{"runs": […], …}`` for several, with the ops of all; one row and one op a line."""
    report = report_view(matrices)
    ops = {
        "columns": report.ops.columns,
        "unmeasured": report.ops.unmeasured,
        "op_counts": report.ops.counts,
        **({"device_counts": report.ops.by_device} if report.ops.by_device else {}),
        "ops": [_op(op, report.ops) for op in report.ops.ops],
    }
    if len(report.runs) == 1:
        yield from object_pieces(_run(report.runs[0]) | ops, "rows", "ops")
    else:
        runs = map(_run, report.runs)
        yield from object_pieces({"runs": runs, **ops}, "runs", "ops", each=_member)
    yield "\n"


def render_csv(matrices: Sequence[Matrix]) -> Iterator[str]:
    """Yield the flat table of rows."""
    return _csv(_names(matrices), _rows(matrices))


def render_ops_csv(matrices: Sequence[Matrix]) -> Iterator[str]:
    """Yield the flat table of ops: a line for each op in each release on each kind of device."""
    view = report_view(matrices).ops
    further = (f"{column.name}_{name}" for column in view.further for name in ColumnCell.__struct_fields__)
    return _csv([*_OP_COLUMNS, *FINDINGS, *further], _op_rows(view))


def _csv(names: Sequence[str], rows: Iterator[Sequence[object]]) -> Iterator[str]:
    yield ",".join(names) + "\n"
    while some := list(islice(rows, _AT_ONCE)):
        yield _frame(some, names).to_csv(index=False, header=False, na_rep=_NA, lineterminator="\n")


def frame(matrices: Sequence[Matrix]) -> pd.DataFrame:
    """Return the flat table; what a cell does not have is ``<NA>``, and counts with gaps stay integers."""
    return _frame(list(_rows(matrices)), _names(matrices))


def _frame(rows: Sequence[Sequence[object]], names: Sequence[str]) -> pd.DataFrame:
    import pandas as pd  # noqa: PLC0415 - the other formats need not wait for it

    columns = zip(*rows, strict=True) if rows else [() for _ in names]
    return pd.DataFrame({name: _column(values) for name, values in zip(names, columns, strict=True)})


def _column(values: Sequence[object]) -> pd.Series[Any]:
    """Return a column of its type: left to itself, pandas makes floats of integers with gaps, which hold few of them."""
    import pandas as pd  # noqa: PLC0415

    kinds = {type(value) for value in values if value is not None}
    if kinds and kinds <= {int, float}:
        return pd.Series(values, dtype="Int64" if kinds == {int} else "Float64")
    return pd.Series(values, dtype=object)


def _names(matrices: Sequence[Matrix]) -> list[str]:
    further = [name for column in all_columns(matrices) for name in column.flat(None)]
    merged = ["machine"] * _merged(matrices)
    return ["run", *_COLUMNS, "distrust", *further, *_simulated(matrices), *merged]


def _simulated(matrices: Sequence[Matrix]) -> dict[str, str]:
    return _SIMULATED if any(one.simulated for one in matrices) else {}


def _merged(matrices: Sequence[Matrix]) -> bool:
    return any(one.run.header.parts for one in matrices)


def _rows(matrices: Sequence[Matrix]) -> Iterator[list[object]]:
    further, merged = all_columns(matrices), _merged(matrices)
    for run in report_view(matrices).runs:
        distrust = "; ".join(run.matrix.distrust) or None
        asked = {column.name for column in all_columns([run.matrix])}
        for row in run.rows:
            cells = [_value(row, path) for path in _COLUMNS.values()]
            told = (column.flat(row if column.name in asked else None) for column in further)
            more = [value for columns in told for value in columns.values()]
            machine = [row.machine or run.machine] * merged
            more += [_value(row, path) for path in _simulated(matrices).values()]
            yield [*map(_cell, (run.name, *cells, distrust, *more, *machine))]


def _cell(value: object) -> object:
    """Return a value that stays in its cell: on one line, and text for a spreadsheet, whatever a run file says."""
    if not isinstance(value, str):
        return value
    text = one_line(value)
    return f"'{text}" if text.startswith(_FORMULA) else text


def _value(row: RowView, path: str) -> object:
    value: object = row
    for name in path.split("."):
        value = getattr(value, name) if value is not None and value is not UNSET else None
    if path == "provokes":
        return value or "nothing"
    if value is UNSET:
        return None
    # The names of calls hold blanks.
    separator = "; " if path.rpartition(".")[2] in {"libraries", "products"} and "." in path else " "
    return (separator.join(value) or None) if isinstance(value, tuple) else value


def _op(op: OpView, view: OpsView) -> dict[str, object]:
    """Return an op for machines, each of its cells with the column that it stands in."""
    fields = asdict(op)
    del fields["further"]
    if not op.devices:
        del fields["devices"]
    if op.further:
        fields["further"] = {one.name: it for one, it in zip(view.further, op.further, strict=True)}
    cells = [
        fields_of(column, "device", "torch") | asdict(cell)
        for column, cell in zip(view.columns, op.cells, strict=True)
    ]
    return fields | {"cells": cells, "rows": [it.row.id for it in op.rows]}


def _op_rows(view: OpsView) -> Iterator[list[object]]:
    for op in view.ops:
        actions = {it.device: it.action for it in op.devices}
        for column, cell in zip(view.columns, op.cells, strict=True):
            ways = (cell.forward, cell.backward)
            listed = [(cell.documented or {}).get(device) for device in _DEVICES]
            values = [
                *(op.name, op.family, column.device, column.torch, cell.finding),
                *(mark.verdict for way in ways for mark in (way.off, way.on)),
                *(" and ".join(way.doubts) or None for way in ways),
                *(None if words is None else " and ".join(words) or NOT_LISTED for words in listed),
                *(cell.missing, op.finding, actions.get(column.device, op.action)),
                *(
                    value
                    for it in (op.cost, op.fill)
                    for value in ((it.low, it.high) if it else (None, None))
                ),
                sum(cell.counts.values()),
                *(cell.counts.get(finding, 0) for finding in FINDINGS),
                *(value for it in op.further for value in astuple(it)),
            ]
            yield list(map(_cell, values))


def _member(one: dict[str, object]) -> Iterable[str]:
    """Yield the text of a run or of an op among several."""
    return object_pieces(one, "rows") if "environment" in one else [json_of(one)]


def _environment(header: Header) -> object:
    """Return the machine and the build; of a merged run what all machines have in common, and ``None`` for the rest."""
    if not header.parts:
        return header.environment
    return {name: in_common(header, name) for name in Environment.__struct_fields__}


def _run(run: RunView) -> dict[str, object]:
    one, header, closing = run.matrix, run.header, run.matrix.run.closing
    held = ["parts"] if header.parts else ["shard", "file"]
    fields = {
        "environment": _environment(header),
        "settings": header.settings,
        **(fields_of(header, "plan", "shards", *held) if shard_words(header) else {}),
        "rows": run.rows,
        "path": run.name,
        **fields_of(header, "format", "tool", "started"),
        "complete": not one.missing,
        **({"missing": one.missing} if one.missing else {}),
        **fields_of(one, "distrust", "serial", "serial_unknown", "executions", "planned", "counts"),
        "controls": [asdict(it) | {"ok": it.ok} for it in check_controls(header, one.run.controls)],
        "sentinels": one.run.sentinels,
        "low_power": one.weak,
        "perturbations": {name: meaning_of(name) for name in header.settings.perturb},
        "seconds": closing.seconds if closing else None,
        "load_after": closing.load if closing else None,
        "upper_bound": one.upper_bound,
        **({"beside": one.beside, "beside_meanings": BESIDE_MEANING} if one.simulated else {}),
        "only": one.only or FINDINGS,
        "verdicts": VERDICT_MEANING,
        "findings": FINDING_MEANING,
    }
    if run.further or run.idle:
        fields |= {
            "further": {column.name: column.meaning for column in run.further},
            "further_findings": {column.name: column.findings for column in run.further},
            "idle": run.idle,
        }
    return fields
