"""Workers that fail in every way, at everything they are asked: the failure costs what it must and no more.

The workers are stand-ins, so that each failure can be had at each request; ``test_faults`` has ops that make real ones fail.
"""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path
from typing import Any

import pytest

from detmatrix.scanner.errors import UntrustedScanError
from detmatrix.scanner.modes import Mode
from detmatrix.scanner.observations.records import Outcome
from detmatrix.scanner.observations.runfile import Run, read_run
from detmatrix.scanner.processes.process import WorkerSupervisor
from tests.commands import Command, command_in
from tests.stand_in import QUICK, StandIn, left

# Seconds: long for a stand-in on a busy machine, short for whoever waits for one that hangs.
TIMEOUT = 1.5
# Enough executions for every finding, so that no further process makes more of them.
OPTIONS = (*QUICK, "--runs", 100, "--processes", 1, "--timeout", TIMEOUT)
# The row that the failures befall, the first but one.
ROW = {"spec": "quick.cumsum", "direction": "forward", "dtype": "float64"}
KEY = ("quick.cumsum", "small", "forward", "float64")
# What a failure is told as, wherever it comes.
TOLD = {
    "die": "killed by SIGKILL (out of memory?)",
    "exit": "exited with code 0 in the middle of the case",
    "hang": f"took longer than {TIMEOUT} s and was stopped",
    "fork": "exited with code 7 in the middle of the case",
    "garbage": "wrote something that is no reply into the reply pipe",
}


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let controls and sentinels have no longer than rows, and workers that closed their pipes hardly any time."""
    for name in (
        "detmatrix.scanner.run.passes.PATIENCE",
        "detmatrix.scanner.run.scan.PATIENCE",
        "detmatrix.scanner.processes.process.LAST_SECONDS",
    ):
        monkeypatch.setattr(name, TIMEOUT)


def _distrust(run: Run) -> tuple[str, ...]:
    assert run.closing is not None
    return run.closing.distrust


def _scan(folder: Path, *rules: dict[str, Any], ops: str = "quick", code: int = 0) -> tuple[Run, StandIn]:
    standing = StandIn(folder, *rules)
    return standing.scanned(ops, *OPTIONS, code=code), standing


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, StandIn]:
    """Return a scan in which nothing failed."""
    return _scan(tmp_path_factory.mktemp("healthy"))


LEFT_BEHIND = "changed global state (thread count: 2 -> 1)"
NONSENSE: dict[str, Any] = {
    "outcome": "splendid", "executions": "many", "digests": {"a": 0}, "first_differing": 999, "surprise": 1, "outputs": 3,
}  # fmt: skip
# What a worker does instead of answering about the row, and how its cell says so; a flag left behind is no end of the worker's own.
FAILURES: dict[str, tuple[Any, Outcome, str]] = {
    **{fault: (fault, "timeout" if fault == "hang" else "crash", text) for fault, text in TOLD.items()},
    **{fault: (fault, "crash", TOLD["garbage"]) for fault in ("stray", "unnumbered", "deep", "long", "twice")},
    "close": ("close", "crash", "closed its pipes and was stopped"),
    "taint": ("taint", "invalid", LEFT_BEHIND),
    **{name: ({name: value}, "crash", "the worker's reply makes no sense (") for name, value in NONSENSE.items()},
}  # fmt: skip


@pytest.mark.parametrize("failure", FAILURES)
def test_failing_in_a_row_costs_its_cell(tmp_path: Path, healthy: tuple[Run, StandIn], failure: str) -> None:
    """The cell says how the worker ended; another answers the controls, every other cell is as it would be, no process is left."""
    then, outcome, message = FAILURES[failure]
    run, standing = _scan(tmp_path, {"do": "observe", "mode": "on", **ROW, "then": then})

    whole, usual = healthy
    (failed,) = [one for one in run.observations if one not in whole.observations]
    assert (failed.key, failed.mode, failed.outcome) == (KEY, "on", outcome)
    assert failed.message == message or (failure in NONSENSE and str(failed.message).startswith(message))
    assert [one for one in run.observations if one != failed] == [
        one for one in whole.observations if (one.key, one.mode) != (KEY, "on")
    ]
    assert (run.controls, _distrust(run)) == (whole.controls, ())
    assert standing.started == usual.started + 1
    # Every worker answers them before its rows; one that lives to the end of its pass, behind them too.
    controls = [one["mode"] for one in standing.noted if one.get("spec", "").startswith("control.")]
    assert [controls.count(mode) for mode in ("off", "on", "warn_only")] == [12, 18, 12]
    # What cost a worker once is neither timed nor looked into.
    again = f"it {LEFT_BEHIND}" if failure == "taint" else f"{outcome} in mode on"
    for aside in (run.costs, run.dispatches):
        fields = {one.key: one.message for one in aside}
        assert fields.pop(KEY) == f"not tried again: {again}"
        assert set(fields.values()) == {None}
    assert sys.platform != "linux" or left(standing) == []


def test_a_worker_turns_to_modes_and_executes_a_row_once_in_each(tmp_path: Path) -> None:
    """Where only what raises is another it needs no start, nor does timing; without the fill no memory is left that was filled."""
    standing = StandIn(tmp_path, {"do": "observe", "mode": "off", **ROW, "then": "vary"})
    standing.scanned("quick", *OPTIONS, "--processes", 2)

    modes: dict[int, list[str]] = {}
    rows = []
    for one in standing.noted:
        if one["do"] in {"start", "turn"}:
            modes.setdefault(one["worker"], []).append(one["mode"])
            answered = False
        elif one["do"] == "observe":
            answered |= one["spec"].startswith("control.")
            assert answered
            rows += [tuple(one[name] for name in ("worker", "mode", "spec", "direction", "dtype"))] * (
                not one["spec"].startswith("control.")
            )
    assert [*modes.values()] == [
        ["off"], ["on", "warn_only"], ["off"], ["on", "warn_only"], ["unfilled"], ["unfilled", "on"],
    ]  # fmt: skip
    assert len(set(rows)) == len(rows)


def test_what_rows_left_behind_is_not_held_against_the_mode_that_a_worker_turns_to(tmp_path: Path) -> None:
    """A control that fails in a worker which has executed rows of another mode is asked of a fresh one."""
    dies = {"do": "observe", "spec": "control.random", "mode": "warn_only", "worker": 2, "then": "die"}
    run, standing = _scan(tmp_path, dies)

    assert _distrust(run) == ()
    controls = [one for one in run.controls if one.mode == "warn_only"]
    assert ({one.outcome for one in controls}, len(controls)) == ({"ran"}, 6)
    assert {one["worker"] for one in standing.noted if one["mode"] == "warn_only"} == {2, 3, 4}


def test_last_words_are_those_of_the_row(tmp_path: Path) -> None:
    """What an earlier row printed explains no crash of this one; what it printed itself does."""
    earlier = {"do": "observe", "mode": "off", **ROW, "then": "print"}
    silent = {"do": "observe", "mode": "off", "spec": "quick.put_", "then": "exit"}
    loud = {"do": "observe", "mode": "on", **ROW, "then": "print and exit"}
    run, _ = _scan(tmp_path, earlier, silent, loud)

    fields = {one.mode: one.message for one in run.observations if one.outcome == "crash"}
    assert fields == {"off": TOLD["exit"], "on": f"{TOLD['exit']}; last printed: last words"}


@pytest.mark.parametrize("fault", [*TOLD, "taint"])
@pytest.mark.parametrize("do", ["cost", "dispatch"])
def test_failing_aside_costs_its_record(
    tmp_path: Path, healthy: tuple[Run, StandIn], do: str, fault: str
) -> None:
    """Evidence stays, and the rows behind it are timed and looked into by a fresh worker."""
    run, standing = _scan(tmp_path, {"do": do, **ROW, "then": fault})

    whole, usual = healthy
    records, others = (run.costs, run.dispatches) if do == "cost" else (run.dispatches, run.costs)
    outcome = {"hang": "timeout", "taint": "invalid"}.get(fault, "crash")
    assert {one.key: one.outcome for one in records} == {
        one.key: outcome if one.key == KEY else "ran" for one in whole.costs
    }
    assert {one.outcome for one in others} == {"ran"}
    assert (run.observations, run.controls) == (whole.observations, whole.controls)
    assert standing.started == usual.started + 1


@pytest.mark.parametrize("fault", TOLD)
def test_failing_in_a_sentinel_and_in_the_list_of_overloads_is_told(
    tmp_path: Path, healthy: tuple[Run, StandIn], fault: str
) -> None:
    """Nothing is known of what could race, nor of the build's overloads, which the file says; the scan goes on."""
    run, _ = _scan(
        tmp_path, {"do": "sentinel", "mode": "on", "then": fault}, {"do": "kernels", "then": fault}
    )

    fields = {sentinel.mode: (sentinel.executions, sentinel.message) for sentinel in run.sentinels}
    assert fields == {"off": (11, None), "on": (0, TOLD[fault]), "warn_only": (11, None)}
    assert run.kernels is not None
    assert (run.kernels.groups, run.kernels.message) == ((), TOLD[fault])
    assert (run.observations, run.dispatches) == (healthy[0].observations, healthy[0].dispatches)
    assert "low power" in command_in(tmp_path)("report", "run.jsonl", "--all").stdout


