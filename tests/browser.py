"""A headless Chromium for tests of the web pages, and a page in the words of those tests."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select, WebDriverWait

from detmatrix.scanner.processes import guardian

CHROMIUM, CHROMEDRIVER = Path("/usr/bin/chromium"), Path("/usr/bin/chromedriver")
HOSTILE = "</script><script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>{{ 7 * 7 }}'\"&"
NEEDS_BROWSER = [
    pytest.mark.browser,
    pytest.mark.skipif(
        not (CHROMIUM.exists() and CHROMEDRIVER.exists()),
        reason=f"needs {CHROMIUM} and {CHROMEDRIVER} (Debian: chromium, chromium-driver)",
    ),
]
FLAGS = ("headless=new", "no-sandbox", "no-first-run", "window-size=1360,900")
DISABLED = ("gpu", "quic", "background-networking", "component-update", "sync")
# The contrast of whatever is shown, the worst of each kind of element.
CONTRAST = (Path(__file__).parent / "data" / "contrast.js").read_text(encoding="utf-8")


def start(profile: Path) -> webdriver.Chrome:
    """Start a browser with a fresh profile, without looking for a driver on the network."""
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for flag in (*FLAGS, *(f"disable-{name}" for name in DISABLED), f"user-data-dir={profile}"):
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = profile.with_name(f"{profile.name}.driver")
    # Killed with the tests, neither driver nor browser would end by themselves. Whoever ends the guardian closes its input too.
    command = shlex.join([sys.executable, guardian.__file__, str(CHROMEDRIVER)])
    driver.write_text(f'#!/bin/sh\ntrap "" TERM\nexec {command} "$@"\n')
    driver.chmod(0o755)
    service = Service(str(driver), env=os.environ | {"SE_OFFLINE": "true"})
    return webdriver.Chrome(options=options, service=service)


def put_back(driver: webdriver.Chrome) -> None:
    """Undo what a test may have made of the browser: media and the size of the screen."""
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})
    driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


class Page:
    """The open page, in the words of its tests."""

    def __init__(self, driver: webdriver.Chrome, address: str) -> None:
        self.driver = driver
        self.address = address

    def run(self, script: str, *arguments: object) -> Any:
        """Run a script in the page and return its result."""
        return self.driver.execute_script(script, *arguments)

    def command(self, name: str, **arguments: object) -> None:
        """Send a command of the DevTools protocol."""
        self.driver.execute_cdp_cmd(name, arguments)

    def resize(self, width: int, *, mobile: bool | None = None) -> None:
        """Show the page on a screen of a width in CSS pixels; a narrow one is a phone's unless told otherwise."""
        self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=800,
            deviceScaleFactor=1,
            mobile=width < 500 if mobile is None else mobile,
        )

    def scheme(self, name: str) -> None:
        """Show the page to somebody who wants it light or dark."""
        self.command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def too_wide(self) -> list[str]:
        """Return what reaches beyond the screen, the page itself first."""
        scrolls = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
        wide: list[str] = self.run(
            f"return [...({scrolls} ? [document.documentElement] : []), ...document.querySelectorAll('main *')]"
            ".filter((e) => !e.closest('.scroll, .hidden, thead, .bar, .tiles') "
            "&& (e.localName === 'html' || e.getBoundingClientRect().right > innerWidth + 0.5))"
            ".map((e) => e.outerHTML.slice(0, 80))"
        )
        return wide

    def all(self, selector: str) -> list[Any]:
        """Return the elements that match."""
        return list(self.driver.find_elements(By.CSS_SELECTOR, selector))

    def one(self, selector: str) -> Any:
        """Return the first element that matches."""
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def select(self, name: str, value: str) -> None:
        """Choose in one of the lists."""
        Select(self.one(f"#{name}")).select_by_value(value)

    def shown(self) -> list[str]:
        """Return the ops that can be seen."""
        script = (
            "return [...document.querySelectorAll('tbody.op')].filter((op) => op.checkVisibility())"
            ".map((op) => op.querySelector('.open').textContent)"
        )
        return [name.rsplit(".", 1)[-1] for name in self.run(script)]

    def rows(self) -> list[str]:
        """Return the ops of the rows of a comparison that can be seen, in their order."""
        script = (
            "return [...document.querySelectorAll('tr.row')].filter((r) => r.checkVisibility())"
            ".map((r) => r.querySelector('.open b').textContent)"
        )
        return [name.removeprefix("torch.") for name in self.run(script)]

    def unfold(self) -> list[Any]:
        """Unfold every op that can be seen, and return the buttons of its rows."""
        self.run(
            "for (const op of document.querySelectorAll('tbody.op:not([hidden]) > tr:first-child .open[aria-expanded=false]'))"
            "op.click()"
        )
        return [button for button in self.all(".row .open") if button.is_displayed()]

    def shows(self, text: str) -> None:
        """Wait for what the live region announces."""
        self.until(lambda: self.one("#shown").text == text, f"never told {text!r}")

    def until(self, true: Callable[[], bool], otherwise: str = "") -> None:
        """Wait until something is so."""
        WebDriverWait(self.driver, 10).until(lambda _: true(), otherwise)

    def focused(self, beginning: str) -> None:
        """Wait until what has the focus begins with a text."""
        script = "return document.activeElement.textContent"
        message = f"nothing that begins with {beginning!r} has the focus"
        self.until(lambda: self.run(script).startswith(beginning), message)

    def errors(self) -> list[str]:
        """Return what the browser logged since it was last asked."""
        return [entry["message"] for entry in self.driver.get_log("browser")]


def opened(driver: webdriver.Chrome, path: Path, hash_: str = "") -> Page:
    """Open a file as if for the first time, with the filters of an address; forget what was logged before."""
    driver.get_log("browser")
    page = Page(driver, path.as_uri())
    driver.get("about:blank")
    driver.get(page.address + hash_)
    return page
