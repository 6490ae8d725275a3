"""Run files in which one thing or a few are another: what is read of them must be rendered."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from detmatrix.scanner.alerts import REFUSAL
from detmatrix.scanner.claims.tables import parse_claims
from detmatrix.scanner.invariance import PROPERTIES
from detmatrix.scanner.modes import CHOSEN_MODES, Mode
from detmatrix.scanner.observations.records import (
    MODES,
    BuildOverloads,
    Compiled,
    Dispatch,
    HeldReference,
    KernelGroup,
    Observation,
    Part,
    Reached,
)
from detmatrix.scanner.repro.script import InputSource
from tests.evidence_runs import ASKED_CONTROLS, SEVERITY, asked_of, controls, cost, evidence, failed, sentinel
from tests.runs import (
    CLOSING,
    ENVIRONMENT,
    PROCESSES,
    SETTINGS,
    Planned,
    drifting,
    ended,
    launching,
    raised,
    ran,
    row,
    stable,
    write_run,
)

DOCSTRING = """
    The following normally-nondeterministic operations will act deterministically when ``mode=True``:

        * :func:`torch.cumsum` when called on CUDA tensor
        * :meth:`torch.Tensor.put_` with ``accumulate=True``

    The following normally-nondeterministic operations will throw a :class:`RuntimeError` when ``mode=True``:

        * :class:`torch.nn.AvgPool3d` when called on CUDA tensor that requires grad
        * :meth:`torch.Tensor.put_` when ``accumulate=False``
