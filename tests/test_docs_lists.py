"""The documented lists written again: what stays, moves, splits, narrows, appears, and why."""

from __future__ import annotations

import contextlib
import inspect
import io
import json
import re
import shutil
import subprocess
import textwrap
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from detmatrix.reports.docs.regenerate import HEADINGS, INDENT, RegeneratedLists, role_of, write
from detmatrix.reports.docs.view import RENDERERS
from detmatrix.scanner.claims.matching import matches
from detmatrix.scanner.claims.tables import documented_claims, documented_versions, parse_claims
from detmatrix.scanner.observations.records import Claim
from detmatrix.scanner.verdicts.vocabulary import FINDINGS
from tests.commands import Command
from tests.compared import shows
from tests.conftest import one_line
from tests.documented import CPU, CUBLAS, CUDA, bullets, docs_of, docstring, shown
from tests.runs import SETTINGS, Planned, row, write_run

LISTS = (Path(__file__).parent / "data" / "lists.txt").read_text(encoding="utf-8")


def test_without_evidence_nothing_changes() -> None:
    """The lists of the installed torch come out byte for byte as its docstring has them."""
    installed = pytest.importorskip("torch").use_deterministic_algorithms.__doc__ or ""
    docs = docs_of(installed, [shown("torch.unheard_of", "deterministic", "cpu")])
    text, cleaned = "".join(RENDERERS["rst"](docs)), inspect.cleandoc(installed).splitlines()

    assert text in "".join(f"    {line}\n" if line else "\n" for line in cleaned)
    assert text.count("* :") == len({claim.order for claim in docs.claims if claim.source})
    assert not [*RENDERERS["diff"](docs)]


@pytest.mark.parametrize("version", documented_versions())
def test_every_documented_bullet_can_be_written(version: str) -> None:
    """What any release says of an op can be said again, but for what uninitialised memory is filled with."""
    for claim in documented_claims(version):
        if claim.section not in {"deterministic", "raises"}:
            continue
        fills = any(condition.kind == "fill" for condition in claim.conditions)

        assert (write(claim, claim.text) is None) == fills


@pytest.mark.parametrize("block", LISTS.split("\n\n")[1:], ids=lambda block: " ".join(block.split())[:90])
def test_what_the_lists_become(block: str) -> None:
    """Bullets appear, move, split and narrow as rows show, say no more than rows do, and written a second time stay as they are."""
    acting, raising, measured, acting_then, raising_then, told = (
        [line.replace("\\n", "\n") for line in re.findall(rf"^{mark} (.*)$", block, re.MULTILINE)]
        for mark in ("acts", "raises", r"\+", "=> acts", "=> raises", "told")
    )
    rows = []
    for finding, _, fields in (line.partition(" ") for line in measured):
        named = {"op": "torch.a", "finding": finding, **json.loads(fields or "{}")}
        rows.append(shown(**named))
    found = RegeneratedLists(docs_of(docstring(["torch.y", *acting], ["torch.x", *raising]), rows))

    assert bullets(found.regenerated) == (["torch.y", *acting_then], ["torch.x", *raising_then])
    assert all(text in " ".join(found.notes) for text in told)
    assert RegeneratedLists(docs_of(found.regenerated, rows)).regenerated == found.regenerated


BOTH = "``reduce='sum'`` or ``reduce='mean'``"
BACKWARD = "when attempting to differentiate a CUDA tensor"
# A busy machine draws examples slowly.
PATIENT = settings(max_examples=50)
OPS = st.sampled_from(["torch.a", "torch.nn.B", "torch.Tensor.c_"])
TRAITS = {
    "reduce": st.sampled_from(["sum", "mean", "prod"]),
    "accumulate": st.sampled_from(["True", "False"]),
}
bullet_texts = st.builds(
    lambda ops, *said: " ".join([", ".join(map(role_of, ops)), *filter(None, said)]),
    st.lists(OPS, min_size=1, max_size=3, unique=True),
    st.sampled_from(["", "with ``accumulate=True``", f"when {BOTH}", "with integer dtype"]),
    st.sampled_from(["", CPU, CUDA, "when called on a CPU or CUDA tensor", BACKWARD]),
)
measured_rows = st.lists(
    st.tuples(
        OPS,
        st.sampled_from(FINDINGS),
        st.sampled_from(["cpu", "cuda"]),
        st.fixed_dictionaries(
            {
                "direction": st.sampled_from(["forward", "backward"]),
                "dtype": st.sampled_from(["float32", "int64"]),
                "traits": st.fixed_dictionaries({}, optional=TRAITS),
            }
        ),
    ),
    max_size=8,
)


