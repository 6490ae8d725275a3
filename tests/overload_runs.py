"""Runs that recorded overloads, of which goldens show what ``detmatrix coverage`` says."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from detmatrix.scanner.modes import Mode
from detmatrix.scanner.observations.records import BuildOverloads, Dispatch, KernelGroup, Reached, Row
from detmatrix.scanner.observations.settings import Settings
from tests.compared import shows
from tests.runs import Planned, row

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
