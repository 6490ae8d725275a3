"""Runs and catalogs of any size, written row by row, for what must stay linear in their number."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, product
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from detmatrix.opspecs.model import Case, OpSpec, call
from detmatrix.scanner.observations.records import (
    MODES,
    BuildOverloads,
    Dispatch,
    EnumeratedEntry,
    KernelGroup,
    Observation,
    Reached,
    Row,
)
from detmatrix.scanner.run.passes import place_of
from tests import runs
from tests.evidence_runs import cost, sentinel
from tests.runs import PROCESSES, ended, raised, ran, row, write_run

PER_ROW = 4  # observations: two modes, two processes
_PER_SPEC = 25
_PER_FAMILY = 1_250
_PER_SENTINEL = 96  # rows, as a scan has them
_OVERLOADS = tuple(f"aten::operation_{number}" for number in range(1000))
SETTINGS = replace(runs.SETTINGS, cost=True, overloads=True)


def catalog(observations: int) -> list[OpSpec]:
    """Return specs whose rows would give so many observations."""
    cases = {f"case_{number}": Case(inputs=lambda t: call(t.normal(4))) for number in range(_PER_SPEC)}
    specs = observations // PER_ROW // _PER_SPEC
    return [OpSpec(name=f"large.op_{n}", op="torch.cumsum", why="Many.", cases=cases) for n in range(specs)]


def planned_row(number: int) -> Row:
    """Return one row; families and ops have the catalog's proportions."""
    return row(
        f"torch.nn.functional.operation_{number // _PER_SPEC}",
        f"case_{number % _PER_SPEC}",
        "backward" if number % 2 else "forward",
        ("float32", "bfloat16", "float64")[number % 3],
        family=f"family {number // _PER_FAMILY}",
    )


def observed(number: int, one: Row) -> list[Observation]:
    """Return what a row showed: every finding has its share."""
    same, others = f"{number:032x}", {f"{number:024x}{other:08x}": 1 for other in range(1, 8)}
    stable, drifting = {same: 50}, {same: 43, **others}
    off = ran(one, "off", stable, drifting if number % 3 else stable)
    match number % 5:
        case 0:
            return [*off, *raised(one, "on", f"operation_{number}_backward")]
        case 1:
            return [*off, *ended(one, "on", "crash", f"worker {number} was killed by signal 11")]
        case 2:
            return [*off, *ran(one, "on", drifting, stable)]
        case _:
            return [*off, *ran(one, "on", stable, stable)]


def write_large(path: Path, observations: int) -> Path:
    """Write a run of so many observations, with all that a scan writes beside them."""
    return _write(path, range(observations // PER_ROW))


def write_shard(path: Path, observations: int, shard: int, shards: int) -> Path:
    """Write one shard of a run of so many observations whose rows are those of a database."""
    specs = observations // PER_ROW // _PER_SPEC
    own = [range(spec * _PER_SPEC, (spec + 1) * _PER_SPEC) for spec in range(shard - 1, specs, shards)]
    sampled: Any = {"source": "opinfo", "samples": _PER_SPEC, "taken": _PER_SPEC, "enlarged": 0, "refused": 0}
    entries = [
        EnumeratedEntry(spec=rows[0].spec, rows=rows, **sampled)
        for rows in (tuple(map(planned_row, its)) for its in own)
    ]
    groups = {planned_row(spec * _PER_SPEC).spec: spec % shards + 1 for spec in range(specs)}
    plan = {"plan": "of many rows", "groups": groups, "shards": shards, "shard": shard}
    return _write(path, chain(*own), lines=entries, **plan)


def _write(path: Path, numbers: Iterable[int], **more: Any) -> Path:
    rows = {number: planned_row(number) for number in numbers}
    reached = {
        number: Reached(overloads=tuple(_OVERLOADS[(number + step) % 1000] for step in range(4)))
        for number in rows
    }
    return write_run(
        path,
        [(one, observed(number, one)) for number, one in rows.items()],
        settings=SETTINGS,
        sentinels=[
            sentinel(mode, process, before)
            for before in range(0, len(rows), _PER_SENTINEL)
            for mode, process in product(MODES, range(PROCESSES))
        ],
        costs=[cost(one, 2e-4, 2e-4) for one in rows.values()],
        kernels=BuildOverloads(groups=(KernelGroup(kernel="device", writes="new", names=_OVERLOADS),)),
        dispatches=[
            Dispatch(**place_of(one), outcome="ran", modes=dict.fromkeys(MODES, reached[number]))
            for number, one in rows.items()
        ],
        **more,
    )
