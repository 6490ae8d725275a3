"""Modes under torch.compile: what is compiled, where, and what is said where nothing can be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from opspecs.model import Case, OpSpec, call
from scanner.alerts import alert_caller, is_refusal
from scanner.observations.records import Compiled, Row
from scanner.observations.runfile import read_run
from scanner.verdicts.cells import Cell
from scanner.verdicts.chosen import chosen_cell
from scanner.verdicts.findings import matrix
from tests.commands import Command
from tests.conftest import refused
from tests.runs import row
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


@pytest.mark.parametrize(("more", "cases"), [((), {"accumulate"}), (("--compile-all",), None)])
def test_one_case_of_an_op_is_compiled(
    detmatrix: Command, tmp_path: Path, more: tuple[str, ...], cases: set[str] | None
) -> None:
    """The first that provokes, unless all are asked for; the others say why they were not."""
    standing = StandIn(tmp_path)

    options = (
        *OPTIONS,
        *MODES,
        *more,
        "--runs",
        4,
        "--python",
        standing.python,
        "-o",
        tmp_path / "run.jsonl",
    )
    done = detmatrix("scan", "torch.Tensor.put_", *options)

    assert done.returncode == 0, done.stderr
    run = read_run(tmp_path / "run.jsonl")
    asked = {row.split(":")[1] for mode, row in standing.asked("observe") if mode == "compile_on"}
    assert asked == (cases or {one.case for one in run.header.planned})
    left = [one for one in matrix(run.header, run.observations, closed=True) if one.row.case not in asked]
    assert {one.chosen["compile_on"].cell.reason for one in left} <= {
        "one case of each op is compiled; --compile-all compiles all"
    }


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


def test_a_torch_without_the_compiler_is_one_line(detmatrix: Command, tmp_path: Path) -> None:
    """Nothing is measured, and no run file is left."""
    standing = StandIn(tmp_path, build={"torch": "2.0.1+cpu"})

    done = detmatrix("scan", "quick", "--specs", QUICK, *OPTIONS, *MODES, "--python", standing.python)

    assert (
        refused(done) == "--modes compile_off: needs torch 2.1 or newer, and this is 2.0.1+cpu; leave it out"
    )
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

    assert (seen.finding, seen.reason) == ("not_compiled", "not compiled: Dynamic shape operator")


def test_a_backward_part_that_refuses_to_run_is_no_alert() -> None:
    """PyTorch's guard says nothing of the op."""
    assert is_refusal(REFUSAL)
    assert alert_caller("RuntimeError", REFUSAL) is None
    cell = Cell(verdict="error", reason=f"RuntimeError: {REFUSAL}")

    assert chosen_cell("backward_only", ROW, (STILL, STILL), cell).finding == "refused"


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
    cell = msgspec.structs.replace(STILL, first=first, compiled=compiled)
    other = msgspec.structs.replace(STILL, first="c")

    seen = chosen_cell("compile_on", ROW, (other, STILL), cell)

    assert (seen.finding, seen.remarks) == ("mode_dependent", remarks)


