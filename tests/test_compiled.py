"""Modes under torch.compile: what is compiled, where, and what is said where nothing can be."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from detmatrix.opspecs.families.images import convolution
from detmatrix.opspecs.model import call
from detmatrix.scanner.alerts import REFUSAL, alert_caller
from detmatrix.scanner.modes import Mode
from detmatrix.scanner.observations.records import Compiled, Row
from detmatrix.scanner.observations.runfile import read_run
from detmatrix.scanner.verdicts.cells import Cell, row_cell
from detmatrix.scanner.verdicts.findings import chosen_cell, matrix
from tests.commands import Command, scanned_in
from tests.conftest import refused
from tests.runs import ended, ran, row
from tests.stand_in import StandIn
from tests.stand_in_worker import TORCH

QUICK = Path(__file__).with_name("quick.py")
OPTIONS = ("--device", "cpu", "--processes", 2, "--no-cost", "--no-overloads")
MODES = ("--modes", "off,on,compile_off,compile_on")
ROW: Row = row("torch.take", "duplicates", "backward", family="gather")
STILL = Cell(verdict="deterministic", runs=200, first="a", by_process=(100, 100))


TWO_WAYS = """
from detmatrix.opspecs.model import Case, OpSpec, call

def case(*directions, provokes=""):
    return Case(inputs=lambda t: call(t.leaf(t.normal(4))), directions=directions, provokes=provokes)

SPECS = (
    OpSpec(
        name="mine.ways",
        op="torch.neg",
        why="Planted.",
        dtypes=("float32", "float64"),
        cases={
            "innocent": case("forward", "backward"),
            "there": case("forward", provokes="much"),
            "back": case("backward", provokes="much"),
        },
    ),
)
"""
CHOSEN = {"mine.ways:there:forward:float32", "mine.ways:back:backward:float32"}


@pytest.mark.parametrize(("more", "cases"), [((), CHOSEN), (("--compile-all",), None)])
def test_one_case_of_an_op_is_compiled_in_each_direction(
    detmatrix: Command, tmp_path: Path, more: tuple[str, ...], cases: set[str] | None
) -> None:
    """The first that provokes, unless all are asked for; the others say why they were not, and the op how many were."""
    standing, ways, path = StandIn(tmp_path), tmp_path / "ways.py", tmp_path / "run.jsonl"
    ways.write_text(TWO_WAYS)
    given = ("--specs", ways, "--runs", 4, "--python", standing.python)

    run = scanned_in(tmp_path, "mine.ways", *OPTIONS, *given, *MODES, *more)

    asked = {row for mode, row in standing.asked("observe") if mode == "compile_on"}
    assert asked == (cases or {one.id for one in run.header.planned})
    left = [one for one in matrix(run.header, run.observations, closed=True) if one.row.id not in asked]
    assert {one.chosen["compile_on"].reason for one in left} <= {
        "one case of each op is compiled in each direction; --compile-all compiles all"
    }
    (op,) = json.loads(detmatrix("report", path, "--format", "json").stdout)["ops"]
    told = op["further"]["compile_on"]
    assert (told["compiled"], told["among"]) == (len(asked), 8)
    markdown = detmatrix("report", path, "--all", "--format", "md").stdout
    assert f"| as_off; {len(asked)} of 8 rows compiled |" in re.sub(" +", " ", markdown)


def test_each_process_compiles_into_a_folder_of_its_own(detmatrix: Command, tmp_path: Path) -> None:
    """What one has compiled no other takes, and no folder is left."""
    standing = StandIn(tmp_path)

    detmatrix("scan", "quick", "--specs", QUICK, *OPTIONS, *MODES, "--runs", 4, "--python", standing.python)

    folders = [
        (one["mode"], one["variables"].get("TORCHINDUCTOR_CACHE_DIR"))
        for one in standing.noted
        if one["do"] == "start"
    ]
    compiling = [folder for mode, folder in folders if mode.startswith("compile_")]
    # One that sees whether anything can be compiled, and two of each mode.
    assert len(compiling) == len(set(compiling)) == 5
    assert not any(Path(folder).exists() for folder in compiling)
    assert {folder for mode, folder in folders if not mode.startswith("compile_")} == {None}


NO_COMPILER = "torch.compile does not work there: InvalidCxxCompiler: No working C++ compiler found"


@pytest.mark.parametrize(
    ("torch", "failed", "begins", "ends"),
    [
        ("2.0.1+cpu", None, "compile_off: needs torch 2.1 or newer, and this is 2.0.1+cpu", "; leave it out"),
        (TORCH, NO_COMPILER, "compile_off: ", f"no worker could be started ({NO_COMPILER}); install what is missing, or leave the mode out"),
    ],
)  # fmt: skip
def test_what_a_mode_needs_is_asked_for_before_anything_is_measured(
    detmatrix: Command, tmp_path: Path, torch: str, failed: str | None, begins: str, ends: str
) -> None:
    """A torch that lacks it, and a compiler that is missing, are one line."""
    rule = {"do": "start", "mode": "compile_off", "then": {"build": None, "failed": failed}}
    standing = StandIn(tmp_path, *([rule] if failed else []), build={"torch": torch})

    done = detmatrix("scan", "quick", "--specs", QUICK, *OPTIONS, *MODES, "--python", standing.python)

    line = refused(done)
    assert line.startswith(f"--modes {begins}")
    assert line.endswith(ends)
    assert standing.asked("observe") == []


def test_a_backward_part_that_refuses_to_run_is_no_alert() -> None:
    """PyTorch's guard says nothing of the op."""
    assert _in_backward_only(REFUSAL, REFUSAL).finding == "refused"


