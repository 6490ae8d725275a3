"""The HTML report in a real headless browser: filters, panels, keyboard, phone, dark, print, and hostile text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest
from msgspec.structs import replace
from selenium import webdriver
from selenium.webdriver.common.keys import Keys

from reports.cli import RENDERERS
from reports.matrix import load
from reports.output import write_report
from tests.browser import CONTRAST, HOSTILE, NEEDS_BROWSER, Page, opened, put_back
from tests.evidence_runs import controls, evidence_run
from tests.runs import ENVIRONMENT, Planned, drifting, ended, every_finding, ran, row, stable, write_run
from tests.test_coverage_command import DISPATCHES, KERNELS, ROWS, SETTINGS

pytestmark = NEEDS_BROWSER


class Opener(Protocol):
    """Renders run files and opens the page."""

    def __call__(self, *runs: Path, hash_: str = "") -> Page:
        """Open it, with the filters of an address."""
        ...


@pytest.fixture
def open_page(driver: webdriver.Chrome, tmp_path: Path) -> Iterator[Opener]:
    """Return a function that opens the report of run files, and put the browser back afterwards."""

    def open_(*runs: Path, hash_: str = "") -> Page:
        path = tmp_path / "report.html"
        write_report(path, RENDERERS["html"](load([str(run) for run in runs])))
        return opened(driver, path, hash_)

    yield open_
    put_back(driver)


@pytest.fixture
def page(open_page: Opener, tmp_path: Path) -> Page:
    """Return the open report of a run that shows every finding and every verdict."""
    return open_page(write_run(tmp_path / "run.jsonl"))


def two_runs(folder: Path) -> tuple[Path, Path]:
    """Return a run on the CPU and one of some of its rows on CUDA."""
    on_cuda: list[Planned] = [
        (replace(planned, device="cuda:0"), observations) for planned, observations in every_finding()[:4]
    ]
    environment = replace(ENVIRONMENT, gpu="Example GPU", torch="2.11.0+cu130")
    return (
        write_run(folder / "cpu.jsonl"),
        write_run(folder / "cuda.jsonl", on_cuda, environment=environment, closing=None),
    )


def test_page_loads_without_a_complaint(page: Page) -> None:
    """The whole matrix is shown, counted and announced, and the browser has nothing to say."""
    page.told("10 of 10 rows")

    assert len(page.shown()) == 10
    assert [tile.text.split("\n")[0:2] for tile in page.all(".tile")][:3] == [
        ["all rows", "10"],
        ["▲silent", "1"],
        ["■raises", "1"],
    ]
    assert page.one("#shown").get_attribute("aria-live") == "polite"
    assert page.errors() == []


def test_filter_by_text(page: Page) -> None:
    """Every word typed must stand in the row: its id, its reason, its alert caller."""
    page.one("#q").send_keys("put_ ALERT")
    page.told("0 of 10 rows")
    assert page.one(".nothing").is_displayed()

    page.one("#q").clear()
    page.one("#q").send_keys("Forward put_")
    page.told("1 of 10 rows")
    assert page.shown() == ["put_"]
    assert [family.text for family in page.all(".family h3") if family.is_displayed()] == ["indexing"]

    page.one("#q").clear()
    page.one("#q").send_keys("signal 11")
    page.told("1 of 10 rows")
    assert page.shown() == ["cumsum"]


def test_filter_by_finding(page: Page) -> None:
    """The overview's counts are switches: one finding, two, none; the list beside them follows."""
    page.one('.tile[data-finding="silent"]').click()
    page.told("1 of 10 rows")
    assert page.shown() == ["index_put_"]
    assert page.one("#finding").get_attribute("value") == "silent"

    page.one('.tile[data-finding="inconclusive"]').click()
    page.told("4 of 10 rows")
    pressed = [tile.get_attribute("data-finding") for tile in page.all('.tile[aria-pressed="true"]')]
    assert pressed == ["silent", "inconclusive"]

    page.select("finding", "raises")
    page.told("1 of 10 rows")
    assert page.shown() == ["put_"]

    page.one('.tile[data-finding=""]').click()
    page.told("10 of 10 rows")


