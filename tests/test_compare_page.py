"""The pages of a comparison and of docs in a real headless browser: timeline, filters, sorting, links to rows, hostile text."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from selenium.webdriver.common.keys import Keys

from detmatrix.reports.compare.page import render
from detmatrix.reports.compare.runs import compare
from detmatrix.reports.docs.judge import join
from detmatrix.reports.docs.view import page_of
from detmatrix.reports.matrix.model import Matrix
from detmatrix.scanner.claims.tables import parse_claims
from detmatrix.scanner.observations.records import Row
from detmatrix.scanner.verdicts.vocabulary import Finding
from tests.browser import CONTRAST, HOSTILE, NEEDS_BROWSER, Page
from tests.compared import run_of, shows
from tests.documented import docstring
from tests.evidence_runs import cost
from tests.runs import Planned, ended, ran, row, stable

VERSIONS = ("2.11.0", "2.13.0", "2.15.0")
ADD, PUT, TAKE = row("torch.add"), row("torch.put", family="indexing"), row("torch.take", family="indexing")
SORT, SUM = row("torch.sort", family="sorting"), row("torch.sum", family="reduction")
HISTORY: list[tuple[Row, tuple[Finding, ...]]] = [
    (ADD, ("raises", "fixed_by_mode", "silent")),
    (PUT, ("deterministic", "deterministic", "silent")),
    (TAKE, ("fixed_by_mode", "deterministic", "deterministic")),  # differs too seldom for a proof
    (SORT, ("fixed_by_mode", "fixed_by_mode", "fixed_by_mode")),
]
pytestmark = NEEDS_BROWSER
Opener = Callable[..., Page]


def versions() -> list[Matrix]:
    """Return the runs of three versions; the sums of the last one have other bits, and its lists another bullet."""
    runs = []
    for place, version in enumerate(VERSIONS):
        rows: list[Planned] = [
            shows(findings[place], planned, often=3 if planned is TAKE else 20)
            for planned, findings in HISTORY
        ]
        bits = stable("b" if version == "2.15.0" else "a")
        rows.append((SUM, [one for mode in ("off", "on") for one in ran(SUM, mode, *bits)]))
        raising = [":func:`torch.add`", *([":func:`torch.sort`"] if version == "2.15.0" else [])]
        runs.append(
            run_of(
                *rows,
                name=f"torch-{version}.jsonl",
                torch=version,
                claims=parse_claims(docstring([], raising)),
                costs=[cost(SUM, 1e-5, 4e-5 if version == "2.15.0" else 1e-5)],
                python=f"3.{10 + place}.0",
            )
        )
    return runs


@pytest.fixture
def page(open_page: Opener) -> Page:
    """Return the open comparison of three versions."""
    return open_page(pieces=render(compare(versions())))


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("filters", "ops"),
    [
        ({"class": "regressed"}, ["add", "put"]),
        ({"class": "improved"}, ["add"]),
        ({"class": "not_comparable"}, ["take"]),
        ({"class": "same"}, ["sort", "sum"]),
        ({"class": "other_bits"}, ["sum"]),
        ({"class": "documented"}, ["sort"]),
        ({"class": "all"}, ["add", "put", "take", "sort", "sum"]),
        ({"step": "1:1"}, ["add", "take"]),
        ({"step": "1:2"}, ["add", "put"]),
        ({"step": "1:1", "class": "regressed"}, []),
        ({"finding": "raises"}, ["add"]),
        ({"family": "indexing"}, ["put", "take"]),
        ({"direction": "backward"}, []),
        ({"verdict": "on:raises"}, ["add"]),
        ({"verdict": "nondeterministic"}, ["add", "put", "take"]),
        ({"verdict": "on:raises", "finding": "silent"}, []),  # in one run it raised, in another it was silent
        ({"class": "all", "slower": "2"}, ["sum"]),
        # 1 of 100 differed in one run with the flag off, 0 of 100 with it on.
        ({"class": "all", "power": "low"}, ["take"]),
        ({"class": "all", "power": "other", "family": "sorting"}, ["sort"]),
        ({"class": "all", "sort": "name"}, ["add", "put", "sort", "sum", "take"]),
        ({"class": "all", "sort": "family"}, ["put", "take", "sum", "add", "sort"]),
    ],
)
def test_filters_and_orders(page: Page, filters: dict[str, str], ops: list[str]) -> None:
    """Rows can be had by step, by what one run shows, and in three orders; the address remembers it."""
    for name, value in filters.items():
        page.select(name, value)
    page.shows(f"{len(ops)} of 5 rows")
    assert page.rows() == ops

    address = page.driver.current_url
    page.driver.get("about:blank")
    page.driver.get(address)
    page.shows(f"{len(ops)} of 5 rows")
    assert page.rows() == ops
    assert page.errors() == []


def test_rows_are_found(page: Page) -> None:
    """By a name that is close to what was typed, also a row that did not change."""
    page.one("#q").send_keys("sorrt")
    page.shows("0 of 5 rows")
    page.one('.near[value="torch.sort"]').click()
    page.shows("1 of 5 rows")
    assert page.rows() == ["sort"]


def test_a_link_to_a_row_opens_it(open_page: Opener) -> None:
    """A row's address shows it, open and in focus, though it is one that did not change."""
    page = open_page(pieces=render(compare(versions())), hash_="#torch.sort:collisions:forward:float32")
    page.shows("5 of 5 rows")

    assert page.one(".panel").is_displayed()
    page.focused("torch.sort")

    page.one("tr.row[id^='torch.put:'] .here").send_keys(Keys.ENTER)
    assert page.driver.current_url == f"{page.address}#torch.put:collisions:forward:float32"
    page.focused("torch.put")
    assert len([panel for panel in page.all(".panel") if panel.is_displayed()]) == 2


