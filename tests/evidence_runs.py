"""Synthetic runs that show what verdicts rest on: controls, sentinels, distances, perturbations, costs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from msgspec.structs import replace

from detmatrix.reports.cli.report import LONG, RENDERERS
from detmatrix.reports.matrix.model import Matrix, load
from detmatrix.scanner.invariance import Property
from detmatrix.scanner.observations.records import (
    MODES,
    BuildOverloads,
    Cost,
    Dispatch,
    Group,
    Invariance,
    KernelGroup,
    Mode,
    Outcome,
    Output,
    Reached,
    Row,
    Sentinel,
    Severity,
    Timing,
    Tried,
)
from detmatrix.scanner.run.passes import place_of
from tests.compared import shows
from tests.runs import PROCESSES, RUNS, SETTINGS, Planned, drifting, raised, ran, row, stable, write_run

SEVERITY = Severity(
    examined=3,
    elements=192,
    differing_elements=48,
    v_c=0.25,
    v_ermv=2.5e-07,
    max_abs=0.0625,
    max_rel=1.5e-05,
    max_ulp=128,
)

ONE = row("torch.cumsum")
FORCING = replace(SETTINGS, modes=("off", "on", "warn_only"))


def text(form: str, *paths: Path) -> str:
    """Return a report of these run files, with every row."""
    return "".join((RENDERERS | LONG)[form](load([str(path) for path in paths])))


def only(path: Path) -> Matrix:
    """Return the matrix of a run file."""
    return load([str(path)])[0]


def under(**counts: tuple[int, int]) -> tuple[Group, ...]:
    """Return groups of executions by perturbation, each as (executions, differing)."""
    return tuple(
        Group(perturbation=name, executions=executions, differing=differing)
        for name, (executions, differing) in counts.items()
    )


def timing(median: float, spread: float = 0.05) -> Timing:
    """Return a median with quartiles as far from it as *spread* says."""
    return Timing(median=median, low=median * (1 - spread), high=median * (1 + spread))


def cost(planned: Row, off: float, on: float, unfilled: float | None = None, **more: int) -> Cost:
    """Return what a row was timed at, in seconds; *more* are the fields of memory."""
    times = {"off": timing(off), "on": timing(on), "unfilled": unfilled and timing(unfilled)}
    fields: dict[str, Any] = times | {"outcome": "ran", "samples": 25, "calls": 4} | more
    return Cost(**place_of(planned), **fields)


def failed(planned: Row, outcome: Outcome, message: str) -> Cost:
    """Return why a row was not timed."""
    return Cost(**place_of(planned), outcome=outcome, message=message)


def sentinel(mode: Mode = "off", process: int = 0, before: int = 0, differing: int = 10) -> Sentinel:
    """Return what a sentinel of eleven executions saw."""
    seen: dict[str, Any] = {"op": "torch.index_put", "executions": 11, "differing": differing, "load": 0.5}
    return Sentinel(mode=mode, process=process, before=before, **seen)


def sentinels(differing: int, *before: int) -> list[Sentinel]:
    """Return what the sentinels of every mode and process saw, each before these rows."""
    return [
        sentinel(mode, process, place, differing)
        for mode in MODES
        for process in range(PROCESSES)
        for place in before
    ]


def controls(drawn: Literal["sees", "blind"] = "sees", modes: tuple[Mode, ...] = MODES) -> list[Planned]:
    """Return two controls in all *modes*; of a blind scan the varying one does not vary in one process."""
    constant = row("control.constant", "plain", family="control")
    varies = row("control.varies", "plain", family="control")
    seen = {f"v{place}": 1 for place in range(RUNS)}
    off = ran(varies, "off", seen, seen if drawn == "sees" else {"v0": RUNS})
    others = [one for mode in modes if mode != "off" for one in ran(varies, mode, seen, seen)]
    return [
        (constant, [one for mode in modes for one in ran(constant, mode, *stable())]),
        (varies, [*off, *others]),
    ]


def evidence() -> list[Planned]:
    """Return rows that show what evidence there is: distances, perturbations, a constant, an op run under warn_only."""
    add = row("torch.Tensor.scatter_add_")
    put = row("torch.Tensor.put_", "duplicates", family="indexing")
    ties = row("torch.topk", "ties", dtype="int64", family="ordering")
    empty = row("torch.empty", "plain", family="memory", constant="the flag fills it")
    algorithm = row("torch.nn.Conv2d", "wide", "backward", family="convolution")
    cumsum = row("torch.cumsum", "n_d", family="scan")
    quiet, stressed = under(quiet=(25, 0), poison=(25, 0)), under(quiet=(25, 0), stress=(25, 3))
    counted = Severity(examined=1, elements=192, differing_elements=6, v_c=0.03125)
    added = ran(add, "off", *[drifting(6)[0]] * 2, severity=SEVERITY, groups=stressed)
    # The other process differs farther by some measures, earlier, and nobody measured one of them.
    far = replace(SEVERITY, max_abs=None, max_ulp=9, v_c=0.5, differing_elements=50)
    (output,) = added[1].outputs
    added[1] = replace(added[1], first_differing=46, outputs=(replace(output, severity=far),))
    warned = ran(put, "warn_only", *drifting(10), severity=SEVERITY, alerts=("put_", "index_put_"))
    return [
        (add, [*added, *ran(add, "on", *stable(), groups=quiet)]),
        (put, [*ran(put, "off", *stable(), groups=quiet), *raised(put, "on", "put_"), *warned]),
        (ties, [*ran(ties, "off", *drifting(6), severity=counted), *ran(ties, "on", *stable())]),
        (empty, [o for mode in MODES for o in ran(empty, mode, *stable(), blank="nan")]),
        (algorithm, [*ran(algorithm, "off", {"a": RUNS}, {"b": RUNS}), *ran(algorithm, "on", *stable())]),
        (cumsum, [o for mode in MODES for o in ran(cumsum, mode, *stable(), groups=quiet)]),
    ]


def evidence_run(path: Path, **header: Any) -> Path:
    """Write a run with controls, sentinels that saw little beside its last row, and costs; return its path."""
    planned = evidence()
    add, put, ties, empty, algorithm, _ = (one for one, _ in planned)
    last = len(planned)
    weak = {("off", 1, last): 2}
    return write_run(
        path,
        planned,
        settings=replace(SETTINGS, modes=FORCING.modes, perturb=("quiet", "stress", "poison"), cost=True),
        sentinels=[
            sentinel(mode, process, before, weak.get((mode, process, before), 10))
            for mode in MODES
            for process in range(PROCESSES)
            for before in (0, last - 1, last)
        ],
        costs=[
            cost(add, 1e-5, 3.4e-5, 1.1e-5),
            failed(put, "raised", "RuntimeError: put_ has none"),
            # Twice as long in the median, and maybe not at all.
            replace(cost(ties, 2e-3, 4.2e-3), on=timing(4.2e-3, 0.6), unfilled=timing(4.2e-3, 0.6)),
            cost(empty, 1e-6, 2.5e-6, 2.5e-6, off_memory=0, on_memory=3 << 20),
            failed(algorithm, "invalid", "changed global state"),
        ],
        **{"controls": controls(modes=FORCING.modes), **header},
    )


def reached(planned: Row, *overloads: str, alerts: tuple[tuple[str, str | None], ...] = ()) -> Dispatch:
    """Return what a row reached, in all modes the same."""
    modes: tuple[Mode, ...] = ("off", "on", "warn_only") if alerts else ("off", "on")
    of = {mode: Reached(overloads=overloads, alerts=() if mode == "off" else alerts) for mode in modes}
    return Dispatch(**place_of(planned), outcome="ran", modes=of)


def overloads_run(path: Path, **header: Any) -> Path:
    """Write a run that recorded overloads, and return its path."""
    rows = [
        shows("raises", row("torch.Tensor.put_", "overwrite")),
        shows("silent", row("torch.sum", "rows", "backward")),
        shows("deterministic", row("torch.sum", "one")),
        shows("deterministic", row("torch.dead")),
    ]
    put, rows_of_sum, one, dead = (planned for planned, _ in rows)
    new = ("aten::put", "aten::sum", "aten::_sum", "aten::sum_backward", "aten::<b>|x")
    groups = (
        KernelGroup(kernel="device", writes="new", names=new),
        KernelGroup(kernel="device", writes="in_place", names=("aten::put_", "aten::_foreach_add_")),
        KernelGroup(kernel="device", writes="out", names=("aten::sum.out",)),
        KernelGroup(kernel="composite", writes="new", names=("aten::zeros", "prims::add")),
        KernelGroup(kernel="layout", writes="new", names=("aten::coalesce",)),
        KernelGroup(kernel="decomposed", writes="new", names=("aten::conv2d", "aten::linear")),
        KernelGroup(kernel="none", writes="new", names=("aten::cuda_only",)),
    )
    dispatches = [
        reached(put, "aten::put_", "aten::zeros", alerts=(("put_", "aten::put_"),)),
        reached(rows_of_sum, "aten::sum", "aten::sum_backward", "mine::op"),
        reached(one, "aten::sum", alerts=(("above", None),)),
        replace(reached(dead), outcome="crash", message="killed by SIGKILL", modes={}),
    ]
    settings = replace(FORCING, overloads=True)
    kernels = BuildOverloads(groups=groups)
    return write_run(path, rows, settings=settings, kernels=kernels, dispatches=dispatches, **header)


# Records of invariance: rows that vary at some values, and controls that show what they must.

VALUES: dict[Property, tuple[str, tuple[str, ...]]] = {
    "threads": ("2 threads", ("1", "4")),
    "batch": ("48 items", ("1 first", "8 last", "48 permuted")),
    "layout": ("the inputs as drawn", ("transposed args[0]", "sliced args[0]")),
}
VARYING = Severity(examined=3, elements=200, differing_elements=50, v_c=0.25, max_ulp=77)


def asked_of(of: Row, varies: Mapping[Property, tuple[str, ...]]) -> list[Invariance]:
    """Return the records of a row that was asked properties, each with the values at which it has other bits."""
    name = "output" if of.direction == "forward" else "grad of args[0]"
    other = Output(name=name, shape=(200,), dtype=of.dtype, differing=10, severity=VARYING)
    return [
        Invariance(
            **place_of(of),
            what=what,
            outcome="ran",
            baseline=VALUES[what][0],
            executions=11,
            trials=tuple(
                Tried(value=value, outcome="varies", executions=10, outputs=(other,))
                if value in at
                else Tried(value=value, outcome="same", executions=2)
                for value in VALUES[what][1]
            ),
        )
        for what, at in varies.items()
    ]


ASKED_CONTROLS = [
    one
    for what in VALUES
    if what != "threads"
    for one in asked_of(row("control.invariant", "image"), {what: ()})
]
