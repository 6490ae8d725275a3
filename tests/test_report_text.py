"""What a terminal shows of run files, and the op level of Markdown, CSV and JSON."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from pathlib import Path

import pytest

from reports.matrix.model import load
from reports.report import text
from tests import tied
from tests.commands import Command
from tests.runs import write_run

ROOT = Path(__file__).parent.parent
RUN = ROOT / "reports" / "runs" / "torch-2.13.0-cpu.jsonl.gz"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return a run file that shows every finding and every verdict."""
    return write_run(tmp_path / "run.jsonl")


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