@pytest.mark.parametrize(
    ("verdict", "ops"),
    [
        ("raises", ["put_", "MaxUnpool2d"]),
        ("nondeterministic", ["scatter_add_", "put_", "index_put_"]),
        ("off:nondeterministic", ["scatter_add_", "put_"]),
        ("on:nondeterministic", ["index_put_"]),
        ("on:timeout", []),
        ("crash", ["cumsum"]),
    ],
)
def test_filter_by_verdict(page: Page, verdict: str, ops: list[str]) -> None:
    """A verdict is looked for in either mode or in one of them."""
    page.select("verdict", verdict)
    page.told(f"{len(ops)} of 10 rows")

    assert page.shown() == ops


def test_filter_by_device_and_run(open_page: Opener, tmp_path: Path) -> None:
    """Several runs stand together, row beside row, and can be told apart by device and by run."""
    page = open_page(*two_runs(tmp_path))
    page.told("14 of 14 rows")
    assert page.shown()[:4] == ["scatter_add_"] * 4

    page.select("device", "cuda:0")
    page.told("4 of 14 rows")
    page.select("device", "")
    page.select("run", "1")
    page.told("10 of 14 rows")
    page.one("#reset").click()
    page.told("14 of 14 rows")
    assert "cuda.jsonl: Incomplete" in page.one(".alarm").text


@pytest.mark.parametrize(
    ("name", "value", "ops"),
    [
        ("power", "low", ["cumsum"]),
        ("power", "other", ["scatter_add_", "put_", "topk", "empty", "Conv2d"]),
        ("slower", "2", ["scatter_add_", "empty"]),
        ("slower", "timed", ["scatter_add_", "topk", "empty"]),
        ("slower", "untimed", ["put_", "Conv2d", "cumsum"]),
        ("verdict", "warn_only:nondeterministic", ["put_"]),
        ("verdict", "nondeterministic", ["scatter_add_", "topk", "Conv2d"]),
    ],
)
def test_filter_by_evidence(open_page: Opener, tmp_path: Path, name: str, value: str, ops: list[str]) -> None:
    """Rows of low power, slow rows and rows made to run can be asked for, and the address remembers it."""
    page = open_page(evidence_run(tmp_path / "run.jsonl"))
    page.select(name, value)
    page.told(f"{len(ops)} of 6 rows")
    assert page.shown() == ops

    address = page.driver.current_url
    page.driver.get("about:blank")
    page.driver.get(address)
    page.told(f"{len(ops)} of 6 rows")
    assert page.errors() == []


def test_low_power_leads_to_its_reason(open_page: Opener, tmp_path: Path) -> None:
    """The mark of a row of low power is a link to why."""
    page = open_page(evidence_run(tmp_path / "run.jsonl"))
    (link,) = page.all("a.weak")
    link.send_keys(Keys.ENTER)

    assert page.run("return document.activeElement.textContent").startswith(
        "1 row: the sentinel (torch.index_put)"
    )


def test_panel_tells_the_evidence(open_page: Opener, tmp_path: Path) -> None:
    """Perturbations, distances, what an op that raises does, costs, and why a row means little."""
    page = open_page(evidence_run(tmp_path / "run.jsonl"))
    for button in page.all(".open"):
        button.click()
    add, put, ties, empty, conv, cumsum = (panel.text for panel in page.all(".panel"))

    assert "stress 6 of 50 none" in add
    assert "off output 47 (process 0) 6 of 6 48 of 192 (25 %) 0.0625 1.5e-05 128 2.5e-07 0.25" in add
    assert "differs between processes only" in conv
    assert "on, fill off 11 µs (10.5 to 11.6) not measured" in add
    assert "25 samples of 4 executions each, taken in turns." in add
    assert "Alerts: put_, index_put_" in put
    assert "nondeterministic: 9 of 100 differed, 10 distinct, within a process" in put
    assert "warn_only output 41 (process 0)" in put
    assert "RuntimeError: put_ has none" in put
    assert "output (64, 3) float32 0 none 9" in put
    assert "Perturbations, and executions that differed within their process\nNot recorded." in ties
    assert "the flag fills it" in empty
    assert "0 of n leaves" not in empty
    assert "off not known the first of a process not measured" in conv
    assert "Low power\nthe sentinel (torch.index_put) differed in 2 of 11 executions" in cumsum
    assert "How far" not in cumsum
    assert not any(
        word in told
        for word in ("undefined", "NaN", "null")
        for told in (add, put, ties, empty, conv, cumsum)
    )


