"""Reports of synthetic runs, in what goldens cannot show: escapes, numbers for machines, empty runs, old files and threads."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import jinja2
import pytest
from markdown_it import MarkdownIt

from detmatrix.reports import render as markdown
from detmatrix.reports.cli.report import RENDERERS
from detmatrix.reports.cli.writing import command_words, update
from detmatrix.reports.render import code, plain
from detmatrix.scanner.errors import UsageError
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


# --- Templates of Markdown: whatever a value holds, it stays in its cell and is no markup, unless a template says so.

MARKUP = "| a \\| [b](c) <b>`x`</b> \\"
TABLE = """{% filter table %}
| what | value |
{% for one in report %}
| {{ "row" }} | {{ VALUE }} |
{% endfor %}
{% endfilter %}
"""


def _made(template: str, report: object, monkeypatch: pytest.MonkeyPatch) -> str:
    environment = markdown._markdown().overlay(loader=jinja2.DictLoader({"it.md.j2": template}))
    monkeypatch.setattr(markdown, "_markdown", lambda: environment)
    return "".join(markdown.markdown_pieces("it", report))


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        ("one", markdown.plain(MARKUP)),
        ("one|code", markdown.code(MARKUP)),
        ("[one]|codes", markdown.code(MARKUP)),
        ("one ~ ''", markdown.plain(MARKUP)),
        ("['', one]|join", markdown.plain(MARKUP)),
    ],
)
def test_a_value_stays_in_its_cell(value: str, cell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell is the value escaped, in a table of two columns and two rows."""
    made = _made(TABLE.replace("VALUE", value), [MARKUP, "two\nlines\x1b[2J"], monkeypatch)
    assert made.count("\n") == 4
    assert made.splitlines()[2].split(" | ", 1)[1].removesuffix("|").strip() == cell
    assert "\x1b" not in made
    assert "<b>" not in made.replace(markdown.code(MARKUP), "")


def test_markup_is_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a macro returns is escaped as well until the template says that it is markup."""
    template = "{% macro bold(x) %}**{{ x }}**{% endmacro %}{{ bold(report) }} {{ bold(report)|safe }}"
    assert _made(template, "a_", monkeypatch) == r"\*\*a\\\_\*\* **a\_**"


def test_what_is_missing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A template that names what the report does not have fails."""
    with pytest.raises(jinja2.UndefinedError):
        _made("{{ report.nothing }}", "text", monkeypatch)


# --- Blocks between markers: regenerated in place, whole or not at all, and nothing beside them.

MD = "# Title\n\n<!-- detmatrix docs:begin -->\nold\n<!-- detmatrix docs:end -->\n\nend"
COMMAND = "detmatrix docs run.jsonl"


def file_of(folder: Path, text: str, name: str = "README.md") -> Path:
    path = folder / name
    path.write_bytes(text.encode())
    return path


def test_the_block_is_replaced(tmp_path: Path) -> None:
    """What stands between the markers is new, the begin marker names the command, and the rest is untouched."""
    path = file_of(tmp_path, MD)

    assert update(path, "docs", COMMAND, "new\n\ntext\n") == 0
    assert path.read_text() == (
        "# Title\n\n<!-- detmatrix docs:begin detmatrix docs run.jsonl -->\n\nnew\n\ntext\n\n"
        "<!-- detmatrix docs:end -->\n\nend"
    )


def test_rst_blocks_take_their_markers_indentation(tmp_path: Path) -> None:
    """A block can stand in a docstring: it is indented like its marker, whatever its own indentation."""
    path = file_of(
        tmp_path, '"""Doc.\n\n    .. detmatrix docs:begin\n    .. detmatrix docs:end\n    """\n', "a.py"
    )
    update(path, "docs", COMMAND, "    Heading:\n\n        * a\n")

    assert path.read_text() == (
        f'"""Doc.\n\n    .. detmatrix docs:begin {COMMAND}\n\n    Heading:\n\n        * a\n\n'
        '    .. detmatrix docs:end\n    """\n'
    )


def test_line_ends_and_permissions_stay(tmp_path: Path) -> None:
    """A file with CRLF line ends keeps them, and the file its mode."""
    path = file_of(tmp_path, MD.replace("\n", "\r\n"))
    path.chmod(0o640)
    update(path, "docs", COMMAND, "new\ntext")

    assert path.read_bytes().count(b"\r\n") == path.read_bytes().count(b"\n") == 9
    assert path.stat().st_mode & 0o777 == 0o640


BEGIN, END = "<!-- detmatrix docs:begin -->", "<!-- detmatrix docs:end -->"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("text", "has no block 'docs'; put the lines '<!-- detmatrix docs:begin -->' and '<!-- detmatrix docs:end -->'"),
        (f"{BEGIN}\n", ", line 1: the block 'docs' has no end marker behind this line; add it"),
        (f"\n{END}\n", ", line 2: the block 'docs' has no begin marker before this line; add it"),
        (f"{END}\n{BEGIN}\n", ", line 1: the block 'docs' has no begin marker before this line; add it"),
        (f"{MD}\n{MD}", "the begin marker of the block 'docs' stands twice (lines 3 and 10); remove one"),
        (f"{MD}\n{END}", "the end marker of the block 'docs' stands twice (lines 5 and 8); remove one"),
        (f"text {BEGIN}\n{END}", "has no begin marker before"),
    ],
)  # fmt: skip
def test_markers_that_make_no_block(tmp_path: Path, text: str, message: str) -> None:
    """Missing, unbalanced and repeated markers are one line that names file and line, and nothing is written."""
    path = file_of(tmp_path, text)

    with pytest.raises(UsageError) as raised:
        update(path, "docs", COMMAND, "new")

    assert message in str(raised.value)
    assert str(raised.value).startswith(str(path))
    assert path.read_text() == text


def test_a_block_holds_no_marker(tmp_path: Path) -> None:
    """A text with a marker in it would make a file that cannot be regenerated again."""
    path = file_of(tmp_path, MD)

    with pytest.raises(UsageError, match="marker of its own"):
        update(path, "docs", COMMAND, f"new\n{END}\n")

    assert path.read_text() == MD


def test_commands_name_no_machine() -> None:
    """An absolute path is shown by its name, and no file name can end the comment."""
    words = command_words("docs", ["/home/me/a b.jsonl", "runs/cpu.jsonl", "x-->.jsonl"], ["--format", "md"])

    assert words == "detmatrix docs 'a b.jsonl' runs/cpu.jsonl 'x--\\>.jsonl' --format md"
