"""What the census command says in a terminal, and where it does not write."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests import tied
from tests.census_builds import MEMBERS, wheel
from tests.commands import Command
from tests.conftest import one_line, refused
from tests.runs import raised, ran, row, stable, write_run

RECORDED = Path(__file__).parent.parent / "reports" / "censuses" / "torch-2.13.0-cpu.json.gz"
# A terminal would clear the screen, and a line would become two.
HOSTILE = rb"__version__ = '2.99\x1b[2J\nand more'; git_version = '0123456789abcdef'"


@pytest.fixture
def hostile(detmatrix: Command, tmp_path: Path) -> str:
    """Write the census of a build whose version is made to do harm; return what was said on standard error."""
    wheel(tmp_path / "torch.whl", MEMBERS | {"torch/version.py": HOSTILE})
    done = detmatrix("census", "--wheel", "torch.whl", "-o", "census.json")

    assert done.returncode == 0
    assert done.stdout.startswith(
        "torch 2.99\\x1b[2J and more (git 0123456789abcdef, torch.whl): 13 call sites"
    )
    assert done.stdout.count("\n") == 1
    return done.stderr


def test_progress_is_a_line_each(hostile: str) -> None:
    """What is being read is said in lines of our own, whatever the build says of itself."""
    assert hostile.splitlines() == [
        "reading libtorch_cpu.so of torch 2.99\\x1b[2J and more",
        "reading Python files",
    ]


@pytest.mark.usefixtures("hostile")
def test_check_spells_out_what_a_run_says(detmatrix: Command, tmp_path: Path) -> None:
    """Callers and the name of the run are told in one line each, without commands to the terminal."""
    one = row("torch.cumsum")
    for name, caller in (("other\x1b[2J.jsonl", "x\x1b[2J"), ("known\x1b[2J.jsonl", "put_")):
        write_run(tmp_path / name, [(one, [*ran(one, "off", *stable()), *raised(one, "on", caller)])])
    missing, met = (
        detmatrix("census", "--census", "census.json", "--check", name)
        for name in ("other\x1b[2J.jsonl", "known\x1b[2J.jsonl")
    )

    assert (missing.returncode, missing.stdout.count("\n")) == (1, 1)
    assert missing.stdout.startswith(f"missing: x\\x1b[2J: {one.id} raised it, and no call site")
    assert "of torch 2.99\\x1b[2J and more names it" in missing.stdout
    assert (met.returncode, met.stdout) == (
        0,
        "Every alert that known\\x1b[2J.jsonl met (1 callers) is in the census.\n",
    )


def test_name_of_a_compressed_census_is_refused(detmatrix: Command, tmp_path: Path) -> None:
    """A name that ends in .gz is read as gzip, and a census is written plain: nothing is read or written."""
    wheel(tmp_path / "torch.whl")
    done = detmatrix("census", "--wheel", "torch.whl", "-o", "census.json.gz")

    assert refused(done) == (
        "census.json.gz: a census is written plain; choose a name without .gz, compress it later"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["torch.whl"]


@pytest.mark.parametrize("missing", ["capstone", "elftools"])
def test_what_a_census_needs_is_told(tmp_path: Path, missing: str) -> None:
    """Without the extra one line says what to install; a recorded census is shown all the same."""
    script = (
        "import sys; sys.modules[sys.argv.pop(1)] = None\n"
        "from scanner.cli.main import main; main(['census', *sys.argv[1:]])"
    )

    taken = tied.run([sys.executable, "-c", script, missing], cwd=tmp_path)
    shown = tied.run([sys.executable, "-c", script, missing, "--census", RECORDED], cwd=tmp_path)

    assert (taken.returncode, taken.stdout) == (2, "")
    assert one_line(taken.stderr) == (
        f"detmatrix: census: reading a build needs {missing}; install it with pip install 'detmatrix[census]'"
    )
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "put_" in shown.stdout
