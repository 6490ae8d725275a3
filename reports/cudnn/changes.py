"""What changed in cuDNN's engines from release to release."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from reports.cudnn.layers import LayerWays, asked, known, labels, met_first
from reports.cudnn.view import LIMITS, accepted_engines, sentence
from reports.render.json import View
from scanner.cudnn.record import EngineTable

CHANGES = {"newly_first": "newly first", "no_longer_first": "no longer first"}


def changes(tables: Iterable[EngineTable]) -> View:
    """Return what changed from release to release, in the order given."""
    tables = list(tables)
    firsts = [met_first(table) for table in tables]
    steps = [
        _step(old, new, before, after)
        for old, new, before, after in zip(tables, tables[1:], firsts, firsts[1:], strict=False)
    ]
    counts = _first_counts(tables, firsts)
    return View(
        {
            "tables": [
                {
                    "cudnn": table.cudnn,
                    "driver": table.driver,
                    "engines": accepted_engines(table, list(table.gpus)),
                }
                for table in tables
            ],
            "steps": steps,
        },
        step_lines=[
            {
                "title": f"{step['old']} to {step['new']}",
                "not_compared": ", ".join(step["not_compared"]),
                "lines": _step_lines(step),
                "counts": _step_counts(step, [(operation, gpu) for gpu, operation, _ in counts]),
            }
            for step in steps
        ],
        limits=LIMITS,
        sentences=[sentence(table) for table in tables],
        count_lines=[
            [gpu, operation, *("not known" if count is None else count for count in found)]
            for gpu, operation, found in counts
        ],
        names=[table.cudnn for table in tables],
    )


def _first_counts(
    tables: Sequence[EngineTable], firsts: Sequence[LayerWays]
) -> list[tuple[str, str, list[int | None]]]:
    """Return for each GPU and operation in how many layers a nondeterministic engine comes first, by release."""
    operations = dict.fromkeys(operation for found in firsts for _, operation in found)
    return [
        (
            gpu,
            operation,
            [
                sum(gpu in on for (_, one), on in found.items() if one == operation)
                if gpu in _ordered(table)
                else None
                for table, found in zip(tables, firsts, strict=True)
            ],
        )
        for gpu in dict.fromkeys(gpu for table in tables for gpu in table.gpus)
        for operation in operations
    ]


def _ordered(table: EngineTable) -> set[str]:
    """Return the GPUs for which the heuristics answered."""
    return {cell.gpu for cell in table.cells if cell.order}


def _step(old: EngineTable, new: EngineTable, before: LayerWays, after: LayerWays) -> dict[str, Any]:
    """Return what one release has that the other has not, where what PyTorch tries is known in both."""
    return {
        "old": old.cudnn,
        "new": new.cudnn,
        "not_compared": sorted((set(old.gpus) | set(new.gpus)) - (_ordered(old) & _ordered(new))),
        "no_longer_first": _only(old, before, after, known(new)),
        "newly_first": _only(new, after, before, known(old)),
    }


def _only(table: EngineTable, first: LayerWays, other: LayerWays, sure: LayerWays) -> list[dict[str, Any]]:
    """Return what is first in this table and not in the other one, of what is known there."""
    every = asked(table)
    return [
        {"layer": layer, "operation": operation, "gpu": gpu, "dtypes": labels(alone, every[place][gpu])}
        for (layer, operation), on in first.items()
        for gpu, some in on.items()
        if (
            alone := (some & sure.get(place := (layer, operation), {}).get(gpu, set()))
            - other.get(place, {}).get(gpu, set())
        )
    ]


def _step_lines(step: dict[str, Any]) -> list[list[str]]:
    return [
        [title, one["layer"], one["operation"], one["gpu"], ", ".join(one["dtypes"])]
        for name, title in CHANGES.items()
        for one in step[name]
    ]


def _step_counts(step: dict[str, Any], keys: Iterable[tuple[str, str]]) -> list[list[str | int]]:
    """Return in how many layers an engine comes first now, or no longer, by operation and GPU."""
    counts = [Counter((one["operation"], one["gpu"]) for one in step[name]) for name in CHANGES]
    return [[*key, *(found[key] for found in counts)] for key in keys if any(found[key] for found in counts)]
