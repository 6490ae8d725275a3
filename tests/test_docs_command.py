"""The docs command: formats, the check, blocks, the patch, reports for maintainers, and errors of one line each."""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace

from detmatrix.scanner.claims.tables import parse_claims
from tests.commands import Command
from tests.compared import shows
from tests.conftest import one_line, refused
from tests.documented import docstring
from tests.runs import ENVIRONMENT, SETTINGS, row, write_run

TEXT = docstring(
    [":func:`torch.a` when called on a CPU tensor", ":func:`torch.b` when called on a CPU tensor"],
    [":func:`torch.c`"],
)


@pytest.fixture
def drifted(tmp_path: Path) -> Path:
    """Return a run file that contradicts one bullet, confirms one, and speaks of no third."""
    rows = [shows("raises", row("torch.a")), shows("fixed_by_mode", row("torch.b"))]
    return write_run(tmp_path / "run.jsonl", rows, claims=parse_claims(TEXT))


def test_into_regenerates_and_checks(detmatrix: Command, drifted: Path) -> None:
    """--into writes the block, with --check it only tells; drift in the lists is no failure of the block."""
    path = drifted.parent / "LISTS.md"
    path.write_text("<!-- detmatrix docs:begin -->\n<!-- detmatrix docs:end -->\n")
    command = ("docs", drifted.name, "--into", path.name)
    stale, written = detmatrix(*command, "--check"), detmatrix(*command)
    text = path.read_text()
    current = detmatrix(*command, "--check")

    assert [done.returncode for done in (stale, written, current)] == [1, 0, 0]
    assert one_line(stale.stdout) == (
        "LISTS.md: the block 'docs' is stale; regenerate it with "
        "detmatrix docs run.jsonl --format md --into LISTS.md"
    )
    assert text.splitlines()[0] == (
        "<!-- detmatrix docs:begin detmatrix docs run.jsonl --format md --into LISTS.md -->"
    )
    assert detmatrix("docs", drifted).stdout in text
    assert (written.stdout, current.stdout) == ("", "")


def test_a_run_without_the_docstrings_lines_gives_no_lists(detmatrix: Command, tmp_path: Path) -> None:
    """What an older detmatrix recorded holds claims alone."""
    write_run(tmp_path / "old.jsonl", environment=replace(ENVIRONMENT, threads=1))

    assert "do not hold the docstring's lines" in refused(detmatrix("docs", "old.jsonl", "--format", "rst"))


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
            "are not laid out as PyTorch's are",
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


def test_a_patch_sends_nothing_to_a_terminal(detmatrix: Command, checkout: Path, run: Path) -> None:
    """A bullet that holds a command for terminals is refused; what a run file is called is spelled out."""
    checkout.write_text(checkout.read_text().replace("torch.c`", "torch.c` \x1b[2J"))
    done = detmatrix("docs", run, "--format", "patch", "--source", checkout)

    assert done.returncode == 2
    assert "hold characters that cannot be shown" in one_line(done.stderr)


def test_git_applies_to_the_file_of_the_installed_torch(detmatrix: Command, tmp_path: Path) -> None:
    """The lists of a release are laid out as they are read: a bullet that fails moves, and git takes the patch."""
    torch = pytest.importorskip("torch")
    source = Path(torch.__file__)
    claims = parse_claims(torch.use_deterministic_algorithms.__doc__ or "")
    rows = [shows("fixed_by_mode", row("torch.nn.AvgPool3d", direction="backward", device="cuda:0"))]
    settings = replace(SETTINGS, device="cuda:0")
    write_run(tmp_path / "run.jsonl", rows, claims=claims, settings=settings)
    patch = detmatrix("docs", "run.jsonl", "--format", "patch", "--source", source).stdout
    copy = tmp_path / "checkout" / "torch" / "__init__.py"
    copy.parent.mkdir(parents=True)
    copy.write_bytes(source.read_bytes())
    subprocess.run(["git", "init", "-q", str(copy.parent.parent)], check=True)
    _applied(copy, patch)
    again = detmatrix("docs", "run.jsonl", "--format", "patch", "--source", copy)

    assert (again.returncode, again.stdout, one_line(again.stderr)) == (0, "", f"{copy}: nothing to change")
    assert sum(line[:1] in "+-" and line[:3] not in {"+++", "---"} for line in patch.splitlines()) == 2
    assert "        * :class:`torch.nn.AvgPool3d` when attempting" in copy.read_text()


