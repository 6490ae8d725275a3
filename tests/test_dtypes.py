"""Which dtypes of the databases' entries a scan takes, and what it says of those that an entry lacks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from detmatrix.scanner.cases.settings import DTYPES
from tests.commands import Command


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("flaot32", "unknown dtype 'flaot32'; did you mean float32"),
        ("float32,nonsense", "unknown dtype 'nonsense'; choose: float32, float64, "),
    ],
)
def test_name_that_is_no_dtype(detmatrix: Command, tmp_path: Path, given: str, expected: str) -> None:
    """It is refused before a worker starts."""
    done = detmatrix("scan", "--source", "opinfo", "opinfo:neg", "--dtypes", given, "-o", "run.jsonl")

    assert done.returncode == 2
    assert expected in done.stderr
    assert not (tmp_path / "run.jsonl").exists()


def test_dtypes_are_those_of_torch() -> None:
    """The main process knows them without a torch."""
    known = {
        str(value).removeprefix("torch.") for value in vars(torch).values() if isinstance(value, torch.dtype)
    }
    assert known <= set(DTYPES)


def test_entry_without_the_dtype_keeps_a_row(detmatrix: Command) -> None:
    """It does not vanish: its row is not run, and says which dtypes there are."""
    pytest.importorskip("expecttest")

    done = detmatrix(
        "scan", "opinfo:bincount", "--source", "opinfo", "--dtypes", "float32,bool", "--device", "cpu", "--runs", 2,
        "--processes", 1, "--no-cost", "--no-overloads", "-o", "run.jsonl",
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    (row,) = json.loads(detmatrix("report", "run.jsonl", "--format", "json").stdout)["rows"]
    assert (row["case"], row["direction"], row["dtype"]) == ("sample_0", "forward", "float32")
    for mode in ("off", "on"):
        assert row[mode]["verdict"] == "not_run"
        assert row[mode]["reason"].startswith(
            "the database declares no float32 for this device, only int16, int32, int64, int8, uint8"
        )