def test_the_panel_tells_every_run(page: Page) -> None:
    """By keyboard: what each run shows, what each step rests on, and the exact test."""
    button = page.one("tr.row[id^='torch.put:'] .open")
    button.send_keys(Keys.ENTER)
    panel = page.one(f"#{button.get_attribute('aria-controls')}")

    assert button.get_attribute("aria-expanded") == "true"
    assert "on: 0 of 98 → 19 of 98 further executions differed, p = " in panel.text
    assert "2.15.0 regressed (unconfirmed)" in panel.text
    assert "nondeterministic: 19 of 100 differed, 20 distinct" in panel.text
    assert "undefined" not in panel.text

    page.select("sort", "name")
    page.shows("3 of 5 rows")
    assert page.run("return arguments[0].nextElementSibling.id", page.one("tr.row[id^='torch.put:']")) == (
        button.get_attribute("aria-controls")
    )
    button.send_keys(Keys.SPACE)
    assert not panel.is_displayed()


def _nine_versions() -> list[Matrix]:
    """Return runs with long names, one of a row that has a finding in no other, one that is not to be trusted."""
    long = row("torch.nn.functional." + "a_long_name_" * 6, "c" * 60, family="f" * 60)
    dead = row("torch.dead"), ended(row("torch.dead"), "off", "crash", "killed")
    return [
        run_of(
            *(shows("silent" if place % 2 else "deterministic", planned) for planned in (long, ADD, PUT)),
            *[dead] * (place == 3),
            name=f"{'n' * 40}-{place}.jsonl",
            torch=f"2.{place}.0+cu132",
            claims=parse_claims(docstring([], [":func:`torch.add`"] * (place > 4))),
            distrust=("the control varies shows nothing",) * (place == 8),
        )
        for place in range(9)
    ]


def _docs() -> Iterator[str]:
    """Return the page of docs of a run that contradicts one bullet, confirms one, and shows an op that no bullet is about."""
    text = docstring(
        [":func:`torch.b` when called on a CPU tensor", ":func:`torch.a` when called on a CPU tensor"],
        [":func:`torch.c`", f":func:`torch.d` {HOSTILE}"],
    )
    findings: dict[str, Finding] = {"a": "raises", "b": "fixed_by_mode", "e": "raises"}
    rows = [shows(finding, row(f"torch.{name}")) for name, finding in findings.items()]
    return page_of(join([run_of(*rows, claims=parse_claims(text))]))


@pytest.mark.nightly
@pytest.mark.parametrize("docs", [False, True])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 768, 1360])
def test_everything_can_be_read(open_page: Opener, scheme: str, width: int, *, docs: bool) -> None:
    """With nine versions, long names and open panels nothing is wider than the screen, contrast is 4.5, controls have names."""
    page = open_page(pieces=_docs() if docs else render(compare(_nine_versions())))
    page.resize(width, mobile=width < 500)
    page.scheme(scheme)
    if not docs:
        page.select("class", "all")
        for button in page.all(".open"):
            page.run("arguments[0].click()", button)
        page.run("for (const step of document.querySelectorAll('details')) step.open = true")
    worst: dict[str, float] = page.run(CONTRAST)

    assert page.too_wide() == []
    assert worst
    assert docs or {"B became regressed doubted", "SPAN doc redone", "SPAN doc"} <= set(worst)
    assert {name: ratio for name, ratio in worst.items() if ratio < 4.5} == {}
    assert all(one.accessible_name for one in page.all("input, select, button, a") if one.is_displayed())
    assert page.errors() == []


def _bullets(page: Page) -> list[str]:
    """Return the bullets of the page of docs that can be seen."""
    script = (
        "return [...document.querySelectorAll('tr.claim')].filter((r) => r.checkVisibility())"
        ".map((r) => r.querySelector('th code').textContent)"
    )
    return list(page.run(script))


def test_bullets_are_filtered_and_sorted(open_page: Opener) -> None:
    """Tiles, lists and words choose bullets, an address brings them back, and heads sort them, a second click the other way."""
    page = open_page(pieces=_docs())
    page.one(".claims thead .sort").click()
    up = _bullets(page)
    page.one(".claims thead .sort").click()
    assert up == sorted(up)
    assert _bullets(page) == up[::-1]
    assert page.one(".claims thead th").get_attribute("aria-sort") == "descending"

    page.one(".tile[data-state=confirmed]").click()
    page.shows("1 of 3 lines")
    assert (_bullets(page), page.run("return location.hash")) == (["torch.b"], "#state=confirmed")
    back = open_page(pieces=_docs(), hash_="#state=contradicted,confirmed&list=deterministic&q=torch.a")
    back.shows("1 of 3 lines")
    assert _bullets(back) == ["torch.a"]


def test_the_first_bullet_is_on_the_first_screen_of_a_phone(open_page: Opener) -> None:
    """Whole, below the runs, the kinds and the filters."""
    page = open_page(pieces=_docs())
    page.resize(390)

    assert page.run("return document.querySelector('tr.claim').getBoundingClientRect().bottom") < 844
    assert page.too_wide() == []
