"""The matrix for machines: JSON with the environment beside the rows, tables of rows and of ops, and these as CSV."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from detmatrix.reports.matrix.columns import COLUMN_FIELDS, all_columns
from detmatrix.reports.matrix.model import NOT_LISTED, Matrix
from detmatrix.reports.matrix.ops import ops_view
from detmatrix.reports.matrix.rows import row_view
from detmatrix.reports.matrix.words import machine_of_row, machine_words
from detmatrix.reports.render import View, fields_of, json_of, object_pieces
from detmatrix.reports.report.view import report_view
from detmatrix.scanner.errors import one_line
from detmatrix.scanner.observations.records import MODES
from detmatrix.scanner.verdicts.vocabulary import FINDINGS

if TYPE_CHECKING:
    import pandas as pd

_ROW = ("family", "spec", "op", "case", "direction", "dtype", "device", "finding")
_CELL = ("verdict", "runs", "differing", "distinct", "upper_bound", "alert", "reason", "seeded", "seconds")
_COST = ("ratio", "unfilled_ratio", "off.median", "on.median", "unfilled.median", "off_memory", "on_memory")
_ORDERS = ("executions", "differing", "distinct")
_MEASURES = ("v_c", "v_ermv", "max_abs", "max_rel", "max_ulp")
# Column -> where its value stands in a row's view. Columns are added behind those that were there first.
_COLUMNS = {
    **{name: name for name in _ROW},
    **{f"{mode}_{name}": f"{mode}.{name}" for mode in MODES for name in _CELL},
    **{
        name: name for name in ("provokes", "low_power", "serial", "constant", "source", "provoked", "recipe")
    },
    **{
        f"{mode}_{name}": f"{mode}.{'severity.' if name in _MEASURES else ''}{name}"
        for mode in MODES
        for name in ("where", *_MEASURES)
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
# Rows that are written at a time.
_AT_ONCE = 1000
# With these a spreadsheet takes a cell for a formula.
_FORMULA = ("=", "+", "-", "@")
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


def render_csv(matrices: Sequence[Matrix]) -> Iterator[str]:
    """Yield the flat table of rows."""
    return _csv(*_rows(matrices))


def render_ops_csv(matrices: Sequence[Matrix]) -> Iterator[str]:
    """Yield the flat table of ops: a line for each op in each release on each kind of device."""
    return _csv(*_ops(matrices))


def frames(matrices: Sequence[Matrix]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the tables of rows and of ops; what a cell does not have is ``<NA>``, and counts with gaps stay integers."""
    (names, rows), (op_names, ops) = _rows(matrices), _ops(matrices)
    return _frame(names, list(rows)), _frame(op_names, list(ops))


def _frame(names: Sequence[str], lines: Sequence[Mapping[str, object]]) -> pd.DataFrame:
    """Return a table, each column of its type: left to itself, pandas makes floats of integers with gaps."""
    import pandas as pd  # noqa: PLC0415 - the other formats need not wait for it

    def column(values: Sequence[object]) -> pd.Series[Any]:
        kinds = {type(value) for value in values if value is not None}
        if kinds and kinds <= {int, float}:
            return pd.Series(values, dtype="Int64" if kinds == {int} else "Float64")
        return pd.Series(values, dtype=object)

    return pd.DataFrame({name: column([line[name] for line in lines]) for name in names})


def _csv(names: Sequence[str], lines: Iterator[Mapping[str, object]]) -> Iterator[str]:
    yield ",".join(names) + "\n"
    while some := list(islice(lines, _AT_ONCE)):
        frame = _frame(names, some)
        for name in frame.select_dtypes(object):
            frame[name] = frame[name].map(_cell)
        yield frame.to_csv(index=False, header=False, na_rep=_NA, lineterminator="\n")


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
                    line |= column.flat(row if column.name in asked else None)
                yield line

    flat = (name for column in further for name in column.flat(None))
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
        return value
    text = one_line(value)
    return f"'{text}" if text.startswith(_FORMULA) else text


def _value(view: View, path: str) -> object:
    value: object = view
    for name in path.split("."):
        value = value.get(name) if type(value) is dict else getattr(value, name, None)
    # The names of calls hold blanks.
    separator = "; " if path.endswith((".libraries", ".products")) else " "
    return (separator.join(value) or None) if isinstance(value, tuple) else value