def test_address_holds_the_filters(page: Page) -> None:
    """A filtered view is an address: opened again it shows the same, and reset forgets it."""
    page.one("#q").send_keys("torch.tensor")
    page.told("4 of 10 rows")
    page.one('.tile[data-finding="silent"]').click()
    page.one('.tile[data-finding="raises"]').click()
    page.select("verdict", "on:raises")
    page.told("1 of 10 rows")
    address = page.driver.current_url
    assert address == f"{page.address}#q=torch.tensor&finding=silent,raises&verdict=on:raises"

    page.driver.get("about:blank")
    page.driver.get(address)
    page.told("1 of 10 rows")
    assert page.shown() == ["put_"]

    page.one("#reset").click()
    page.told("10 of 10 rows")
    assert page.driver.current_url == page.address


def test_address_of_another_report(open_page: Opener, tmp_path: Path) -> None:
    """What this page does not have is left out of an address instead of hiding everything."""
    page = open_page(
        write_run(tmp_path / "run.jsonl"), hash_="#finding=gone,raises&device=cuda:7&verdict=x&run=9"
    )

    page.told("1 of 10 rows")
    assert page.errors() == []


def test_links_keep_the_filters(page: Page) -> None:
    """Jumping to a family moves the focus there and leaves the filters in the address."""
    page.one('.tile[data-finding="inconclusive"]').click()
    page.told("3 of 10 rows")
    page.one(".families li:last-child a").click()

    assert page.driver.current_url.endswith("#finding=inconclusive")
    assert page.run("return document.activeElement.querySelector('h3').textContent") == "pooling"


def test_panel_by_keyboard(page: Page) -> None:
    """A row's case is a button: Enter opens its panel, Space closes it, and both are announced."""
    button = page.all(".open")[3]
    assert (button.aria_role, button.accessible_name) == ("button", "duplicates")
    assert button.get_attribute("aria-expanded") == "false"

    button.send_keys(Keys.ENTER)
    panel = page.one(f"#{button.get_attribute('aria-controls')}")
    assert button.get_attribute("aria-expanded") == "true"
    assert panel.is_displayed()

    told = panel.text
    assert page.one(".panel a").get_attribute("href") == "https://example.org/kernel.cu"
    assert "torch.Tensor.index_put on cpu" in told
    assert "args[2]: int64 (1048576,)" in told
    assert "nondeterministic: 49 of 100 differed, 50 distinct" in told
    assert "0 of n leaves a rate of differing up to 2.95 % plausible (95 %)." in told
    assert "grad of args[0] (64, 3) float64 0 49" in told
    assert "on 0 ran 50 50 1 1 0.25 0.125" in told
    assert (
        "detmatrix scan 'torch.Tensor.index_put_:duplicates:backward:float64' --device cpu --runs 50 --processes 2 "
        "--seed 0 --timeout 60 --perturb quiet -o rerun.jsonl"
    ) in told

    button.send_keys(Keys.SPACE)
    assert button.get_attribute("aria-expanded") == "false"
    assert not panel.is_displayed()


def test_panel_tells_alert_and_reason(page: Page) -> None:
    """The alert's whole text, and why a row is inconclusive, stand in the panel; absence is a word."""
    for place in (2, 4, 5):
        page.all(".open")[place].click()
    raised, crashed, missing = (panel.text for panel in page.all(".panel"))

    assert "put_ does not have a deterministic implementation, but you set" in raised
    assert "off: crash (killed by signal 11)" in crashed
    assert "off 0 crash none none none none none" in crashed
    assert "None were recorded." in missing
    assert not any(
        word in told for word in ("undefined", "NaN", "null") for told in (raised, crashed, missing)
    )


