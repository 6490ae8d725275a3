"""The HTML report in a real headless browser: panels, keyboard, phone, dark, filters, and hostile text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from selenium import webdriver
from selenium.webdriver.common.keys import Keys

from tests.browser import CONTRAST, HOSTILE, NEEDS_BROWSER, Page, opened, put_back, start
from tests.commands import command_in
from tests.conftest import table
from tests.goldens import prepare
from tests.runs import ENVIRONMENT, drifting, ended, every_finding, ran, row, stable, write_run

pytestmark = NEEDS_BROWSER
LONG = [f"{'n' * 40}-{place}.jsonl" for place in range(5)]
# Opens the page that a command writes of the runs that goldens are of.
Opener = Callable[..., Page]


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    """Return a browser with a profile of its own."""
    browser = start(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.quit()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the runs that goldens are of, and some in which all names are long."""
    folder = tmp_path_factory.mktemp("runs")
    prepare(folder)
    long = row(f"torch.nn.functional.{'a_long_name_' * 8}", "c" * 80, dtype="d" * 40, family="f" * 60)
    crashed = long, [*ended(long, "off", "crash", "x" * 300), *ran(long, "on", *drifting())]
    for place, name in enumerate(LONG):
        newer = replace(ENVIRONMENT, torch=f"2.{16 + place}.0+cu132")
        write_run(folder / name, [*every_finding(), crashed], environment=newer, closing=None)
    return folder


@pytest.fixture
def open_page(driver: webdriver.Chrome, runs: Path, tmp_path: Path) -> Iterator[Opener]:
    """Return a function that opens what a command line writes, with the filters of an address; put the browser back afterwards."""

    def open_(line: str, hash_: str = "") -> Page:
        path = tmp_path / "page.html"
        done = command_in(runs)(*line.split(), "--format", "html", "-o", path)
        assert done.returncode == 0, done.stderr
        return opened(driver, path, hash_)

    yield open_
    put_back(driver)


@pytest.fixture
def page(open_page: Opener) -> Page:
    """Return the open report of a run that shows every finding and every verdict."""
    return open_page("report plain.jsonl")


def test_page_loads_without_a_complaint(page: Page) -> None:
    """The ops are shown, the worst first, counted and announced, and the browser has nothing to say."""
    page.shows("8 of 9 ops")

    assert page.shown() == [
        *("index_put_", "put_", "MaxUnpool2d", "scatter_add_", "Conv2d", "cumsum", "new_op", "AvgPool3d")
    ]
    assert [one.text for one in page.all("tbody.op")[1].find_elements("css selector", "th, td")] == [
        *("torch.Tensor.put_", "≠/!\nraises", "·\nno row", "MISSING", "–", "no fix: raises")  # noqa: RUF001
    ]
    assert page.one("#shown").get_attribute("aria-live") == "polite"
    assert page.errors() == []


def test_clean_ops_are_one_line(page: Page) -> None:
    """What needs nothing done is folded until it is asked for: by its line, by its name, by its finding, by a link."""
    fold = page.one(".fold")
    assert fold.text.startswith("Show 1 clean op")
    fold.find_element("tag name", "button").click()
    page.shows("9 of 9 ops")
    assert not fold.is_displayed()
    assert page.driver.current_url.endswith("#clean=shown")

    page.one("#reset").click()
    page.shows("8 of 9 ops")
    page.one('.tile[data-finding="deterministic"]').click()
    page.shows("1 of 9 ops")
    page.one("#reset").click()
    page.one("#q").send_keys("fractional")
    page.shows("1 of 9 ops")


def test_ops_are_found(page: Page) -> None:
    """By a name that is close to what was typed, and by the square of an op in the colour of its worst case."""
    page.one("#q").send_keys("scater_ad")
    page.shows("0 of 9 ops")
    page.one(".near").click()
    page.shows("1 of 9 ops")
    assert page.shown() == ["scatter_add_"]

    square = page.one(".families a.raises")
    name = square.accessible_name.partition(":")[0]
    square.click()
    page.shows("1 of 9 ops")
    assert len(page.all(".families a")) == 9
    assert name.endswith(page.shown()[0])


