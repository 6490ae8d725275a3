"""Whether a scan can be trusted: what its controls and its closing line say; ``tests/golden/report-blind.*`` shows it in words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from detmatrix.scanner.observations.records import MODES, WORKER_MODES, Closing, Mode
from tests.evidence_runs import FORCING, ONE, controls, only, quiet_row, text
from tests.runs import CLOSING, Planned, raised, ran, stable, write_run

BLIND = (
    "the control varies in process 1 of mode off should show 50 distinct of 50, and shows 1 distinct of 50"
)
CONSTANT, (VARIES, SEEN) = controls()
PARTLY = VARIES, [one for one in SEEN if (one.mode, one.process) != ("on", 1)]
OTHER_INPUTS = (
    ONE,
    [
        *ran(ONE, "off", *stable()),
        *(replace(one, inputs_digest="o" * 8) for one in ran(ONE, "on", *stable())),
    ],
)
INPUTS = tuple(
    f"the inputs of {ONE.id} in process {process} of mode on are not those of the first process"
    for process in range(2)
)
FORCED = ONE, [*ran(ONE, "off", *stable()), *raised(ONE, "on", "x"), *ran(ONE, "warn_only", *stable())]


def _stored(*distrust: str) -> Closing:
    return replace(CLOSING, distrust=distrust)


def _seen_in(planned: Planned, modes: Sequence[Mode]) -> Planned:
    """Return a control without what was observed of it in other modes."""
    return planned[0], [one for one in planned[1] if one.mode in modes]


@pytest.mark.parametrize(
    ("rows", "asked", "closing", "distrust"),
    [
        # Before the closing line says so, the controls' observations do.
        (quiet_row(), controls("blind"), None, (BLIND,)),
        # What the closing line says stands first, and nothing twice.
        (OTHER_INPUTS, controls("blind"), CLOSING, (*INPUTS, BLIND)),
        (OTHER_INPUTS, controls("blind"), _stored("a reason", BLIND), ("a reason", BLIND, *INPUTS)),
        # An unfinished scan may go on; a finished one has passed a control over.
        (quiet_row(), [CONSTANT, PARTLY], None, ()),
        (quiet_row(), [CONSTANT, PARTLY], CLOSING, ("the control varies was not observed in process 1 of mode on",)),
    ],
)  # fmt: skip
def test_a_scan_is_distrusted_for_what_it_shows(
    tmp_path: Path,
    rows: Planned,
    asked: list[Planned],
    closing: Closing | None,
    distrust: tuple[str, ...],
) -> None:
    """Controls, inputs and the closing line; the page's title says it."""
    path = write_run(tmp_path / "r.jsonl", [rows], controls=asked, closing=closing)

    assert only(path).distrust == distrust
    assert text("html", path).count("<title>NOT TRUSTWORTHY: ") == bool(distrust)


def test_only_processes_that_observed_rows_owe_controls(tmp_path: Path) -> None:
    """A mode in which no row was observed owes none; one in which rows were run under warn_only owes all."""
    both = [_seen_in(control, MODES) for control in controls(modes=WORKER_MODES)]
    quiet, made = (
        only(write_run(tmp_path / f"{place}.jsonl", [rows], settings=FORCING, controls=both)).distrust
        for place, rows in enumerate((quiet_row(), FORCED))
    )

    assert quiet == ()
    assert {message.split(" in ")[1] for message in made} == {
        "process 0 of mode warn_only",
        "process 1 of mode warn_only",
    }
