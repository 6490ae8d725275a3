"""Runs and catalogs of any size, written row by row, for what must stay linear in their number."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

from msgspec.structs import replace

from detmatrix.opspecs.model import Case, OpSpec, call
from detmatrix.scanner.observations.records import (
    FORMAT,
    BuildOverloads,
    Closing,
    Cost,
    Dispatch,
    EnumeratedEntry,
    Header,
    KernelGroup,
    Mode,
    Observation,
    Reached,
    Row,
    Sentinel,
    Timing,
)
from detmatrix.scanner.observations.runfile import Line
from detmatrix.scanner.observations.writer import RunWriter
from tests import runs
from tests.runs import ENVIRONMENT, PROCESSES, ended, raised, ran, row

PER_ROW = 4  # observations: two modes, two processes
_PER_SPEC = 25
_PER_FAMILY = 1_250
_PER_SENTINEL = 12  # rows, as a scan has them
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


def _sentinels(number: int) -> Iterator[Sentinel]:
    modes: tuple[Mode, ...] = ("off", "on")
    for mode in modes:
        for process in range(PROCESSES):
            yield Sentinel(
                mode=mode, process=process, before=number, op="torch.index_put", executions=20, differing=19, load=0.5
            )  # fmt: skip


def _cost(one: Row) -> Cost:
    timing = Timing(median=2e-4, low=1e-4, high=3e-4)
    return Cost(
        spec=one.spec, case=one.case, direction=one.direction, dtype=one.dtype, outcome="ran", samples=5, calls=1,
        off=timing, on=timing,
    )  # fmt: skip


def _dispatch(number: int, one: Row) -> Dispatch:
    reached = Reached(overloads=tuple(_OVERLOADS[(number + step) % 1000] for step in range(4)))
    return Dispatch(
        spec=one.spec, case=one.case, direction=one.direction, dtype=one.dtype, outcome="ran",
        modes={"off": reached, "on": reached},
    )  # fmt: skip


def write_large(path: Path, observations: int) -> Path:
    """Write a run of so many observations, with all that a scan writes beside them."""
    rows = [planned_row(number) for number in range(observations // PER_ROW)]
    header = Header(
        format=FORMAT,
        tool="0.1.0",
        started="2026-01-02T03:04:05Z",
        settings=SETTINGS,
        environment=ENVIRONMENT,
        planned=tuple(rows),
    )
    _write(path, [header], enumerate(rows))
    return path


def write_shard(path: Path, observations: int, shard: int, shards: int) -> Path:
    """Write one shard of a run of so many observations whose rows are those of a database."""
    specs = observations // PER_ROW // _PER_SPEC
    groups = {planned_row(spec * _PER_SPEC).spec: spec % shards + 1 for spec in range(specs)}
    header = Header(
        format=FORMAT,
        tool="0.1.0",
        started="2026-01-02T03:04:05Z",
        settings=SETTINGS,
        environment=ENVIRONMENT,
        planned=(),
        plan="of many rows",
        groups=groups,
        shards=shards,
        shard=shard,
    )
    ours = range(shard - 1, specs, shards)
    entries = (
        EnumeratedEntry(
            source="opinfo",
            spec=planned_row(spec * _PER_SPEC).spec,
            rows=tuple(planned_row(spec * _PER_SPEC + number) for number in range(_PER_SPEC)),
            samples=_PER_SPEC,
            taken=_PER_SPEC,
            enlarged=0,
            refused=0,
        )
        for spec in ours
    )
    numbers = (spec * _PER_SPEC + number for spec in ours for number in range(_PER_SPEC))
    _write(path, chain([header], entries), ((number, planned_row(number)) for number in numbers))
    return path


def _write(path: Path, planned: Iterable[Line], rows: Iterable[tuple[int, Row]]) -> None:
    made = sentinels = count = 0
    with RunWriter(path) as writer:
        writer.begin(0)
        for line in planned:
            writer.write(line)
        for place, (number, one) in enumerate(rows):
            if place % _PER_SENTINEL == 0:
                for sentinel in _sentinels(place):
                    writer.write(sentinel)
                    sentinels += 1
            for observation in observed(number, one):
                writer.write(observation)
                made += 1
            writer.write(_cost(one))
            writer.write(_dispatch(number, one))
            count += 1
        writer.write(BuildOverloads(groups=(KernelGroup(kernel="device", writes="new", names=_OVERLOADS),)))
        writer.write(
            Closing(
                seconds=1.0,
                load=(0.5,),
                observations=made,
                sentinels=sentinels,
                costs=count,
                dispatches=count,
            )
        )