@pytest.mark.parametrize("mode", ["off", "compile_on"])
def test_a_worker_whose_folder_is_gone_is_not_started(tmp_path: Path, mode: Mode) -> None:
    """A scan of days may outlive what a cleaner leaves of temporary files."""
    with pytest.raises(
        UntrustedScanError, match=r"no worker could be started \(No such file or directory\)$"
    ):
        WorkerSupervisor(str(StandIn(tmp_path).python), tmp_path / "gone", (), "cpu").start(mode)


STARTS: list[tuple[object, str]] = [
    ({"failed": "ModuleNotFoundError: No module named 'torch'"}, "has no torch; install it there (pip install torch)"),
    *((then, f"no worker could be started ({why})") for then, why in (
        ("exit", "exited with code 0"),
        ("die", TOLD["die"]),
        ({"failed": "ImportError: broken"}, "ImportError: broken"),
        *((then, TOLD["garbage"]) for then in ("garbage", "stray", "deep", {"build": {"torch": "2.13.0"}}, {"failed": 1})),
    )),
]  # fmt: skip


# All ways in which a first worker fails, and two in which a later one does.
@pytest.mark.parametrize(
    ("worker", "then", "text"), [*((1, *one) for one in STARTS), *((2, *one) for one in STARTS[:2])], ids=str
)
def test_a_worker_that_does_not_start_ends_the_scan(
    detmatrix: Command, tmp_path: Path, then: object, text: str, worker: int
) -> None:
    """One line; the first leaves no file behind, a later one a file that can be gone on with."""
    standing = StandIn(tmp_path, {"do": "start", "worker": worker, "then": then})
    path = tmp_path / "run.jsonl"

    done = detmatrix("scan", "quick", *OPTIONS, "--python", standing.python, "-o", path)

    # Nobody can mend in the command line what worked a moment ago.
    code, prefix = (2, "--python ") if worker == 1 else (4, "")
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.splitlines()[-1] == f"detmatrix: {prefix}{standing.python}: {text}"
    assert path.exists() == (worker > 1)
    if worker > 1:
        assert {one.mode for one in read_run(path).observations} == {"off"}
        StandIn(tmp_path)
        again = ("scan", "--resume", *QUICK, "--python", standing.python, "-o", path)
        assert detmatrix(*again).returncode == 0


