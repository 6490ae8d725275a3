"""What ``detmatrix coverage`` says: what was executed of what there is, and nothing of what was not recorded."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from detmatrix.reports.coverage import sort_of
from detmatrix.scanner.observations.records import (
    BuildOverloads,
    Dispatch,
    KernelGroup,
    Mode,
    Reached,
    Row,
    Settings,
    Writes,
)
from tests.commands import Command
from tests.compared import shows
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


RAISING = (
    ":meth:`torch.Tensor.put_`",
    ":func:`torch.sum`",
    ":func:`torch.mm`",
    ":func:`torch.cumsum` when called on a CUDA tensor",
)

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


def executed(detmatrix: Command, *runs: Path) -> list[tuple[str, dict[str, int]]]:
    """Return of each build how many overloads with a kernel of the device were executed."""
    done = detmatrix("coverage", *runs, "--format", "json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    return [(one["torch"], one["aten"]["device"]) for one in answer.get("coverages", [answer])]


def test_runs_of_one_build_are_joined(detmatrix: Command, run: Path, tmp_path: Path) -> None:
    """What either reaches is reached, once; a run of another build is told apart."""
    more = write_run(
        tmp_path / "more.jsonl", [STABLE], settings=SETTINGS, kernels=KERNELS, dispatches=[reached(STABLE[0], "aten::_sum")]
    )  # fmt: skip
    other = write_run(
        tmp_path / "other.jsonl", [STABLE], settings=SETTINGS, kernels=KERNELS,
        environment=replace(ENVIRONMENT, torch="2.15.0"), dispatches=[reached(STABLE[0], "aten::sum")],
    )  # fmt: skip
    alone = ("2.13.0+cpu", {"executed": 3, "of": 8})

    assert executed(detmatrix, run, more) == [("2.13.0+cpu", {"executed": 4, "of": 8})]
    assert executed(detmatrix, run, run) == [alone]
    assert executed(detmatrix, run, other) == [alone, ("2.15.0", {"executed": 1, "of": 8})]


SORTS: dict[str, tuple[Writes, str]] = {
    "aten::add.Tensor": ("new", "op"),
    "aten::__and__.Tensor": ("new", "op"),
    "aten::add_.Tensor": ("in_place", "in place"),
    "aten::geqrf.a": ("out", "out variant"),
    "aten::_foreach_add_.List": ("in_place", "foreach and fused"),
    "aten::_fused_adam": ("new", "foreach and fused"),
    "aten::_cdist_backward": ("new", "backward"),
    "aten::max_pool2d_with_indices_backward": ("new", "backward"),
    "aten::_index_put_impl_": ("in_place", "internal"),
}


def test_sort_of_an_overload() -> None:
    """Sorts are told by what an overload writes, then by its name."""
    assert {name: sort_of(name, writes) for name, (writes, _) in SORTS.items()} == {
        name: expected for name, (_, expected) in SORTS.items()
    }
