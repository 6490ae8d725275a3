"""Traces and censuses of older rule sets are marked wherever they are shown, those of newer ones refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from scanner.census import record
from scanner.census.record import encode, read_census
from scanner.observations.trace.files import read_trace, trace_text
from scanner.observations.trace.records import RULE_SETS
from tests.census_builds import detmatrix

REPORTS = Path(__file__).parent.parent / "reports"
CENSUS = REPORTS / "censuses" / "torch-2.15.0-cu132.json.gz"
TRACE = REPORTS / "traces" / "torch-2.15.0-cuda.json.gz"
RUN = REPORTS / "runs" / "torch-2.15.0-cpu.jsonl.gz"
MARK = "was made by rule set 1 of trace, today's is 2 (the functions of an overload are those that dense tensors reach"


@pytest.fixture
def older(tmp_path: Path) -> Path:
    """A trace as it was written before there were rule sets: it names none."""
    trace = read_trace(TRACE)
    text = json.loads(trace_text(replace(trace, rows=trace.rows[:1])))
    del text["rules"]
    (tmp_path / "old.json").write_text(json.dumps({**text, "format": 1}))
    return tmp_path / "old.json"


@pytest.mark.parametrize(
    "command",
    [
        ["trace", "--read"],
        ["docs", "--trace"],
        ["report", str(RUN), "--rows", "torch.Tensor.put_:*", "--trace"],
        ["report", str(RUN), "--format", "text", "--trace"],
        *(
            ["explain", "torch.Tensor.put_", str(RUN), "--format", form, "--trace"]
            for form in ("text", "md", "json")
        ),
    ],
)
def test_an_older_trace_is_marked(older: Path, command: list[str]) -> None:
    """It is read as before, and what has changed since is said beside it."""
    code, out, _ = detmatrix(*command, older)

    assert code == 0
    assert MARK in " ".join(out.split())


def test_recorded_files_are_of_todays_rules() -> None:
    """None of them is marked: the traces were made again, and the rules of censuses are what they were."""
    assert {len(RULE_SETS)} == {read_trace(path).rules for path in (REPORTS / "traces").glob("*.json.gz")}
    code, out, _ = detmatrix("docs", "--census", CENSUS)

    assert code == 0
    assert "rule set" not in out


def test_older_censuses_are_marked_and_not_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a rule was added, what differs between two censuses may be the rule."""
    monkeypatch.setattr(record, "RULE_SETS", (*record.RULE_SETS, "calls through pointers count"))
    monkeypatch.setattr(record, "KIND", record.KIND._replace(rules=2))
    newer = replace(read_census(CENSUS), rules=2)
    (tmp_path / "newer.json").write_text(encode(newer))
    code, out, _ = detmatrix("census", "--census", CENSUS)
    ended, _, err = detmatrix("compare", CENSUS, tmp_path / "newer.json")

    assert code == 0
    assert "rule set 1 of census, today's is 2 (calls through pointers count)" in out
    assert (ended, err.count("\n")) == (2, 1)
    assert "was made by rule set 2" in err


def test_a_census_of_newer_rules_is_refused(tmp_path: Path) -> None:
    """What it holds is not what this detmatrix knows to read from it."""
    (tmp_path / "newer.json").write_text(encode(replace(read_census(CENSUS), rules=9)))
    ended, out, err = detmatrix("census", "--census", tmp_path / "newer.json")

    assert (ended, out, err.count("\n")) == (3, "", 1)
    assert "written in census rule set 9, this detmatrix reads up to 1" in err
