"""The filters of the HTML report in a real headless browser: what they show, and the address they make."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from detmatrix.scanner.observations.records import MODES
from tests.browser import NEEDS_BROWSER, Opener, Page
from tests.evidence_runs import evidence_run
from tests.runs import ran, row, stable, write_run
from tests.test_coverage_command import DISPATCHES, KERNELS, ROWS, SETTINGS

pytestmark = [*NEEDS_BROWSER, pytest.mark.nightly]


def _threads(path: Path) -> Path:
    """Write a run of rows that one thread did, that several did, and of which nobody counted the threads."""
    rows = [
        (one, [seen for mode in MODES for seen in ran(one, mode, *stable(), threads=threads)])
        for one, threads in ((row("torch.cumsum"), 1), (row("torch.sum"), 2), (row("torch.abs"), None))
    ]
    return write_run(path, rows)


@pytest.mark.parametrize(
    ("write", "of", "name", "value", "ops"),
    [
        (write_run, 9, "verdict", "raises", "put_ MaxUnpool2d"),
        (write_run, 9, "verdict", "nondeterministic", "index_put_ put_ scatter_add_"),
        (write_run, 9, "verdict", "off:nondeterministic", "put_ scatter_add_"),
        (write_run, 9, "verdict", "on:nondeterministic", "index_put_"),
        (write_run, 9, "verdict", "on:timeout", ""),
        (write_run, 9, "verdict", "crash", "cumsum"),
        (evidence_run, 6, "power", "low", "Conv2d cumsum"),
        (evidence_run, 6, "power", "other", "put_ scatter_add_ topk empty"),
        (evidence_run, 6, "slower", "2", "scatter_add_ empty"),
        (evidence_run, 6, "slower", "timed", "scatter_add_ topk empty"),
        (evidence_run, 6, "slower", "untimed", "put_ Conv2d cumsum"),
        (evidence_run, 6, "verdict", "warn_only:nondeterministic", "put_"),
        (evidence_run, 6, "verdict", "nondeterministic", "scatter_add_ topk Conv2d"),
        (_threads, 3, "power", "serial", "cumsum"),
        (_threads, 3, "power", "unknown", "abs"),
        (_threads, 3, "power", "low", ""),
        (_threads, 3, "power", "other", "sum"),
    ],
)
def test_lists_filter_rows(
    open_page: Opener, tmp_path: Path, write: Callable[[Path], Path], of: int, name: str, value: str, ops: str
) -> None:
    """Verdicts of either mode or of one, power, threads and costs choose ops and of them rows; the address remembers it."""
    page = open_page(write(tmp_path / "run.jsonl"))
    page.select(name, value)
    page.shows(f"{len(ops.split())} of {of} ops")
    assert page.shown() == ops.split()
    assert len(page.unfold()) == len(ops.split())

    address = page.driver.current_url
    page.driver.get("about:blank")
    page.driver.get(address)
    page.shows(f"{len(ops.split())} of {of} ops")
    assert page.errors() == []


def test_address_holds_the_filters(page: Page) -> None:
    """A filtered view is an address: opened again it shows the same, and reset forgets it; a slash goes to the search."""
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


def test_address_of_another_report(open_page: Opener, tmp_path: Path) -> None:
    """What this page does not have is left out of an address instead of hiding everything."""
    page = open_page(
        write_run(tmp_path / "run.jsonl"), hash_="#finding=gone,raises&device=cuda:7&verdict=x&run=9&clean=9"
    )

    page.shows("1 of 9 ops")
    assert page.errors() == []


def test_overloads_are_filtered(open_page: Opener, tmp_path: Path) -> None:
    """The overloads have filters of their own; lists of what was never reached open where something is found."""
    run = write_run(tmp_path / "run.jsonl", ROWS, settings=SETTINGS, kernels=KERNELS, dispatches=DISPATCHES)
    page = open_page(run)

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
