"""Modes that ``--modes`` chooses: which rows run in them, what they set, what is compiled, and what is recorded."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from msgspec.structs import replace

from detmatrix.opspecs.families.images import convolution
from detmatrix.opspecs.model import OpSpec, call
from detmatrix.reports.compare.judge import judge
from detmatrix.scanner.alerts import REFUSAL, alert_caller
from detmatrix.scanner.cases.plan import asked_for, settings_for
from detmatrix.scanner.modes import MODE_TABLE, Mode
from detmatrix.scanner.observations.records import Compiled, Direction, HeldReference, Observation, Sentinel
from detmatrix.scanner.observations.runfile import read_run
from detmatrix.scanner.processes.process import WorkerEndedError, WorkerSupervisor, worker_environment
from detmatrix.scanner.run.passes import PassRunner
from detmatrix.scanner.run.progress import Progress
from detmatrix.scanner.verdicts.cells import Cell
from detmatrix.scanner.verdicts.findings import MatrixRow, matrix
from detmatrix.scanner.worker import global_state
from tests.commands import Command, scanned_in
from tests.compared import run_of
from tests.conftest import refused, table
from tests.documented import CUBLAS, DETERMINISTIC, read
from tests.evidence_runs import ONE
from tests.observed import observed, spec_of
from tests.runs import PROCESSES, RUNS, SETTINGS, Planned, ended, ran, row, seen, stable, write_run
from tests.stand_in import StandIn
from tests.stand_in_worker import TORCH

SPECS = Path(__file__).with_name("quick.py")
OPTIONS = ("--specs", SPECS, "--device", "cpu", "--runs", 4, "--processes", 1, "--no-cost", "--no-overloads")
MODES = ("--modes", "off,on,compile_off,compile_on")


def test_what_cannot_run_here_is_one_line(detmatrix: Command, tmp_path: Path) -> None:
    """No worker starts for cuDNN on the CPU; the modes are recorded all the same, and the scan says why they say nothing."""
    standing, modes = StandIn(tmp_path), ("cudnn_deterministic", "cudnn_both")

    done = detmatrix("scan", "quick", *OPTIONS, "--python", standing.python, "--modes", ",".join(modes))

    said = [line for line in done.stderr.splitlines() if "cudnn" in line]
    assert said == ["scan: modes cudnn_deterministic, cudnn_both: not run, cuDNN computes on CUDA alone"]
    assert not {one["mode"] for one in standing.noted} & {*modes}
    assert read_run(tmp_path / "detmatrix.jsonl").header.settings.modes[-2:] == modes


@pytest.mark.parametrize(
    ("mode", "outcome"), [("off", "ran"), ("on", "ran"), ("backward_only", "raised"), ("forward_only", "ran")]
)
def test_flag_is_switched_between_forward_and_backward(mode: Mode, outcome: str) -> None:
    """An op that is made deterministic in its forward phase raises where the flag is on in the backward one alone."""

    def op(value: Any) -> Any:
        """Look at the flag in the forward phase, and then do without it in the backward one, as MaxPool3d on CUDA."""
        result = value * 2
        if not torch.are_deterministic_algorithms_enabled():
            result.register_hook(lambda it: torch.zeros_like(it).put_(torch.arange(it.numel()), it))
        return result

    seen = observed(spec_of(op), mode=mode, direction="backward")

    assert (seen["outcome"], "put_" in str(seen.get("message"))) == (outcome, outcome == "raised")


# The table of modes: what each sets, where there is one, and of which rows it has something to say.


@pytest.mark.parametrize("mode", MODE_TABLE)
def test_only_modes_that_ask_for_it_have_the_workspace(mode: Mode, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable of the user's own does not reach the mode that is to do without it."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")

    it = MODE_TABLE[mode]
    found = worker_environment(mode, "cuda:0").get("CUBLAS_WORKSPACE_CONFIG")

    without = mode == "no_workspace" or not (it.flag_in("forward") or it.flag_in("backward"))
    assert found == (None if without else ":4096:8")
    waits = [worker_environment(mode, "cpu", beside=one).get("OMP_WAIT_POLICY") for one in (False, True)]
    assert waits == [None, "passive"]  # threads that spin would keep workers beside it from working


def test_sets_have_the_same_orders_in_each_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a function that goes by them: else it might differ in one mode alone, by chance."""
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    own, databases = (
        WorkerSupervisor("python", Path(), ("mine.py",), "cpu", ordered=one) for one in (False, True)
    )

    orders = [own.order(mode).get("PYTHONHASHSEED") for mode in ("off", "on", "off", "on")]
    assert orders == ["1", "1", "2", "2"]
    assert databases.order("off") == {}
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    assert own.order("off") == {}


