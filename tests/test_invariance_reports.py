"""Reports, comparisons and scripts show what a row's bits depend on, where a scan asked, and nothing of it elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from detmatrix.reports.compare.runs import compare
from detmatrix.reports.matrix.model import load
from detmatrix.scanner.errors import UsageError
from detmatrix.scanner.invariance import PROPERTIES, Property
from detmatrix.scanner.observations.records import Invariance
from detmatrix.scanner.observations.runfile import read_run
from detmatrix.scanner.repro.script import InputSource, invariance_script
from detmatrix.scanner.verdicts.findings import MatrixRow, matrix
from tests.commands import Command
from tests.conftest import refused
from tests.evidence_runs import text
from tests.invariances import ASKED_CONTROLS, asked_of
from tests.runs import SETTINGS, drifting, ran, row, stable, write_run

Varies = Mapping[Property, tuple[str, ...]]
ASKED = replace(SETTINGS, invariance=("batch", "layout"))
MM, TAKE = row("torch.mm", "batch"), row("torch.take", "batch")


def run_of(path: Path, varies: Varies, controls: list[Invariance] = ASKED_CONTROLS) -> Path:
    """Write a run of a row that varies so, and of one that differs run to run and was not asked."""
    seen = [*ran(MM, "off", *stable()), *ran(MM, "on", *stable())]
    differs = [*ran(TAKE, "off", *drifting()), *ran(TAKE, "on", *stable())]
    return write_run(
        path,
        [(MM, seen), (TAKE, differs)],
        settings=ASKED,
        invariances=[*asked_of(MM, varies), *controls],
    )


@pytest.fixture
def varying(tmp_path: Path) -> Path:
    """Return a run in which one row varies with its batch."""
    return run_of(tmp_path / "run.jsonl", {"batch": ("1 first", "8 last"), "layout": ()})


def test_a_run_whose_controls_are_not_there_is_not_trusted(tmp_path: Path) -> None:
    """Whoever takes them out of a run file does not make it look right."""
    path = run_of(tmp_path / "run.jsonl", {"batch": ()}, controls=[])

    assert "Not trustworthy: no control was asked of batch" in " ".join(text("md", path).split())


@pytest.mark.parametrize(
    ("before", "after", "kind", "told"),
    [
        ({"batch": ()}, {"batch": ("8 last",)}, "regressed", "batch: invariant → varies at 8 (last)"),
        ({"batch": ("8 last",)}, {"batch": ()}, "improved", "batch: varies at 8 (last) → invariant"),
        ({"batch": ("8 last",)}, {"batch": ("1 first",)}, "changed", "batch: varies at 8 (last) → varies at 1 (first)"),
        ({"batch": ("8 last",)}, {"batch": ("8 last",)}, "same", ""),
        ({"batch": ()}, {}, "same", ""),
    ],
)  # fmt: skip
def test_bits_that_begin_to_vary_are_a_change(
    tmp_path: Path, before: Varies, after: Varies, kind: str, told: str
) -> None:
    """Where both scans asked at the same values; other bits in ten of ten executions are no chance."""
    paths = [run_of(tmp_path / f"{name}.jsonl", it) for name, it in (("old", before), ("new", after))]

    (pair,) = compare(load([str(path) for path in paths])).pairs
    judged = next(one.judged for one in pair.changes if one.row.row.spec == "torch.mm")

    assert (judged.kind, judged.detail) == (kind, told)
    assert judged.confirmed is (None if kind == "same" else True)


PLANTED = """
import torch
from detmatrix.opspecs.model import Batch, Case, OpSpec, call


def depends(x, weights, *, scale):
    steps = sum(place * step for place, step in enumerate(x.stride()))
    return scale * x * weights[0] * (len(x) + torch.get_num_threads() + steps)


