"""Runs and catalogs of any size, written row by row, for what must stay linear in their number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain, product
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from detmatrix.opspecs.model import Case, OpSpec, call
from detmatrix.scanner.observations.records import (
    BuildOverloads,
    Closing,
    Dispatch,
    EnumeratedEntry,
    KernelGroup,
    Mode,
    Observation,
    Reached,
    Row,
)
from detmatrix.scanner.observations.runfile import Line
from detmatrix.scanner.observations.writer import RunWriter
from detmatrix.scanner.run.passes import place_of
from tests import runs
from tests.evidence_runs import cost, sentinel
from tests.runs import PROCESSES, ended, raised, ran, row

PER_ROW = 4  # observations: two modes, two processes
_PER_SPEC = 25
_PER_FAMILY = 1_250
_PER_SENTINEL = 96  # rows, as a scan has them
_OVERLOADS = tuple(f"aten::operation_{number}" for number in range(1000))
SETTINGS = replace(runs.SETTINGS, cost=True, overloads=True)
HEADER = replace(runs.HEADER, settings=SETTINGS)


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
    rows = [planned_row(number) for number in range(observations // PER_ROW)]
    return _write(path, [replace(HEADER, planned=tuple(rows))], enumerate(rows))


def write_shard(path: Path, observations: int, shard: int, shards: int) -> Path:
    """Write one shard of a run of so many observations whose rows are those of a database."""
    specs = observations // PER_ROW // _PER_SPEC
    groups = {planned_row(spec * _PER_SPEC).spec: spec % shards + 1 for spec in range(specs)}
    header = replace(HEADER, plan="of many rows", groups=groups, shards=shards, shard=shard)
    numbers = [range(spec * _PER_SPEC, (spec + 1) * _PER_SPEC) for spec in range(shard - 1, specs, shards)]
    entries = (
        EnumeratedEntry(
            source="opinfo", spec=planned_row(its[0]).spec, rows=tuple(map(planned_row, its)), samples=_PER_SPEC,
            taken=_PER_SPEC, enlarged=0, refused=0,
        )
        for its in numbers
    )  # fmt: skip
    rows = ((number, planned_row(number)) for its in numbers for number in its)
    return _write(path, chain([header], entries), rows)


def _write(path: Path, planned: Iterable[Line], rows: Iterable[tuple[int, Row]]) -> Path:
    counts: Any = Counter()
    with RunWriter(path) as writer:
        writer.begin(0)
        for line in planned:
            writer.write(line)
        for place, (number, one) in enumerate(rows):
            for kind, line in _lines(place, number, one):
                writer.write(line)
                counts[kind] += 1
        writer.write(BuildOverloads(groups=(KernelGroup(kernel="device", writes="new", names=_OVERLOADS),)))
        writer.write(Closing(seconds=1.0, load=(0.5,), **counts))
    return path


def _lines(place: int, number: int, one: Row) -> Iterator[tuple[str, Line]]:
    """Yield what a scan writes of a row, and of the sentinels before some."""
    modes: tuple[Mode, ...] = ("off", "on") if place % _PER_SENTINEL == 0 else ()
    for mode, process in product(modes, range(PROCESSES)):
        yield "sentinels", sentinel(mode, process, place)
    for observation in observed(number, one):
        yield "observations", observation
    yield "costs", cost(one, 2e-4, 2e-4)
    reached = Reached(overloads=tuple(_OVERLOADS[(number + step) % 1000] for step in range(4)))
    yield "dispatches", Dispatch(**place_of(one), outcome="ran", modes={"off": reached, "on": reached})