def test_panel_follows_its_row(page: Page) -> None:
    """A panel disappears with its row and comes back with it, still open."""
    page.all(".open")[0].click()
    page.one("#q").send_keys("no_collisions")
    page.told("1 of 10 rows")
    assert not page.one(".panel").is_displayed()

    page.one("#reset").click()
    page.told("10 of 10 rows")
    assert page.one(".panel").is_displayed()


def test_rerun_command_quotes_the_row(open_page: Opener, tmp_path: Path) -> None:
    """The command names exactly this row, though ids are patterns and shells read quotes."""
    odd = row("torch.x[idx]", "it's*")
    page = open_page(write_run(tmp_path / "run.jsonl", [(odd, [])]))
    page.one(".open").click()

    assert page.one(".command pre").text.startswith(
        r"detmatrix scan 'torch.x[[]idx]:it'\''s[*]:forward:float32' --device cpu"
    )


def test_tables_are_tables_to_a_screen_reader(page: Page) -> None:
    """Headers have their scope, tables their caption, controls their names; the skip link comes first."""
    assert {head.get_attribute("scope") for head in page.all(".family thead th")} == {"col"}
    assert {head.get_attribute("scope") for head in page.all("tr.row th")} == {"row"}
    assert len(page.all(".family caption")) == len(page.all(".family"))
    assert {sign.get_attribute("aria-hidden") for sign in page.all("i")} == {"true"}
    assert all(control.accessible_name for control in page.all("input, select, button"))

    page.one("body").send_keys(Keys.TAB)
    skip = page.driver.switch_to.active_element
    assert skip.text == "Skip to the matrix"
    skip.send_keys(Keys.ENTER)
    assert page.run("return document.activeElement.id") == "matrix"


@pytest.mark.parametrize("width", [320, 360, 390, 768, 1090, 1360])
def test_no_overflow(open_page: Opener, tmp_path: Path, width: int) -> None:
    """The page is never wider than the screen, also with long names, with panels open and two runs."""
    long = row("torch.nn.functional." + "a_long_name_" * 8, "c" * 80, dtype="d" * 40, family="f" * 60)
    rows = [
        *every_finding(),
        (long, [*ended(long, "off", "crash", "x" * 300), *ran(long, "on", *drifting())]),
    ]
    runs = (
        evidence_run(tmp_path / "evidence.jsonl", controls=controls("blind"), closing=None),
        write_run(tmp_path / "one.jsonl", rows),
        write_run(tmp_path / ("n" * 90 + ".jsonl"), rows, closing=None),
    )
    page = open_page(*runs)
    page.command(
        "Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=width < 500
    )
    for button in page.all(".open")[::4]:
        page.run("arguments[0].click()", button)

    assert page.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0
    wide = page.run(
        "return [...document.querySelectorAll('main *')].filter((e) => !e.closest('.scroll, .hidden, thead') "
        "&& e.getBoundingClientRect().right > innerWidth + 0.5).map((e) => e.outerHTML.slice(0, 80))"
    )
    assert wide == []


@pytest.mark.parametrize("width", [390, 1360])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast(open_page: Opener, tmp_path: Path, scheme: str, width: int) -> None:
    """Every text, the badges first of all, has a contrast of at least 4.5 in both schemes."""
    untrusted = evidence_run(tmp_path / "evidence.jsonl", controls=controls("blind"), closing=None)
    page = open_page(untrusted, *two_runs(tmp_path))
    page.command(
        "Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=False
    )
    page.command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    for button in page.all(".open")[:5]:
        page.run("arguments[0].click()", button)
    worst = page.run(CONTRAST)

    assert {"B f silent", "B f deterministic", "B v raises", "B v nondeterministic", "TD "} <= set(worst)
    assert {"A weak", "SPAN untrusted", "B slower", "TD bar-of", "SPAN strong"} <= set(worst)
    assert {name: ratio for name, ratio in worst.items() if ratio < 4.5} == {}
    dark = page.run("return getComputedStyle(document.body).backgroundColor") == "rgb(16, 19, 23)"
    assert dark == (scheme == "dark")


