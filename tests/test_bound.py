"""What 0 of n is worth: the bound where executions of one process depend on each other, and the mark of an n too small."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from msgspec.structs import replace

from detmatrix.scanner.modes import FURTHER_MODES
from detmatrix.scanner.observations.records import MODES, Group
from detmatrix.scanner.observations.runfile import read_run
from detmatrix.scanner.verdicts.bound import CORRELATION, chance_unseen, effective, upper_bound
from detmatrix.scanner.verdicts.findings import runs_missing
from detmatrix.scanner.verdicts.power import POWER_SHARE
from tests.benchmarks import dependence
from tests.evidence_runs import only, text, under
from tests.runs import SETTINGS, ran, row, write_run

RECORDED = Path(__file__).parents[1] / "reports" / "runs"


@pytest.mark.parametrize("executions", [(5,), (5, 5), (50, 50)])
def test_upper_bound(executions: tuple[int, ...]) -> None:
    """A row of the rate that is the bound hides in one scan of twenty, if processes differ in how freely it races."""
    rate, weight, scans = upper_bound(executions), (1 - CORRELATION) / CORRELATION, 20_000
    drawn = random.Random(0)

    hidden = 0
    for _ in range(scans):
        # The very first execution has nothing to differ from.
        counts = (executions[0] - 1, *executions[1:])
        shown = (drawn.betavariate(rate * weight, (1 - rate) * weight) for _ in executions)
        hidden += all(
            drawn.random() < (1 - share) ** count for share, count in zip(shown, counts, strict=True)
        )

    assert hidden / scans == pytest.approx(0.05, abs=0.006)


def test_processes_count_for_more_than_executions() -> None:
    """The same n bounds less in one process than in many, never more than if all executions were independent."""
    shared = [(100,), (50, 50), (10,) * 10, (1,) * 100]
    bounds = [upper_bound(one) for one in shared]

    assert bounds == sorted(bounds, reverse=True)
    assert upper_bound((1,) * 101) == pytest.approx(1 - 0.05 ** (1 / 100))
    assert effective((50, 50)) < effective((1,) * 100) == pytest.approx(99)
    assert upper_bound((1,)) == 1
    assert upper_bound((1_000_000,) * 1000) > 0


@pytest.mark.parametrize("processes", [1, 2, 5])
def test_a_row_without_a_mark_would_have_shown_a_race_as_frequent_as_the_sentinels(
    tmp_path: Path, processes: int
) -> None:
    """Rows and sentinels are held against one limit, so that a race of its rate is missed by 5 % of the unmarked at most."""
    one = row("torch.cumsum")
    marked = []
    for runs in range(2, 21):
        seen = [o for mode in MODES for o in ran(one, mode, *[{"a": runs}] * processes)]
        settings = replace(SETTINGS, runs=runs, processes=processes)
        path = write_run(tmp_path / f"{runs}.jsonl", [(one, seen)], settings=settings)
        (found,) = only(path).rows
        assert (found.weak is None) == (chance_unseen(POWER_SHARE, (runs,) * processes) <= 0.05)
        marked.append(found.weak is not None)

    assert marked == sorted(marked, reverse=True)
    assert not marked[-1]


@pytest.mark.parametrize(("differing", "needed"), [(1, 299), (2, 149), (3, 99), (40, 6)])
def test_a_cure_shows_in_more_executions_the_rarer_the_race(
    tmp_path: Path, differing: int, needed: int
) -> None:
    """What says it was cured is of low power if, at the rate of mode off, as many executions show nothing in one scan of twenty."""
    one = row("torch.cumsum")
    raced = [{"a": 50 - differing, "b": differing}, {"a": 50}]
    for further in (0, needed - 101, needed - 100):
        still = [{"a": count} for count in (50, 50, further) if count > 0]
        path = write_run(
            tmp_path / f"{further}.jsonl", [(one, [*ran(one, "off", *raced), *ran(one, "on", *still)])]
        )
        (found,) = only(path).rows
        runs = found.on.runs
        assert found.finding == "fixed_by_mode"
        assert (found.weak is None) == ((1 - differing / 100) ** runs <= 0.05) == (runs >= needed)
        if found.weak is not None:
            assert found.weak.startswith(
                f"{differing} of 100 executions differed in mode off, so that 0 of {runs} in mode on may be chance"
            )
            assert "| fixed_by_mode, low power" in text("md", path)


def test_what_differs_between_processes_alone_is_counted_in_processes(tmp_path: Path) -> None:
    """Fifty executions of a process that differ from those of another are one event, and so are fifty that do not."""
    one = row("torch.cumsum")
    weak = []
    for processes in (2, 4, 6):
        between = [{"a": 50}, {"b": 50}] * processes
        seen = [*ran(one, "off", *between[:processes]), *ran(one, "on", *[{"a": 50}] * processes)]
        settings = replace(SETTINGS, processes=processes)
        (found,) = only(write_run(tmp_path / f"{processes}.jsonl", [(one, seen)], settings=settings)).rows
        assert found.finding == "fixed_by_mode"
        assert not any(runs_missing(found, mode) for mode in FURTHER_MODES)
        weak.append(found.weak)

    assert weak[0] == (
        "1 of 2 processes differed in mode off, so that 0 of 2 in mode on may be chance; 0 of 5 would hardly be"
    )
    assert weak[1] is not None
    assert weak[2] is None


@pytest.mark.parametrize(
    ("off", "rate"),
    [
        ([{"a": 50}] * 5 + [{"b": 50}], "1 of 6 processes"),
        ([{"b": 50}] + [{"a": 50}] * 5, "1 of 6 processes"),
        ([{"a": 49, "b": 1}, {"a": 50}], "1 of 100 executions"),
        ([{"b": 1, "a": 49}, {"a": 50}], "1 of 100 executions"),
    ],
)
def test_how_rare_it_is_does_not_depend_on_which_came_first(
    tmp_path: Path, off: list[dict[str, int]], rate: str
) -> None:
    """What all others are held against may itself be the odd one."""
    one = row("torch.cumsum")
    seen = [*ran(one, "off", *off), *ran(one, "on", *[{"a": 50}] * len(off))]
    settings = replace(SETTINGS, processes=len(off))
    (found,) = only(write_run(tmp_path / "r.jsonl", [(one, seen)], settings=settings)).rows

    assert found.finding == "fixed_by_mode"
    assert str(found.weak).startswith(f"{rate} differed in mode off, so that 0 of")


def test_what_differs_under_other_thread_counts_alone_is_not_called_cured(tmp_path: Path) -> None:
    """Within a process or between two: what is held against it was executed where nothing differs."""
    one = row("torch.cumsum")
    still = ran(one, "on", {"a": 50}, {"a": 50})
    for number, (first, second) in enumerate([({"t": 8, "u": 2}, {"t": 10}), ({"t": 10}, {"u": 10})]):
        raced = [
            replace(seen, groups=(*under(quiet=(50, 0)), Group(perturbation="threads=1", executions=10, differing=0, digests=it)))
            for seen, it in zip(ran(one, "off", {"a": 50}, {"a": 50}), (first, second), strict=True)
        ]  # fmt: skip
        (found,) = only(write_run(tmp_path / f"{number}.jsonl", [(one, [*raced, *still])])).rows

        assert (found.finding, found.weak) == (
            "fixed_by_mode",
            "it differed in mode off under other thread counts alone",
        )
        assert not any(runs_missing(found, mode) for mode in FURTHER_MODES)


def test_other_thread_counts_say_nothing_of_a_cure(tmp_path: Path) -> None:
    """What differs under them often, and otherwise seldom, is seldom with as many threads as the flag was held against."""
    one = row("torch.cumsum")
    apart = Group(perturbation="threads=1", executions=50, differing=9, digests={"t": 41, "u": 9})
    raced = ran(one, "off", {"a": 48, "b": 2}, {"a": 48, "b": 2}, groups=(*under(quiet=(50, 2)), apart))
    path = write_run(tmp_path / "r.jsonl", [(one, [*raced, *ran(one, "on", {"a": 30}, {"a": 30})])])
    (found,) = only(path).rows

    assert found.off.differing == 2 * (2 + 9)
    assert str(found.weak).startswith("4 of 100 executions differed in mode off, so that 0 of 60 in mode on")


def test_recorded_races_that_five_executions_hide_are_marked() -> None:
    """Of rows that race, what a scan of one process and five executions calls deterministic it also calls of low power."""
    runs = [read_run(RECORDED / f"torch-{version}-cpu.jsonl.gz") for version in ("2.11.0", "2.13.0")]
    processes, still, unmarked, beyond = dependence.false_comfort(runs, 5)

    assert processes > 100
    assert still > 0
    assert (unmarked, beyond) == (0, 0)


@pytest.mark.nightly
def test_the_correlation_is_that_of_the_recorded_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """The correlation that the bound takes is not below what any kind of recorded race allows, nor above all of that."""
    assert dependence.main([]) == 0, capsys.readouterr().out
