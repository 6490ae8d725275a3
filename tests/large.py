"""Runs and catalogs of any size, written row by row, for what must stay linear in their number."""

from __future__ import annotations

from itertools import product
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


def write_shard(path: Path, observations: int, shard: int = 1, shards: int = 1) -> Path:
    """Write one shard of a run of so many observations whose rows are those of a database, with all that a scan writes beside them."""
    specs = observations // PER_ROW // _PER_SPEC
    own = [range(spec * _PER_SPEC, (spec + 1) * _PER_SPEC) for spec in range(shard - 1, specs, shards)]
    by_spec = [{number: planned_row(number) for number in numbers} for numbers in own]
    rows = {number: one for of in by_spec for number, one in of.items()}
    sampled: Any = {"source": "opinfo", "samples": _PER_SPEC, "taken": _PER_SPEC, "enlarged": 0, "refused": 0}
    reached = {
        number: Reached(overloads=tuple(_OVERLOADS[(number + step) % 1000] for step in range(4)))
        for number in rows
    }
    return write_run(
        path,
        [(one, observed(number, one)) for number, one in rows.items()],
        settings=SETTINGS,
        lines=[
            EnumeratedEntry(spec=next(iter(of.values())).spec, rows=tuple(of.values()), **sampled)
            for of in by_spec
        ],
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
        plan="of many rows",
        groups={planned_row(spec * _PER_SPEC).spec: spec % shards + 1 for spec in range(specs)},
        shards=shards,
        shard=shard,
    )
