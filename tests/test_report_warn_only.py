"""What the modes say that only some rows live under: warn_only of what raises, the flag without the fill of what it cures."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from scanner.modes import DEFAULT_MODES
from scanner.observations.records import Observation
from tests.evidence_runs import FORCING, FORMS, ONE, one_row, only, rows_of, table_of, text
from tests.page_data import told
from tests.runs import SETTINGS, Planned, drifting, ended, raised, ran, stable, write_run


def test_an_op_that_raises_is_told_as_made_to_run(run: Path) -> None:
    """What it does, and every alert it passes, stands in the row; rows that do not raise were not made to."""
    message, flat = rows_of(run), table_of(run)
    cell = "warn_only: nondeterministic, 9 of 100 differed, 10 distinct"

    assert f"| raises; {cell} |" in text("md", run)
    assert "| `put_`, `index_put_` |" in text("md", run)
    assert cell in told(text("html", run))
    assert message["torch.Tensor.put_"]["finding"] == "raises"
    assert message["torch.Tensor.put_"]["alerts"] == ["put_", "index_put_"]
    warn_only = message["torch.Tensor.put_"]["warn_only"]
    assert [warn_only[name] for name in ("verdict", "runs", "differing", "distinct", "alerts")] == [
        "nondeterministic",
        100,
        9,
        10,
        ["put_", "index_put_"],
    ]
    assert message["torch.topk"]["warn_only"] == {
        "verdict": "not_run",
        "reason": "only ops that raise are run under warn_only",
    }
    names = ("verdict", "runs", "differing", "alerts")
    assert [flat["torch.Tensor.put_"][f"warn_only_{name}"] for name in names] == [
        "nondeterministic",
        "100",
        "9",
        "put_ index_put_",
    ]
    assert [flat["torch.topk"][f"warn_only_{name}"] for name in names] == ["not_run", "NA", "NA", "NA"]


@pytest.mark.parametrize(
    ("seen", "message"),
    [
        ([], "raises; warn_only not run"),
        (
            ran(ONE, "warn_only", *stable()),
            "raises; warn_only: deterministic, 0 of 100 differed, 1 distinct",
        ),
        (ended(ONE, "warn_only", "crash", "signal 11"), "raises; warn_only: crash"),
    ],
)
def test_words_of_an_op_that_raises(tmp_path: Path, seen: list[Observation], message: str) -> None:
    """Not run under warn_only, run under warn_only without a difference, and run under warn_only in vain are three things."""
    observations = [*ran(ONE, "off", *stable()), *raised(ONE, "on", "x"), *seen]

    assert message == one_row(tmp_path, observations).on_words


def test_why_an_op_could_not_be_made_to_run_is_listed(tmp_path: Path) -> None:
    """A cell of warn_only without a verdict has its reason among the others, if there was to be one."""
    plan: list[Planned] = [(ONE, [*ran(ONE, "off", *stable()), *raised(ONE, "on", "x")])]
    crashed = [(ONE, [*plan[0][1], *ended(ONE, "warn_only", "crash", "signal 11")])]
    unasked = text("md", write_run(tmp_path / "old.jsonl", plan))

    message = text("md", write_run(tmp_path / "r.jsonl", crashed, settings=FORCING))
    assert f"* crash: signal 11\n  * `{ONE.id}` warn_only\n" in message
    assert "Cells without a usable verdict" not in unasked


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
