"""Many shards: real workers see in eight of them what they see in one scan; merging fifty is little work and memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from scanner.observations.runfile import read_run
from tests.benchmarks.merging import measured
from tests.commands import command_in
from tests.large import write_shard
from tests.sharded import SERIAL_SPECS, cells

pytestmark = pytest.mark.nightly


def test_eight_shards_of_real_workers(tmp_path: Path) -> None:
    """The same inputs, the same bits, the same cells."""
    run = command_in(tmp_path)
    (tmp_path / "eight.py").write_text(SERIAL_SPECS)
    options = ("eight", "--specs", "eight.py", "--device", "cpu", "--runs", 5, "--processes", 1, "--no-cost")
    assert run("scan", *options, "--no-overloads", "-o", "whole.jsonl").returncode == 0
    for number in range(1, 9):
        assert run("scan", *options, "--no-overloads", "--shard", f"{number}/8").returncode == 0

    done = run("merge", *(f"detmatrix-{number}-of-8.jsonl" for number in range(1, 9)), "-o", "all.jsonl.gz")

    assert (done.returncode, done.stderr) == (0, "")
    assert len(cells(tmp_path / "whole.jsonl")) == 16
    assert cells(tmp_path / "all.jsonl.gz") == cells(tmp_path / "whole.jsonl")


def test_fifty_shards_of_twenty_thousand_rows(tmp_path: Path) -> None:
    """To merge them takes at most twice the time that reading the result does, and half of the memory."""
    files = [write_shard(tmp_path / f"{number}.jsonl", 80_000, number, 50) for number in range(1, 51)]
    merged = tmp_path / "merged.jsonl"
    merging, held = measured("merge", [*files, merged])
    reading, whole = measured("load", [*files, merged])

    assert len(read_run(merged).header.planned) == 20_000
    assert merging < 2 * reading
    assert held < whole / 2