def test_hostile_text_stays_text(open_page: Opener, tmp_path: Path) -> None:
    """Markup in any text of a run file is shown as it is, in the page, in the panel, and runs nothing."""
    bad = row(HOSTILE, HOSTILE, dtype=HOSTILE, family=HOSTILE, device=HOSTILE, provokes=HOSTILE, why=HOSTILE)
    seen = [replace(one, inputs=(HOSTILE,)) for one in ran(bad, "on", *stable())]
    environment = replace(ENVIRONMENT, cpu=HOSTILE, variables={"off": {HOSTILE: HOSTILE}})
    page = open_page(
        write_run(
            tmp_path / "<b>run.jsonl",
            [(bad, [*ended(bad, "off", "raised", HOSTILE, exception=HOSTILE), *seen])],
            environment=environment,
        )
    )
    page.one(".open").click()

    assert page.run("return window.hacked") is None
    assert page.all("img, main script, main b b") == []
    assert page.one(".op").text == HOSTILE
    assert page.one(".panel").text.count(HOSTILE) >= 5
    page.one("#q").send_keys("onerror")
    page.told("1 of 1 row")
    assert page.errors() == []


def test_print(page: Page) -> None:
    """On paper: light, no controls, every family laid out, the words and the environment with it."""
    page.command(
        "Emulation.setEmulatedMedia",
        media="print",
        features=[{"name": "prefers-color-scheme", "value": "dark"}],
    )

    assert not page.one(".bar").is_displayed()
    assert (
        page.run("return getComputedStyle(document.querySelector('.family')).contentVisibility") == "visible"
    )
    assert page.run("return getComputedStyle(document.querySelector('td')).color") == "rgb(26, 31, 38)"
    assert len(page.shown()) == 10
    assert page.one(".words").is_displayed()


def test_page_without_scripts(driver: webdriver.Chrome, open_page: Opener, tmp_path: Path) -> None:
    """Without JavaScript the matrix is all there, reasons included, and nothing offers what cannot work."""
    driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    page = open_page(write_run(tmp_path / "run.jsonl"), evidence_run(tmp_path / "evidence.jsonl"))
    told = page.one("body").text

    assert not page.one(".bar").is_displayed()
    assert "Filters and details need JavaScript." in told
    for expected in (
        "torch.Tensor.scatter_add_",
        "49 of 100 differed, 50 distinct",
        "killed by signal 11",
        "put_, index_put_",
        "made to run: nondeterministic, 9 of 100 differed, 10 distinct",
        "constant: the flag fills it",
        "1 row: the sentinel (torch.index_put) differed in 2 of 11 executions",
        "varies off 0-1 50 distinct of 50 50 distinct of 50 yes",
        "torch.empty:plain:forward:float32 2.50\N{MULTIPLICATION SIGN}",
    ):
        assert expected in told
    assert page.one(".chart svg").is_displayed()


def test_overloads_are_filtered(open_page: Opener, tmp_path: Path) -> None:
    """The overloads have filters of their own; lists of what was never reached open where something is found."""
    run = write_run(tmp_path / "run.jsonl", ROWS, settings=SETTINGS, kernels=KERNELS, dispatches=DISPATCHES)
    page = open_page(run)

    def shown() -> list[str]:
        visible = (
            "return [...document.querySelectorAll('.overload:not([hidden])')].map((one) => one.textContent)"
        )
        return [text.split()[0] for text in page.run(visible)]

    def choose(name: str, value: str) -> None:
        page.run(
            "const one = document.querySelector(`form.overloads [name=${arguments[0]}]`); one.value = arguments[1];"
            "one.dispatchEvent(new Event('input', { bubbles: true }))",
            name,
            value,
        )

    assert len(shown()) == 12
    choose("worst", "silent")
    assert len(shown()) == 3
    choose("worst", "never")
    choose("q", "FOREACH")
    assert shown() == ["aten::_foreach_add_"]
    assert page.one("form.overloads .shown").text == "1 of 12 overloads"
    assert page.run("return document.querySelectorAll('details.never[open]').length") == 1
    choose("q", "")
    assert page.run("return document.querySelectorAll('details.never[open]').length") == 0
    assert len(page.all("tr.row:not([hidden])")) == 4
    assert page.errors() == []
