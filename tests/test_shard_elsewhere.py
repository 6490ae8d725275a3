"""A shard that another machine observed but did not finish is finished on this one."""

from __future__ import annotations

import json
from pathlib import Path

from scanner.observations.runfile import read_run
from tests.clusters import observed
from tests.commands import Command
from tests.stand_in import StandIn

SPECS = Path(__file__).with_name("quick.py")
SCAN = ("scan", "quick", "--specs", SPECS, "--device", "cpu", "--runs", 4, "--processes", 1, "--no-cost")


def test_shard_of_which_no_row_is_left_is_finished(detmatrix: Command, tmp_path: Path) -> None:
    """Its machine died before it wrote the closing line: nothing is observed again, and the merged file is complete."""
    python = ("--python", StandIn(tmp_path).python)
    for shard in ("1/2", "2/2"):
        assert detmatrix(*SCAN, *python, "--shard", shard, "-o", f"{shard[0]}.jsonl").returncode == 0
    assert detmatrix("merge", "1.jsonl", "2.jsonl", "-o", "whole.jsonl").returncode == 0
    header, *lines = (tmp_path / "1.jsonl").read_text().splitlines(keepends=True)
    record = json.loads(header)
    record["environment"]["cpu"] = "Another CPU"
    (tmp_path / "1.jsonl").write_text("".join([json.dumps(record), "\n", *lines[:-1]]))

    done = detmatrix(*SCAN, *python, "--shard", "1/2", "-o", "1.jsonl", "--resume")

    assert done.returncode == 0, done.stderr
    assert read_run(tmp_path / "1.2.jsonl").observations == ()
    merged = detmatrix("merge", "1.jsonl", "1.2.jsonl", "2.jsonl", "-o", "all.jsonl")
    assert (merged.returncode, merged.stderr) == (0, "")
    assert observed(tmp_path / "all.jsonl") == observed(tmp_path / "whole.jsonl")
