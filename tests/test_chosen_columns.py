"""Columns of the modes that a scan was asked for: in every report, in comparisons, in scripts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from reports.checks import failing_line
from reports.matrix.model import load
from scanner.modes import with_chosen
from scanner.observations.records import Observation
from tests.evidence_runs import as_json, rows_of
from tests.runs import SETTINGS, Planned, drifting, raised, ran, row, stable, write_run

MODES = with_chosen(("backward_only", "forward_only", "cudnn_both"))
POOL = row("torch.nn.MaxPool3d", "overlapping", "backward", family="pooling")
TAKE = row("torch.take", "duplicates", "backward", family="gather")
READ = row("torch.take", "duplicates", "forward", family="gather")
CONV = row("torch.nn.Conv2d", "wide", "backward", family="convolution")


def _run(path: Path, late: list[Observation] | None = None, **settings: Any) -> Path:
    """Write a run in which rows do different things in the modes; *late* is what MaxPool3d does in backward_only."""
    planned: list[Planned] = [
        (
            POOL,
            [
                *_both(POOL),
                *(late or raised(POOL, "backward_only", "pool")),
                *ran(POOL, "forward_only", *stable()),
            ],
        ),
        (
            TAKE,
            [
                *ran(TAKE, "off", *drifting(3)),
                *ran(TAKE, "on", *stable()),
                *ran(TAKE, "unfilled", *stable()),
                *ran(TAKE, "backward_only", *drifting(2)),
                *ran(TAKE, "forward_only", *stable()),
            ],
        ),
        (READ, _both(READ)),
        (
            CONV,
            [
                *_both(CONV),
                *ran(CONV, "backward_only", *stable("b")),
                *ran(CONV, "forward_only", *drifting(2)),
            ],
        ),
    ]
    return write_run(path, planned, settings=replace(SETTINGS, **{"modes": MODES, **settings}))


def _both(planned: Any) -> list[Observation]:
    return [*ran(planned, "off", *stable()), *ran(planned, "on", *stable())]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return such a run."""
    return _run(tmp_path_factory.mktemp("chosen") / "run.jsonl")


def test_what_differs_from_off_is_a_finding(run: Path) -> None:
    """Each mode has one of each row that it concerns, and no other row has any; the row's own finding is what it was."""
    found = {
        row_["spec"] + ":" + row_["direction"]: {
            mode: it["finding"] for mode, it in row_.get("modes", {}).items()
        }
        for row_ in as_json(run)["rows"]
    }

    assert found == {
        "torch.nn.MaxPool3d:backward": {"backward_only": "raises", "forward_only": "as_off"},
        "torch.take:backward": {"backward_only": "silent", "forward_only": "fixed_by_mode"},
        "torch.take:forward": {},
        "torch.nn.Conv2d:backward": {"backward_only": "mode_dependent", "forward_only": "differs"},
    }
    assert [rows_of(run)[one]["finding"] for one in ("torch.nn.MaxPool3d", "torch.nn.Conv2d")] == [
        "deterministic"
    ] * 2


def test_too_few_executions_do_not_tell_other_bits(tmp_path: Path) -> None:
    """What a race could do as well is not said of a mode."""
    few = [*ran(CONV, "off", {"a": 5}), *ran(CONV, "on", {"a": 5}), *ran(CONV, "backward_only", {"b": 5})]
    path = write_run(
        tmp_path / "run.jsonl", [(CONV, few)], settings=replace(SETTINGS, modes=MODES, processes=1, runs=5)
    )

    (seen,) = rows_of(path).values()

    assert seen["modes"]["backward_only"]["finding"] == "inconclusive"
    assert "0 of 5 executions differed with the flag off" in seen["modes"]["backward_only"]["finding_reason"]


def test_a_check_fails_on_what_a_chosen_mode_shows(run: Path) -> None:
    """A row that raises under a mode alone fails the check that asks for it, which names the mode."""
    line = failing_line(load([str(run)]), ("raises",))

    assert line is not None
    assert "raises under backward_only: torch.nn.MaxPool3d (1 row)" in line
    assert failing_line(load([str(run)]), ("order_dependent",)) is None
