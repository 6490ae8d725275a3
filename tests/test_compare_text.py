"""The comparison as Markdown: what changed, worst first, what it rests on, and nothing that a run says as markup."""

from __future__ import annotations

from html import unescape
from typing import Any

import pytest

from reports.compare.page import RENDERERS
from reports.compare.page import markdown as render
from reports.compare.runs import compare
from scanner.claims.tables import parse_claims
from scanner.modes import MODE_TABLE
from scanner.verdicts.vocabulary import MODE_FINDING_MEANING, Finding
from tests.compared import OFTEN, run_of, shows
from tests.documented import docstring
from tests.runs import drifting, ended, raised, ran, row, stable


def _text(*matrices: Any) -> str:
    return "".join(render(compare(matrices)))


@pytest.mark.parametrize("form", ["md", "html", "json"])
def test_words_of_chosen_modes_are_explained_where_runs_have_them(form: str) -> None:
    """A detail tells what a mode found; each of its words stands in the glossary, and in none without such a mode."""
    planned, seen = shows("deterministic", row("torch.take"))
    new = (planned, [*seen, *ran(planned, "compile_on", *stable())])
    old = (planned, [*seen, *ran(planned, "compile_on", *drifting(OFTEN))])
    with_modes, without = (
        unescape("".join(RENDERERS[form](compare([run_of(one, name="a"), run_of(other, name="b")]))))
        for one, other in ((old, new), ((planned, seen), (planned, seen)))
    )

    assert "compile_on: silent → as_off" in with_modes
    for meaning in (*MODE_FINDING_MEANING.values(), MODE_TABLE["compile_on"].meaning):
        assert meaning in with_modes
        assert meaning not in without
    assert with_modes.count("in a mode that both scans chose") >= 2  # of what regressed, and of what improved


def test_a_run_without_lists_is_not_said_to_list_nothing() -> None:
    """Where no list is known of a release, Markdown and the page say that, and not that an op is not listed."""
    findings: dict[str, Finding] = {"9.0": "raises", "9.1": "silent", "9.2": "raises"}
    runs = [run_of(shows(finding), name=torch, torch=torch) for torch, finding in findings.items()]

    table = _text(*runs).split("## Timeline on cpu")[1].split("\n## ")[0]
    page = "".join(RENDERERS["html"](compare(runs)))
    assert table.count("; documented: no lists") == page.count(">doc: no lists<") == 3
    assert "not listed" not in table


HOSTILE = "evil`|<b>\n# head\x1b[31m*x*"


def test_everything_a_run_says_is_escaped() -> None:
    """Names, versions, reasons, alerts and bullets of a file cannot leave their place."""
    planned, put = row(f"torch.{HOSTILE}", HOSTILE, dtype=HOSTILE), row("torch.put")
    broken = planned, ended(planned, "off", "raised", HOSTILE, exception=HOSTILE)
    alert = put, [*shows("deterministic", put)[1][:2], *raised(put, "on", HOSTILE.replace("\n", ""))]
    claims = parse_claims(docstring([f":func:`torch.add` {HOSTILE}"], []))
    fields: dict[str, Any] = {"torch": HOSTILE, "cpu": HOSTILE, "python": HOSTILE}
    runs = [
        run_of(shows("raises", planned), alert, name=HOSTILE, **fields),
        run_of(shows("silent", planned), shows("over_alert", put), name="b", claims=claims, **fields),
        run_of(broken, shows("silent", put), name="c", **fields),
        run_of(broken, shows("silent", put), name="d", distrust=(HOSTILE,), **fields),
    ]
    text = _text(*runs)

    # All places are reached in which a file's words stand.
    assert [tuple(change.kind for change in pair.changes) for pair in compare(runs).pairs] == [
        ("regressed", "changed"),
        ("not_comparable", "regressed"),
        ("not_comparable", "not_comparable"),
    ]
    assert not [c for c in text if not c.isprintable() and c != "\n"]
    assert "<b>" not in _outside_code(text)
    assert not [line for line in text.splitlines() if line.startswith("# head")]
    assert _widths(text) == {True}


def _outside_code(text: str) -> str:
    """Return Markdown without its code spans; those of this test open with two backticks."""
    return "".join(part for place, part in enumerate(text.split("``")) if place % 2 == 0)


def _widths(text: str) -> set[bool]:
    """Tell of each table whether all of its lines have as many cells as its head."""
    found = set()
    for block in text.split("\n\n"):
        lines = [line for line in block.splitlines() if line.startswith("|")]
        counts = {line.replace("\\|", "").count("|") for line in lines}
        if lines:
            found.add(len(counts) == 1)
    return found
