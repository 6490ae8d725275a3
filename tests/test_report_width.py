"""A report in a terminal stays within its width, whatever a scan was asked for, and explains what it shows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache

import pytest
from msgspec.structs import replace

from reports.matrix.model import Matrix, matrix_of
from reports.render.terminal import NARROW as WIDTH
from reports.render.terminal import fitted
from reports.report import text
from scanner.cases.selected import selected_rows
from scanner.invariance import HEADS, PROPERTIES, Property
from scanner.modes import CHOSEN_MODES, MODE_TABLE, Mode, with_chosen
from scanner.observations.records import Compiled, Observation
from scanner.observations.runfile import Run, read_run
from tests.invariances import VALUES, asked_of
from tests.runs import drifting, ran
from tests.test_report_text import RUN

ON_CPU = tuple(mode for mode in CHOSEN_MODES if not MODE_TABLE[mode].cuda_alone)
GRAPH = Compiled(graphs=1, breaks=0, kernels=1)


@cache
def _recorded() -> Run:
    return read_run(str(RUN))


def _asked(
    modes: Sequence[Mode] = (),
    properties: Sequence[Property] = (),
    patterns: tuple[str, ...] = (),
    torch: str = "2.13.0",
) -> Matrix:
    """Return the recorded run as if it had asked for more, and every second row had differed in every mode."""
    run = _recorded()
    settings = replace(run.header.settings, modes=with_chosen(modes), invariance=tuple(properties))
    header = replace(
        run.header,
        settings=settings,
        controls=(),
        environment=replace(run.header.environment, torch=torch),
    )
    varies = {it: VALUES[it][1][:1] for it in properties}
    run = replace(
        run,
        header=header,
        controls=(),
        observations=(*run.observations, *_further(run, modes)),
        invariances=tuple(one for row in header.planned for one in asked_of(row, varies)),
    )
    return matrix_of(f"{torch}.jsonl", run, (), patterns, selected_rows(patterns, header.planned, ""))


def _further(run: Run, modes: Sequence[Mode]) -> Iterator[Observation]:
    inputs = {one.key: one.inputs_digest for one in run.observations}
    for row in run.header.planned[::2]:
        for mode in modes:
            graph = GRAPH if MODE_TABLE[mode].compiles else None
            for one in ran(row, mode, *drifting(2)):
                yield replace(one, compiled=graph, inputs_digest=inputs[row.key])


def _lines(*runs: Matrix) -> list[str]:
    return "".join(text.render(runs)).splitlines()


@pytest.mark.parametrize("patterns", [(), ("torch.nn.Max*", "torch.take")], ids=["ops", "rows"])
@pytest.mark.parametrize(
    ("modes", "properties"),
    [
        (ON_CPU[:2], ()),
        (("compile_on_cached",), ()),
        ((), tuple(PROPERTIES)),
        (ON_CPU, tuple(PROPERTIES)),
    ],
)
def test_no_line_is_wider_than_a_terminal(
    modes: tuple[Mode, ...], properties: tuple[Property, ...], patterns: tuple[str, ...]
) -> None:
    """With costs, long actions and every further column: each stands beside or below the line of an op, and is explained."""
    lines = _lines(_asked(modes, properties, patterns))

    assert max(map(len, lines)) <= WIDTH
    for head in (*(MODE_TABLE[mode].head for mode in modes), *(HEADS[it] for it in properties)):
        explained = [line for line in lines if re.match(f"{head} [a-z_]+: ", line)]
        shown = [line for line in lines if re.search(f" {head} ", line)]
        assert len(explained) == 1
        assert shown


def test_several_releases_name_the_columns_that_they_leave_out() -> None:
    """Nothing is explained that is not shown; rows that were asked for tell of the columns."""
    both = [_asked(("backward_only",), ("threads",), torch=torch) for torch in ("2.12.0", "2.13.0")]
    rows = [
        _asked(("backward_only",), ("threads",), ("torch.take",), torch) for torch in ("2.12.0", "2.13.0")
    ]
    shown, narrowed = _lines(*both), _lines(*rows)

    assert "… left out: backward_only, threads, costs and actions: --format html has them" in shown
    assert not [line for line in shown if line.startswith(("BWO", "THR"))]
    assert [line for line in narrowed if line.split()[-3:] == ["COST", "DOCS", "ACTION"]]
    assert [line for line in narrowed if "BWO silent" in line]
    assert [line for line in narrowed if line.startswith("BWO backward_only: ")]
    assert max(map(len, (*shown, *narrowed))) <= WIDTH


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (("torch.take", "torch.nn.Conv2d"), ["torch.take", "…nn.Conv2d"]),
        (("Tensor.index_put", "torch.index_put"), ["Tensor.index_put", "torch.index_put"]),
        (("a.scatter_add", "torch.scatter_add_"), ["…scatter_add", "…scatter_add_"]),
        (("torch.fractional_max_pool2d",), ["…fractional_max_pool2d"]),
        (("torch." + "long" * 40,), ["…" + "longlonglonglonglonglonglong"[-21:]]),
    ],
)
def test_names_are_cut_at_dots_and_never_read_the_same(names: tuple[str, ...], shown: list[str]) -> None:
    """What would read like another name stays whole; only a part without an end is cut within."""
    assert [*fitted(names, 12, 22).values()] == shown


def test_a_wide_terminal_is_used() -> None:
    """Several releases leave room for costs and actions in 140 columns, and actions are whole."""
    both = [_asked(torch=torch) for torch in ("2.12.0", "2.13.0")]
    narrow, wide = ("".join(text.render(both, width=width)) for width in (WIDTH, 140))

    assert ("set the flag: it fills memory" in wide, "set the flag" in narrow) == (True, False)
    assert max(map(len, wide.splitlines())) <= 140
