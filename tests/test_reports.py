"""Reports of synthetic runs: every finding and verdict, each format, errors, and the same bytes every time."""

from __future__ import annotations

import io
from pathlib import Path

import pandas as pd
import pytest
from markdown_it import MarkdownIt

from reports.cli.report import RENDERERS
from reports.matrix import words
from reports.matrix.model import load
from reports.render.markdown import code, plain
from reports.report import export
from scanner.observations.records import Environment
from scanner.observations.settings import SETTINGS
from scanner.verdicts.vocabulary import FINDING_MEANING, FINDINGS, VERDICT_MEANING
from tests.evidence_runs import as_json, text
from tests.page_data import told
from tests.runs import Planned, drifting, ended, every_finding, ran, row, stable, write_run

HOSTILE = "<script>alert(1)</script> | `x` **b** [l](http://e) </td> {{ 7 * 7 }} \x1b[31m \u202e\nsecond line"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return a run file that shows every finding and every verdict."""
    return write_run(tmp_path / "run.jsonl")


def hostile_rows() -> list[Planned]:
    bad = row(HOSTILE, HOSTILE, family=HOSTILE, provokes=HOSTILE, why=HOSTILE)
    return [(bad, [*ended(bad, "off", "crash", HOSTILE), *ran(bad, "on", *stable())])]


def test_synthetic_run_shows_everything(run: Path) -> None:
    """The runs the tests share have every finding and every verdict; so no format can leave one out unseen."""
    (one,) = load([str(run)])

    assert set(FINDING_MEANING) - {"uninitialized", "order_dependent"} == {
        found.finding for found in one.rows
    }
    assert set(VERDICT_MEANING) == {cell.verdict for found in one.rows for cell in (found.off, found.on)}


def test_markdown_explains_every_word(run: Path) -> None:
    """Each verdict, each finding and each other word is printed with its sentence."""
    message = text("md", run)

    for word, meaning in (VERDICT_MEANING | FINDING_MEANING | words.GLOSSARY).items():
        assert f"* **{plain(word)}**: {plain(meaning)}\n" in message


@pytest.mark.parametrize("form", ["md", "html"])
def test_whole_environment_is_told(run: Path, form: str) -> None:
    """Everything recorded of the machine and the settings has a label and stands in the report."""
    (one,) = load([str(run)])
    message = text(form, run)

    assert set(words._ENVIRONMENT) | {"variables"} == set(Environment.__struct_fields__)
    told = [
        setting.label for name, setting in SETTINGS.items() if name not in {"simulate", "multiprocessors"}
    ]
    assert told == [label for label, _ in words.settings_words(one)[1 : 1 + len(told)]]
    for label, value in words.environment_words(one) + words.settings_words(one):
        if form == "md":
            assert f"* {plain(label)}: {plain(value)}\n" in message
        else:
            assert f"<dt>{label}</dt><dd>{value}</dd>" in message


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


def test_only_filters_rows_and_keeps_counts(run: Path) -> None:
    """--only shows the rows asked for, says so, and goes on counting the whole scan."""
    message = as_json(run, only=("silent,raises",))

    assert [one["finding"] for one in message["rows"]] == ["raises", "silent"]
    assert message["only"] == ["silent", "raises"]
    assert sum(message["counts"].values()) == 10
    assert "Shown: 2 of 10 rows, those found silent or raises." in text("md", run, only=("raises", "silent"))
    assert text("csv", run, only=("raises", "silent")).count("\n") == 3


@pytest.mark.parametrize("form", RENDERERS)
def test_only_may_leave_nothing(tmp_path: Path, form: str) -> None:
    """A finding that no row has leaves an empty matrix, not an error."""
    message = text(form, write_run(tmp_path / "run.jsonl", every_finding()[:1]), only=("silent",))

    assert "torch.Tensor.scatter_add_" not in message
    if form in ("md", "html"):
        assert "Shown: 0 of 1 rows" in message


def test_incomplete_run(tmp_path: Path) -> None:
    """A scan without its closing line is called incomplete, first thing; what is missing has that reason."""
    path = write_run(tmp_path / "run.jsonl", closing=None)
    message = text("md", path)

    caution = (
        "> [!CAUTION]\n> **Incomplete: the scan did not finish; 10 of 10 rows were observed at least once."
    )
    assert caution in message.split("| finding")[0]
    assert "* not_run: the scan was interrupted before this case\n" in message
    assert "* wall time: not recorded, the scan did not finish\n" in message
    assert as_json(path)["complete"] is False
    assert "Incomplete: the scan did not finish" in text("html", path).split("<h2")[0]


def test_several_runs(tmp_path: Path, run: Path) -> None:
    """Several runs keep apart: an object each in JSON, a document each in Markdown, a column in CSV."""
    (tmp_path / "b").mkdir()
    same_name = write_run(tmp_path / "b" / "run.jsonl", every_finding()[:2])
    other = write_run(tmp_path / "other.jsonl", every_finding()[:1], closing=None)
    message = as_json(run, same_name, other)
    table = pd.read_csv(io.StringIO(text("csv", run, same_name, other)))

    assert [one["path"] for one in message["runs"]] == ["run.jsonl", "run.jsonl (2)", "other.jsonl"]
    assert [len(one["rows"]) for one in message["runs"]] == [10, 2, 1]
    assert list(message["runs"][1])[:4] == ["environment", "settings", "rows", "path"]
    assert table["run"].value_counts().to_dict() == {"run.jsonl": 10, "run.jsonl (2)": 2, "other.jsonl": 1}
    assert (
        text("md", run, same_name, other).count("# Nondeterminism matrix of torch 2.13.0+cpu on cpu\n") == 3
    )
    assert text("md", run, same_name, other).count("## Glossary\n") == 1


def test_empty_plan(tmp_path: Path) -> None:
    """A run without rows gives every report, each saying that there is nothing."""
    path = write_run(tmp_path / "run.jsonl", [])

    assert "No row was planned.\n" in text("md", path)
    assert "No row to show." in text("html", path)
    assert as_json(path)["rows"] == []
    assert text("csv", path).count("\n") == 1


def test_bounds_of_unequal_cells(tmp_path: Path) -> None:
    """Where cells ran unequally often, the bound is told for each n."""
    one = row("torch.cumsum")
    path = write_run(
        tmp_path / "run.jsonl",
        [(one, [*ran(one, "off", *drifting()), *ran(one, "on", {"a": 50})])],
        closing=None,
    )

    assert "36 % for n = 50 in one process (as for 6.72 independent executions). Executions" in text(
        "md", path
    )


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