def test_no_cublas_no_mode_without_its_workspace() -> None:
    """On the CPU no worker is started for a mode that only changes what CUDA does."""
    cpu, cuda = (settings_for(asked_for(perturb=("quiet",)), device).modes for device in ("cpu", "cuda:0"))

    assert set(cpu) == {"off", "on", "warn_only", "unfilled"} == set(cuda) - {"no_workspace"}
    assert "no_workspace" in cuda


_CUDNN = ["torch.nn.Conv2d", "torch.nn.LSTM"]


@pytest.mark.parametrize(
    ("mode", "heading", "asked"),
    [
        # Those that the lists tie to the workspace: torch up to 2.9 has a list of them, later releases have none.
        ("no_workspace", CUBLAS, ["torch.mm"]),
        ("no_workspace", DETERMINISTIC, []),
        # The modes of cuDNN of the ops that it computes; the flag is switched where there is a backward.
        ("cudnn_deterministic", "", _CUDNN),
        ("cudnn_benchmark", "", _CUDNN),
        ("cudnn_both", "", _CUDNN),
        ("backward_only", "", ["torch.nn.LSTM"]),
        ("compile_on_cached", "", []),  # of files of earlier releases
    ],
)
def test_rows_of_a_mode_on_a_gpu(tmp_path: Path, mode: Mode, heading: str, asked: list[str]) -> None:
    """Only rows of which a mode has something to say are run in it."""
    other = replace(ONE, device="cuda:0")
    planned = [
        replace(other, spec="torch.mm", documented=("torch.mm",)),
        replace(other, spec="torch.nn.Conv2d", op="torch.nn.functional.conv2d"),
        replace(other, spec="torch.nn.LSTM", op="torch.nn.LSTM", direction="backward", compiled=True),
    ]
    settings = replace(SETTINGS, device="cuda:0", modes=tuple(MODE_TABLE), processes=1)
    claims = read(":func:`torch.mm`", heading) if heading else ()
    rows: list[Planned] = [(row, []) for row in planned]
    path = write_run(tmp_path / "run.jsonl", rows, settings=settings, claims=claims, closing=None)
    workers = Mock(started=0)
    workers.serving.return_value = None
    workers.ask_for.side_effect = WorkerEndedError("there is none")
    passes = PassRunner(read_run(path).header, Progress(io.StringIO()), lambda _: None)

    passes.run(mode, 0, workers)

    requests = [words.args[2] for words in workers.ask_for.call_args_list]
    assert [one["spec"] for one in requests if one["do"] == "observe"] == asked


# What a chosen mode is found to do: on which evidence, and what comparisons make of it whatever off and on show.

POOL = row("torch.nn.MaxPool3d", "overlapping", "backward", family="pooling")
LATE: Mode = "backward_only"
REFUSED = ended(POOL, LATE, "raised", REFUSAL, exception="RuntimeError")
RACES = ran(POOL, LATE, *[{"a": RUNS - 20, **{f"x{number}": 1 for number in range(20)}}] * PROCESSES)


def _eager(off: Sequence[dict[str, int]] = ()) -> list[Observation]:
    return [*ran(POOL, "off", *(off or stable())), *ran(POOL, "on", *stable())]


def _row(*observations: Observation, weak: Sequence[Mode] = ()) -> MatrixRow:
    """Return the one row of a run, beside whose processes in some modes nothing raced."""
    sentinels = [
        Sentinel(mode=mode, process=process, before=0, op="s", executions=20, differing=0, load=1.0)
        for mode in weak
        for process in range(PROCESSES)
    ]
    (found,) = run_of((POOL, observations), sentinels=sentinels).rows
    return found


def _late(*observations: Observation, **weak: Any) -> Cell:
    """Return the cell of the chosen mode."""
    return _row(*observations, **weak).chosen[LATE]


@pytest.mark.parametrize("executions", [5, RUNS])
def test_other_bits_take_enough_executions_in_the_mode_too(executions: int) -> None:
    """Ten executions of a race that shows in one of a hundred look like other bits, with the flag off as well."""
    seen = _late(*_eager(), *ran(POOL, LATE, *[{"b": executions}] * 2))
    off = _late(*_eager([{"a": executions}] * 2), *ran(POOL, LATE, *stable("b")))

    few = f"0 of 10 executions differed in {LATE}, of at least 100"
    assert off.finding == seen.finding == ("mode_dependent" if executions == RUNS else "inconclusive")
    assert str(seen.finding_reason).startswith("None" if executions == RUNS else few)


