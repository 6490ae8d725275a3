"""Perturbations in every report: what was asked for, what ran, what each revealed."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from reports.matrix import trust, words
from scanner.observations.records import Group
from scanner.perturbations import DEFAULT
from tests.evidence_runs import ONE, one_row, under
from tests.runs import RUNS, SETTINGS, drifting, ran, stable


@pytest.mark.parametrize(
    ("groups", "where"),
    [
        (under(quiet=(25, 0), stress=(25, 1)), "only under stress"),
        (under(quiet=(20, 2), stress=(10, 0), shift=(10, 1), poison=(10, 1)), "not under stress"),
        (under(quiet=(20, 0), stress=(10, 1), shift=(10, 0), poison=(10, 1)), "only under stress and poison"),
        (under(quiet=(48, 1), stress=(2, 0)), None),
        (under(quiet=(47, 1), stress=(3, 0)), "only under quiet"),
        (under(quiet=(25, 1), stress=(25, 1)), None),
        (under(quiet=(50, 2)), None),
        ((), None),
        (
            (
                *under(quiet=(50, 2)),
                Group(perturbation="threads=1", executions=5, differing=0, digests={"t": 5}),
            ),
            None,
        ),
    ],
)
def test_what_only_some_perturbations_reveal(
    tmp_path: Path, groups: tuple[Group, ...], where: str | None
) -> None:
    """A row that differs under one perturbation and in five executions of two processes under another does not."""
    found = one_row(tmp_path, [*ran(ONE, "off", *drifting(3), groups=groups), *ran(ONE, "on", *stable())])

    lines = trust.revealed([found]).lines
    assert [line[2] for line in lines] == ([where] if where else [])


def test_rerun_is_disturbed_alike() -> None:
    """The command for a row names the perturbations where they are not the default, and the time limit."""
    assert "--perturb quiet -o" in words.rerun_options(SETTINGS)
    assert "--seed 0 -o" in words.rerun_options(replace(SETTINGS, perturb=DEFAULT))
    assert "--seed 0 --max-time 2 -o" in words.rerun_options(replace(SETTINGS, perturb=DEFAULT, max_time=2.0))


@pytest.mark.parametrize(
    ("counts", "message"),
    [((1,), "other bits with 1 thread"), ((2, 8), "other bits with 2 and 8 threads"), ((), "1 distinct")],
)
def test_other_thread_counts_are_no_nondeterminism(
    tmp_path: Path, counts: tuple[int, ...], message: str
) -> None:
    """Other bits under another thread count are told, and the cell stays deterministic."""
    apart = tuple(
        Group(perturbation=f"threads={count}", executions=5, differing=0, digests={f"t{count}": 5})
        for count in counts
    )
    groups = (*under(quiet=(RUNS, 0)), *apart)
    found = one_row(tmp_path, [*ran(ONE, "off", *stable(), groups=groups), *ran(ONE, "on", *stable())])

    assert found.off.words.endswith(message)
    assert found.off.words.startswith("deterministic: 0 of ")
    racing = one_row(tmp_path / "racing", ran(ONE, "off", *drifting(2), groups=groups))
    assert racing.off.words.endswith(" 2 distinct")
    assert set(racing.off.other_threads) == {group.perturbation for group in apart}
