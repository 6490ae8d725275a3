"""What recorded tables of engines let expect of a row of the matrix: *expected*, in words."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from scanner.cases.convolutions import is_convolution, layer_of
from scanner.cudnn.problems import LayerKind, Operation, cudnn_operation
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
    cudnn = _REQUIRED.get(torch)
    if cudnn is None or not is_convolution(row):
        return RowEngines()
    layer = layer_of(row)
    if layer is None:
        return RowEngines(
            f"cuDNN {cudnn}: not known which recorded layers are like it: stride, dilation and groups of the case are not recorded"
        )
    operations: tuple[Operation, ...] = ("forward",) if row.direction == "forward" else layer.gradients
    asked = [cudnn_operation(one, transposed=layer.problem.transposed) for one in operations]
    if not asked:
        return RowEngines()
    alike = [_alike(cudnn, one, layer.problem.kind, row.dtype, layer.layout) for one in asked]
    told = (_told(one, layer.problem.kind, cells) for one, cells in zip(asked, alike, strict=True))
    return RowEngines(
        f"cuDNN {cudnn}: {'; '.join(told)}; not measured, and accepted is not runnable",
        tuple(
            f"{one} engine {number}"
            for one, cells in zip(asked, alike, strict=True)
            for number in _numbers(cells)
        ),
    )


@cache
def _table(cudnn: str) -> EngineTable:
    return read_table(_RECORDED / f"cudnn-{cudnn}.json.gz")


@cache
def _alike(
    cudnn: str, operation: Operation, kind: LayerKind, dtype: str, layout: str
) -> tuple[EngineCell, ...]:
    """Return the recorded cells of one of cuDNN's operations for layers of a kind."""
    table = _table(cudnn)
    problems = table.problems
    return tuple(
        cell
        for cell in table.cells
        if (cell.dtype, cell.layout) == (dtype, layout)
        and cudnn_operation(cell.operation, transposed=problems[cell.problem].transposed) == operation
        and problems[cell.problem].kind == kind
    )


def _numbers(cells: Sequence[EngineCell]) -> list[int]:
    """Return the engines that are noted nondeterministic."""
    return sorted({one.number for cell in cells for one in cell.engines if one.nondeterministic})


def _told(operation: Operation, kind: LayerKind, cells: Sequence[EngineCell]) -> str:
    """Say which engines are nondeterministic for layers of a kind, and for how many of them one comes first."""
    of = f"{operation} ({kind})"
    if not cells:
        return f"{of}: no recorded layer like it"
    numbers = _numbers(cells)
    if not numbers:
        return f"{of}: no engine noted nondeterministic for recorded layers like it"
    firsts: defaultdict[str, list[bool]] = defaultdict(list)
    for cell in cells:
        # PyTorch allows TF32 in convolutions unless told otherwise.
        tried = ways(cell)[TF32 if cell.dtype == "float32" else cell.dtype]
        # What PyTorch falls back to, where the heuristics list nothing that it keeps, is not known.
        firsts[cell.gpu] += [first_place(tried) == 1] if tried else []
    counts = ", ".join(
        f"{gpu} {f'{sum(some)} of {len(some)}' if some else 'not known'}" for gpu, some in firsts.items()
    )
    engines = f"engine{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"
    return f"{of}: {engines} noted nondeterministic, tried first for recorded layers like it: {counts}"
