"""The format of a report is what the name of its file ends in, in every command that writes one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.commands import Command
from tests.conftest import refused

ROOT = Path(__file__).parent.parent
RUN = ROOT / "reports" / "runs" / "torch-2.13.0-cpu.jsonl.gz"
COMMANDS: dict[str, tuple[object, ...]] = {
    "report": (RUN, "--rows", "take"),
    "docs": (RUN,),
    "coverage": (RUN,),
    "compare": (RUN, RUN),
    "explain": ("take", RUN),
    "libraries": ("cuDNN",),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_name_says_the_format(detmatrix: Command, tmp_path: Path, command: str) -> None:
    """JSON into .json, Markdown into .md, and what --format says into either."""
    for name, *options in (
        ("a.json",),
        ("b.md",),
        ("c.json", "--format", "md"),
        ("d.md", "--format", "json"),
    ):
        done = detmatrix(command, *COMMANDS[command], "-o", name, *options)
        assert done.returncode == 0, done.stderr

    written = {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()}
    assert json.loads(written["a.json"]) == json.loads(written["d.md"])
    assert written["b.md"] == written["c.json"]
    assert written["b.md"].startswith("#") or "|" in written["b.md"]


@pytest.mark.parametrize(
    ("command", "name", "endings"),
    [
        ("coverage", "c.html", ".md or .json, or give --format"),
        ("coverage", "c.pdf", ".md or .json, or give --format"),
        ("explain", "e.csv", ".txt or .md or .json, or give --format"),
        ("compare", "c.csv", ".md or .html or .json or .xml, or give --format"),
        ("report", "r.pdf", ".txt or .md or .html or .csv or .json or .xml, or give --format"),
    ],
)
def test_format_that_a_command_does_not_write(
    detmatrix: Command, tmp_path: Path, command: str, name: str, endings: str
) -> None:
    """A page that holds Markdown helps nobody."""
    told = f"{name}: this is not written as {name[2:]}; choose a name that ends in {endings}"

    assert refused(detmatrix(command, *COMMANDS[command], "-o", name)) == told
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "command", [("scan", "take"), ("check", f"{ROOT / 'tests' / 'checked.py'}:constant")]
)
@pytest.mark.parametrize("name", ["run.html", "run.md", "run.pdf"])
def test_run_file_under_the_name_of_a_report(
    detmatrix: Command, tmp_path: Path, command: tuple[str, ...], name: str
) -> None:
    """Nothing is scanned, for who gave the name waits for a page."""
    text = refused(detmatrix(*command, "-o", name))

    assert text.startswith(
        f"{name}: -o names the run file, which is not written as {name[4:]}; choose a name"
    )
    assert list(tmp_path.iterdir()) == []
