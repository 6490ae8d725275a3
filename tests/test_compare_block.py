"""The block that the compare command keeps in a Markdown file: steps, what changed in them, and errors."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from reports.compare.page import as_json as render_json
from reports.compare.page import block as render
from reports.compare.runs import compare
from reports.compare.view import STEP, by_op
from scanner.verdicts.vocabulary import Finding
from tests.commands import Command, command_in
from tests.compared import run_of, shows
from tests.conftest import one_line
from tests.runs import raised, row, write_run

ROOT = Path(__file__).parent.parent
RECORDED = [f"reports/runs/torch-{version}-cpu.jsonl.gz" for version in ("2.13.0", "2.15.0")]
BLOCK = "# Title\n\n<!-- detmatrix compare:begin -->\n<!-- detmatrix compare:end -->\n\nend\n"
CASES = ("a", "b", "c", "d", "e")


def text_of(*findings: Finding) -> str:
    """Return the block of runs whose ten rows of one op show these findings, one after the other."""
    runs = [
        run_of(
            *(
                shows(finding, row("torch.put", case, dtype=d))
                for case in CASES
                for d in ("int64", "float32")
            ),
            shows("deterministic", row("torch.sort")),
            name=f"{place}.jsonl",
            torch=f"9.{place}.0",
        )
        for place, finding in enumerate(findings)
    ]
    return "".join(render(compare(runs)))


def table(text: str, head: str) -> list[list[str]]:
    """Return the cells of the lines of the table whose head begins with a word."""
    lines = text[text.index(f"| {head}") :].split("\n\n", maxsplit=1)[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_one_line_per_step_and_per_op() -> None:
    """Every step has its counts, and ten rows of one op that change alike are one line that names some of them."""
    text = text_of("raises", "fixed_by_mode", "fixed_by_mode", "silent")
    first, second = text.split("\n\n")[1:3]

    assert table(first, "from") == [
        ["9.0.0 → 9.1.0", "11", "0", "10", "0", "0", "0", "0"],
        ["9.1.0 → 9.2.0", "11", "0", "0", "0", "0", "0", "0"],
        ["9.2.0 → 9.3.0", "11", "10", "0", "0", "0", "0", "0"],
    ]
    named = "`a:forward:int64`, `a:forward:float32`, `b:forward:int64` and 7 more"
    assert table(second, "from") == [
        [
            "9.0.0 → 9.1.0",
            "`torch.put`",
            named,
            "improved (unconfirmed)",
            "raises → fixed_by_mode",
            "not listed",
        ],
        [
            *("9.2.0 → 9.3.0", "`torch.put`", named),
            *("regressed (unconfirmed)", "fixed_by_mode → silent", "not listed"),
        ],
    ]
    assert first.count("|") == (len(STEP) + 1) * 5


def test_what_else_changed_is_told() -> None:
    """A row with the same finding in both runs tells what changed; what only seems to is counted apart."""
    put, take = row("torch.put"), row("torch.take")
    old = run_of(shows("raises", put), shows("fixed_by_mode", take, often=3), name="a", torch="2.1.0")
    new = run_of(
        (put, [*shows("raises", put)[1][:2], *raised(put, "on", "other_kernel")]),
        shows("deterministic", take),
        name="b",
        torch="2.1.0",
    )
    comparison = compare([old, new])
    one, seeming = by_op(comparison.pairs[0])

    assert (seeming["op"], seeming["kind"]) == ("torch.take", "not_comparable (seems improved)")
    assert seeming["finding"].startswith("fixed_by_mode → deterministic: off: 2 of 98 → 0 of 98 ")
    assert one["finding"] == "raises: alert callers scatter_add_kernel → other_kernel; an alert is proof"
    (step,) = table("".join(render(comparison)), "from")
    assert step[0] == "2.1.0 (a) → 2.1.0 (b)"
    assert step[5] == "1 (1 possible change)"


def test_hostile_text_stays_in_its_cell() -> None:
    """Names and versions of a run file are escaped."""
    bad = "evil`|<b>\n# head"
    planned = row(f"torch.{bad}", bad)
    runs = [run_of(shows(f, planned), name=f, torch=bad, distrust=(bad,)) for f in ("raises", "silent")]
    text = "".join(render(compare(runs)))

    assert "<b>" not in re.sub(r"``.+?``", "", text)  # code shows it as it is
    assert not [line for line in text.splitlines() if line.startswith("# head")]
    assert "".join(render_json(compare(runs)))


def test_the_block_of_the_recorded_runs(tmp_path: Path) -> None:
    """The block is written into the file, is fresh then, and its marker is the command that made it."""
    readme = tmp_path / "README.md"
    readme.write_text(BLOCK, encoding="utf-8")
    detmatrix = command_in(ROOT)
    written = detmatrix("compare", *RECORDED, "--into", readme)
    text = readme.read_text(encoding="utf-8")

    assert (written.returncode, written.stdout, written.stderr) == (0, "", "")
    assert f"<!-- detmatrix compare:begin detmatrix compare {' '.join(RECORDED)} --into README.md -->" in text
    assert table(text, "from")[0][:3] == ["2.13.0+cpu → 2.15.0+cu132", "677", "0"]
    assert text.startswith("# Title\n")
    assert text.endswith("\n\nend\n")
    assert detmatrix("compare", *RECORDED, "--into", readme, "--check").returncode == 0

    readme.write_text(text.replace("677", "680"), encoding="utf-8")
    stale = detmatrix("compare", *RECORDED, "--into", readme, "--check")
    assert stale.returncode == 1
    assert "README.md: the block 'compare' is stale; regenerate it with detmatrix compare" in stale.stdout
    assert "680" in readme.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--check"], "--check says whether the block in a file is stale; name the file with --into"),
        (
            ["--into", "README.md", "--format", "html"],
            (
                "--into writes Markdown into a file of its own, the same on every machine; give it without -o, --format, "
                "--fail-on and --confirm"
            ),
        ),
        (["--into", "README.md"], "README.md: cannot be read (No such file or directory); name a file"),
    ],
)
def test_errors_are_one_line(detmatrix: Command, tmp_path: Path, options: list[str], message: str) -> None:
    """What a user can get wrong ends in one line and exit code 2."""
    for name in ("a.jsonl", "b.jsonl"):
        write_run(tmp_path / name)
    done = detmatrix("compare", "a.jsonl", "b.jsonl", *options)

    assert (done.returncode, done.stdout) == (2, "")
    assert message in one_line(done.stderr)
