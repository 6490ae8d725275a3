"""Many shards: real workers see in eight of them what they see in one scan; merging fifty is little work and memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from scanner.observations.runfile import read_run
from scanner.verdicts.findings import matrix
from tests.benchmarks.merging import measured
from tests.commands import command_in
from tests.large import write_shard

pytestmark = pytest.mark.nightly

SPECS = """
from opspecs.model import Case, OpSpec, call

SPECS = tuple(
    OpSpec(
        name=f"eight.cumsum_{n}",
        op="torch.cumsum",
        why="Serial at this size.",
        cases={"small": Case(inputs=lambda t, n=n: call(t.leaf(t.normal(100 + n)), 0))},
        directions=("forward", "backward"),
    )
    for n in range(8)
)
"""


def _cells(path: Path) -> dict[str, tuple[object, ...]]:
    run = read_run(path)
    rows = matrix(run.header, run.observations, closed=run.closing is not None)
    return {
        row.row.id: (
            row.finding,
            *((it.verdict, it.runs, it.differing, it.first, it.by_process) for it in (row.off, row.on)),
        )
        for row in rows
    }


def test_eight_shards_of_real_workers(tmp_path: Path) -> None:
    """The same inputs, the same bits, the same cells."""
    run = command_in(tmp_path)
    (tmp_path / "eight.py").write_text(SPECS)
    options = ("eight", "--specs", "eight.py", "--device", "cpu", "--runs", 5, "--processes", 1, "--no-cost")
    assert run("scan", *options, "--no-overloads", "-o", "whole.jsonl").returncode == 0
    for number in range(1, 9):
        assert run("scan", *options, "--no-overloads", "--shard", f"{number}/8").returncode == 0

    done = run("merge", *(f"detmatrix-{number}-of-8.jsonl" for number in range(1, 9)), "-o", "all.jsonl.gz")

    assert (done.returncode, done.stderr) == (0, "")
    assert len(_cells(tmp_path / "whole.jsonl")) == 16
    assert _cells(tmp_path / "all.jsonl.gz") == _cells(tmp_path / "whole.jsonl")


def test_fifty_shards_of_twenty_thousand_rows(tmp_path: Path) -> None:
    """To merge them takes at most twice the time that reading the result does, and half of the memory."""
    files = [write_shard(tmp_path / f"{number}.jsonl", 80_000, number, 50) for number in range(1, 51)]
    merged = tmp_path / "merged.jsonl"
    merging, held = measured("merge", [*files, merged])
    reading, whole = measured("load", [*files, merged])

    assert len(read_run(merged).header.planned) == 20_000
    assert merging < 2 * reading
    assert held < whole / 2