@pytest.mark.parametrize("processes", [1, 2])
def test_other_inputs_void_the_cell_of_the_mode_alone(processes: int) -> None:
    """In one process or in all of the mode; what off and on show stands."""
    late = ran(POOL, LATE, *stable("b"))
    other = [replace(one, inputs_digest="j" * 8) if one.process < processes else one for one in late]
    seen = _row(*_eager(), *other)

    assert seen.chosen[LATE].finding == "inconclusive"
    assert "the inputs differed between processes" in str(seen.chosen[LATE].finding_reason)
    assert (seen.finding, seen.reason) == ("deterministic", None)


NO_KERNEL = ended(POOL, LATE, "raised", "no kernel", exception="RuntimeError")


@pytest.mark.parametrize(
    ("seen", "finding"),
    [
        ((REFUSED, REFUSED), "refused"),
        ((REFUSED, RACES), "inconclusive"),
        ((RACES, REFUSED), "inconclusive"),
        ((REFUSED, NO_KERNEL), "inconclusive"),
    ],
)
def test_one_process_that_refuses_is_no_refusal(seen: Sequence[list[Observation]], finding: str) -> None:
    """PyTorch's guard says nothing of the op; where another process ran or failed, each is told, and nothing is settled."""
    late = _late(*_eager(), *(of_process[number] for number, of_process in enumerate(seen)))

    assert late.finding == finding
    told = (REFUSAL, "ran, 21 distinct in 50") if RACES in seen else ()
    assert all(text in str(late.finding_reason) for text in told)


def test_code_that_calls_eager_kernels_alone_says_so() -> None:
    """It is compiled, and no kernel in it is the compiler's."""
    compiled = Compiled(graphs=1, breaks=0, kernels=0)
    seen = [replace(one, compiled=compiled) for one in ran(POOL, "compile_on", *stable())]

    assert _row(*_eager(), *seen).chosen["compile_on"].remarks == ("calls eager kernels",)


# --- Comparisons


@pytest.mark.parametrize(("old", "new", "kind", "proof", "told"), table("comparisons.txt", "modes"))
def test_what_a_change_of_a_mode_is(old: str, new: str, kind: str, proof: str, told: str) -> None:
    """Neither what became of off nor load decides over it, and over an alert or a refusal not chance either."""
    rows, weak_rows = (
        [_row(*seen(one, POOL)[1], weak=weak) for one in (old, new)] for weak in ((), ("off",))
    )
    judged, weak = judge(*rows), judge(*weak_rows)

    assert (judged.kind, str(judged.reason or judged.confirmed).lower()) == (kind, proof)
    assert told in (judged.detail or "none")
    assert ("refused" in judged.detail) == ("refused" in told)
    assert (weak.kind, weak.confirmed) == (kind, judged.confirmed) or kind in {"same", "not_comparable"}
    assert [judge(one, one).kind for one in rows] == ["same"] * 2


@pytest.mark.parametrize(("unlike", "kind"), [((0, 3), "regressed"), ((3, 0), "improved"), ((3, 3), "same")])
def test_a_row_that_began_not_to_be_its_reference_is_a_change(unlike: tuple[int, int], kind: str) -> None:
    """Told with the modes, whatever else is the same; it is nothing where no reference was held against it."""
    references = [HeldReference(digest="b" if more else "a", elements=more) for more in unlike]
    old, new = (_row(*(replace(one, reference=held) for one in _eager())) for held in references)

    judged = judge(old, new)

    told = (kind, True, False) if kind != "same" else (kind, False, None)
    assert (judged.kind, judged.detail.startswith("off, on: "), judged.confirmed) == told
    assert kind != "same" or judge(_row(*_eager()), new).kind == "same"


# Modes under torch.compile: what is compiled, where, and what is said where nothing can be.

CHOSEN = {"mine.ways:there:forward:float32", "mine.ways:back:backward:float32"}


