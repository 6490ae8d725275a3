"""What a terminal shows of run files, and the op level of Markdown, CSV and JSON."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import re
import sys
from pathlib import Path

import pytest

from reports.matrix.model import load
from reports.matrix.ops import MOST
from reports.render.terminal import NARROW as WIDTH
from reports.report import page as page_
from reports.report import text
from reports.report.view import report_view
from scanner.verdicts.vocabulary import WORST_FIRST
from tests import tied
from tests.commands import Command
from tests.compared import run_of, shows
from tests.runs import Planned, row, two_runs, write_run
from tests.test_reports import HOSTILE

ROOT = Path(__file__).parent.parent
RUN = ROOT / "reports" / "runs" / "torch-2.13.0-cpu.jsonl.gz"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return a run file that shows every finding and every verdict."""
    return write_run(tmp_path / "run.jsonl")


def test_what_is_left_out_is_counted() -> None:
    """More ops than a screen holds are counted by finding, the worst are those that stay."""
    rows = [shows("fixed_by_mode", row(f"torch.op{place}")) for place in range(MOST)]
    shown = "".join(
        text.render([run_of(*rows, shows("silent", row("torch.bad")), shows("raises", row("torch.no")))])
    )

    assert "▲ bad" in shown
    assert "… 2 more: 2 fixed_by_mode. List them with --all\n" in shown


def test_many_runs_fold_in_the_page() -> None:
    """They stand in the order of the columns, not of the command line."""
    many = [run_of(shows("raises", row("torch.put")), torch=f"2.{at}.0") for at in (9, 11, 10)]
    page = "".join(page_.render(many))
    folded = page.partition("<summary>3 runs</summary>")[2].partition("</details>")[0]

    assert re.findall(r"torch 2\.(\d+)\.0", folded) == ["9", "10", "11"]


def test_hostile_names_reach_no_terminal(tmp_path: Path) -> None:
    """Whatever a run file says stays on its line, is no command to the terminal, and leaves the width as it is."""
    bad: list[Planned] = [shows("silent", row(f"torch.{HOSTILE}", HOSTILE, family=HOSTILE))]
    path = write_run(tmp_path / "run.jsonl", bad)
    for patterns in ((), ("*",)):
        shown = "".join(text.render(load([str(path)], (), patterns)))
        assert "\x1b" not in shown
        assert "\u202e" not in shown
        assert max(map(len, shown.splitlines())) <= WIDTH


def test_colour_is_for_terminals_that_want_it(run: Path) -> None:
    """On a terminal the text is the default, in colour unless NO_COLOR asks for none; colours change no text."""

    def shown(**variables: str) -> str:
        leader, follower = os.openpty()
        command = [sys.executable, "-m", "scanner", "report", str(run)]
        done = tied.run(
            command, stdout=follower, capture_output=False, env=os.environ | {"TERM": "xterm"} | variables
        )
        os.close(follower)
        assert done.returncode == 0
        printed = b""
        # Linux says that all was read, and that nobody writes any more, by an error.
        with contextlib.suppress(OSError):
            while some := os.read(leader, 1 << 16):
                printed += some
        os.close(leader)
        return printed.decode().replace("\r\n", "\n")

    plain, coloured = shown(NO_COLOR="1"), shown(NO_COLOR="")
    assert plain == "".join(text.render(load([str(run)])))
    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == plain


def test_machines_have_the_ops_too(detmatrix: Command, run: Path, tmp_path: Path) -> None:
    """JSON has a list of ops beside the rows, CSV a line for each op in each column; both say what the text says."""
    data = json.loads(detmatrix("report", run, "--format", "json").stdout)
    table = list(
        csv.DictReader(io.StringIO(detmatrix("report", run, "--format", "csv", "--level", "ops").stdout))
    )
    both = json.loads(detmatrix("report", *two_runs(tmp_path), "--format", "json").stdout)
    ops = report_view(load([str(run)])).ops.ops

    assert [op["name"] for op in data["ops"]] == [op.name for op in ops] == [line["op"] for line in table]
    assert [op["action"] for op in data["ops"]] == [line["action"] for line in table]
    assert sum(len(op["rows"]) for op in data["ops"]) == len(data["rows"])
    assert [line["finding"] for line in table] == sorted(
        (line["finding"] for line in table), key=WORST_FIRST.index
    )
    assert (table[0]["backward_off"], table[0]["backward_on"]) == ("deterministic", "nondeterministic")
    assert data["unmeasured"] == {"cuda": 39}
    assert next(iter(both)) == "runs"
    assert {len(op["cells"]) for op in both["ops"]} == {2}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--all", "--format", "json"), "--all is for text and md: json leaves nothing out"),
        (("--level", "ops"), "--level says what a line of csv is about; give it with --format csv"),
    ],
)
def test_options_that_mean_nothing_are_refused(
    detmatrix: Command, run: Path, arguments: tuple[str, ...], message: str
) -> None:
    """Exit 2 and one line."""
    done = detmatrix("report", run, *arguments)

    assert (done.returncode, done.stderr) == (2, f"detmatrix: {message}\n")
