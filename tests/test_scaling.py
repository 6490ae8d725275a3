"""Twice the observations are twice the work: counted in executed lines of ours, so that no clock decides."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from msgspec.structs import replace

from detmatrix.reports.cli.report import LONG, RENDERERS
from detmatrix.reports.coverage import RENDERERS as COVERAGES
from detmatrix.reports.coverage import coverages
from detmatrix.reports.matrix.model import load
from detmatrix.reports.report import page as page_
from detmatrix.scanner.cases.rows import planned_rows
from detmatrix.scanner.observations.runfile import read_run
from detmatrix.scanner.verdicts.vocabulary import FINDING
from tests.large import SETTINGS, catalog, write_shard

pytestmark = pytest.mark.nightly

RECORDED = Path(__file__).parent.parent / "reports" / "runs" / "torch-2.13.0-cpu-all.jsonl.gz"
FEW, MANY = 1200, 2400  # observations
# Constant parts make it less than 2; a step that goes through all rows for each is near 4.
LIMIT = 2.1
STEPS: dict[str, Callable[[Path], object]] = {
    "read": read_run,
    "verdicts": lambda run: load([str(run)]),
    **{
        name: lambda run, render=render: "".join(render(load([str(run)])))  # type: ignore[misc]
        for name, render in [*RENDERERS.items(), *((f"long {form}", it) for form, it in LONG.items())]
    },
    "coverage": lambda run: "".join(COVERAGES["md"](coverages(load([str(run)])))),
    "coverage in JSON": lambda run: "".join(COVERAGES["json"](coverages(load([str(run)])))),
}


def lines_of(work: Callable[[], object]) -> int:
    """Return how many lines of our packages and templates are executed; each turn of a loop counts."""
    count = 0

    def within(_: FrameType, event: str, __: Any) -> Any:
        nonlocal count
        count += event == "line"
        return within

    def entered(frame: FrameType, _: str, __: Any) -> Any:
        ours = any(part in frame.f_code.co_filename for part in ("/scanner/", "/reports/", "/opspecs/"))
        return within if ours else None

    before = sys.gettrace()
    sys.settrace(entered)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Write a run, and one of twice its size."""
    folder = tmp_path_factory.mktemp("scaling")
    few, many = (write_shard(folder / f"{count}.jsonl", count) for count in (FEW, MANY))
    return few, many


@pytest.mark.parametrize("name", STEPS)
def test_twice_the_observations_are_twice_the_work(runs: tuple[Path, Path], name: str) -> None:
    """Reading, verdicts and every report are linear in the number of observations."""
    few, many = (lines_of(lambda run=run: STEPS[name](run)) for run in runs)  # type: ignore[misc]

    assert few > FEW
    assert many / few < LIMIT


def test_planning_is_linear() -> None:
    """A plan of twice the rows is twice the work."""
    catalogs = [catalog(10 * count) for count in (FEW, MANY)]
    few, many = (lines_of(lambda specs=specs: planned_rows(SETTINGS, specs)) for specs in catalogs)  # type: ignore[misc]

    assert few > FEW
    assert many / few < LIMIT


def test_a_page_holds_what_a_browser_can(runs: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of too many rows the worst findings are shown, in their order, and the page says so; counts are of all."""
    monkeypatch.setattr(page_, "MOST_ROWS", 100)
    (matrix,) = load([str(runs[0])])
    worst = {id(row) for row in sorted(matrix.rows, key=lambda it: FINDING[it.finding].rank)[:100]}
    fewer = replace(matrix, rows=tuple(row for row in matrix.rows if id(row) in worst))
    page, expected = ("".join(page_.render([one])) for one in (matrix, fewer))
    shown, rows = (it.partition('id="rows">')[2].partition("</script>")[0] for it in (page, expected))

    assert shown == rows != ""
    assert "A page holds 100 rows at most: these are 100 of 300, those with the worst findings." in page
    assert f">{len(matrix.rows)} rows<" in page


def test_a_page_of_six_thousand_rows_stays_near_a_megabyte() -> None:
    """What the rows of a real scan of all databases share stands once."""
    (matrix,) = load([str(RECORDED)])
    page = "".join(page_.render([matrix]))

    assert "A page holds" not in page
    assert len(matrix.rows) > 6000
    assert len(page.encode()) < 215 * len(matrix.rows)
