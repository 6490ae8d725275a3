"""What recorded tables of engines let expect of a row of the matrix: *expected*, in words."""

from __future__ import annotations

import re
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import NamedTuple

from scanner.cudnn.problems import CONVOLUTIONS, Operation, cudnn_operation
from scanner.cudnn.pytorch import TF32, first_place, ways
from scanner.cudnn.record import EngineCell, EngineTable, read_table
from scanner.observations.records import Row

_RECORDED = Path(__file__).parent.parent / "engines"
# The cuDNN that the wheel of a build requires, by its metadata on PyPI, where its table is recorded. Wheels of the same
# release for another CUDA may require another, those for CPUs and ROCm none.
_REQUIRED = {
    **dict.fromkeys(("2.8.0+cu128", "2.9.0+cu128", "2.9.1+cu128", "2.10.0+cu128"), "9.10.2"),
    "2.11.0+cu130": "9.19.0",
    **dict.fromkeys(("2.12.0+cu130", "2.12.1+cu130", "2.13.0+cu130"), "9.20.0"),
    **dict.fromkeys(("2.14.0+cu130", "2.14.1+cu130"), "9.24.0"),
    "2.15.0+cu132": "9.26.0",
}
_OP = re.compile(r"(?:^|\.)conv(?P<transposed>_?transpose)?[123]d$", re.IGNORECASE)
_GRADIENTS: dict[str, tuple[Operation, ...]] = {
    "input_grad": ("data gradient",),
    "weight_grad": ("weight gradient",),
    "bias_grad": (),  # a sum over positions, which no engine computes
}


class RowEngines(NamedTuple):
    """What is said of the engines that a row may meet, and those that are noted nondeterministic: "weight gradient engine 20"."""

    text: str = ""
    nondeterministic: tuple[str, ...] = ()


def expected_engines(row: Row, torch: str) -> RowEngines:
    """Return which engines of the cuDNN that a build requires a row may meet; nothing where nothing is recorded.

    Args:
        row: A row of the matrix.
        torch: The build's version, with its CUDA: "2.9.1+cu128".
    """
    found = _OP.search(row.op)
    cudnn = _REQUIRED.get(torch)
    if found is None or cudnn is None:
        return RowEngines()
    if row.direction == "forward":
        operations: tuple[Operation, ...] = ("forward",)
    else:
        operations = next(
            (some for end, some in _GRADIENTS.items() if row.case.endswith(end)), CONVOLUTIONS[1:]
        )
    layout = row.traits.get("memory_format", "contiguous")
    asked = [cudnn_operation(one, transposed=bool(found["transposed"])) for one in operations]
    told = [text for one in asked if (text := _told(cudnn, one, row.dtype, layout))]
    if not told:
        return RowEngines()
    return RowEngines(
        f"cuDNN {cudnn}: {'; '.join(told)}; not measured, and accepted is not runnable",
        tuple(
            f"{one} engine {number}" for one in asked for number in _numbers(cudnn, one, row.dtype, layout)
        ),
    )


@cache
def _table(cudnn: str) -> EngineTable:
    return read_table(_RECORDED / f"cudnn-{cudnn}.json.gz")


@cache
def _cells(cudnn: str, operation: str, dtype: str, layout: str) -> tuple[EngineCell, ...]:
    table = _table(cudnn)
    return tuple(
        cell
        for cell in table.cells
        if (cell.dtype, cell.layout) == (dtype, layout)
        and cudnn_operation(cell.operation, transposed=table.problems[cell.problem].transposed) == operation
    )


@cache
def _numbers(cudnn: str, operation: str, dtype: str, layout: str) -> list[int]:
    """Return the engines of an operation that are noted nondeterministic."""
    cells = _cells(cudnn, operation, dtype, layout)
    return sorted({one.number for cell in cells for one in cell.engines if one.nondeterministic})


@cache
def _told(cudnn: str, operation: str, dtype: str, layout: str) -> str:
    """Say of one of cuDNN's operations which engines are nondeterministic, and in how many layers one comes first."""
    cells = _cells(cudnn, operation, dtype, layout)
    if not cells:
        return ""
    numbers = _numbers(cudnn, operation, dtype, layout)
    if not numbers:
        return f"{operation}: no engine noted nondeterministic"
    firsts: defaultdict[str, list[bool]] = defaultdict(list)
    for cell in cells:
        # PyTorch allows TF32 in convolutions unless told otherwise.
        tried = ways(cell)[TF32 if dtype == "float32" else dtype]
        # What PyTorch falls back to, where the heuristics list nothing that it keeps, is not known.
        firsts[cell.gpu] += [first_place(tried) == 1] if tried else []
    counts = ", ".join(
        f"{gpu} {f'{sum(some)} of {len(some)}' if some else 'not known'}" for gpu, some in firsts.items()
    )
    engines = f"engine{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"
    return f"{operation}: {engines} noted nondeterministic, tried first in layers asked about: {counts}"
