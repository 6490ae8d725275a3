"""Modes under torch.compile: what is compiled, where, and what is said where nothing can be."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from detmatrix.scanner.alerts import alert_caller, is_refusal
from detmatrix.scanner.cases.settings import asked_for, settings_for
from detmatrix.scanner.errors import UsageError
from detmatrix.scanner.modes import Mode
from detmatrix.scanner.observations.records import Compiled, Observation, Row
from detmatrix.scanner.observations.runfile import read_run
from detmatrix.scanner.processes.variables import worker_environment
from detmatrix.scanner.verdicts.cells import Cell, row_cell
from detmatrix.scanner.verdicts.findings import MatrixRow, chosen_cell, matrix
from tests.commands import Command
from tests.compared import run_of
from tests.conftest import refused
from tests.evidence_runs import only
from tests.runs import SETTINGS, ended, launching, ran, row, stable, write_run
from tests.stand_in import StandIn

QUICK = Path(__file__).with_name("quick.py")
OPTIONS = ("--device", "cpu", "--processes", 2, "--no-cost", "--no-overloads")
MODES = ("--modes", "off,on,compile_off,compile_on")
REFUSAL = (
    "This compiled backward function is being run with torch.use_deterministic_algorithms(True), but it was previously "
    "generated during the forward function while torch.use_deterministic_algorithms(False) was set."
)
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


def _scan_two_ways(detmatrix: Command, standing: StandIn, folder: Path, *more: object) -> Path:
    """Scan an op of which no case that provokes has both directions."""
    (folder / "ways.py").write_text(TWO_WAYS)
    path = folder / "run.jsonl"
    given = ("--specs", folder / "ways.py", "--runs", 4, "--python", standing.python, "-o", path)
    done = detmatrix("scan", "mine.ways", *OPTIONS, *given, *more)
    assert done.returncode == 0, done.stderr
    return path


@pytest.mark.parametrize(("more", "cases"), [((), CHOSEN), (("--compile-all",), None)])
def test_one_case_of_an_op_is_compiled_in_each_direction(
    detmatrix: Command, tmp_path: Path, more: tuple[str, ...], cases: set[str] | None
) -> None:
    """The first that provokes, unless all are asked for; the others say why they were not, and the op how many were."""
    standing = StandIn(tmp_path)

    path = _scan_two_ways(detmatrix, standing, tmp_path, *MODES, *more)

    run = read_run(path)
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


@pytest.mark.parametrize(
    ("torch", "modes", "line"),
    [("2.0.1+cpu", "compile_off,compile_on", "compile_off: needs torch 2.1 or newer")],
)
def test_a_torch_that_lacks_what_a_mode_needs_is_one_line(
    detmatrix: Command, tmp_path: Path, torch: str, modes: str, line: str
) -> None:
    """Nothing is measured."""
    standing = StandIn(tmp_path, build={"torch": torch})

    more = ("--modes", modes, "--python", standing.python)
    done = detmatrix("scan", "quick", "--specs", QUICK, *OPTIONS, *more)

    assert refused(done) == f"--modes {line}, and this is {torch}; leave it out"
    assert standing.asked("observe") == []


def test_a_compiler_that_is_missing_is_one_line(detmatrix: Command, tmp_path: Path) -> None:
    """It is asked for before anything is measured."""
    why = "torch.compile does not work there: InvalidCxxCompiler: No working C++ compiler found"
    rule = {"do": "start", "mode": "compile_on", "then": {"build": None, "failed": why}}
    standing = StandIn(tmp_path, rule)

    done = detmatrix(
        "scan", "quick", "--specs", QUICK, *OPTIONS, "--modes", "compile_on", "--python", standing.python
    )

    line = refused(done)
    assert line.startswith("--modes compile_on: ")
    assert line.endswith(
        f"no worker could be started ({why}); install what is missing, or leave the mode out"
    )
    assert standing.asked("observe") == []


def test_what_ran_eagerly_is_no_verdict() -> None:
    """An op that nothing was compiled of has not shown that compiled code is deterministic."""
    nothing = Compiled(graphs=0, breaks=1, kernels=0)
    cell = Cell(verdict="not_run", reason="not compiled: Dynamic shape operator", compiled=nothing)

    seen = chosen_cell("compile_on", ROW, (STILL, STILL), cell)

    assert (seen.finding, seen.finding_reason) == ("not_compiled", "not compiled: Dynamic shape operator")


def test_a_backward_part_that_refuses_to_run_is_no_alert() -> None:
    """PyTorch's guard says nothing of the op."""
    assert is_refusal(REFUSAL)
    assert alert_caller("RuntimeError", REFUSAL) is None

    assert _in_backward_only(REFUSAL, REFUSAL).finding == "refused"


