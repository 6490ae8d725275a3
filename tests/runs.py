"""Synthetic runs for tests of what is derived from run files, written through the real records and writer."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from detmatrix.scanner.alerts import REFUSAL
from detmatrix.scanner.observations.records import (
    FORMAT,
    Closing,
    Compiled,
    Direction,
    EnumeratedEntry,
    Environment,
    Group,
    Header,
    Mode,
    Observation,
    Outcome,
    Output,
    Part,
    Row,
    Settings,
    Severity,
)
from detmatrix.scanner.observations.runfile import Line
from detmatrix.scanner.observations.writer import RunWriter
from detmatrix.scanner.run.passes import place_of

RUNS, PROCESSES = 50, 2
SETTINGS = Settings(patterns=(), device="cpu", runs=RUNS, processes=PROCESSES, timeout=60.0, seed=0)

ALERT = (
    "{} does not have a deterministic implementation, but you set "
    "'torch.use_deterministic_algorithms(True)'. You can turn off determinism just for this operation"
)
ENVIRONMENT = Environment(
    torch="2.13.0+cpu",
    torch_git="0123456789abcdef",
    cuda=None,
    cudnn=None,
    driver=None,
    gpu=None,
    gpu_capability=None,
    cpu="Example CPU @ 2.10GHz",
    cores=4,
    threads=2,
    affinity=(0, 1, 3),
    load=(0.5, 0.25, 0.1),
    python="3.11.2",
    os="Linux 6.1",
    variables={
        "off": {"LANG": "C.UTF-8", "OMP_NUM_THREADS": "2"},
        "on": {"LANG": "C.UTF-8", "CUBLAS_WORKSPACE_CONFIG": ":4096:8", "OMP_NUM_THREADS": "2"},
    },
)
HEADER = Header(
    format=FORMAT,
    tool="0.1.0",
    started="2026-01-02T03:04:05Z",
    settings=SETTINGS,
    environment=ENVIRONMENT,
    planned=(),
)
CLOSING = Closing(seconds=12.5, load=(1.5, 0.75, 0.25), observations=0)

Planned = tuple[Row, Sequence[Observation]]


def row(
    spec: str, case: str = "collisions", direction: Direction = "forward", dtype: str = "float32", **more: Any
) -> Row:
    """Return a planned row; *more* are its other fields."""
    usual = {
        "family": "scatter",
        "device": "cpu",
        "op": spec.removesuffix("_"),
        "provokes": "16384 additions into each slot",
        "why": "atomicAdd: https://example.org/kernel.cu",
    }
    return Row(spec=spec, case=case, direction=direction, dtype=dtype, **usual | more)


def ran(
    planned: Row, mode: Mode, *processes: Mapping[str, int], severity: Severity | None = None, **more: Any
) -> list[Observation]:
    """Return one observation per process, each given as its digests and their counts; *more* are fields of all of them."""
    name = "output" if planned.direction == "forward" else "grad of args[0]"
    observed = []
    for process, digests in enumerate(processes):
        first, executions, differs = next(iter(digests.values())), sum(digests.values()), len(digests) > 1
        output = Output(name=name, shape=(64, 3), dtype=planned.dtype, differing=executions - first)
        fields: dict[str, Any] = {
            "outcome": "ran",
            "executions": executions,
            "digests": dict(digests),
            "first_differing": first if differs else None,
            "outputs": (replace(output, severity=severity if differs else None),),
            "inputs": (f"args[0]: {planned.dtype} (64, 3)", "args[1]: 0", "args[2]: int64 (1048576,)"),
            "inputs_digest": "i" * 8,
            "seconds": 0.25 + process,
            "setup_seconds": 0.125,
        }
        observed.append(Observation(**place_of(planned), mode=mode, process=process, **fields | more))
    return observed


def ended(planned: Row, mode: Mode, outcome: Outcome, message: str, **more: Any) -> list[Observation]:
    """Return one observation per process of a case that did not run through; *more* are other fields, as its exception."""
    more |= place_of(planned) | {"mode": mode, "outcome": outcome, "message": message}
    return [Observation(process=process, **more) for process in range(PROCESSES)]


def raised(planned: Row, mode: Mode, caller: str) -> list[Observation]:
    """Return one observation per process of an op that raised PyTorch's alert."""
    return ended(planned, mode, "raised", ALERT.format(caller), exception="RuntimeError")


def stable(digest: str = "a") -> list[dict[str, int]]:
    """Return the digests of processes in which nothing differed."""
    return [{digest: RUNS}] * PROCESSES


def drifting(distinct: int = 3) -> list[dict[str, int]]:
    """Return the digests of processes that gave *distinct* outputs between them."""
    others = {f"x{place}": 1 for place in range(distinct - 1)}
    return [{"a": RUNS - len(others), **others}, *[{"a": RUNS}] * (PROCESSES - 1)]


