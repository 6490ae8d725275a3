"""Reports of synthetic runs: every finding and verdict, each format, errors, and the same bytes every time."""

from __future__ import annotations

from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from reports.cli.report import RENDERERS
from reports.matrix.model import load
from reports.render.markdown import code, plain
from reports.report import export
from scanner.verdicts.vocabulary import FINDINGS
from tests.evidence_runs import as_json, text
from tests.page_data import told
from tests.runs import Planned, ended, every_finding, ran, row, stable, write_run

HOSTILE = "<script>alert(1)</script> | `x` **b** [l](http://e) </td> {{ 7 * 7 }} \x1b[31m \u202e\nsecond line"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return a run file that shows every finding and every verdict."""
    return write_run(tmp_path / "run.jsonl")


def hostile_rows() -> list[Planned]:
    bad = row(HOSTILE, HOSTILE, family=HOSTILE, provokes=HOSTILE, why=HOSTILE)
    return [(bad, [*ended(bad, "off", "crash", HOSTILE), *ran(bad, "on", *stable())])]


def test_deterministic_never_without_n(run: Path) -> None:
    """No cell of the matrix, the finding included, says "deterministic" without its n."""
    table = [line for line in text("md", run).splitlines() if line.startswith("| `")]

    said = [cell.strip() for line in table for cell in line.split(" | ") if "deterministic" in cell]
    assert said
    assert all(" of 100 differed" in cell or "(n = 100 per mode)" in cell for cell in said)


@pytest.mark.parametrize("form", RENDERERS)
def test_compressed_run_reads_the_same(tmp_path: Path, form: str) -> None:
    """A run file in gzip gives the same report but for its name."""
    named = write_run(tmp_path / "named.jsonl")
    packed = write_run(tmp_path / "packed.jsonl.gz")

    assert text(form, packed).replace("packed.jsonl.gz", "NAME") == text(form, named).replace(
        "named.jsonl", "NAME"
    )


def test_markdown_is_not_broken_by_what_runs_say(tmp_path: Path) -> None:
    """Bars, newlines, backticks, HTML and terminal commands in a run file stay text in their cell."""
    message = text("md", write_run(tmp_path / "run.jsonl", hostile_rows()))
    line = [line for line in message.splitlines() if line.startswith("| ``")][1]
    bare = line.replace("\\|", "").split("|")

    assert len(bare) - 2 == 9
    assert "\x1b" not in message
    assert "\u202e" not in message
    assert (
        "* crash: &lt;script&gt;alert(1)&lt;/script&gt; \\| \\`x\\` \\*\\*b\\*\\* \\[l\\](http://e) "
        in message
    )


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("put_", "`put_`"),
        ("a|b", "`a\\|b`"),
        ("a`b", "`` a`b ``"),
        ("``", "``` `` ```"),
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


def test_html_escapes_what_runs_say(tmp_path: Path) -> None:
    """No text of a run file becomes an element, ends a script, or is read as a template."""
    message = text("html", write_run(tmp_path / "run.jsonl", hostile_rows()))

    assert "<script>alert" not in message
    assert "{{ 7 * 7 }}" in message  # not 49
    assert message.count("<script") == 6 == message.count("</script>")


def test_html_is_self_contained(run: Path) -> None:
    """The page loads nothing: no address of a style, script, font or image, and a policy that forbids it."""
    message = text("html", run)

    assert "default-src 'none'" in message
    for loading in ('<link rel="stylesheet"', "@import", "url(", " src="):
        assert loading not in message


@pytest.mark.parametrize("form", RENDERERS)
def test_only_may_leave_nothing(tmp_path: Path, form: str) -> None:
    """A finding that no row has leaves an empty matrix, not an error."""
    message = text(form, write_run(tmp_path / "run.jsonl", every_finding()[:1]), only=("silent",))

    assert "torch.Tensor.scatter_add_" not in message
    if form in ("md", "html"):
        assert "Shown: 0 of 1 rows" in message


def test_empty_plan(tmp_path: Path) -> None:
    """A run without rows gives every report, each saying that there is nothing."""
    path = write_run(tmp_path / "run.jsonl", [])

    assert "No row was planned.\n" in text("md", path)
    assert "No row to show." in text("html", path)
    assert as_json(path)["rows"] == []
    assert text("csv", path).count("\n") == 1


def test_seeded_is_told_of_its_mode(tmp_path: Path) -> None:
    """An op that draws random numbers under one mode only is called seeded there only."""
    one = row("torch.nn.FractionalMaxPool2d")
    observations = [*ran(one, "off", *stable(), seeded=True), *ran(one, "on", *stable())]
    path = write_run(tmp_path / "run.jsonl", [(one, observations)])

    assert [as_json(path)["rows"][0][mode]["seeded"] for mode in ("off", "on")] == [True, False]
    assert (
        text("md", path).count("1 distinct, seeded")
        == 1
        == told(text("html", path)).count("0 of 100 differed, 1 distinct, seeded")
    )


def test_markdown_pieces_are_lazy(run: Path) -> None:
    """Reports come in pieces, so that ten thousand rows need not be held as one text."""
    for form in RENDERERS.values():
        assert next(iter(form(load([str(run)]))))
    assert len(list(export.render_json(load([str(run)])))) > 1
