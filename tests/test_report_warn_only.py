"""What the modes say that only some rows live under: warn_only of what raises, the flag without the fill of what it cures."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from scanner.modes import DEFAULT_MODES
from scanner.observations.records import Observation
from tests.evidence_runs import FORCING, FORMS, ONE, only, rows_of, table_of, text
from tests.page_data import told
from tests.runs import SETTINGS, Planned, drifting, ended, raised, ran, stable, write_run


@pytest.mark.parametrize("form", FORMS)
def test_a_row_that_could_not_be_made_to_run_says_why_it_is_inconclusive(tmp_path: Path, form: str) -> None:
    """Both modes have a verdict, and what the finding lacks is told beside it."""
    seen = [
        *ran(ONE, "off", *stable()),
        *raised(ONE, "on", "x"),
        *ended(ONE, "warn_only", "crash", "signal 11"),
    ]
    path = write_run(tmp_path / "r.jsonl", [(ONE, seen)], settings=FORCING)
    reason = "warn_only: crash (signal 11)"
    message = text(form, path).replace("\\", "")

    if form == "md":
        assert f"* {reason}\n  * `{ONE.id}`\n" in message.split("## Cells without a usable verdict")[1]
    else:
        assert reason in told(message)
    assert only(path).rows[0].reason == reason


def cured(unfilled: list[Observation]) -> Planned:
    """Return a row that differs with the flag off and not with it on."""
    return ONE, [*ran(ONE, "off", *drifting(4)), *ran(ONE, "on", *stable()), *unfilled]


@pytest.mark.parametrize(
    ("unfilled", "finding", "message"),
    [
        (
            ran(ONE, "unfilled", *drifting(9)),
            "uninitialized",
            "deterministic: 0 of 100 differed, 1 distinct; fill off: nondeterministic, 8 of 100 differed, 9 distinct",
        ),
        (
            ran(ONE, "unfilled", *stable()),
            "fixed_by_mode",
            "deterministic: 0 of 100 differed, 1 distinct; fill off: deterministic, 0 of 100 differed, 1 distinct",
        ),
        (
            ended(ONE, "unfilled", "crash", "signal 11"),
            "inconclusive",
            "deterministic: 0 of 100 differed, 1 distinct; fill off: crash",
        ),
        ([], "inconclusive", "deterministic: 0 of 100 differed, 1 distinct"),
    ],
)
def test_what_the_fill_cures_is_told_apart(
    tmp_path: Path, unfilled: list[Observation], finding: str, message: str
) -> None:
    """Only what differs with the flag on and nothing filled is cured by the fill; every report says which it is."""
    settings = replace(SETTINGS, modes=DEFAULT_MODES)
    path = write_run(tmp_path / "run.jsonl", [cured(unfilled)], settings=settings)

    (shown,) = rows_of(path).values()
    (flat,) = table_of(path).values()
    assert (shown["finding"], flat["finding"]) == (finding, finding)
    assert flat["unfilled_verdict"] == shown["unfilled"]["verdict"]
    assert f"| {message} | {finding} |" in " ".join(text("md", path).split())
    assert message.partition("; ")[2] in ["", *told(text("html", path))]
