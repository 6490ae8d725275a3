# ruff: noqa: RUF001 - the sign for "times" is not an x.
"""What the flag costs and how far outputs lie apart, in words."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from detmatrix.reports.matrix import rows as costs
from detmatrix.scanner.observations.records import Group, Output, Timing
from detmatrix.scanner.verdicts.cells import cell_of
from tests.evidence_runs import ONE, SEVERITY, cost, one_row, only, quiet_row, under
from tests.runs import RUNS, drifting, ran, row, stable, write_run


def test_a_cost_whose_quartiles_overlap_is_not_slow(tmp_path: Path) -> None:
    """Twice as long in the median, and maybe not at all: not counted."""
    planned = quiet_row(row("torch.op"))
    wide = replace(cost(planned[0], 1e-3, 2.5e-3), on=Timing(median=2.5e-3, low=0.9e-3, high=4e-3))
    (shown,) = only(write_run(tmp_path / "r.jsonl", [planned], costs=[wide])).rows

    assert costs.costs_words([shown]).startswith("0 of 1 timed rows shown here take at least twice as long")
    assert costs.cost_words(shown) == "≈2.50×"


def test_the_worst_of_each_measure_counts() -> None:
    """Joined over processes and outputs each measure is the largest known; nothing known stays nothing."""
    far = replace(SEVERITY, max_abs=None, max_ulp=9, v_c=0.5, differing_elements=50)
    outputs = [
        Output(name="output", shape=(192,), dtype="float32", differing=1, severity=severity)
        for severity in (SEVERITY, far, None)
    ]
    processes = [replace(ran(ONE, "off", {"a": 2})[0], outputs=(output,)) for output in outputs]
    found = replace(SEVERITY, examined=6, v_c=0.5, differing_elements=50)

    assert cell_of(processes).outputs == (replace(outputs[0], differing=3, severity=found),)
    assert cell_of(processes).severity == cell_of([*reversed(processes)]).severity == found
    assert cell_of(processes[2:]).severity is None


def test_first_differing_execution_is_the_earliest() -> None:
    """Of several processes the earliest execution counts, and its process is named."""
    seen = ran(ONE, "off", {"a": 9, "b": 1}, {"a": 4, "b": 6}, {"a": 10})

    assert cell_of(seen).first_differing == (4, 1)
    assert cell_of(seen[2:]).first_differing is None


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
