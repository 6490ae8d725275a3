"""What ``detmatrix coverage`` says: what was executed of what there is, and nothing of what was not recorded."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from reports.coverage import sort_of
from scanner.claims.tables import parse_claims
from scanner.observations.overload_records import BuildOverloads, Dispatch, KernelGroup, Reached, Writes
from scanner.observations.records import Mode, Row, Settings
from tests.commands import Command
from tests.compared import shows
from tests.documented import docstring
from tests.runs import ENVIRONMENT, Planned, row, write_run

SETTINGS = Settings(
    patterns=(), device="cpu", runs=50, processes=2, timeout=60.0, seed=0, overloads=True,
    modes=("off", "on", "warn_only"),
)  # fmt: skip
KERNELS = BuildOverloads(
    groups=(
        KernelGroup(
            kernel="device",
            writes="new",
            names=("aten::put", "aten::sum", "aten::_sum", "aten::sum_backward", "aten::<b>|x"),
        ),
        KernelGroup(kernel="device", writes="in_place", names=("aten::put_", "aten::_foreach_add_")),
        KernelGroup(kernel="device", writes="out", names=("aten::sum.out",)),
        KernelGroup(kernel="composite", writes="new", names=("aten::zeros", "prims::add")),
        KernelGroup(kernel="layout", writes="new", names=("aten::coalesce",)),
        KernelGroup(kernel="decomposed", writes="new", names=("aten::conv2d", "aten::linear")),
        KernelGroup(kernel="none", writes="new", names=("aten::cuda_only",)),
    )
)
PUT = shows("raises", row("torch.Tensor.put_", "overwrite"))
SUM = shows("silent", row("torch.sum", "rows", "backward"))
STABLE = shows("deterministic", row("torch.sum", "one"))
DEAD = shows("deterministic", row("torch.dead"))


def reached(planned: Row, *overloads: str, alerts: Sequence[tuple[str, str | None]] = ()) -> Dispatch:
    """Return what a row reached, in all modes the same."""
    modes: tuple[Mode, ...] = ("off", "on", "warn_only") if alerts else ("off", "on")
    return Dispatch(
        spec=planned.spec, case=planned.case, direction=planned.direction, dtype=planned.dtype, outcome="ran",
        modes={
            mode: Reached(overloads=overloads, alerts=() if mode == "off" else tuple(alerts)) for mode in modes
        },
    )  # fmt: skip


DISPATCHES = (
    reached(PUT[0], "aten::put_", "aten::zeros", alerts=[("put_", "aten::put_")]),
    reached(SUM[0], "aten::sum", "aten::sum_backward", "mine::op"),
    reached(STABLE[0], "aten::sum", alerts=[("above", None)]),
    replace(reached(DEAD[0]), outcome="crash", message="killed by SIGKILL", modes={}),
)
ROWS: list[Planned] = [PUT, SUM, STABLE, DEAD]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Write a run whose figures are known."""
    return write_run(tmp_path / "run.jsonl", ROWS, settings=SETTINGS, kernels=KERNELS, dispatches=DISPATCHES)


def shown_text(detmatrix: Command, *runs: Path) -> dict[str, Any]:
    """Return the coverage of runs as JSON."""
    done = detmatrix("coverage", *runs, "--format", "json")
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_executed_over_all_with_a_kernel(detmatrix: Command, run: Path) -> None:
    """Out variants and lists of tensors are counted apart; what the recorder cannot see counts nowhere.

    An overload has the worst finding of the rows that reach it. An alert is told with its overload; one that no overload
    raised is put on none. A row without overloads is neither executed nor forgotten.
    """
    answer = shown_text(detmatrix, run)

    assert answer["aten"] == {
        "device": {"executed": 3, "of": 8},
        "device_without_variants": {"executed": 3, "of": 6},
        "composite": {"executed": 1, "of": 1},
        "composite_without_variants": {"executed": 1, "of": 1},
    }
    assert answer["decomposed"] == 2
    assert {one["name"] for one in answer["never"]} == {
        "aten::put", "aten::_sum", "aten::<b>|x", "aten::_foreach_add_", "aten::sum.out", "aten::coalesce", "prims::add",
    }  # fmt: skip
    groups = {(one["namespace"], one["sort"]): (one["executed"], one["total"]) for one in answer["groups"]}
    assert groups["aten", "op"] == (
        {"device": 1, "composite": 1, "layout": 0},
        {"device": 3, "composite": 1, "layout": 1},
    )
    executed = {one["name"]: one for one in answer["executed"]}
    assert executed["aten::sum"] == {
        "name": "aten::sum", "namespace": "aten", "sort": "op", "kernel": "device", "rows": 2, "worst": "silent",
        "evidence": ["torch.sum:rows:backward:float32"], "alerts": [],
    }  # fmt: skip
    assert executed["mine::op"]["kernel"] is None
    assert answer["alerts"] == [
        {"caller": "above", "overloads": [], "rows": ["torch.sum:one:forward:float32"]},
        {
            "caller": "put_",
            "overloads": ["aten::put_"],
            "rows": ["torch.Tensor.put_:overwrite:forward:float32"],
        },
    ]
    assert (answer["planned"], answer["recorded"]) == (4, 3)
    assert answer["missing"] == {"crash: killed by SIGKILL": ["torch.dead:collisions:forward:float32"]}