def test_a_click_on_a_head_sorts(page: Page) -> None:
    """By name, and by the worst that a device shows; a second click turns the order round."""
    page.all(".ops .sort")[0].click()
    by_name = page.shown()
    page.all(".ops .sort")[0].click()

    assert page.shown() == by_name[::-1] != sorted(by_name)
    page.one(".ops .of .sort").click()
    assert page.shown()[0] == "index_put_"
    assert page.one(".ops .of").get_attribute("aria-sort") == "ascending"


def test_a_point_leads_to_its_row(open_page: Opener) -> None:
    """Of each measured row and mode that differed one is drawn; tests/golden/report-weak.html has all that is, and what costs."""
    page = open_page("report weak.jsonl")
    page.run("arguments[0].dispatchEvent(new MouseEvent('click', {bubbles: true}))", page.one(".rates a"))
    page.focused("collisions")


def test_an_address_names_an_op_or_a_row(page: Page) -> None:
    """The link of a row shows it again, unfolded, also where it is one of a clean op."""
    page.one("tbody.op .open").click()
    page.one(".row .here").click()
    address = page.driver.current_url
    assert address == f"{page.address}#torch.Tensor.index_put_:duplicates:backward:float64"

    page.driver.get("about:blank")
    page.driver.get(address)
    page.focused("duplicates")
    assert page.one(".panel").is_displayed()
    page.driver.get("about:blank")
    page.driver.get(f"{page.address}#torch.nn.functional.fractional_max_pool2d")
    page.focused("torch.nn.functional.fractional")
    assert [button.text for button in page.all(".row .open")] == ["wide"]


def test_panel_tells_the_evidence(open_page: Opener) -> None:
    """Perturbations, distances, what an op that raises does, costs, and why a row means little."""
    page = open_page("report weak.jsonl")
    page.select("clean", "shown")
    for button in page.unfold():
        button.click()
    put, add, ties, conv, empty, cumsum = (panel.text for panel in page.all(".panel"))

    # One of each part; tests/golden/report-weak.html has the records that they are drawn from.
    assert "stress 6 of 50 none" in add
    assert "off output 45 (process 0) 6 of 10 50 of 192 (26 %) 0.0625 1.5e-05 128 2.5e-07 0.5" in add
    assert "on, fill off 11 µs (10.5 to 11.6) not measured" in add
    assert "25 samples of 4 executions each, taken in turns." in add
    assert "Alerts: put_, index_put_" in put
    assert "output (64, 3) float32 0 none 9" in put
    assert "Perturbations, and executions that differed within their process\nNot recorded." in ties
    assert "0 of n leaves" not in empty
    assert "off not known the first of a process not measured" in conv
    assert "Low power\nthe sentinel (torch.index_put) differed in 2 of 11 executions" in cumsum
    assert "Magnitude of differences" not in cumsum
    assert not any(
        word in text
        for word in ("undefined", "NaN", "null")
        for text in (add, put, ties, empty, conv, cumsum)
    )


def test_panel_by_keyboard(page: Page) -> None:
    """A row's case is a button: Enter opens its panel, Space closes it, and both are announced."""
    op = page.one("tbody.op .open")
    op.send_keys(Keys.ENTER)
    button = page.one(".row .open")
    assert (op.get_attribute("aria-expanded"), op.accessible_name) == ("true", "torch.Tensor.index_put_")
    assert (button.aria_role, button.accessible_name) == ("button", "duplicates")
    assert button.get_attribute("aria-expanded") == "false"

    button.send_keys(Keys.ENTER)
    panel = page.one(f"#{button.get_attribute('aria-controls')}")
    assert button.get_attribute("aria-expanded") == "true"
    assert panel.is_displayed()

    assert page.one(".panel a").get_attribute("href") == "https://example.org/kernel.cu"
    assert "0 of n leaves a rate of differing up to 18.7 % plausible (95 %)." in panel.text
    assert "on 0 ran 50 50 1 1 250" in panel.text

    button.send_keys(Keys.SPACE)
    assert button.get_attribute("aria-expanded") == "false"
    assert not panel.is_displayed()


