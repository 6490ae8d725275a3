# ruff: noqa: RUF001 - the sign for "times" is not an x.
"""What the flag costs, in every report: in words and lists."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from reports.matrix import cost as costs
from reports.matrix.cost import costs as slow
from scanner.observations.records import Cost, Row, Timing
from scanner.verdicts.findings import MatrixRow
from tests.evidence_runs import ONE, cost, only, timing
from tests.runs import Planned, ran, row, stable, write_run


def one_row(path: Path, cost_: Cost | None) -> MatrixRow:
    """Return the one row of a run."""
    return only(write_run(path / "one.jsonl", [quiet_row()], costs=[cost_] if cost_ else [])).rows[0]


def quiet_row(planned: Row = ONE) -> Planned:
    return planned, [*ran(planned, "off", *stable()), *ran(planned, "on", *stable())]


@pytest.mark.parametrize(
    ("seen", "shown_text"),
    [
        (cost(ONE, 1e-5, 1.02e-5), "≈1.02×"),
        (cost(ONE, 1e-5, 3.4e-5), "3.40×"),
        (cost(ONE, 1e-5, 3.4e-5, 3.3e-5), "3.40×"),
        (cost(ONE, 1e-5, 3.4e-5, 1.1e-5), "3.40× (fill off: 1.10×)"),
        (cost(ONE, 1e-5, 5e-6), "0.50×"),
        (cost(ONE, 1e-5, 1.234e-4), "12.3×"),
        (cost(ONE, 1e-5, 1.234e-3), "123×"),
        (cost(ONE, 0.0, 1e-5), "not measured"),
        (cost(ONE, outcome="raised", message="ValueError"), "none: error"),
        (cost(ONE, outcome="timeout"), "none: timeout"),
        (None, "not measured"),
    ],
)
def test_cost_in_words(tmp_path: Path, seen: Cost | None, shown_text: str) -> None:
    """A ratio is marked where the quartiles overlap; filling is told where it matters; absence is a word."""
    assert shown_text == costs.cost_words(one_row(tmp_path, seen))


@pytest.mark.parametrize(
    ("seconds", "shown_text"),
    [
        (2.5, "2.5 s"),
        (0.25, "250 ms"),
        (1e-3, "1 ms"),
        (9.99e-4, "999 µs"),
        (4e-8, "40 ns"),
        (4e-10, "0.4 ns"),
    ],
)
def test_durations(seconds: float, shown_text: str) -> None:
    """A time is told in the largest unit of which it is at least one, its quartiles in the same."""
    assert costs.duration(timing(seconds)).startswith(f"{shown_text} (")


@pytest.mark.parametrize(
    ("count", "shown_text"),
    [(None, "not measured"), (0, "0 bytes"), (1023, "1023 bytes"), (1536, "1.5 KiB"), (5 << 30, "5 GiB")],
)
def test_memory(count: int | None, shown_text: str) -> None:
    """Bytes are told in the largest unit of which there is at least one."""
    assert shown_text == costs.memory(count)


def test_what_takes_twice_as_long_is_listed(tmp_path: Path) -> None:
    """The slowest first."""
    ratios = (1.0, 4.0, 0.5, 2.0)
    planned = [quiet_row(row(f"torch.op{number}")) for number in range(len(ratios))]
    timed = [cost(one, 1e-3, 1e-3 * ratio) for (one, _), ratio in zip(planned, ratios, strict=True)]
    rows = only(write_run(tmp_path / "r.jsonl", planned, costs=timed)).rows

    assert [(line[0], line[3]) for line in slow(rows).lines] == [
        ("torch.op1:collisions:forward:float32", "4.00×"),
        ("torch.op3:collisions:forward:float32", "2.00×"),
    ]


def test_a_cost_whose_quartiles_overlap_is_not_slow(tmp_path: Path) -> None:
    """Twice as long in the median, and maybe not at all: neither listed nor counted."""
    planned = quiet_row(row("torch.op"))
    wide = replace(cost(planned[0], 1e-3, 2.5e-3), on=Timing(median=2.5e-3, low=0.9e-3, high=4e-3))
    (shown,) = only(write_run(tmp_path / "r.jsonl", [planned], costs=[wide])).rows

    assert slow([shown]).lines == []
    assert slow([shown]).text.startswith("0 of 1 timed rows shown here take at least twice as long")
    assert costs.cost_words(shown) == "≈2.50×"
