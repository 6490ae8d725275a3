"""The docs command: formats, the check, blocks, the patch, reports for maintainers, and errors of one line each."""

from __future__ import annotations

import contextlib
import io
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace

from detmatrix.scanner.claims.tables import parse_claims
from tests.commands import Command
from tests.compared import shows
from tests.conftest import one_line, refused
from tests.documented import docstring
from tests.runs import SETTINGS, row, write_run

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
    stale, written, current = (detmatrix(*command, *more) for more in (["--check"], [], ["--check"]))

    assert [done.returncode for done in (stale, written, current)] == [1, 0, 0]
    made = "detmatrix docs run.jsonl --format md --into LISTS.md"
    assert one_line(stale.stdout) == f"LISTS.md: the block 'docs' is stale; regenerate it with {made}"
    assert path.read_text().startswith(f"<!-- detmatrix docs:begin {made} -->\n")
    assert detmatrix("docs", drifted).stdout in path.read_text()
    assert (written.stdout, current.stdout) == ("", "")


ROOT = Path(__file__).parent.parent
FUNCTION = 'def use_deterministic_algorithms(mode):\n    r"""Sets.\n{}\n    """\n    return mode\n'


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("def f(: pass", "is no Python that can be read"),
        ("(" * 100_000, "is no Python that can be read"),
        (FUNCTION.format(TEXT.replace("  *", "    *")), "are not laid out as PyTorch's are"),
        # A bullet that holds a command for terminals.
        (
            FUNCTION.format(TEXT.replace("torch.c`", "torch.c` \x1b[2J")),
            "hold characters that cannot be shown",
        ),
    ],
)
def test_a_source_that_cannot_be_patched_is_one_line(
    detmatrix: Command, drifted: Path, content: str, text: str
) -> None:
    """A file that is no Python, or has other lists; it is never executed, and nothing of it reaches a terminal."""
    source = drifted.parent / "other.py"
    source.write_text(content)

    assert text in refused(detmatrix("docs", drifted, "--format", "patch", "--source", source))


def test_git_applies_to_the_file_of_the_installed_torch(detmatrix: Command, tmp_path: Path) -> None:
    """The lists of a release are laid out as they are read: a bullet that fails moves, and git takes the patch."""
    torch = pytest.importorskip("torch")
    rows = [shows("fixed_by_mode", row("torch.nn.AvgPool3d", direction="backward", device="cuda:0"))]
    claims = parse_claims(torch.use_deterministic_algorithms.__doc__ or "")
    write_run(tmp_path / "run.jsonl", rows, claims=claims, settings=replace(SETTINGS, device="cuda:0"))
    copy = tmp_path / "checkout" / "torch" / "__init__.py"
    copy.parent.mkdir(parents=True)
    shutil.copy(torch.__file__, copy)
    command = ("docs", "run.jsonl", "--format", "patch", "--source", copy)
    patch = detmatrix(*command).stdout
    for git in (["init", "-q"], ["apply", "--verbose", "-"]):
        subprocess.run(["git", *git], input=patch, text=True, check=True, cwd=tmp_path / "checkout")
    again = detmatrix(*command)

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