def test_rerun_command_quotes_the_row(open_page: Opener, tmp_path: Path) -> None:
    """The command names exactly this row, though ids are patterns, shells read quotes, and terminals control characters."""
    odd = row("torch.x[idx]", "it's*\x03\n")
    page = open_page(f"report {write_run(tmp_path / 'run.jsonl', [(odd, [])])}")
    page.unfold()[0].click()
    repro, again = (box.text for box in page.all(".command pre"))

    assert repro == r"detmatrix repro 'run.jsonl' 'torch.x[idx]:it'\''s*??:forward:float32' -o repro.py"
    assert again.startswith(r"detmatrix scan 'torch.x[[]idx]:it'\''s[*]??:forward:float32' --device cpu")


def test_tables_are_tables_to_a_screen_reader(page: Page) -> None:
    """Headers have their scope, tables their caption, controls their names; the skip link comes first."""
    page.unfold()
    assert {head.get_attribute("scope") for head in page.all("thead th")} == {"col", "colgroup"}
    assert {head.get_attribute("scope") for head in page.all("tr.row th, .op > tr > th")} == {"row"}
    assert len(page.all("caption")) == len(page.all("table"))
    assert {sign.get_attribute("aria-hidden") for sign in page.all("b i")} == {"true"}
    assert all(
        control.accessible_name for control in page.all("input, select, button") if control.is_displayed()
    )

    page.one("body").send_keys(Keys.TAB)
    skip = page.driver.switch_to.active_element
    assert skip.text == "Skip to the matrix"
    skip.send_keys(Keys.ENTER)
    assert page.run("return document.activeElement.id") == "matrix"


def test_hostile_text_stays_text(open_page: Opener, tmp_path: Path) -> None:
    """Markup in any text of a run file is shown as it is, in the page, in the panel, and runs nothing."""
    bad = row(HOSTILE, HOSTILE, family=HOSTILE, provokes=HOSTILE, why=HOSTILE)
    seen = [replace(one, inputs=(HOSTILE,)) for one in ran(bad, "on", *stable())]
    environment = replace(ENVIRONMENT, cpu=HOSTILE, variables={"off": {HOSTILE: HOSTILE}})
    rows = [(bad, [*ended(bad, "off", "raised", HOSTILE, exception=HOSTILE), *seen])]
    page = open_page(f"report {write_run(tmp_path / '<b>run.jsonl', rows, environment=environment)}")
    page.unfold()[0].click()

    assert page.run("return window.hacked") is None
    assert page.all("img, main script, main b b") == []
    assert page.one(".op .open").text == HOSTILE
    assert page.one(".panel").text.count(HOSTILE) >= 5
    page.one("#q").send_keys("onerror")
    page.shows("1 of 1 op")
    page.one(".row .here").send_keys(Keys.ENTER)
    assert page.run("return window.hacked") is None
    assert page.errors() == []


# The address that filters make, and the overloads, which have filters of their own.


@pytest.mark.nightly
def test_address_holds_the_filters(page: Page) -> None:
    """A filtered view is an address: opened again it shows the same, without what the page lacks; reset forgets it; / searches."""
    page.one("body").send_keys("/")
    page.driver.switch_to.active_element.send_keys("torch.tensor")
    page.shows("3 of 9 ops")
    page.one('.tile[data-finding="silent"]').click()
    page.one('.tile[data-finding="raises"]').click()
    page.select("verdict", "on:raises")
    page.shows("1 of 9 ops")
    address = page.driver.current_url
    assert address == f"{page.address}#q=torch.tensor&finding=silent,raises&verdict=on:raises"

    page.driver.get("about:blank")
    page.driver.get(address)
    page.shows("1 of 9 ops")
    assert page.shown() == ["put_"]

    page.one("#reset").click()
    page.shows("8 of 9 ops")
    assert page.driver.current_url == page.address

    page.driver.get("about:blank")
    page.driver.get(f"{page.address}#finding=gone,raises&device=cuda:7&verdict=x&run=9&clean=9")
    page.shows("1 of 9 ops")
    assert page.errors() == []


