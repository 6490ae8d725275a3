"""The matrix for machines: JSON with the environment beside the rows, and CSV, one line per row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from msgspec.structs import replace

from reports.matrix import cost, perturbations
from reports.matrix.difference import first_differing
from reports.matrix.expected import EXPECTED_MEANING, about_words, json_fields
from reports.matrix.model import (
    FINDINGS,
    Matrix,
    alerts_of,
    cell_fields,
    cell_of_mode,
    constant_of,
    frame,
    outputs_of,
)
from reports.render.json import json_of, one_or_several
from reports.report.disagreements import disagreement
from scanner.observations.records import MODES, Mode
from scanner.verdicts.controls import check_controls
from scanner.verdicts.findings import FINDING_MEANING, VERDICT_MEANING, MatrixRow, upper_bound

_CSV_ROWS = 4096  # per piece
_CELL = ("verdict", "runs", "differing", "distinct", "upper_bound", "alert", "reason")


def render_json(matrices: Sequence[Matrix]) -> Iterator[str]:
    """Yield one object for one run, and ``{"runs": […]}`` for several; one row per line."""
    return one_or_several("runs", matrices, _run)


def render_csv(matrices: Sequence[Matrix]) -> Iterator[str]:
    """Yield the flat table; a count that does not exist is ``NA``, which pandas and R read as missing."""
    # A table of a whole run would hold each of its cells once more.
    pieces = [
        replace(one, rows=one.rows[start : start + _CSV_ROWS])
        for one in matrices
        for start in range(0, len(one.rows), _CSV_ROWS)
    ]
    devices = sorted({build.device for one in matrices for build in one.expected})
    for number, piece in enumerate(pieces or matrices[:1]):
        yield frame([piece], devices).to_csv(
            index=False, header=number == 0, na_rep="NA", lineterminator="\n"
        )


def _run(one: Matrix) -> Iterator[str]:
    header, closing = one.run.header, one.run.closing
    yield f'{{\n"environment": {json_of(header.environment)},\n'
    yield f'"settings": {json_of(header.settings)},\n"rows": [\n'
    for number, row in enumerate(one.rows):
        yield (",\n" if number else "") + json_of(_row(row, one))
    rest = {
        "path": one.name,
        "format": header.format,
        "tool": header.tool,
        "started": header.started,
        "complete": closing is not None,
        "distrust": list(one.distrust),
        "controls": [
            {**msgspec.structs.asdict(it), "ok": it.ok} for it in check_controls(header, one.run.controls)
        ],
        "sentinels": one.run.sentinels,
        "low_power": one.weak,
        "serial": one.serial,
        "perturbations": {name: perturbations.meaning_of(name) for name in header.settings.perturb},
        "seconds": closing.seconds if closing else None,
        "load_after": closing.load if closing else None,
        "executions": one.executions,
        "upper_bound": upper_bound(one.executions),
        "planned": one.planned,
        "only": one.only or FINDINGS,
        "counts": one.counts,
        "verdicts": VERDICT_MEANING,
        "findings": FINDING_MEANING,
        **_builds(one),
    }
    yield "\n]"
    yield from (f",\n{json_of(key)}: {json_of(value)}" for key, value in rest.items())
    yield "\n}"


def _builds(one: Matrix) -> dict[str, object]:
    """Return which files of builds the rows were held against; nothing where none were given."""
    if not one.expected:
        return {}
    environment, settings = one.run.header.environment, one.run.header.settings
    builds = [
        {
            "device": build.device,
            "torch": build.torch,
            "census": build.census,
            "trace": build.trace,
            "note": about_words(build, environment.torch, settings.device),
        }
        for build in one.expected
    ]
    return {"builds": builds, "expected": EXPECTED_MEANING}


def _expected(row: MatrixRow, one: Matrix) -> list[dict[str, object]]:
    """Return what each build says of a row, and where the row measured something else."""
    return [
        fields | {"disagreement": disagreement(row, build.of(row.row)) if build.same_device else None}
        for fields, build in zip(json_fields(row, one.expected), one.expected, strict=True)
    ]


def _row(row: MatrixRow, one: Matrix) -> dict[str, object]:
    """Return a row: the keys that are promised, then what else is known of it."""
    planned = row.row
    ran = [observation for observation in row.observations if observation.inputs]
    return {
        "spec": planned.spec,
        "case": planned.case,
        "direction": planned.direction,
        "dtype": planned.dtype,
        "device": planned.device,
        "finding": row.finding,
        **{mode: _cell(row, mode) for mode in MODES},
        "family": planned.family,
        "op": planned.op,
        "provokes": planned.provokes or None,
        "why": planned.why or None,
        "reason": row.reason,
        "inputs": ran[0].inputs if ran else None,
        "warn_only": _forced(row),
        "alerts": alerts_of(row),
        "low_power": row.weak,
        "serial": row.serial,
        "constant": constant_of(row),
        "source": planned.source,
        "provoked": planned.provoked or None,
        "recipe": planned.enlargement or None,
        "samples": planned.samples or None,
        "cost": _cost(row),
        **({"expected": _expected(row, one)} if one.expected else {}),
    }


def _cell(row: MatrixRow, mode: Mode) -> dict[str, object]:
    """Return a cell: the keys that are promised, then what else is known of it."""
    fields = cell_fields(row, mode)
    cell = cell_of_mode(row, mode)
    mine = [observation for observation in row.observations if observation.mode == mode]
    first = first_differing(mine)
    return {
        **{field: fields.pop(field) for field in _CELL},
        **fields,
        "first": cell.first,
        "forward_differing": sum(observation.forward_differing for observation in mine) if mine else None,
        "outputs": outputs_of(mine),
        "constant": cell.constant,
        "within": cell.within,
        "between": cell.between,
        "where": cell.where,
        "first_differing": dict(zip(("execution", "process"), first, strict=True)) if first else None,
        "groups": cell.groups,
        "other_threads": cell.other_threads,
        "alerts": cell.alerts,
    }


def _forced(row: MatrixRow) -> dict[str, object]:
    """Return the cell of a row that ran under warn_only; of one that did not, only that and why."""
    if row.warn_only.verdict == "not_run":
        return {"verdict": row.warn_only.verdict, "reason": row.warn_only.reason}
    return _cell(row, "warn_only")


def _cost(row: MatrixRow) -> dict[str, object] | None:
    """Return a row's timings with the ratios derived from them."""
    if row.cost is None:
        return None
    one = row.cost
    derived = cost.fields(one)
    return {
        "ratio": derived["ratio"],
        "unfilled_ratio": derived["unfilled_ratio"],
        "outcome": one.outcome,
        "message": one.message,
        "samples": one.samples,
        "calls": one.calls,
        "off": one.off,
        "on": one.on,
        "unfilled": one.unfilled,
        "off_memory": one.off_memory,
        "on_memory": one.on_memory,
    }
