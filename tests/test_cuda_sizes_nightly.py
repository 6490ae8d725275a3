"""Rows of CUDA hold information in the sizes of CUDA: computed by the CPU, of the numbers that an accelerator draws."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from msgspec.structs import replace

pytest.importorskip("torch")

from detmatrix.opspecs.model import OpSpec
from detmatrix.opspecs.registry import SPECS
from detmatrix.scanner.cases.rows import known_rows
from detmatrix.scanner.observations.records import Row
from detmatrix.scanner.verdicts.cells import Cell, row_cell
from detmatrix.scanner.worker import bits
from detmatrix.scanner.worker.execution import DRAWS, Execution
from tests.runs import ran

# What draws inputs takes any name but "cpu" for that of an accelerator, and torch takes this one for the CPU.
DEVICE = "cpu:0"
# What a CPU cannot do, or takes long for; with halves the backward of a nearest grid_sample writes out of bounds in torch 2.13.
LEFT_OUT = (
    "*:*float16",
    "torch.histc:*:int*",
    "torch.nn.functional.linear_cross_entropy:*:backward:*",
    "torch.nn.functional.scaled_dot_product_attention:efficient*",
)


def _cell(spec: OpSpec, row: Row) -> Cell:
    """Return the cell of a row that is the same twice."""
    execution = Execution(
        spec, row.case, direction=row.direction, dtype=row.dtype, device=DEVICE, seed=0, kept=DRAWS
    )
    _, judged = execution.parts(*execution())
    kind, part = bits.blank(judged, execution.inputs())
    observations = [replace(one, blank=kind, blank_output=part) for one in ran(row, "off", {"a": 2})]
    return row_cell(observations, "", row)


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")
def test_rows_hold_information() -> None:
    """None is an error for want of it: a gradient that is zero everywhere in these sizes is one on every GPU."""
    rows = [(spec, row) for spec in SPECS for row in known_rows("cuda:0", (spec,))]
    cells = {
        row.id: _cell(spec, row)
        for spec, row in rows
        if not any(fnmatchcase(row.id, one) for one in LEFT_OUT)
    }

    assert len(cells) > len(rows) / 2
    assert {one: cell.reason for one, cell in cells.items() if cell.verdict != "deterministic"} == {}