@pytest.mark.parametrize("first", [True, False])
def test_one_process_that_refuses_is_no_refusal(first: bool) -> None:
    """Another one ran, and differed: what each did is told, and nothing is settled; nor is it where one failed otherwise."""
    seen = _in_backward_only(*((REFUSAL, None) if first else (None, REFUSAL)))

    assert seen.finding == "inconclusive"
    assert "ran, 2 distinct in 50" in str(seen.finding_reason)
    assert REFUSAL in str(seen.finding_reason)
    assert _in_backward_only(REFUSAL, "no kernel").finding == "inconclusive"


def test_code_that_calls_eager_kernels_alone_says_so() -> None:
    """It is compiled, and no kernel in it is the compiler's."""
    cell = replace(STILL, compiled=Compiled(graphs=1, breaks=0, kernels=0))

    assert chosen_cell("compile_on", ROW, (STILL, STILL), cell).remarks == ("calls eager kernels",)


def _in_backward_only(*messages: str | None) -> Cell:
    """Return what processes showed that raised; one without a message ran, and differed."""
    seen = [
        replace(
            ended(ROW, "backward_only", "raised", message, exception="RuntimeError")[0]
            if message
            else ran(ROW, "backward_only", {"a": 49, "b": 1})[0],
            process=process,
        )
        for process, message in enumerate(messages)
    ]
    return chosen_cell("backward_only", ROW, (STILL, STILL), row_cell(seen, "", ROW))


# Modes under torch.compile on real torch: what compiled code shows, and what a cache keeps.


