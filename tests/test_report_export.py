"""Reports for programs: JSON and CSV hold counts as numbers, and what does not exist as nothing."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pandas as pd
import pytest

from reports.matrix.model import load
from reports.report import export
from tests.evidence_runs import as_json, text
from tests.runs import ended, row, write_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return a run file that shows every finding and every verdict."""
    return write_run(tmp_path / "run.jsonl")


def test_json_counts_nothing_that_was_not_compared(run: Path) -> None:
    """A cell that raised or crashed has no counts, rather than zeros; its caller and reason are told."""
    rows = {(one["spec"], one["finding"]): one for one in as_json(run)["rows"]}
    raised = rows["torch.Tensor.put_", "raises"]["on"]
    crashed = rows["torch.cumsum", "inconclusive"]["off"]

    assert [raised[key] for key in ("runs", "differing", "distinct", "upper_bound")] == [None] * 4
    assert raised["alert"] == "put_"
    assert (crashed["verdict"], crashed["runs"], crashed["reason"]) == ("crash", None, "killed by signal 11")


def test_csv_keeps_integers(run: Path) -> None:
    """Counts are written as integers, and what does not exist is NA: never NaN, never 100.0."""
    message = text("csv", run)
    rows = list(csv.DictReader(io.StringIO(message)))
    table = pd.read_csv(io.StringIO(message), dtype={"off_runs": "Int64"})

    assert (rows[0]["off_runs"], rows[0]["off_differing"], rows[0]["off_distinct"]) == ("100", "3", "4")
    assert (rows[2]["on_verdict"], rows[2]["on_runs"], rows[2]["on_alert"]) == ("raises", "NA", "put_")
    assert "nan" not in message.lower()
    assert len(table) == 10
    assert int(table["off_runs"].isna().sum()) == 3


FORMULAS = ["=1+1", "+1", "-1+2", "@SUM(A1)", "one\rtwo", "\t=1", "a\x1b[2Jb", "\u202etxt"]


@pytest.mark.parametrize("name", FORMULAS)
def test_cells_of_csv_stay_cells(tmp_path: Path, name: str) -> None:
    """No text of a run file begins a formula, splits a row, or commands a terminal."""
    bad = row("torch.add", "case", why=name, provokes=name)
    path = write_run(tmp_path / "run.jsonl", [(bad, ended(bad, "off", "crash", name))])
    message = text("csv", path)
    (found,) = csv.DictReader(io.StringIO(message, newline=""))

    for field in ("provokes", "off_reason"):
        assert not found[field].startswith(("=", "+", "-", "@", "\t", "\r"))
        assert found[field].isprintable()
    assert message.replace("\n", "").isprintable()


def test_frame_has_nullable_counts(run: Path) -> None:
    """The counts of the flat table stay integers though some cells have none."""
    table, _ = export.frames(load([str(run)]))

    assert str(table["on_differing"].dtype) == "Int64"