"""
INPUT_SOURCE = InputSource(
    lines=["x0 = torch.randn(4)"],
    args="(x0,)",
    kwargs="{}",
    leaves="[]",
    digest=None,
    op="torch.cumsum",
    in_place=False,
    imports=[],
    definitions=[],
    upstream=None,
    batch=([(0, 0)], 0),
)
_VALUES: tuple[Any, ...] = (
    None, True, False, [], {}, "", "x", "cpu", "cuda:0", "off", "on", "warn_only", "ran", "raised", "crash", "forward",
    "backward", "backward_only", "compile_on", "float32", "quiet", "poison", "order", "threads=2", "2 threads", "8 last", "transposed args[0]", "varies",
    "not compiled: it was not", "memory", "opinfo", "\u202e<b>|`\n\x1b[31m\0", "x" * 5000,
    "control.constant", "control.rare", "torch.take", "2.13.0", "1" * 5000, "[" * 500, "::", "%s{0}$RUNS", "../x", -1, 0, 1,
    2, 3, 50, 51, 1000, 2**31, 2**63 - 1, 2**64, 10**15, 10**30, 0.0, -0.0, 0.5, 1.0, 1e-320, 1e-300, 1e300, 1.7e308, -1.0,
)  # fmt: skip


def _in_chosen_modes() -> Iterator[Planned]:
    """Yield rows that show each thing that a row can show in a mode which a scan was asked for."""
    take = replace(row("torch.take", "duplicates", "backward", family="gather"), compiled=True)
    cached = _compiled(ran(take, "compile_on_cached", *drifting(2), severity=SEVERITY))
    yield (
        take,
        [
            *ran(take, "off", *drifting(3)),
            *ran(take, "on", *stable()),
            *ran(take, "backward_only", *drifting(2), severity=SEVERITY),
            *ran(take, "forward_only", *stable()),
            *_compiled(ran(take, "compile_off", *drifting(2), severity=SEVERITY), breaks=1),
            *_compiled(ran(take, "compile_on", *stable("c"))),
            *(replace(one, reference=HeldReference(digest="a", elements=3)) for one in cached),
        ],
    )
    pool = row("torch.nn.MaxPool3d", "overlapping", "backward", family="pooling")
    yield (
        pool,
        [
            *(one for mode in MODES for one in ran(pool, mode, *stable())),
            *raised(pool, "backward_only", "max_pool3d_with_indices_backward_cuda"),
            *_compiled(
                ended(pool, "compile_off", "not_run", "not compiled: Dynamic shape operator"), graphs=0
            ),
            *ended(pool, "compile_on", "raised", REFUSAL, exception="RuntimeError"),
        ],
    )


def _compiled(observations: Sequence[Observation], graphs: int = 1, breaks: int = 0) -> list[Observation]:
    return [replace(one, compiled=Compiled(graphs=graphs, breaks=breaks, kernels=2)) for one in observations]


def base_run(path: Path, further: Sequence[Planned], **header: Any) -> Path:
    """Write a run that has every kind of record, and return its path; *further* rows come last, *header* as ``write_run``."""
    launches = row("mine.launches")
    orders = [one for mode in MODES for one in launching(ran(launches, mode, *stable()), 3)]
    planned = [*evidence(), (launches, orders), *_in_chosen_modes()]
    least = len(planned)
    planned += further
    modes: tuple[Mode, ...] = ("off", "on", "warn_only", "unfilled", *CHOSEN_MODES)
    last = len(planned)
    rows = [one for one, _ in planned]
    not_asked = [
        replace(
            one, outcome="not_run", baseline=None, executions=0, trials=(), message="no batch is declared"
        )
        for one in asked_of(rows[0], {"batch": ()})
    ]
    reached = Reached(overloads=("aten::put_", "aten::cumsum"), alerts=(("put_", "aten::put_"),))
    return write_run(
        path,
        planned,
        settings=replace(
            SETTINGS,
            modes=modes,
            perturb=("quiet", "stress", "poison", "order"),
            cost=True,
            overloads=True,
            invariance=tuple(PROPERTIES),
        ),
        sentinels=[sentinel(mode, number, before, 10) for mode in ("off", "on") for number in range(PROCESSES)
                   for before in (0, last)],
        costs=[cost(rows[0], 1e-5, 3.4e-5, 1.1e-5), failed(rows[1], "raised", "put_ has none"),
               cost(rows[3], 1e-6, 2.5e-6, 2.5e-6, off_memory=0, on_memory=3 << 20)],
        claims=parse_claims(DOCSTRING),
        controls=controls(modes=modes),
        kernels=BuildOverloads(groups=(KernelGroup(kernel="device", writes="in_place", names=("aten::put_", "aten::cumsum")),
                                KernelGroup(kernel="none", writes="new", names=("aten::take",))),
                               alerts=("put_", "take_backward_of_nobody")),
        invariances=[*asked_of(rows[5], {"threads": ("4",), "batch": ("8 last",), "layout": ()}),
                     *asked_of(rows[least - 1], {"batch": ()}), *not_asked, *ASKED_CONTROLS,
                     *asked_of(row("control.invariant", "image"), {"threads": ()})],
        dispatches=[Dispatch(spec=one.spec, case=one.case, direction=one.direction, dtype=one.dtype, outcome="ran",
                             modes={"off": reached, "on": reached}) for one in rows[:3]],
        parts=tuple(Part(shard=shard, file=1, started="2026-01-02T03:04:05Z", workers=1, closing=replace(CLOSING, seconds=shard),
                         environment=replace(ENVIRONMENT, cpu=f"CPU {shard}")) for shard in (1, 2)),
        **header,
    )  # fmt: skip


class Mutants:
    """Changes run files at random, the same ones for the same seed."""

    def __init__(self, base: Path, seed: int) -> None:
        self._lines = base.read_text(encoding="utf-8").splitlines()
        self._random = random.Random(seed)

    def write(self, path: Path) -> None:
        """Write the next one: a few changes to the values of one line, or to the lines themselves."""
        lines = list(self._lines)
        draw = self._random
        for _ in range(draw.choice((1, 1, 1, 2, 3))):
            number = draw.choice((0, draw.randrange(len(lines))))
            match draw.randrange(12):
                case 0:
                    del lines[number]
                case 1:
                    lines.insert(draw.randrange(len(lines) + 1), lines[number])
                case _:
                    record = json.loads(lines[number])
                    self._change(record)
                    lines[number] = json.dumps(record)
            if not lines:
                return
        path.write_text("\n".join([*lines, ""]), encoding="utf-8")

    def _change(self, record: Any) -> None:
        draw = self._random
        outer, key = draw.choice(list(places(record)))
        # What is like the value there gets past the reader more often.
        like = [one for one in _VALUES if type(one) is type(outer[key])]
        match draw.randrange(10):
            case 8 | 9:
                self._alike(record if draw.randrange(2) else outer)
            case 0:
                del outer[key]
            case 1 if isinstance(outer, list):
                outer.append(outer[key])
            case 2 if isinstance(outer, dict):
                outer[draw.choice(["x", "", "quiet", "name"])] = outer.pop(key)
            case 3:
                outer[key] = draw.choice(_VALUES)
            case _:
                outer[key] = draw.choice(like or _VALUES)

    def _alike(self, record: Any) -> None:
        """Make numbers of one kind extreme together, so that they do not contradict one another."""
        draw = self._random
        inner = draw.choice(
            [record, *(one[key] for one, key in places(record) if isinstance(one[key], dict))]
        )
        kind = draw.choice((int, float))
        value = draw.choice([one for one in _VALUES if type(one) is kind])
        for outer, key in list(places(inner)):
            if type(outer[key]) is kind and draw.randrange(4):
                outer[key] = value


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every place in nested records, as what it is in and the key there."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from places(value[key])
