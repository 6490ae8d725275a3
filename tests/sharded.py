"""One scan of a few ops by the stand-in, and the same in eight shards, for tests of what joins them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from detmatrix.reports.matrix.model import load
from tests.commands import command_in
from tests.stand_in import StandIn

OPS = (
    "torch.Tensor.put_",
    "take",
    "cumsum",
    "cumprod",
    "index_add",
    "kthvalue",
    "histc",
    "bincount",
    "NLLLoss",
    "gather",
)
OPTIONS = (*OPS, "--device", "cpu", "--runs", 8, "--processes", 1)
SHARDS = 8


def scanned_in_shards(folder: Path) -> Path:
    """Scan all rows at once, and in eight shards on two machines, the last three of which are another."""
    standing = StandIn(folder)
    run = command_in(folder)
    assert run("scan", *OPTIONS, "--python", standing.python, "-o", "whole.jsonl").returncode == 0
    for number in range(1, SHARDS + 1):
        done = run("scan", *OPTIONS, "--python", standing.python, "--shard", f"{number}/{SHARDS}")
        assert done.returncode == 0, done.stderr
        path = folder / f"detmatrix-{number}-of-{SHARDS}.jsonl"
        if number > 5:
            changed(path, environment={"cpu": "Another CPU", "threads": 16})
    return folder


def changed(path: Path, **fields: Any) -> None:
    """Change the header of a run file; what is a dictionary is added to."""
    header, _, rest = path.read_text().partition("\n")
    record = json.loads(header)
    for name, value in fields.items():
        record[name] = {**record[name], **value} if isinstance(value, dict) else value
    path.write_text(f"{json.dumps(record)}\n{rest}")


def shard_name(number: int) -> str:
    """Return the name of the file of a shard."""
    return f"detmatrix-{number}-of-{SHARDS}.jsonl"


def cells(path: Path) -> dict[str, tuple[object, ...]]:
    """Return what a run says of each row, in the planned order."""
    (matrix,) = load([str(path)])
    return {
        row.row.id: (row.finding, *(_said(cell) for cell in (row.off, row.on, row.warn_only)))
        for row in matrix.rows
    }


def _said(cell: Any) -> object:
    """Return what a cell says, but for how long it took."""
    return cell.verdict, cell.runs, cell.differing, cell.distinct, cell.first, cell.alert, cell.by_process
