"""Run files in which one thing or a few are another, and every command over them: what is read must be rendered."""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from reports.cli.report import LONG
from reports.cli.report import RENDERERS as REPORTS
from reports.compare.render import RENDERERS as COMPARISONS
from reports.compare.runs import compare as compare_runs
from reports.coverage.model import coverages
from reports.coverage.render import RENDERERS as COVERAGES
from reports.docs.agreement import join
from reports.docs.render import RENDERERS as DOCS
from reports.docs.render import drift_lines
from reports.matrix.model import Matrix, load
from scanner.claims.tables import parse_claims
from scanner.errors import DetmatrixError
from scanner.observations.merge import merge
from scanner.observations.overload_records import BuildOverloads, Dispatch, KernelGroup, Reached
from scanner.observations.records import MODES, Compiled, HeldReference, Part
from scanner.repro.invariance import invariance_script
from scanner.repro.script import BatchSource, InputSource, script
from tests.evidence_runs import controls, cost, evidence, sentinel
from tests.invariances import ASKED_CONTROLS, asked_of
from tests.runs import (
    CLOSING,
    ENVIRONMENT,
    PROCESSES,
    SETTINGS,
    drifting,
    launching,
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
    batch=BatchSource(inputs=[(0, 0)], outputs=0),
)
_VALUES: tuple[Any, ...] = (
    None, True, False, [], {}, "", "x", "cpu", "cuda:0", "off", "on", "warn_only", "ran", "raised", "crash", "forward",
    "backward", "float32", "quiet", "poison", "order", "threads=2", "memory", "opinfo", "\u202e<b>|`\n\x1b[31m\0", "x" * 5000,
    "control.constant", "control.rare", "torch.take", "2.13.0", "1" * 5000, "[" * 500, "::", "%s{0}$RUNS", "../x", -1, 0, 1,
    2, 3, 50, 51, 1000, 2**31, 2**63 - 1, 2**64, 10**15, 10**30, 0.0, -0.0, 0.5, 1.0, 1e-320, 1e-300, 1e300, 1.7e308, -1.0,
)  # fmt: skip


def base_run(path: Path) -> Path:
    """Write a run that has every kind of record, and return its path."""
    launches = row("mine.launches")
    orders = [one for mode in MODES for one in launching(ran(launches, mode, *stable()), 3)]
    compiles = replace(row("mine.compiles", direction="backward"), compiled=True)
    made, held = Compiled(graphs=1, breaks=0, kernels=1, hits=1), HeldReference(digest="a", elements=3)
    seen = ran(compiles, "compile_on_cached", *drifting())
    compiled = [*ran(compiles, "off", *stable()), *ran(compiles, "on", *stable()),
                *(replace(one, compiled=made, reference=held) for one in seen)]  # fmt: skip
    planned = [*evidence(), (launches, orders), (compiles, compiled)]
    last = len(planned)
    rows = [one for one, _ in planned]
    reached = Reached(overloads=("aten::put_", "aten::cumsum"), alerts=(("put_", "aten::put_"),))
    return write_run(
        path,
        planned,
        settings=replace(
            SETTINGS,
            modes=("off", "on", "warn_only", "compile_on_cached"),
            perturb=("quiet", "stress", "poison", "order"),
            cost=True,
            overloads=True,
            invariance=("batch", "layout"),
        ),
        sentinels=[sentinel(mode, number, before, 10) for mode in ("off", "on") for number in range(PROCESSES)
                   for before in (0, last)],
        costs=[cost(rows[0], 1e-5, 3.4e-5, 1.1e-5), cost(rows[1], outcome="raised", message="put_ has none"),
               cost(rows[3], 1e-6, 2.5e-6, 2.5e-6, memory=(0, 3 << 20))],
        claims=parse_claims(DOCSTRING),
        controls=controls(modes=("off", "on", "warn_only", "compile_on_cached")),
        kernels=BuildOverloads(groups=(KernelGroup(kernel="device", writes="in_place", names=("aten::put_", "aten::cumsum")),
                                KernelGroup(kernel="none", writes="new", names=("aten::take",)))),
        invariances=[*asked_of(rows[0], {"batch": ("8 last",)}), *ASKED_CONTROLS],
        dispatches=[Dispatch(spec=one.spec, case=one.case, direction=one.direction, dtype=one.dtype, outcome="ran",
                             modes={"off": reached, "on": reached}) for one in rows[:3]],
        parts=tuple(Part(shard=shard, file=1, started="2026-01-02T03:04:05Z", workers=1, closing=replace(CLOSING, seconds=shard),
                         environment=replace(ENVIRONMENT, cpu=f"CPU {shard}")) for shard in (1, 2)),
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
        outer, key = draw.choice(list(_places(record)))
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
            [record, *(one[key] for one, key in _places(record) if isinstance(one[key], dict))]
        )
        kind = draw.choice((int, float))
        value = draw.choice([one for one in _VALUES if type(one) is kind])
        for outer, key in list(_places(inner)):
            if type(outer[key]) is kind and draw.randrange(4):
                outer[key] = value


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every place in nested records, as what it is in and the key there."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from _places(value[key])


def _scripts(one: Matrix) -> Iterator[str]:
    for planned in one.rows:
        yield script(INPUT_SOURCE, planned, one.run.header)
        for what in planned.invariance:
            # One that was not tried is refused in a line.
            with contextlib.suppress(DetmatrixError):
                yield invariance_script(INPUT_SOURCE, planned, one.run.header, what)


def _compared(form: str, *sides: Matrix) -> Iterator[str]:
    return COMPARISONS[form](compare_runs(list(sides)), ())


Action = Callable[[Matrix, Matrix], Iterator[str] | Sequence[str]]


def actions() -> dict[str, Action]:
    """Return what commands do with a run, given it and the run it was before it was changed."""
    found: dict[str, Action] = {"repro": lambda one, _: _scripts(one)}
    for name, render in [*REPORTS.items(), *LONG.items()]:
        found[f"report {name}"] = lambda one, _, render=render: render([one])  # type: ignore[misc]
    for name, docs in DOCS.items():
        found[f"docs {name}"] = lambda one, _, docs=docs: list(docs(join([one])))  # type: ignore[misc]
    found["merge"] = lambda one, _: map(repr, merge([Path(one.run.path)])[2])
    found["docs --check"] = lambda one, _: list(drift_lines(join([one])))
    for name, cover in COVERAGES.items():
        found[f"coverage {name}"] = lambda one, _, cover=cover: cover(coverages([one]))  # type: ignore[misc]
    for name in COMPARISONS:
        found[f"compare {name}"] = partial(lambda name, one, base: _compared(name, base, one), name)
        found[f"compare back {name}"] = partial(_compared, name)
    return found


def read(path: Path) -> Matrix | None:
    """Return a run as reports read it; ``None`` if it is refused, as it should be."""
    try:
        return load([str(path)])[0]
    except DetmatrixError:
        return None


def act(action: Action, one: Matrix, base: Matrix) -> str:
    """Render, whatever comes out; what is refused in a line is refused."""
    try:
        return "".join(action(one, base))
    except DetmatrixError:
        return ""
