"""What executing engines showed, held against their numerical notes."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from reports.render.json import View
from reports.render.markdown import NONE
from scanner.cudnn.problems import cudnn_operation
from scanner.cudnn.record import EngineTable

_HELD = {
    (True, True): "as noted",
    (False, False): "as noted",
    (True, False): "never differed, though noted nondeterministic",
    (False, True): "differed, though not noted nondeterministic",
}


def executed(table: EngineTable) -> View | None:
    """Return what each engine came to, joined over layers, dtypes and layouts; ``None``: none was executed."""
    if table.measured is None:
        return None
    tried: defaultdict[tuple[str, int], list[Any]] = defaultdict(list)
    left = 0
    for cell in table.cells:
        operation = cudnn_operation(cell.operation, transposed=table.problems[cell.problem].transposed)
        for engine in cell.engines:
            if engine.executed is not None:
                tried[operation, engine.number].append(engine)
            elif cell.gpu == "present":
                left += 1
    engines = []
    for (name, number), some in sorted(tried.items()):
        ran = [one.executed for one in some if one.executed.failed is None]
        noted = any(one.nondeterministic for one in some)
        differed = sum(one.differed > 0 for one in ran)
        engines.append(
            {
                "operation": name,
                "engine": number,
                "noted_nondeterministic": noted,
                "cells": len(some),
                "cells_run": len(ran),
                "cells_differed": differed,
                "held": _HELD[noted, differed > 0] if ran else "not runnable",
                "failures": sorted({one.executed.failed for one in some if one.executed.failed is not None}),
            }
        )
    where = table.measured
    return View(
        {"gpu": where.gpu, "torch": where.torch, "runs": where.runs, "cells_left": left, "engines": engines},
        sentence=(
            f"Measured on {where.gpu}, with memory of torch {where.torch}: each engine executed {where.runs} times on the same "
            f"input, its outputs compared bit by bit. {left} engines of cells were not tried."
        ),
        lines=[
            [one["operation"], one["engine"], "nondeterministic" if one["noted_nondeterministic"] else NONE,
             f"{one['cells_run']} of {one['cells']}", one["cells_differed"], one["held"],
             "; ".join(one["failures"][:2]) or NONE]
            for one in engines
        ],
    )  # fmt: skip