# What no control shows, and no machine whose inputs are the same.
OTHER_BITS = {"executions": 4, "digests": {"other": 4}, "first_differing": None, "outputs": [], "groups": []}
WRONG = OTHER_BITS | {
    "digests": {"a": 1, "b": 1, "c": 2},
    "alerts": ["other"],
    "outcome": "ran",
    "blank": None,
    "inputs_digest": "same",
}
RAISED = {"outcome": "raised", "exception": "RuntimeError", "message": "no"}
VOID: list[tuple[dict[str, Any], str]] = [
    ({**ROW, "mode": "on", "then": {"inputs_digest": "other"}}, "the inputs of quick.cumsum:small:forward:float64 "),
    ({"spec": "control.constant", "mode": "on", "then": OTHER_BITS}, "the control constant in process 0 of mode on should show "),
    *(({"spec": "control.varies", "mode": "on", "then": fault},
       f"the control varies in process 0 of mode on should show a result, and shows {'timeout' if fault == 'hang' else 'crash'} ({how})")
      for fault, how in TOLD.items()),
    *(({"spec": f"control.{control}", "mode": mode, "then": RAISED if (control, mode) == ("uninitialised", "off") else WRONG},
       f"the control {control} in process 0 of mode {mode} ")
      for control in ("constant", "varies", "rare", "uninitialised", "random", "alerts") for mode in ("off", "on")),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "text"), VOID, ids=str)
