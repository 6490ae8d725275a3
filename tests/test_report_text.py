"""What a terminal shows of run files: colours, names that are cut, width; tests/test_goldens.py holds every text to the width."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from detmatrix.reports.matrix.model import load
from detmatrix.reports.render.output import NARROW as WIDTH
from detmatrix.reports.render.output import fitted
from detmatrix.reports.report import text
from tests import tied
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
        command = [sys.executable, "-m", "detmatrix", "report", str(run)]
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
    ("names", "shown"),
    [
        (("torch.take", "torch.nn.Conv2d"), ["torch.take", "…nn.Conv2d"]),
        (("Tensor.index_put", "torch.index_put"), ["Tensor.index_put", "torch.index_put"]),
        (("a.scatter_add", "torch.scatter_add_"), ["…scatter_add", "…scatter_add_"]),
        (("torch.fractional_max_pool2d",), ["…fractional_max_pool2d"]),
        (("torch." + "long" * 40,), ["…" + "longlonglonglonglonglonglong"[-21:]]),
    ],
)
def test_names_are_cut_at_dots_and_never_read_the_same(names: tuple[str, ...], shown: list[str]) -> None:
    """What would read like another name stays whole; only a part without an end is cut within."""
    assert [*fitted(names, 12, 22).values()] == shown


def test_a_wide_terminal_is_used() -> None:
    """Actions of several releases are whole; costs stand beside them in 140 columns, and in 80 are said to be left out."""
    (new,) = load([str(RUN)])
    older = replace(new.run.header.environment, torch="2.12.0")
    old = replace(new, run=replace(new.run, header=replace(new.run.header, environment=older)))
    both = [old, new]
    narrow, wide = ("".join(text.render(both, width=width)) for width in (WIDTH, 140))

    assert all("set the flag: it fills memory" in shown for shown in (narrow, wide))
    assert (" COST " in wide, " COST " in narrow, "left out: costs:" in narrow) == (True, False, True)
    assert max(map(len, wide.splitlines())) <= 140


def test_a_wide_terminal_has_what_rows_show(run: Path) -> None:
    """In 160 columns each line ends in how many of the rows of its op show what, in 80 there is no room for that."""
    narrow, wide = ("".join(text.render(load([str(run)]), width=width)) for width in (WIDTH, 160))

    assert [" ROWS\n" in shown for shown in (narrow, wide)] == [False, True]
    assert re.search(r"put_ .* no fix: raises +1 raises of 1\n", wide)
    assert max(map(len, wide.splitlines())) <= 160