@pytest.mark.parametrize(
    ("op", "title", "shown", "test"),
    [
        (
            "torch.nn.AdaptiveMaxPool3d",
            "backward on CUDA differs with deterministic algorithms on and raises no alert",
            "CUDA permits this; shown on sm\\_80 code in simulation, class *resident-blocks*; not observed on a GPU.",
            "self.check_nondeterministic_alert(lambda: run(device), 'adaptivemaxpool3d_backward_cuda', True)",
        ),
        (
            "torch.nn.ReflectionPad2d",
            "backward on CUDA gives another result with deterministic algorithms on",
            "with the flag on 192 of 288 elements",
            "with DeterministicGuard(True):",
        ),
    ],
)
def test_maintainers_get_a_report(detmatrix: Command, op: str, title: str, shown: str, test: str) -> None:
    """Title, standing, entries, a test and a repro of 15 lines, both Python that runs; a wrong row proposes no change of the lists."""
    pytest.importorskip("torch")
    twice = ("--op", op, "--op", op)  # which is told once
    text = detmatrix("docs", ROOT / "tests/data/simulated.jsonl.gz", "--format", "pr", *twice).stdout
    tested, repro = re.findall(r"```python\n(.*?)```", text, re.DOTALL)

    assert text.startswith(f"# {op}: {title}\n")
    assert shown.replace("\\", "") in text.replace("\\", "")
    assert test in tested
    assert "```diff" not in text
    assert len(repro.splitlines()) <= 15
    compile(tested, "test", "exec")
    # On a CPU, where nothing differs.
    assert _printed(repro.replace('"cuda"', '"cpu"')).startswith("0 ")
    # Rounding is no wrong element.
    for factor, found in (("1.0001", "0"), ("2", "288")) if "isclose" in repro else ():
        gpu = f"[{factor} * one for one in run('cpu')]"
        off = _printed(repro.replace('run("cuda")', gpu))
        assert off == f"{found} elements are not the CPU's by more than a relative 0.001; 0 after the fix\n"


def _printed(code: str) -> str:
    """Return what a script prints, run in this process, and put the flag back."""
    torch = pytest.importorskip("torch")
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            exec(code, {})
    finally:
        torch.use_deterministic_algorithms(False)
    return printed.getvalue()


def test_without_a_run_the_recorded_ones_of_the_newest_release_count(detmatrix: Command) -> None:
    """What was measured and what was simulated of it stand side by side; the runs are named."""
    done = detmatrix("docs")

    assert done.returncode == 0
    assert re.match(
        r"docs: \S+/torch-([\d.]+)-cpu\.jsonl\.gz, \S+/torch-\1-simulated-\S+\.jsonl\.gz", done.stderr
    )
    assert "| CPU, measured" in done.stdout
    assert "| CUDA, simulated" in done.stdout


def test_recorded_runs_are_named_by_their_release(detmatrix: Command) -> None:
    """The newest that begins so; none of another, and not beside runs."""
    older = detmatrix("docs", "--recorded", "2.11")
    none = detmatrix("docs", "--recorded", "2.1.")
    both = detmatrix("docs", "--recorded", "2.11", "run.jsonl")

    assert older.stdout.startswith("# What torch 2.11.0 documents")
    assert re.search(r"--recorded 2\.1\.: no run of it is recorded; .*2\.11\.0", one_line(none.stderr))
    assert (none.returncode, both.returncode) == (2, 2)
    assert one_line(both.stderr) == "detmatrix: --recorded names runs, and so does RUN; give one of them"
