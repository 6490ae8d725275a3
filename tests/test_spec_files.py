"""Specs of the user's, which ``--specs`` names."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands import Command
from tests.conftest import refused


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, "own.py: no such file"),
        ("SPECS = (\n", "own.py, line 1: SyntaxError: '(' was never closed (own.py, line 1)"),
        ("\n\nSPECS = [1 / 0]\n", "own.py, line 3: ZeroDivisionError: division by zero"),
        ("raise ValueError('a\\nb')\n", "own.py, line 1: ValueError: a b"),
        ("x = 1\n", "own.py: declares no SPECS; assign a tuple of OpSpec to it"),
        (
            "from opspecs.model import OpSpec as O\nSPECS = [O(name='a', op='a', why='', cases={'x': lambda t: t})]\n",
            "own.py, line 2: 'a': cases must map names to Case(inputs=lambda t: call(...))",
        ),
        (
            "from opspecs.model import Case, OpSpec as O\ncases = {'x': Case(inputs=id, directions=['sideways'])}\n\
SPECS = [O(name='a', op='torch.neg', why='', cases=cases)]\n",
            (
                "own.py, line 3: 'a': case 'x': directions must be a tuple of names among forward, backward, such as "
                "('forward',), and is ['sideways']"
            ),
        ),
        ("x = 1\nSPECS = ()\n", "own.py, line 2: SPECS is empty; put an OpSpec into it"),
        ("SPECS = [1]\n", "own.py, line 1: declares no SPECS; assign a tuple of OpSpec to it"),
        (
            "import sys\nsys.exit(0)\n",
            "own.py: exits when it is loaded; let it declare SPECS and do nothing else",
        ),
        (
            "import os\nos._exit(0)\n",
            "own.py: exits when it is loaded; let it declare SPECS and do nothing else",
        ),
        ("x = 1\nraise GeneratorExit('why')\n", "own.py, line 2: GeneratorExit: why"),
        (
            "from opspecs.registry import SPECS as OURS\nSPECS = OURS[:1]\n",
            "own.py: the name torch.nn.Conv1d is taken; give the spec a name of its own",
        ),
        *(
            (
                f"from opspecs.controls import SPECS as OURS\nfrom dataclasses import replace\n\
SPECS = [replace(OURS[0], name={name!r})]\n",
                (
                    f"own.py, line 3: {name!r}: names that begin with control. or sentinel. are those of our own; give the "
                    "spec another name"
                ),
            )
            for name in ("control.constant", "control.mine", "sentinel.index_put")
        ),
    ],
    ids=[
        *(
            "missing",
            "syntax",
            "raises",
            "two lines",
            "absent",
            "bare lambda",
            "direction",
            "empty",
            "no specs",
            "exits",
            "exits at once",
            "is closed",
        ),
        *("taken", "control", "like a control", "sentinel"),
    ],
)
def test_spec_file_that_cannot_be_used(
    detmatrix: Command, tmp_path: Path, content: str | None, expected: str
) -> None:
    """The file, the line and what is wrong with it."""
    if content is not None:
        (tmp_path / "own.py").write_text(content)

    text = refused(detmatrix("scan", "--specs", "own.py", "-o", "run.jsonl"))

    assert text == expected
    assert not (tmp_path / "run.jsonl").exists()


def test_spec_file_is_a_python_file(detmatrix: Command, tmp_path: Path) -> None:
    """Another ending is told rather than guessed at."""
    (tmp_path / "own.txt").write_text("SPECS = []\n")

    text = refused(detmatrix("scan", "--specs", "own.txt"))

    assert text == "own.txt: not a Python file; give one that ends in .py"
