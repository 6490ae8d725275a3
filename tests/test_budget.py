"""What the repository may hold: the lines of each part stay below the table of budgets in ``pyproject.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BUDGET: dict[str, dict[str, int]] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
    "tool"
]["budget"]
PACKAGES = ("opspecs", "reports", "scanner")
MODULE = 700  # lines
ENDINGS = {
    "python": (".py",),
    "c": (".c", ".h"),
    "templates": (".j2", ".js", ".css"),
    "scripts": (".py", "", ".yml", ".js"),
}


def _files(place: str, endings: Iterable[str]) -> Iterator[Path]:
    """Yield a file, or those below a folder that have one of the endings."""
    path = ROOT / place
    yield from [path] if path.is_file() else (one for one in path.rglob("*") if one.suffix in endings)


def _lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines()) if path.is_file() else 0


@pytest.mark.parametrize(
    ("kind", "place"), [(kind, place) for kind, places in BUDGET.items() for place in places]
)
def test_parts_stay_in_their_budgets(kind: str, place: str) -> None:
    """A part that needs more lines raises its budget, and the commit's message says why."""
    lines = sum(map(_lines, _files(place, ENDINGS[kind])))

    assert 0 < lines <= BUDGET[kind][place], f"{place} has {lines} lines of {kind}"


def test_every_package_has_a_budget() -> None:
    """A new package, or a script, is in the table."""
    assert {*PACKAGES, "tests"} == BUDGET["python"].keys()
    assert {path.name for path in ROOT.glob("*.py")} <= BUDGET["scripts"].keys()


def test_modules_are_short_enough() -> None:
    """A module that is longer is two things."""
    modules = [path for package in (*PACKAGES, "tests") for path in (ROOT / package).rglob("*.py")]

    assert {path.name: _lines(path) for path in modules if _lines(path) > MODULE} == {}