SPECS = (
    OpSpec(
        name="mine.depends",
        op=depends,
        why="Planted.",
        directions=("forward", "backward"),
        cases={
            "only": Case(
                inputs=lambda t: call(t.leaf(t.normal(6, 3)), [t.leaf(t.normal(3))], scale=t.normal(6, 1)),
                batch=Batch({0: 0, "scale": 0}),
            )
        },
    ),
)
"""


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize(
    ("what", "other", "same"),
    [
        ("threads", "threads=3", "the baseline"),
        ("batch", "5 of 6, last", "6 of 6, permuted"),
        ("layout", "transposed args[0]", "sliced kwargs['scale']"),
    ],
)
def test_a_script_shows_it_with_torch_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], what: Property, other: str, same: str, direction: str
) -> None:
    """It draws the same inputs, and says of each value that was tried whether the bits are others."""
    torch = pytest.importorskip("torch")
    from detmatrix.opspecs.user import load_specs  # noqa: PLC0415
    from detmatrix.scanner.worker.invariance import measure  # noqa: PLC0415
    from detmatrix.scanner.worker.repro.inputs import input_source  # noqa: PLC0415
    from tests.scripts import header, loaded  # noqa: PLC0415

    path = tmp_path / "mine.py"
    path.write_text(PLANTED)
    (spec,) = load_specs(str(path))
    place = {"direction": direction, "dtype": "float32", "device": "cpu", "seed": 3}
    measured = {
        "spec": spec.name,
        "case": "only",
        "direction": direction,
        "dtype": "float32",
        "property": what,
    }
    threads = torch.get_num_threads()
    measured |= measure(spec, "only", property=what, max_time=60, **place)
    source = msgspec.convert(
        input_source({spec.name: spec}, spec=spec.name, case="only", **place),  # type: ignore[arg-type]
        InputSource,
    )
    planned = row(spec.name, "only", direction, "float32")  # type: ignore[arg-type]
    head = replace(
        header(), planned=(planned,), settings=replace(header().settings, invariance=tuple(PROPERTIES))
    )
    (seen,) = matrix(
        head, ran(planned, "off", *stable()), closed=True, invariances=[msgspec.convert(measured, Invariance)]
    )

    try:
        loaded(invariance_script(source, seen, head, what))["main"]()
    finally:
        torch.set_num_threads(threads)

    printed = capsys.readouterr().out.splitlines()
    assert any(line.startswith(f"{other}: other bits, the same ones 10 times") for line in printed)
    assert any(same in line and "the same bits, 10 times" in line for line in printed)
    assert seen.invariance[what].verdict == "varies"
    assert len(printed) == 2 + len(seen.invariance[what].tried)


def _seen(path: Path) -> tuple[MatrixRow, ...]:
    run = read_run(path)
    return tuple(matrix(run.header, run.observations, closed=True, invariances=run.invariances))


def test_no_text_of_a_run_file_becomes_code(tmp_path: Path) -> None:
    """A value that no scan tries is refused in a line."""
    from tests.mutants import INPUT_SOURCE  # noqa: PLC0415 - loads jinja2

    path = run_of(tmp_path / "run.jsonl", {"layout": ("sliced args[0]",)})
    path.write_text(path.read_text().replace("sliced args[0]", "sliced args[__import__('os')]"))
    shown = next(one for one in _seen(path) if one.row.spec == "torch.mm")

    with pytest.raises(UsageError, match="as a value that was tried; restore the file"):
        invariance_script(INPUT_SOURCE, shown, read_run(path).header, "layout")


def test_a_script_of_what_was_not_tried_is_refused_in_a_line(detmatrix: Command, varying: Path) -> None:
    """With the reason that the run file has."""
    unasked = detmatrix("repro", varying, "torch.take:batch", "--invariance", "threads")
    differs = detmatrix("repro", varying, "torch.take:batch", "--invariance", "batch")

    assert refused(unasked).endswith("the scan did not ask for threads; scan with --invariance threads")
    assert "no value of batch was tried (2 of 100 executions differed run to run)" in refused(differs)
