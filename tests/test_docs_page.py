"""The page of docs in a real headless browser: bullets the worst first, filters, phones, dark, and hostile text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from selenium import webdriver

from detmatrix.reports.docs.judge import join
from detmatrix.reports.docs.view import page_of
from detmatrix.reports.matrix.model import Matrix
from detmatrix.reports.render import write_report
from detmatrix.scanner.claims.tables import parse_claims
from tests.browser import CONTRAST, HOSTILE, NEEDS_BROWSER, Page, opened, put_back
from tests.compared import run_of, shows
from tests.documented import docstring
from tests.runs import row

pytestmark = NEEDS_BROWSER
ROOT = Path(__file__).parent.parent
TEXT = docstring(
    [":func:`torch.b` when called on a CPU tensor", ":func:`torch.a` when called on a CPU tensor"],
    [":func:`torch.c`", f":func:`torch.d` {HOSTILE}"],
)
Opener = Callable[..., Page]


def _run() -> Matrix:
    """Return a run that contradicts one bullet, confirms one, and shows an op that no bullet is about."""
    rows = [
        shows("raises", row("torch.a")),
        shows("fixed_by_mode", row("torch.b")),
        shows("raises", row("torch.e")),
    ]
    return run_of(*rows, claims=parse_claims(TEXT))


@pytest.fixture
def open_page(driver: webdriver.Chrome, tmp_path: Path) -> Iterator[Opener]:
    """Return a function that opens the page of the run, and put the browser back afterwards."""

    def open_(hash_: str = "") -> Page:
        path = tmp_path / "docs.html"
        write_report(path, page_of(join([_run()])))
        return opened(driver, path, hash_)

    yield open_
    put_back(driver)


def _bullets(page: Page) -> list[str]:
    """Return the bullets that can be seen."""
    script = (
        "return [...document.querySelectorAll('tr.claim')].filter((r) => r.checkVisibility())"
        ".map((r) => r.querySelector('th code').textContent)"
    )
    return list(page.run(script))


def test_filters_stand_in_the_address(open_page: Opener) -> None:
    """Tiles, lists and words choose bullets, and an address brings them back."""
    page = open_page()
    page.one(".tile[data-state=confirmed]").click()
    page.shows("1 of 3 lines")
    chosen = _bullets(page)
    address = page.run("return location.hash")
    back = open_page("#state=contradicted,confirmed&list=deterministic&q=torch.a")
    back.shows("1 of 3 lines")

    assert (chosen, address) == (["torch.b"], "#state=confirmed")
    assert _bullets(back) == ["torch.a"]


def test_a_click_on_a_head_sorts(open_page: Opener) -> None:
    """By what the column says; a second click turns the order round."""
    page = open_page()
    page.one(".claims thead .sort").click()
    up = _bullets(page)
    page.one(".claims thead .sort").click()

    assert up == sorted(up)
    assert _bullets(page) == up[::-1]
    assert page.one(".claims thead th").get_attribute("aria-sort") == "descending"


def test_the_first_bullet_is_on_the_first_screen_of_a_phone(open_page: Opener) -> None:
    """Whole, below the runs, the kinds and the filters."""
    page = open_page()
    page.resize(390)

    assert page.run("return document.querySelector('tr.claim').getBoundingClientRect().bottom") < 844
    assert page.too_wide() == []


@pytest.mark.nightly
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1400])
def test_everything_can_be_read(driver: webdriver.Chrome, tmp_path: Path, scheme: str, width: int) -> None:
    """There is enough contrast, and nothing is wider than the screen."""
    for path in [tmp_path / "page.html"]:
        write_report(path, page_of(join([_run()])))
        page = opened(driver, path)
        page.resize(width, mobile=False)
        page.scheme(scheme)
        worst = page.run(CONTRAST)

        assert min(worst.values()) >= 4.5, worst
        assert page.too_wide() == []
        assert page.errors() == []
    put_back(driver)