@pytest.mark.nightly
def test_overloads_are_filtered(open_page: Opener) -> None:
    """The overloads have filters of their own; lists of what was never reached open where something is found."""
    page = open_page("report overloads.jsonl")

    page.one("form.overloads").find_element("xpath", "..").find_element("tag name", "summary").click()

    def shown() -> list[str]:
        visible = "return [...document.querySelectorAll('.tall tbody tr:not([hidden]), .never code:not([hidden])')].map((one) => one.textContent)"
        return [text.split()[0] for text in page.run(visible)]

    def choose(name: str, value: str) -> None:
        page.run(
            "const one = document.querySelector(`form.overloads [name=${arguments[0]}]`); one.value = arguments[1];"
            "one.dispatchEvent(new Event('input', { bubbles: true }))",
            name,
            value,
        )

    # The page is told a moment later that the section is open, and lists them then.
    page.until(lambda: bool(shown()))
    assert len(shown()) == 12
    choose("worst", "silent")
    assert len(shown()) == 3
    choose("worst", "never")
    choose("q", "FOREACH")
    assert shown() == ["aten::_foreach_add_"]
    assert page.one("form.overloads .shown").text == "1 of 12 overloads"
    assert page.run("return document.querySelectorAll('details details[open]').length") == 1
    choose("q", "")
    assert page.run("return document.querySelectorAll('details details[open]').length") == 0
    assert page.errors() == []


# The pages of a comparison and of docs: timeline, filters, sorting, links to rows.

RELEASES = "compare 2.11.0.jsonl 2.13.0.jsonl 2.15.0.jsonl"


@pytest.fixture
def compared(open_page: Opener) -> Page:
    """Return the open comparison of three versions."""
    return open_page(RELEASES)


def test_rows_are_found(compared: Page) -> None:
    """By a name that is close to what was typed, also a row that did not change."""
    compared.one("#q").send_keys("summ")
    compared.shows("0 of 5 rows")
    compared.one('.near[value="torch.sum"]').click()
    compared.shows("1 of 5 rows")
    assert compared.rows() == ["sum"]


def test_a_link_to_a_row_opens_it(open_page: Opener) -> None:
    """A row's address shows it, open and in focus, though it is one that did not change."""
    page = open_page(RELEASES, "#torch.sum:collisions:forward:float32")
    page.shows("5 of 5 rows")

    assert page.one(".panel").is_displayed()
    page.focused("torch.sum")

    page.one("tr.row[id^='torch.put:'] .here").send_keys(Keys.ENTER)
    assert page.driver.current_url == f"{page.address}#torch.put:collisions:forward:float32"
    page.focused("torch.put")
    assert len([panel for panel in page.all(".panel") if panel.is_displayed()]) == 2


def test_the_panel_tells_every_run(compared: Page) -> None:
    """By keyboard: what each run shows, what each step rests on, and the exact test."""
    button = compared.one("tr.row[id^='torch.put:'] .open")
    button.send_keys(Keys.ENTER)
    panel = compared.one(f"#{button.get_attribute('aria-controls')}")

    assert button.get_attribute("aria-expanded") == "true"
    assert "on: 0 of 98 → 19 of 98 further executions differed, p = " in panel.text
    assert "2.15.0+cpu regressed (unconfirmed)" in panel.text
    assert "nondeterministic: 19 of 100 differed, 20 distinct" in panel.text
    assert "undefined" not in panel.text

    compared.select("sort", "name")
    compared.shows("4 of 5 rows")
    assert compared.run(
        "return arguments[0].nextElementSibling.id", compared.one("tr.row[id^='torch.put:']")
    ) == (button.get_attribute("aria-controls"))
    button.send_keys(Keys.SPACE)
    assert not panel.is_displayed()


# What is asked of several pages: filters and orders, and that everything can be read.