def test_documented_alerts_are_held_against_those_that_were_met(detmatrix: Command, tmp_path: Path) -> None:
    """One was triggered, one was not though a row speaks to it, one no row speaks to; another device's is not there."""
    raising = [
        ":meth:`torch.Tensor.put_`",
        ":func:`torch.sum`",
        ":func:`torch.mm`",
        ":func:`torch.cumsum` when called on a CUDA tensor",
    ]
    run = write_run(
        tmp_path / "run.jsonl",
        [PUT, SUM],
        settings=SETTINGS,
        claims=parse_claims(docstring([], raising)),
        kernels=KERNELS,
        dispatches=DISPATCHES[:2],
    )

    assert shown_text(detmatrix, run)["documented_alerts"] == [
        {"bullet": "torch.Tensor.put_", "rows": 1, "callers": ["put_"], "overloads": ["aten::put_"]},
        {"bullet": "torch.sum", "rows": 1, "callers": [], "overloads": []},
        {"bullet": "torch.mm", "rows": 0, "callers": [], "overloads": []},
    ]


def test_runs_of_one_build_are_joined(detmatrix: Command, run: Path, tmp_path: Path) -> None:
    """What either reaches is reached, once; a run of another build is told apart."""
    more = write_run(
        tmp_path / "more.jsonl", [STABLE], settings=SETTINGS, kernels=KERNELS, dispatches=[reached(STABLE[0], "aten::_sum")]
    )  # fmt: skip
    other = write_run(
        tmp_path / "other.jsonl", [STABLE], settings=SETTINGS, kernels=KERNELS,
        environment=replace(ENVIRONMENT, torch="2.15.0"), dispatches=[reached(STABLE[0], "aten::sum")],
    )  # fmt: skip

    assert shown_text(detmatrix, run, more)["aten"]["device"] == {"executed": 4, "of": 8}
    assert shown_text(detmatrix, run, run)["aten"]["device"] == {"executed": 3, "of": 8}
    both = shown_text(detmatrix, run, other)["coverages"]
    assert [(one["torch"], one["aten"]["device"]["executed"]) for one in both] == [
        ("2.13.0+cpu", 3),
        ("2.15.0", 1),
    ]


def test_a_run_of_an_older_format_is_not_zero(detmatrix: Command, tmp_path: Path) -> None:
    """Format 2 knows no overloads: that is said, and no figure."""
    old = write_run(tmp_path / "old.jsonl", [STABLE], format_=2)
    done = detmatrix("coverage", old)
    answer = shown_text(detmatrix, old)

    assert (
        "Overloads are not recorded: old.jsonl is of run file format 2, which knows no overloads; scan again."
        in done.stdout
    )
    assert "0 of" not in done.stdout
    assert (answer["aten"], answer["executed"], answer["never"]) == (None, [], [])


def test_an_interrupted_scan_says_so(detmatrix: Command, tmp_path: Path) -> None:
    """What a scan did not get to is not called never reached."""
    cut = write_run(tmp_path / "cut.jsonl", ROWS, settings=SETTINGS, kernels=KERNELS, closing=None)
    answer = shown_text(detmatrix, cut)

    assert list(answer["missing"]) == ["the scan was interrupted before it"]
    assert answer["never"] == []


@pytest.mark.parametrize(
    ("name", "writes", "expected"),
    [
        ("aten::add.Tensor", "new", "op"),
        ("aten::__and__.Tensor", "new", "op"),
        ("aten::add_.Tensor", "in_place", "in place"),
        ("aten::geqrf.a", "out", "out variant"),
        ("aten::_foreach_add_.List", "in_place", "foreach and fused"),
        ("aten::_fused_adam", "new", "foreach and fused"),
        ("aten::_cdist_backward", "new", "backward"),
        ("aten::max_pool2d_with_indices_backward", "new", "backward"),
        ("aten::_index_put_impl_", "in_place", "internal"),
    ],
)
def test_sort_of_an_overload(name: str, writes: Writes, expected: str) -> None:
    """Sorts are told by what an overload writes, then by its name."""
    assert sort_of(name, writes) == expected
