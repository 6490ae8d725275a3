"""Reports of synthetic runs, in what goldens cannot show: escapes, numbers for machines, empty runs, old files and threads."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from detmatrix.reports.cli.report import RENDERERS
from detmatrix.reports.render.markdown import code, plain
from detmatrix.scanner.verdicts.vocabulary import FINDINGS
from tests.evidence_runs import (
    as_json,
    quiet_row,
    text,
)
from tests.runs import (
    Planned,
    ended,
    raised,
    ran,
    row,
    stable,
    write_run,
)

HOSTILE = "<script>alert(1)</script> | `x` **b** [l](http://e) </td> {{ 7 * 7 }} \x1b[31m \u202e\nsecond line"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return a run file that shows every finding and every verdict."""
    return write_run(tmp_path / "run.jsonl")


def hostile_rows() -> list[Planned]:
    bad = row(HOSTILE, HOSTILE, family=HOSTILE, provokes=HOSTILE, why=HOSTILE)
    return [(bad, [*ended(bad, "off", "crash", HOSTILE), *ran(bad, "on", *stable())])]


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("put_", "`put_`"),
        ("a|b", "`a\\|b`"),
        ("a`b", "`` a`b ``"),
        ("``", "``` `` ```"),
        ("`` a ` b", "``` `` a ` b ```"),
        ("a\nb\x1b[0m", "`a b\\x1b[0m`"),
        ("", "none"),
    ],
)
def test_code_cells(given: str, shown: str) -> None:
    """A code span holds whatever it is given, on one line."""
    assert shown == code(given)


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("2.10", "2.10"),
        ("scatter_add_forward", "scatter_add_forward"),
        ("_x_", "\\_x\\_"),
        ("a & <b>", "a &amp; &lt;b&gt;"),
        ("a|b\\c", "a\\|b\\\\c"),
        ("~~a~~", "\\~\\~a\\~\\~"),
    ],
)
def test_plain_cells(given: str, shown: str) -> None:
    """Plain text keeps its look and loses its markup."""
    assert shown == plain(given)


def test_hostile_markdown_renders_as_tables(tmp_path: Path) -> None:
    """A Markdown renderer sees one op of seven cells, one row of nine, and no element that a run file named."""
    message = text("md", write_run(tmp_path / "run.jsonl", hostile_rows()))
    tokens = MarkdownIt("commonmark").enable("table").parse(message)
    inline = [child for token in tokens for child in token.children or []]

    assert [token.type for token in tokens].count("td_open") == 7 + 9 + 3 * len(FINDINGS)
    assert not [
        token for token in [*tokens, *inline] if token.type in ("html_block", "html_inline", "link_open")
    ]
    assert HOSTILE.split("\x1b", maxsplit=1)[0] in "".join(
        child.content for child in inline if child.type == "code_inline"
    )


def test_html_is_self_contained(run: Path) -> None:
    """The page loads nothing: no address of a style, script, font or image, and a policy that forbids it."""
    message = text("html", run)

    assert "default-src 'none'" in message
    for loading in ('<link rel="stylesheet"', "@import", "url(", " src="):
        assert loading not in message


def test_empty_plan(tmp_path: Path) -> None:
    """A run without rows gives every report, each saying that there is nothing."""
    path = write_run(tmp_path / "run.jsonl", [])

    assert "No row was planned.\n" in text("md", path)
    assert "No row to show." in text("html", path)
    assert as_json(path)["rows"] == []
    assert text("csv", path).count("\n") == 1


@pytest.mark.parametrize("form", RENDERERS)
def test_old_files_render(tmp_path: Path, form: str) -> None:
    """A file of format 1, which knows nothing of all this, gives every report, each with its words for it."""
    plan: list[Planned] = [quiet_row(), (row("torch.put"), raised(row("torch.put"), "on", "put_"))]
    message = text(form, write_run(tmp_path / "old.jsonl", plan, format_=1))

    # An annotation is about what needs one.
    assert form == "github" or "cumsum" in message
    assert form != "md" or "raises; warn_only not run" in message


FORMULAS = ["=1+1", "+1", "-1+2", "@SUM(A1)", "one\rtwo", "\t=1", "a\x1b[2Jb", "\u202etxt"]


@pytest.mark.parametrize("name", FORMULAS)
def test_cells_of_csv_stay_cells(tmp_path: Path, name: str) -> None:
    """No text of a run file begins a formula, splits a row, or commands a terminal."""
    bad = row("torch.add", "case", why=name, provokes=name)
    path = write_run(tmp_path / "run.jsonl", [(bad, ended(bad, "off", "crash", name))])
    message = text("csv", path)
    (found,) = csv.DictReader(io.StringIO(message, newline=""))

    for field in ("provokes", "off_reason"):
        assert not found[field].startswith(("=", "+", "-", "@", "\t", "\r"))
        assert found[field].isprintable()
    assert message.replace("\n", "").isprintable()