@pytest.mark.parametrize("first", [True, False])
def test_one_process_that_refuses_is_no_refusal(first: bool) -> None:
    """Another one ran, and differed: what each did is told, and nothing is settled; nor is it where one failed otherwise."""
    seen = _in_backward_only(*((REFUSAL, None) if first else (None, REFUSAL)))

    assert seen.finding == "inconclusive"
    assert "ran, 2 distinct in 50" in str(seen.finding_reason)
    assert REFUSAL in str(seen.finding_reason)
    assert _in_backward_only(REFUSAL, "no kernel").finding == "inconclusive"


def _in_backward_only(*messages: str | None) -> Cell:
    """Return what processes showed that raised; one without a message ran, and differed."""
    seen = [
        ended(ROW, "backward_only", "raised", message, exception="RuntimeError", processes=process + 1)[-1]
        if message
        else replace(ran(ROW, "backward_only", {"a": 49, "b": 1})[0], process=process)
        for process, message in enumerate(messages)
    ]
    return chosen_cell("backward_only", ROW, (STILL, STILL), row_cell(seen, "", ROW))


@pytest.mark.parametrize(
    ("first", "compiled", "remarks"),
    [
        ("a", Compiled(graphs=1, breaks=0, kernels=2), ()),
        ("b", Compiled(graphs=1, breaks=0, kernels=2), ("other bits than eager",)),
        ("a", Compiled(graphs=2, breaks=1, kernels=2), ("compiled in part",)),
        ("a", Compiled(graphs=1, breaks=0, kernels=0), ("calls eager kernels",)),
    ],
)
def test_how_much_was_compiled_is_said(first: str, compiled: Compiled, remarks: tuple[str, ...]) -> None:
    """A finding rests on it; its bits are held against eager ones with the same flag."""
    cell = replace(STILL, first=first, compiled=compiled)
    other = replace(STILL, first="c")

    seen = chosen_cell("compile_on", ROW, (other, STILL), cell)

    assert (seen.finding, seen.remarks) == ("mode_dependent", remarks)


# The perturbation ``order``: what other orders of programs show is told apart from what was measured, in every report.

ORDER_ROW = row("torch.Tensor.scatter_add_", device="cpu")


def seen(off: list[Observation], on: list[Observation]) -> MatrixRow:
    """Return the only row of a run."""
    (found,) = run_of((ORDER_ROW, [*off, *on])).rows
    return found


def still(mode: Mode) -> list[Observation]:
    return ran(ORDER_ROW, mode, *stable())


def test_workers_interpret_kernels_only_where_it_is_asked() -> None:
    """Triton reads the variable when a kernel is defined, so that the worker begins with it."""
    assert "TRITON_INTERPRET" not in worker_environment("off", "cpu", ("quiet", "stress"))
    assert worker_environment("on", "cpu", ("quiet", "order"))["TRITON_INTERPRET"] == "1"


def test_on_a_gpu_kernels_run_on_it() -> None:
    """What a GPU can be asked is not simulated."""
    with pytest.raises(UsageError, match="there is no order on cuda:0"):
        settings_for(asked_for(perturb=("quiet", "order")), "cuda:0")


@pytest.mark.skipif(importlib.util.find_spec("triton") is not None, reason="Triton is installed here")
@pytest.mark.parametrize(
    ("words", "option"),
    [
        (("scan", "cumsum", "--perturb", "quiet,order"), "--perturb order"),
        (("locate", "--order", "a.py"), "--order"),
    ],
    ids=["scan", "locate"],
)
def test_missing_triton_is_told_in_a_line(
    detmatrix: Command, tmp_path: Path, words: tuple[str, ...], option: str
) -> None:
    """With what to do about it."""
    (tmp_path / "a.py").write_text("", encoding="utf-8")
    line = refused(detmatrix(*words))

    assert line.startswith(f"{option}: ")
    assert line.endswith("has no Triton; install it there (pip install triton)")


def test_no_script_is_written_of_what_the_interpreter_showed(detmatrix: Command, tmp_path: Path) -> None:
    """The kernel is not in it; the command that runs the row again is told."""
    observations = [*launching(still("off"), 3), *launching(still("on"), 3)]
    settings = replace(SETTINGS, perturb=("quiet", "order"))
    write_run(tmp_path / "run.jsonl", [(ORDER_ROW, observations)], settings=settings)
    line = refused(detmatrix("repro", "run.jsonl", ORDER_ROW.id))

    assert line.startswith(f"{ORDER_ROW.id}: no script can be written: Triton's interpreter ran its kernels")
    assert line.endswith(f"detmatrix scan {ORDER_ROW.id} --specs FILE.py --perturb quiet,order")
    assert only(tmp_path / "run.jsonl").rows[0].finding == "order_dependent"