@pytest.mark.nightly
@pytest.mark.parametrize(("line", "of", "filters", "left"), table("pages.txt", "filters"))
def test_filters_choose_and_order(open_page: Opener, line: str, of: str, filters: str, left: str) -> None:
    """Ops and of them rows by what one run or mode shows, by step, power, threads and costs; the address remembers it."""
    page = open_page(line)
    found, compares = [*filter("none".__ne__, left.split())], line.startswith("compare")
    rows, told = page.rows if compares else page.shown, f"{len(found)} of {of}"
    for one in filters.split():
        page.select(*one.split("="))
    page.shows(told)
    assert rows() == found
    assert compares or len(page.unfold()) == len(found)

    address = page.driver.current_url
    page.driver.get("about:blank")
    page.driver.get(address)
    page.shows(told)
    assert rows() == found
    assert page.errors() == []


# Of each page what is among that which can be read.
READ: dict[str, tuple[str, ...]] = {
    f"report weak.jsonl distrusted.jsonl {LONG[0]}": (
        *("B f silent", "B f deterministic", "TD raises", "A weak", "SPAN untrusted", "B slower"),
    ),
    f"{RELEASES} {' '.join(LONG)}": (*("B became regressed doubted", "SPAN doc redone", "SPAN doc"),),
    "docs hostile-1.jsonl": (),
    "docs drift-cpu.jsonl drift-cuda.jsonl": (),
}


@pytest.mark.nightly
@pytest.mark.parametrize("line", READ, ids=lambda line: line.partition(" ")[0])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 390, 768, 1090, 1360])
def test_everything_can_be_read(open_page: Opener, line: str, scheme: str, width: int) -> None:
    """With long names, open panels and many runs nothing is wider than the screen, contrast is 4.5, controls have names."""
    page, name = open_page(line), line.partition(" ")[0]
    page.resize(width)
    page.scheme(scheme)
    if name != "docs":
        page.select(*(("clean", "shown") if name == "report" else ("class", "all")))
        for button in page.unfold()[::4] if name == "report" else page.all(".open"):
            page.run("arguments[0].click()", button)
    if name == "compare":
        page.run("for (const step of document.querySelectorAll('details')) step.open = true")
    worst: dict[str, float] = page.run(CONTRAST)

    assert page.too_wide() == []
    assert {*READ[line]} <= {*worst} != set()
    assert {name: ratio for name, ratio in worst.items() if ratio < 4.5} == {}
    dark = page.run("return getComputedStyle(document.body).backgroundColor") == "rgb(16, 19, 23)"
    assert dark == (scheme == "dark")
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
    page = open_page("docs 2.13.0.jsonl")
    page.one(".claims thead .sort").click()
    up = _bullets(page)
    page.one(".claims thead .sort").click()
    assert up == sorted(up)
    assert _bullets(page) == up[::-1]
    assert page.one(".claims thead th").get_attribute("aria-sort") == "descending"

    page.one(".tile[data-state=confirmed]").click()
    page.shows("1 of 4 lines")
    assert (_bullets(page), page.run("return location.hash")) == (["torch.add"], "#state=confirmed")
    back = open_page("docs 2.13.0.jsonl", "#state=contradicted,confirmed&list=raises&q=torch.put")
    back.shows("1 of 4 lines")
    assert _bullets(back) == ["torch.put"]


def test_the_first_bullet_is_on_the_first_screen_of_a_phone(open_page: Opener) -> None:
    """Whole, below the runs, the kinds and the filters, with its agreement right below it."""
    page = open_page("docs 2.13.0.jsonl")
    page.resize(390)
    boxes = [
        f"document.querySelector('tr.claim {it}').getBoundingClientRect()" for it in ("th", ".f", ".told")
    ]

    assert page.run(f"return [{boxes[1]}.right < 390, {boxes[2]}.right < 390]") == [True, True]
    assert page.run(f"return {boxes[1]}.top - {boxes[0]}.bottom") < 10
    assert page.run("return document.querySelector('tr.claim').getBoundingClientRect().bottom") < 844
    assert page.too_wide() == []
