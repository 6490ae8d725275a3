"""The patch that docs writes: git applies it to a checkout, and it says what it rests on."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from scanner.claims.tables import parse_claims
from tests.commands import Command
from tests.compared import shows
from tests.conftest import one_line
from tests.documented import docstring
from tests.runs import row, write_run

ROOT = Path(__file__).parent.parent
LISTS = docstring(
    [
        ":class:`torch.nn.MaxPool3d` when attempting to differentiate a CUDA tensor",
        ":func:`torch.a` when called on a CPU tensor",
    ],
    [
        ":func:`torch.c` when called on a CPU tensor",
        ":class:`torch.nn.ReflectionPad2d` when attempting to differentiate a CUDA tensor",
    ],
)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return the torch/__init__.py of a repository, in which the lists stand far below the top."""
    source = tmp_path / "checkout" / "torch" / "__init__.py"
    source.parent.mkdir(parents=True)
    above = "# A comment.\n" * 300
    source.write_text(
        f'{above}def use_deterministic_algorithms(mode):\n    r"""Sets.\n{LISTS}\n    """\n    return mode\n'
    )
    subprocess.run(["git", "init", "-q", str(source.parent.parent)], check=True)
    return source


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return a run in which an op that is said to act raises."""
    return write_run(tmp_path / "run.jsonl", [shows("raises", row("torch.a"))], claims=parse_claims(LISTS))


def _applied(checkout: Path, patch: str) -> str:
    """Let git apply a patch as a file, and return what the file holds then."""
    subprocess.run(
        ["git", "apply", "--verbose", "-"],
        input=patch, text=True, check=True, cwd=checkout.parent.parent, capture_output=True,
    )  # fmt: skip
    return checkout.read_text()


def test_git_applies_what_was_measured(detmatrix: Command, checkout: Path, run: Path) -> None:
    """A bullet moves to the other list, the rest of the file keeps its bytes, and nothing is left to do then."""
    before = checkout.read_text()
    done = detmatrix("docs", run, "--format", "patch", "--source", checkout)
    after = _applied(checkout, done.stdout)
    again = detmatrix("docs", run, "--format", "patch", "--source", checkout)

    bullet = "        * :func:`torch.a` when called on a CPU tensor\n"
    assert (done.returncode, done.stderr) == (0, "")
    assert after.splitlines().index(bullet.rstrip("\n")) > after.splitlines().index(
        "        * :func:`torch.c` when called on a CPU tensor"
    )
    assert after.replace(bullet, "") == before.replace(bullet, "")
    assert "# torch.a on cpu moves to the list 'raises': it raises\n" in done.stdout
    assert (again.returncode, again.stdout) == (0, "")
    assert one_line(again.stderr) == f"{checkout}: nothing to change"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, "cannot be read (No such file or directory)"),
        ("def f(: pass", "is no Python that can be read"),
        ("(" * 100_000, "is no Python that can be read"),
        ("x = 1\n", "has no use_deterministic_algorithms with both lists"),
        (
            f'def use_deterministic_algorithms(mode):\n    r"""Sets.\n{LISTS.replace(" tensor", "  tensor")}\n    """\n'.replace(
                "        *", "          *"
            ),
            "is not laid out as PyTorch's are",
        ),
    ],
)
def test_a_source_that_cannot_be_patched_is_one_line(
    detmatrix: Command, run: Path, content: str | None, text: str
) -> None:
    """A file that is missing, is no Python, or has no lists; it is never executed."""
    source = run.parent / "other.py"
    if content is not None:
        source.write_text(content)
    done = detmatrix("docs", run, "--format", "patch", "--source", source)

    assert (done.returncode, done.stdout) == (2, "")
    assert text in one_line(done.stderr)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--format", "patch"], "which --source names; give both"),
        (["--source", "a.py"], "which --source names; give both"),
        (
            ["--format", "patch", "--source", "a.py", "--into", "a.md"],
            "is a file of its own; write it with -o",
        ),
    ],
)
def test_options_that_do_not_fit(detmatrix: Command, run: Path, options: list[str], text: str) -> None:
    """What is missing is said."""
    done = detmatrix("docs", run, *options)

    assert done.returncode == 2
    assert text in one_line(done.stderr)


def test_a_patch_sends_nothing_to_a_terminal(detmatrix: Command, checkout: Path, run: Path) -> None:
    """A bullet that holds a command for terminals is refused; what a run file is called is spelled out."""
    checkout.write_text(checkout.read_text().replace("torch.c`", "torch.c` \x1b[2J"))
    done = detmatrix("docs", run, "--format", "patch", "--source", checkout)

    assert done.returncode == 2
    assert "hold characters that cannot be shown" in one_line(done.stderr)