def test_what_is_not_as_it_must_be_voids_the_scan(tmp_path: Path, rule: dict[str, Any], text: str) -> None:
    """A control that fails or answers wrongly, and inputs of one mode alone: exit 4, and the report says why.

    ``tests/golden/report-blind.*`` shows it in every format. A worker that takes the place of another answers all other controls.
    """
    run, _ = _scan(tmp_path, rule, ops=rule["spec"] if "direction" in rule else "quick.put_", code=4)

    assert _distrust(run)
    assert {reason.startswith(text) for reason in _distrust(run)} == {True}
    assert len(_distrust(run)) == 1 or not text.endswith(")")
    assert "direction" in rule or len(run.controls) == 18
    assert "Not trustworthy: the " in command_in(tmp_path)("report", "run.jsonl").stdout


def test_workers_get_the_allowed_variables_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable of the user's shell does not reach a worker; those that steer threads do, and a mode adds its own."""
    monkeypatch.setenv("DETMATRIX_STRANGER", "1")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")

    run, standing = _scan(tmp_path)

    seen = {one["mode"]: one["variables"] for one in standing.noted if one["do"] == "start"}
    recorded = run.header.environment.variables
    assert set(seen) == {"off", "on"}
    # Under these the same worker goes on.
    assert recorded["warn_only"] == recorded["unfilled"] == recorded["on"]
    for mode, variables in seen.items():
        assert "DETMATRIX_STRANGER" not in variables
        assert variables["OMP_NUM_THREADS"] == recorded[mode]["OMP_NUM_THREADS"] == "1"
        assert recorded[mode].items() <= variables.items()
    assert "CUBLAS_WORKSPACE_CONFIG" in seen["on"]
    assert "CUBLAS_WORKSPACE_CONFIG" not in seen["off"]
    assert run.header.environment.cores == os.cpu_count()


@pytest.mark.parametrize(
    ("told", "cpu", "model"),
    [
        ("cpu family : 25\nmodel : 17\nmodel name : AMD EPYC\nflags : fpu avx2 avx512f\n\nmodel : 17\n",
         "AMD EPYC", "cpu family 25, model 17, avx2, avx512f"),
        ("Features : fp sve sve2\nCPU implementer : 0x41\nCPU part : 0xd4f\nCPU part : 0xd0b\n", platform.machine(),
         "CPU implementer 0x41, CPU part 0xd0b and 0xd4f, sve, sve2"),
        (None, platform.processor() or platform.machine(), None),
    ],
    ids=["x86", "Arm", "no Linux"],
)  # fmt: skip
def test_the_model_of_the_cpu_is_recorded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, told: str | None, cpu: str, model: str | None
) -> None:
    """A virtual machine calls CPUs of several generations by one name."""
    path = tmp_path / "cpuinfo"
    if told is not None:
        path.write_text(told)
    monkeypatch.setattr("detmatrix.scanner.processes.environment._CPUS", path)

    found = _scan(tmp_path)[0].header.environment

    assert (found.cpu, found.cpu_model) == (cpu, model)
