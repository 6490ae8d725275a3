"""Censuses compared: what came and went between builds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from scanner.census.record import encode, read_census
from tests.census_builds import detmatrix

CENSUSES = Path(__file__).parent.parent / "reports" / "censuses"
OLD, MIDDLE, NEW = (
    CENSUSES / f"torch-{name}.json.gz" for name in ("2.11.0-cu130", "2.13.0-cu130", "2.15.0-cu132")
)
CPU = CENSUSES / "torch-2.13.0-cpu.json.gz"


def test_what_came_and_went(tmp_path: Path) -> None:
    """An alert taken out is lost, one put in is gained, one raised on other ways has changed."""
    census = read_census(NEW)
    first, second, *rest = census.alerts
    (tmp_path / "a.json").write_text(encode(replace(census, alerts=(first, second, *rest[1:]))))
    (tmp_path / "b.json").write_text(encode(replace(census, alerts=(replace(first, path="unknown"), *rest))))
    code, out, err = detmatrix("compare", tmp_path / "a.json", tmp_path / "b.json", "--format", "json")
    (step,) = json.loads(out)["steps"]

    assert (code, err) == (0, "")
    assert [rest[0].id] == [one["id"] for one in step["gained"]]
    assert [second.id] == [one["id"] for one in step["lost"]]
    assert [[first.path, "unknown"]] == [[one["path"] for one in pair] for pair in step["changed"]]


def test_builds_side_by_side() -> None:
    """More than two make a table with a column for each."""
    code, out, _ = detmatrix("compare", OLD, MIDDLE, NEW)
    row = next(line for line in out.splitlines() if line.startswith("| `cudnn_grid_sampler_backward`"))

    assert code == 0
    assert [cell.strip() for cell in row.split("|")[3:6]] == ["no", "1", "1"]
    assert out.count("## `torch-") == 2


def test_a_library_that_one_lacks_is_not_compared() -> None:
    """The alerts of CUDA are not gone from a CPU build: they are not its matter."""
    code, out, _ = detmatrix("compare", CPU, MIDDLE, "--format", "json")
    (step,) = json.loads(out)["steps"]

    assert code == 0
    assert "libtorch_cuda.so" in step["apart"]
    assert not [one for one in (*step["gained"], *step["lost"]) if one["library"] in step["apart"]]


def test_written_to_files(tmp_path: Path) -> None:
    """The format is what the name ends in."""
    code, out, _ = detmatrix("compare", OLD, NEW, "-o", tmp_path / "a.md", "-o", tmp_path / "a.json")

    assert (code, out) == (0, "")
    assert (tmp_path / "a.md").read_text().startswith("# What changed in the builds")
    assert len(json.loads((tmp_path / "a.json").read_text())["steps"]) == 1


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([OLD], "at least two"),
        ([OLD, OLD], "is there twice"),
        ([OLD, CENSUSES.parent / "runs" / "torch-2.13.0-cpu.jsonl.gz"], "is a census"),
        ([OLD, NEW, "--format", "html"], "in Markdown and JSON"),
        ([OLD, NEW, "-o", "a.html"], "ends in .md or .json"),
        ([OLD, NEW, "--fail-on", "change"], "in Markdown and JSON"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str | Path], text: str) -> None:
    """What cannot be compared is told in one line."""
    code, out, err = detmatrix("compare", *arguments)

    assert (code, out, err.count("\n")) == (2, "", 1)
    assert text in err
