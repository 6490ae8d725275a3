"""Many shards: real workers see in eight of them what they see in one scan; merging fifty is little work and memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from detmatrix.scanner.observations.runfile import read_run
from tests.benchmarks.merging import measured
from tests.large import write_shard

pytestmark = pytest.mark.nightly


def test_fifty_shards_of_twenty_thousand_rows(tmp_path: Path) -> None:
    """To merge them takes at most twice the time that reading the result does, and half of the memory."""
    files = [write_shard(tmp_path / f"{number}.jsonl", 80_000, number, 50) for number in range(1, 51)]
    merged = tmp_path / "merged.jsonl"
    merging, held = measured("merge", [*files, merged])
    reading, whole = measured("load", [*files, merged])

    assert len(read_run(merged).header.planned) == 20_000
    assert merging < 2 * reading
    assert held < whole / 2
