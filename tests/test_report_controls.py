"""Controls in every report, and whether a scan can be trusted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from reports.matrix import trust
from scanner.observations.records import MODES, WORKER_MODES, Closing, Mode
from tests.evidence_runs import FORCING, ONE, controls, only, quiet_row, table_of, text
from tests.page_data import block
from tests.runs import Planned, raised, ran, stable, write_run


def test_disagreeing_processes_of_a_control_are_told_apart(tmp_path: Path) -> None:
    """A control that is right in one process and wrong in another has a line for each."""
    lines = trust.controls(only(write_run(tmp_path / "r.jsonl", controls=controls("blind")))).lines

    assert [
        (mode, processes, seen, right) for name, mode, processes, _, seen, right in lines if name == "varies"
    ] == [
        ("off", "0", "50 distinct of 50", "yes"),
        ("off", "1", "1 distinct of 50", "no"),
        ("on", "0-1", "50 distinct of 50", "yes"),
    ]


def test_an_unfinished_scan_with_a_wrong_control_is_not_trustworthy(tmp_path: Path) -> None:
    """Before the closing line says so, the controls' observations do, and no row can be read without it."""
    path = write_run(tmp_path / "r.jsonl", [quiet_row()], controls=controls("blind"), closing=None)
    reason = "the control varies in process 1 of mode off should show 50 distinct of 50, and shows 1 distinct of 50"
    message, page = text("md", path), text("html", path)

    assert only(path).distrust == (reason,)
    assert f"> [!CAUTION]\n> **Not trustworthy: {reason}**" in message.split("| finding")[0]
    assert "| deterministic (n = 100 per mode), not trustworthy |" in message
    assert "| 1 distinct of 50  | **no** " in message
    assert '<td class="untrusted">no</td>' in page
    assert "<title>NOT TRUSTWORTHY: detmatrix" in page
    assert '<h1>Nondeterminism matrix<span class="untrusted">, not trustworthy</span></h1>' in page
    assert '<span class="untrusted">not trustworthy</span></th>' in page
    assert table_of(path)["torch.cumsum"]["distrust"] == reason


def test_runs_are_trusted_each_by_itself(tmp_path: Path, run: Path) -> None:
    """Beside a run that can be trusted another's rows are marked, and the page's title says that some are."""
    closing = Closing(seconds=1, load=(), observations=0, distrust=("no reason",))
    bad = write_run(tmp_path / "bad.jsonl", [quiet_row()], closing=closing)
    page = text("html", run, bad)

    assert ", not all of it trustworthy" in page
    assert [run["distrust"] for run in block(page, "runs")] == ["", "not trustworthy"]


def test_a_control_that_was_never_reached_is_not_passed_over(tmp_path: Path) -> None:
    """A planned control without an observation has a line that says so."""
    (constant, seen), (varies, _) = controls()
    path = write_run(tmp_path / "r.jsonl", controls=[(constant, seen), (varies, [])], closing=None)

    assert (
        "| varies    | any    | none        | an answer        | not observed     | **not known** |"
        in text("md", path)
    )
    assert "each gave the expected answer; 1 not observed" in text("md", path)


def seen_in(planned: Planned, modes: Sequence[Mode]) -> Planned:
    """Return a control without what was observed of it in other modes."""
    return planned[0], [one for one in planned[1] if one.mode in modes]


def test_a_finished_scan_is_distrusted_for_what_it_shows(tmp_path: Path) -> None:
    """Where the closing line says nothing the observations do; what it says stands first, and nothing twice."""
    wrong = "the control varies in process 1 of mode off should show 50 distinct of 50, and shows 1 distinct of 50"
    other = [replace(one, inputs_digest="o" * 8) for one in ran(ONE, "on", *stable())]
    inputs = [
        f"the inputs of {ONE.id} in process {process} of mode on are not those of the first process"
        for process in range(2)
    ]

    def distrust(*stored: str) -> tuple[str, ...]:
        closing = Closing(seconds=1, load=(), observations=0, distrust=stored)
        planned = [(ONE, [*ran(ONE, "off", *stable()), *other])]
        return only(
            write_run(tmp_path / f"{len(stored)}.jsonl", planned, controls=controls("blind"), closing=closing)
        ).distrust

    assert distrust() == (*inputs, wrong)
    assert distrust("the worker was replaced", wrong) == ("the worker was replaced", wrong, *inputs)


def test_a_control_that_was_passed_over_is_distrust(tmp_path: Path) -> None:
    """A finished scan that observed rows where a control is missing is not trustworthy; an unfinished one may go on."""
    constant, (varies, seen) = controls()
    partly = [one for one in seen if (one.mode, one.process) != ("on", 1)]
    path = write_run(tmp_path / "r.jsonl", [quiet_row()], controls=[constant, (varies, partly)])
    begun = write_run(
        tmp_path / "b.jsonl", [quiet_row()], controls=[constant, (varies, partly)], closing=None
    )
    message = text("md", path)

    assert only(path).distrust == ("the control varies was not observed in process 1 of mode on",)
    assert only(begun).distrust == ()
    assert "| varies    | on     | 1           | an answer " in message
    assert "; 1 not observed, so nothing below is trustworthy." in message


def test_only_processes_that_observed_rows_owe_controls(tmp_path: Path) -> None:
    """A mode in which no row was observed owes none; one in which rows were run under warn_only owes all."""
    warn_only = ONE, [*ran(ONE, "off", *stable()), *raised(ONE, "on", "x"), *ran(ONE, "warn_only", *stable())]
    both = [seen_in(control, MODES) for control in controls(modes=WORKER_MODES)]
    quiet = write_run(tmp_path / "q.jsonl", [quiet_row()], settings=FORCING, controls=both)
    made = write_run(tmp_path / "m.jsonl", [warn_only], settings=FORCING, controls=both)

    assert only(quiet).distrust == ()
    assert len(only(made).distrust) == 4
    assert {message.split(" in ")[1] for message in only(made).distrust} == {
        "process 0 of mode warn_only",
        "process 1 of mode warn_only",
    }