def planned(measured: list[Any]) -> list[Planned]:
    return [
        shown(op, finding, device, case=f"case{number}", **fields)
        for number, (op, finding, device, fields) in enumerate(measured)
    ]


def sources(text: str, section: str) -> dict[int, str]:
    """Return the lines of each bullet of a list by its place."""
    return {claim.order: claim.source or "" for claim in parse_claims(text) if claim.section == section}


@PATIENT
@given(
    st.lists(bullet_texts, max_size=5, unique=True),
    st.lists(bullet_texts, max_size=5, unique=True),
    measured_rows,
)
def test_any_evidence(acting: list[str], raising: list[str], measured: list[Any]) -> None:
    """Bullets without evidence keep their lines and order, all bullets parse, and a second time nothing changes."""
    text = docstring([*acting, "torch.z"], raising)
    rows = planned(measured)
    docs = docs_of(text, rows)
    found = RegeneratedLists(docs)

    for section in ("deterministic", "raises"):
        left = iter(sources(found.regenerated, section).values())
        for order, source in sources(text, section).items():
            claims = [claim for claim in docs.claims if claim.order == order]
            if not any(matches(row, claim) for row, _ in rows for claim in claims):
                # An iterator that is searched goes on behind what was found: the order is kept, too.
                assert source in left
    assert all(claim.parsed for claim in parse_claims(found.regenerated))
    again = RegeneratedLists(docs_of(found.regenerated, rows))
    assert again.documented == again.regenerated == found.regenerated


# What bullets are made of, and what breaks parsers.
FRAGMENTS = [
    *(":func:`torch.a`", "``torch.b``", ", ", " and ", " when ", "called on a CUDA tensor", "CPU or CUDA"),
    *("``reduce='sum'``", "accumulate=True", "that requires grad", "dtype is complex", "in some cases"),
    *["`", "``", ":", "*", "-", "=", "'", "\\", "[", "]", "|", "?"],
    *("- ", "\t", "\r", "\x0b", "\x85", "\u2028", "\ud800"),
]  # fmt: skip
lines = st.lists(
    st.sampled_from(FRAGMENTS) | st.text(st.characters(exclude_characters="\n"), max_size=4), max_size=6
).map("".join)
texts = st.lists(lines | st.sampled_from([*HEADINGS.values(), CUBLAS, "", "        * ", "      - "])).map(
    "\n".join
)

some = st.lists(lines, min_size=1, max_size=3)


@given(st.builds(docstring, some, some) | texts, measured_rows)
def test_odd_docstrings_are_no_error(text: str, measured: list[Any]) -> None:
    """Any text gives claims with distinct ids, the same each time, that survive being written; bullets that are not understood stay."""
    found = parse_claims(text)

    assert parse_claims(text) == found
    assert max(Counter(claim.id for claim in found).values(), default=1) == 1
    assert msgspec.json.decode(msgspec.json.encode(found), type=tuple[Claim, ...]) == found
    lists = RegeneratedLists(docs_of(text, planned(measured))).regenerated if found else ""
    for claim in found:
        if not claim.parsed and claim.section in {"deterministic", "raises"}:
            assert textwrap.indent((claim.source or "").rstrip("\n"), INDENT) in lists


# The docs command: blocks, the patch, and reports for maintainers.

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
            "CUDA permits this; shown on sm\\_80 code in simulation, class *resident-blocks*; not measured on a GPU with this release.",
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