@pytest.fixture
def _one_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Compile in this process alone: what the environment asks for was read when an earlier test loaded the compiler."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    config = pytest.importorskip("torch._inductor.config")
    # A worker lets the warnings of PyTorch's compiler pass.
    with config.patch(compile_threads=1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.nightly
@pytest.mark.usefixtures("_one_compiler")
def test_compiled_code_is_told_from_eager_code() -> None:
    """What breaks the graph, in part or as a whole, is told, and so is code that calls eager kernels alone."""
    torch = pytest.importorskip("torch")
    from detmatrix.scanner.worker import global_state  # noqa: PLC0415 - needs torch
    from detmatrix.scanner.worker.execution import failure  # noqa: PLC0415 - needs torch
    from tests.observed import observed, spec_of  # noqa: PLC0415 - needs torch

    assert failure("cpu") is None
    specs = {
        "sin": spec_of("torch.sin", lambda t: call(t.leaf(t.normal(100_000)))),
        "nonzero": spec_of("torch.nonzero"),
        "item": spec_of(lambda x: (x + x.sum().item()).sin()),
        "svd": spec_of("torch.linalg.svd", lambda t: call(t.normal(8, 8))),
    }
    before = global_state.snapshot()

    seen = {name: observed(spec, mode="compile_off", runs=4) for name, spec in specs.items()}

    assert global_state.changes(before, global_state.snapshot()) == ""
    told = {name: (one["outcome"], one["compiled"]) for name, one in seen.items()}
    assert told["sin"] == ("ran", {"graphs": 1, "breaks": 0, "kernels": 1})
    assert told["svd"] == ("ran", {"graphs": 1, "breaks": 0, "kernels": 0})
    assert (told["nonzero"][0], told["nonzero"][1]["graphs"]) == ("not_run", 0)
    assert seen["nonzero"]["message"].startswith("not compiled: ")
    assert told["item"][0] == "ran"
    assert told["item"][1]["breaks"] > 0
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.nightly
@pytest.mark.usefixtures("_one_compiler")
def test_an_alert_that_the_compiler_wraps_is_one() -> None:
    """An op that raises the alert while it is traced raises, as it does when it runs eagerly."""
    pytest.importorskip("torch")
    from tests.observed import observed, spec_of  # noqa: PLC0415 - needs torch

    spec = spec_of(
        "torch.nn.functional.max_unpool2d",
        lambda t: call(t.normal(1, 1, 2, 2), t.index(1, 1, 2, 2, high=16), 2),
    )
    seen = observed(spec, mode="compile_on")

    assert seen["outcome"] == "raised"
    assert alert_caller(seen["exception"], seen["message"]) == "max_unpooling2d_forward_out"


@pytest.mark.nightly
@pytest.mark.alone
def test_a_row_races_when_compiled_and_not_when_eager(detmatrix: Command, tmp_path: Path) -> None:
    """Inductor's additions into one slot are atomic; the flag makes them serial."""
    pytest.importorskip("torch")

    more = ("--runs", 50, "--processes", 1, "--perturb", "quiet", "-o", tmp_path / "run.jsonl")
    done = detmatrix("scan", "torch.index_add:collisions:forward:float32", *OPTIONS, *MODES, *more)

    assert done.returncode == 0, done.stderr
    run = read_run(tmp_path / "run.jsonl")
    (seen,) = matrix(run.header, run.observations, closed=True)
    assert (seen.off.differing, seen.chosen["compile_off"].finding) == (0, "differs")
    assert seen.chosen["compile_on"].verdict == "deterministic"


@pytest.mark.nightly
@pytest.mark.alone
def test_script_shows_what_the_cache_forgets(detmatrix: Command, tmp_path: Path) -> None:
    """A backward phase that was compiled with the flag off is taken from the cache with the flag on."""
    pytest.importorskip("torch")
    script = tmp_path / "hole.py"
    assert detmatrix("repro", "--compile-cache", "-o", script).returncode == 0

    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)

    fresh, _, cached, about = done.stdout.splitlines()
    assert fresh.startswith("flag on throughout, fresh cache: 0 of 50 differ from the first, 0 cache hits")
    assert cached.startswith("flag on throughout, with that cache: ")
    assert "1 cache hits" in cached
    assert done.returncode == 1, about


@pytest.mark.nightly
@pytest.mark.usefixtures("_one_compiler")
@pytest.mark.parametrize("mode", ["compile_off", "compile_on"])
def test_masked_convolutions_are_compiled(mode: Mode) -> None:
    """As a whole, once for all executions; pixels that an output must not see have no gradient there either."""
    pytest.importorskip("torch")
    from tests.observed import observed  # noqa: PLC0415 - needs torch

    (spec,) = (one for one in convolution.SPECS if one.name == "masked_conv2d.receptive_field")

    # More of them than torch.compile compiles one function for.
    seen = observed(spec, mode=mode, direction="backward", runs=20)

    assert (seen["outcome"], seen.get("message")) == ("ran", None)
    assert (seen["compiled"]["graphs"], seen["compiled"]["breaks"]) == (1, 0)
    assert seen["reference"]["elements"] == 0