def seen(text: str, planned: Row | None = None, **more: Any) -> Planned:
    """Return a row that showed what a text says of each mode: "off drifting 20; on raises put_", as ``comparisons.txt`` has it.

    A scatter_add_ is the row by default; *more* are other fields of what ran.
    """
    planned, observed = planned or row("torch.Tensor.scatter_add_"), list[Observation]()
    for part in text.split("; "):
        told, _, alerts = part.partition(" alerts ")
        words: Any = told.split(" ", 2)
        mode, what, rest = (*words, "")[:3]
        match what:
            case "raises":
                observed += raised(planned, mode, rest)
                continue
            case "raised":
                exception, _, message = rest.partition(": ")
                observed += ended(planned, mode, "raised", message, exception=exception)
                continue
            case "refused":
                observed += ended(planned, mode, "raised", REFUSAL, exception="RuntimeError")
                continue
            case "stable":
                processes = stable(rest or "a")
            case "drifting":
                processes = drifting(int(rest))
            case _ if what.startswith("["):
                processes = json.loads(f"{what} {rest}")
            case _:
                none = Compiled(graphs=0, breaks=1, kernels=0) if rest.startswith("not compiled") else None
                observed += ended(planned, mode, what, rest, compiled=none)
                continue
        observed += ran(planned, mode, *processes, alerts=tuple(filter(None, alerts.split(","))), **more)
    return planned, observed


def launching(observations: Sequence[Observation], differing: int = 0) -> list[Observation]:
    """Return observations as an earlier release made them in Triton's interpreter: so many orders in a process gave other bits."""
    others = {"a": 10 - differing, **{f"o{number}": 1 for number in range(differing)}}
    orders = Group(perturbation="order", executions=10, differing=differing, digests=others)
    found = []
    for one in observations:
        same = next(iter(one.digests.values()))
        quiet = Group(perturbation="quiet", executions=one.executions, differing=one.executions - same)
        found.append(replace(one, groups=(quiet, orders), launches=1))
    return found


def every_finding() -> list[Planned]:
    """Return rows that show every finding and every verdict, in three families."""
    indexing: dict[str, Any] = {"family": "indexing"}
    pooling: dict[str, Any] = {"family": "pooling"}
    index = row("torch.Tensor.index_put_", "duplicates", "backward", "float64", **indexing)
    observed = (index, [*ran(index, "off", *stable()), *ran(index, "on", *drifting(50), forward_differing=1)])
    unpool = row("torch.nn.MaxUnpool2d", "own_indices", "backward", **pooling)
    conv = row("torch.nn.Conv2d", "wide", "backward", "bfloat16", **pooling)
    dropout = row("torch.nn.functional.fractional_max_pool2d", "wide", **pooling)
    slow = "off timeout stopped after 60 s; on raised ValueError: expected a | b, got `c`"
    return [
        seen("off drifting 6; on stable"),
        seen("off stable; on stable", row("torch.Tensor.scatter_add_", "no_collisions", provokes="")),
        seen("off drifting 2; on raises put_", row("torch.Tensor.put_", "duplicates", **indexing)),
        observed,
        seen(
            "off crash killed by signal 11; on stable",
            row("torch.cumsum", "n_d", "forward", "int64", **indexing),
        ),
        seen("off not_run torch 2.13.0 has no new_op", row("torch.new_op", "plain", **indexing)),
        seen("off stable; on raises max_unpooling2d_forward_out", unpool),
        seen("off stable; on stable b", conv),
        seen("off stable; on stable", dropout, seeded=True),
        seen(slow, row("torch.nn.AvgPool3d", "large", **pooling)),
    ]


def write_run(
    path: Path,
    planned: Iterable[Planned] | None = None,
    *,
    closing: Closing | None = CLOSING,
    controls: Sequence[Planned] = (),
    lines: Sequence[Line] = (),
    format_: int = FORMAT,
    parts: tuple[Part, ...] = (),
    **more: Any,
) -> Path:
    """Write a run file, compressed if its name ends in ``.gz``, and return its path.

    Its rows are those of ``every_finding()`` by default; the closing line, unless it is ``None``, has its counts put right. Of
    a merged file the first of its parts has all rows. Further *lines* stand before the observations; *more* are other records
    by their kind, such as ``costs``, and what else the header says.
    """
    rows = list(every_finding() if planned is None else planned)
    kinds = {
        kind: more.pop(kind, ()) for kind in ("sentinels", "costs", "kernels", "dispatches", "invariances")
    }
    if kinds["kernels"]:
        kinds["kernels"] = (kinds["kernels"],)
    entered = {
        one.spec for one in lines if isinstance(one, EnumeratedEntry)
    }  # whose rows stand in these lines
    told: dict[str, Any] = more | {
        "format": format_,
        "planned": tuple(one for one, _ in rows if one.spec not in entered),
        "controls": tuple(one for one, _ in controls),
    }
    if parts:
        groups = {one.spec: 1 for one, _ in rows}
        told |= {"plan": "f" * 64, "groups": groups, "shards": len(parts), "parts": parts}
    plain = path.with_suffix("") if path.suffix == ".gz" else path
    with RunWriter(plain) as writer:
        writer.write(replace(HEADER, **told))
        kinds = {"observations": [one for _, seen in [*controls, *rows] for one in seen]} | kinds
        for line in (*lines, *(one for those in kinds.values() for one in those)):
            writer.write(line)
        if closing is not None:
            del kinds["kernels"]  # which are one line
            writer.write(replace(closing, **{kind: len(those) for kind, those in kinds.items()}))
    if path != plain:
        path.write_bytes(gzip.compress(plain.read_bytes(), mtime=0))
        plain.unlink()
    return path
