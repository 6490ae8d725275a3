"""A version held against itself: load changes what is seen, and is no change of an op."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.commands import command_in
from tests.tied import busy_cores

OPS = ("torch.Tensor.put_", "torch.take", "torch.index_put", "torch.cumsum", "torch.bincount")
OPTIONS = ("--device", "cpu", "--runs", 20, "--no-cost", "--no-overloads")
pytestmark = [pytest.mark.nightly, pytest.mark.alone]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two scans of one torch, the second beside a busy process on every core."""
    folder = tmp_path_factory.mktemp("busy")
    detmatrix = command_in(folder)
    assert detmatrix("scan", *OPS, *OPTIONS, "-o", "quiet.jsonl").returncode == 0
    with busy_cores():
        assert detmatrix("scan", *OPS, *OPTIONS, "-o", "busy.jsonl").returncode == 0
    return folder


def test_nothing_is_called_changed(pages: Path) -> None:
    """Rows are the same, or cannot be compared, and then for want of power or of executions."""
    done = command_in(pages)("compare", "quiet.jsonl", "busy.jsonl", "--format", "json")
    (pair,) = json.loads(done.stdout)["pairs"]
    counts = {kind: count for kind, count in pair["counts"].items() if count}

    assert set(counts) <= {"same", "not_comparable"}
    assert counts["same"] > 0
    assert {one["reason"] for one in pair["rows"] if one["class"] == "not_comparable"} <= {
        "low_power",
        "too_few_executions",
    }


def test_no_check_for_regressions_fails(pages: Path) -> None:
    """Less is seen to differ beside other work, which is nothing worse."""
    done = command_in(pages)("compare", "quiet.jsonl", "busy.jsonl", "--fail-on", "regression")

    assert (done.returncode, done.stderr) == (0, "")