@pytest.mark.parametrize(("more", "cases"), [((), CHOSEN), (("--compile-all",), None)])
def test_one_case_of_an_op_is_compiled_in_each_direction(
    detmatrix: Command, tmp_path: Path, more: tuple[str, ...], cases: set[str] | None
) -> None:
    """The first that provokes, unless all are asked for; the others say why they were not, and the op how many were."""
    standing, ways, path = StandIn(tmp_path), tmp_path / "ways.py", tmp_path / "run.jsonl"
    ways.write_text((Path(__file__).parent / "data" / "specs-two-ways.py.txt").read_text())
    given = ("--specs", ways, "--python", standing.python)

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

    detmatrix("scan", "quick", *OPTIONS, *MODES, "--processes", 2, "--python", standing.python)

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

    done = detmatrix("scan", "quick", *OPTIONS, *MODES, "--python", standing.python)

    line = refused(done)
    assert line.startswith(f"--modes {begins}")
    assert line.endswith(ends)
    assert standing.asked("observe") == []


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


(_MASKED,) = (one for one in convolution.SPECS if one.name == "masked_conv2d.receptive_field")
_UNPOOL = spec_of(
    "torch.nn.functional.max_unpool2d", lambda t: call(t.normal(1, 1, 2, 2), t.index(1, 1, 2, 2, high=16), 2)
)
# What is compiled, in which mode and direction -> how it ends, and how many graphs, breaks and kernels of the compiler's there are.
COMPILED: dict[str, tuple[OpSpec, Mode, Direction, str, dict[str, int] | None]] = {
    "sin": (
        spec_of("torch.sin", lambda t: call(t.leaf(t.normal(100_000)))), "compile_off", "forward",
        "ran", {"graphs": 1, "breaks": 0, "kernels": 1},
    ),
    "calls eager kernels": (
        spec_of("torch.linalg.svd", lambda t: call(t.normal(8, 8))), "compile_off", "forward",
        "ran", {"graphs": 1, "breaks": 0, "kernels": 0},
    ),
    "breaks the graph": (spec_of(lambda x: (x + x.sum().item()).sin()), "compile_off", "forward", "ran", {"breaks": 2}),
    "is no graph": (spec_of("torch.nonzero"), "compile_off", "forward", "not_run", {"graphs": 0}),
    # An op that raises the alert while it is traced raises, as it does when it runs eagerly.
    "an alert that the compiler wraps": (_UNPOOL, "compile_on", "forward", "raised", None),
    # As a whole, once for all executions; pixels that an output must not see have no gradient there either.
    "a masked convolution": (_MASKED, "compile_off", "backward", "ran", {"graphs": 1, "breaks": 0}),
    "a masked convolution, flag on": (_MASKED, "compile_on", "backward", "ran", {"graphs": 1, "breaks": 0}),
}  # fmt: skip


@pytest.mark.nightly
@pytest.mark.usefixtures("_one_compiler")
@pytest.mark.parametrize("name", COMPILED)
def test_compiled_code_is_told_from_eager_code(name: str) -> None:
    """What breaks the graph, in part or as a whole, is told, and so is code that calls eager kernels alone."""
    spec, mode, direction, outcome, compiled = COMPILED[name]
    before = global_state.snapshot()

    # More executions than torch.compile compiles one function for.
    seen = observed(spec, mode=mode, direction=direction, runs=20)

    assert global_state.changes(before, global_state.snapshot()) == ""
    assert seen["outcome"] == outcome
    assert compiled is None or seen["compiled"] | compiled == seen["compiled"]
    assert seen.get("message", "").startswith("not compiled: ") == (outcome == "not_run")
    if outcome == "raised":
        assert alert_caller(seen["exception"], seen["message"]) == "max_unpooling2d_forward_out"
    if spec is _MASKED:
        assert seen["reference"]["elements"] == 0


@pytest.mark.nightly
@pytest.mark.alone
def test_a_row_races_when_compiled_and_not_when_eager(detmatrix: Command, tmp_path: Path) -> None:
    """Inductor's additions into one slot are atomic; the flag makes them serial."""
    more = ("--runs", 50, "--perturb", "quiet", "-o", tmp_path / "run.jsonl")
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
    script = tmp_path / "hole.py"
    assert detmatrix("repro", "--compile-cache", "-o", script).returncode == 0

    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)

    fresh, _, cached, about = done.stdout.splitlines()
    assert fresh.startswith("flag on throughout, fresh cache: 0 of 50 differ from the first, 0 cache hits")
    assert cached.startswith("flag on throughout, with that cache: ")
    assert "1 cache hits" in cached
    assert done.returncode == 1, about
