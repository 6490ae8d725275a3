"""Templates of Markdown: whatever a value holds, it stays in its cell and is no markup, unless a template says so."""

from __future__ import annotations

import jinja2
import pytest

from detmatrix.reports.render import markdown

HOSTILE = "| a \\| [b](c) <b>`x`</b> \\"
TABLE = """{% filter table %}
| what | value |
{% for one in report %}
| {{ "row" }} | {{ VALUE }} |
{% endfor %}
{% endfilter %}
"""


def _made(template: str, report: object, monkeypatch: pytest.MonkeyPatch) -> str:
    environment = markdown._environment().overlay(loader=jinja2.DictLoader({"it.md.j2": template}))
    monkeypatch.setattr(markdown, "_environment", lambda: environment)
    return "".join(markdown.generate("it", report))


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        ("one", markdown.plain(HOSTILE)),
        ("one|code", markdown.code(HOSTILE)),
        ("[one]|codes", markdown.code(HOSTILE)),
        ("one ~ ''", markdown.plain(HOSTILE)),
        ("['', one]|join", markdown.plain(HOSTILE)),
    ],
)
def test_a_value_stays_in_its_cell(value: str, cell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell is the value escaped, in a table of two columns and two rows."""
    made = _made(TABLE.replace("VALUE", value), [HOSTILE, "two\nlines\x1b[2J"], monkeypatch)
    assert made.count("\n") == 4
    assert made.splitlines()[2].split(" | ", 1)[1].removesuffix("|").strip() == cell
    assert "\x1b" not in made
    assert "<b>" not in made.replace(markdown.code(HOSTILE), "")


def test_markup_is_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a macro returns is escaped as well until the template says that it is markup."""
    template = "{% macro bold(x) %}**{{ x }}**{% endmacro %}{{ bold(report) }} {{ bold(report)|safe }}"
    assert _made(template, "a_", monkeypatch) == r"\*\*a\\\_\*\* **a\_**"


def test_what_is_missing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A template that names what the report does not have fails."""
    with pytest.raises(jinja2.UndefinedError):
        _made("{{ report.nothing }}", "text", monkeypatch)