def _spec(name: str, op: Any, inputs: Any, *directions: Any) -> OpSpec:
    return OpSpec(
        name=f"compiled.{name}",
        op=op,
        why="Planted.",
        cases={"one": Case(inputs=inputs)},
        directions=directions,
    )


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")  # of PyTorch's compiler, which a worker lets pass
def test_compiled_code_is_told_from_eager_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What breaks the graph, in part or as a whole, is told, and so is code that calls eager kernels alone."""
    torch = pytest.importorskip("torch")
    from scanner.worker import global_state  # noqa: PLC0415 - needs torch
    from scanner.worker.compiled import failure  # noqa: PLC0415
    from scanner.worker.observe import observe  # noqa: PLC0415

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")
    assert failure() is None
    specs = [
        _spec("sin", "torch.sin", lambda t: call(t.leaf(t.normal(100_000))), "forward"),
        _spec("nonzero", "torch.nonzero", lambda t: call(t.normal(100)), "forward"),
        _spec("item", lambda x: (x + x.sum().item()).sin(), lambda t: call(t.normal(100)), "forward"),
        _spec("svd", "torch.linalg.svd", lambda t: call(t.normal(8, 8)), "forward"),
    ]
    before = global_state.snapshot()

    seen = {
        spec.op_name if isinstance(spec.op, str) else spec.name: observe(
            spec,
            "one",
            direction="forward",
            dtype="float32",
            device="cpu",
            seed=0,
            runs=4,
            execution="compiled",
        )
        for spec in specs
    }

    assert global_state.changes(before, global_state.snapshot()) == ""
    told = {name: (one["outcome"], one["compiled"]) for name, one in seen.items()}
    assert told["torch.sin"] == ("ran", {"graphs": 1, "breaks": 0, "kernels": 1})
    assert told["torch.linalg.svd"] == ("ran", {"graphs": 1, "breaks": 0, "kernels": 0})
    assert (told["torch.nonzero"][0], told["torch.nonzero"][1]["graphs"]) == ("not_run", 0)
    assert seen["torch.nonzero"]["message"].startswith("not compiled: ")
    assert told["compiled.item"][0] == "ran"
    assert told["compiled.item"][1]["breaks"] > 0
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")  # of PyTorch's compiler, which a worker lets pass
def test_an_alert_that_the_compiler_wraps_is_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An op that raises the alert while it is traced raises, as it does when it runs eagerly."""
    torch = pytest.importorskip("torch")
    from scanner.worker.observe import observe  # noqa: PLC0415 - needs torch

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    spec = _spec(
        "unpool",
        "torch.nn.functional.max_unpool2d",
        lambda t: call(t.normal(1, 1, 2, 2), t.index(1, 1, 2, 2, high=16), 2),
        "forward",
    )
    torch.use_deterministic_algorithms(True)
    try:
        seen = observe(
            spec,
            "one",
            direction="forward",
            dtype="float32",
            device="cpu",
            seed=0,
            runs=2,
            execution="compiled",
        )
    finally:
        torch.use_deterministic_algorithms(False)

    assert (seen["outcome"], alert_caller(seen["exception"], seen["message"])) == (
        "raised",
        "max_unpooling2d_forward_out",
    )


@pytest.mark.nightly
@pytest.mark.alone
def test_a_row_races_when_compiled_and_not_when_eager(detmatrix: Command, tmp_path: Path) -> None:
    """Inductor's additions into one slot are atomic; the flag makes them serial."""
    pytest.importorskip("torch")

    options = (
        *OPTIONS,
        *MODES,
        "--runs",
        50,
        "--processes",
        1,
        "--perturb",
        "quiet",
        "-o",
        tmp_path / "run.jsonl",
    )
    done = detmatrix("scan", "torch.index_add:collisions:forward:float32", *options)

    assert done.returncode == 0, done.stderr
    run = read_run(tmp_path / "run.jsonl")
    (seen,) = matrix(run.header, run.observations, closed=True)
    assert (seen.off.differing, seen.chosen["compile_off"].finding) == (0, "differs")
    assert seen.chosen["compile_on"].cell.verdict == "deterministic"


@pytest.mark.nightly
def test_no_compiler_on_the_path_is_one_line(
    detmatrix: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The worker's torch says what it misses."""
    pytest.importorskip("torch")
    monkeypatch.setenv("PATH", str(tmp_path))

    done = detmatrix("scan", "torch.index_add", *OPTIONS, *MODES, "-o", tmp_path / "run.jsonl")

    assert "torch.compile does not work there: " in refused(done)


@pytest.mark.nightly
@pytest.mark.alone
def test_script_shows_what_the_cache_forgets(detmatrix: Command, tmp_path: Path) -> None:
    """A backward phase that was compiled with the flag off is taken from the cache with the flag on."""
    pytest.importorskip("torch")
    import subprocess  # noqa: PLC0415
    import sys  # noqa: PLC0415

    script = tmp_path / "hole.py"
    assert detmatrix("repro", "--compile-cache", "-o", script).returncode == 0

    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)

    fresh, _, cached, about = done.stdout.splitlines()
    assert fresh.startswith("flag on throughout, fresh cache: 0 of 50 differ from the first, 0 cache hits")
    assert cached.startswith("flag on throughout, with that cache: ")
    assert "1 cache hits" in cached
    assert done.returncode == 1, about
