"""Real workers: a case that misbehaves costs its own cell, a control that does voids a scan, and a scan proves that it can see.

``test_workers`` has what a stand-in can do as well.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
import torch

from detmatrix.opspecs.model import call
from detmatrix.scanner.cli.scan import _tell
from detmatrix.scanner.errors import EXIT_DONE, EXIT_UNTRUSTED
from detmatrix.scanner.observations.records import MODES
from detmatrix.scanner.observations.runfile import Run, read_run
from detmatrix.scanner.verdicts.controls import check_controls
from detmatrix.scanner.verdicts.findings import MatrixRow, matrix
from detmatrix.scanner.verdicts.power import has_power
from detmatrix.scanner.worker.overloads import Overloads
from tests import quick
from tests.commands import Command, command_in, process_in, scanned_in
from tests.conftest import DATA, table
from tests.observed import observed, spec_of
from tests.runs import ended, ran, row, stable, write_run
from tests.stand_in import QUICK, StandIn

# What each planted case must read as, by its name.
EXPECTED = {name: words for name, *words in table("planted.txt", "planted")}
PLANTED_SPECS = Path(__file__).with_name("planted.py")
SCAN = ("quick.*", "planted.*", *QUICK, "--specs", PLANTED_SPECS, "--processes", 1, "--runs", 6)


@pytest.fixture(scope="module")
def real_scan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the run file of a real scan: specs that behave, misbehave, alert and crash, with timings and overloads."""
    folder = tmp_path_factory.mktemp("real")
    scanned_in(folder, *SCAN)
    return folder / "run.jsonl"


@pytest.fixture(scope="module")
def run(real_scan: Path) -> Run:
    """Return that scan."""
    return read_run(real_scan)


def rows_of(run: Run, package: str = "circumstance") -> list[tuple[str, MatrixRow]]:
    """Return the rows of a run whose specs have such a name, each with what follows in it."""
    found = matrix(run.header, run.observations, closed=True, sentinels=run.sentinels, costs=run.costs)
    named = [(row.row.spec.partition("."), row) for row in found]
    return [(name, row) for (of, _, name), row in named if of == package]


@pytest.fixture(scope="module")
def planted(run: Run) -> list[tuple[str, MatrixRow]]:
    """Return the rows of every planted case, healthy ones behind the others."""
    return rows_of(run, "planted")


@pytest.mark.parametrize("name", EXPECTED)
def test_each_fault_costs_its_own_cell(planted: list[tuple[str, MatrixRow]], name: str) -> None:
    """Every planted case gets the verdict and the reason that describe it, in both modes."""
    off, on, reason, of_on = EXPECTED[name]
    for found in (one for its, one in planted if its == name):
        assert (found.off.verdict, found.on.verdict) == (off, on)
        assert found.off.reason is None if reason == "-" else reason in str(found.off.reason)
        assert of_on == "-" or of_on in str(found.on.reason)
        told = (found.finding, found.on.alert)
        assert name != "alerts_in_either_mode" or told == ("over_alert", "put_")


def test_every_planted_case_is_expected(planted: list[tuple[str, MatrixRow]]) -> None:
    """No planted spec goes unchecked."""
    assert {name for name, _ in planted} == set(EXPECTED)


def test_cases_behind_a_fault_keep_their_bits(planted: list[tuple[str, MatrixRow]]) -> None:
    """The healthy op gives the same output in every cell, though flags and threads were changed before it."""
    found = [(row.finding, row.off.runs, row.off.distinct) for name, row in planted if name == "healthy"]
    assert found == [("deterministic", 6, 1)] * 2


# Which overloads a scan records: those the case reaches and no others, beside the evidence and never at its cost.


def test_overloads_and_alerts_of_both_directions(run: Run) -> None:
    """The backward pass counts, drawing inputs and upstream gradients does not; what raised is named, and what ran before it is kept."""
    modes = {one.spec.removeprefix("planted."): one.modes for one in run.dispatches}
    unpool, alert = modes["unpool"], ("max_unpooling2d_forward_out", "aten::max_unpool2d")

    assert {modes["cumsum"][mode].overloads for mode in ("off", "on")} == {("aten::cumsum", "aten::flip")}
    # With the flag on the alert ends it; under warn_only all is run.
    alerts = {mode: it.alerts for mode, it in unpool.items()}
    assert alerts == {"off": (), "on": (alert,), "warn_only": (alert,)}
    assert unpool["on"].overloads[-1] == "aten::max_unpool2d"
    assert len(unpool["on"].overloads) < len(unpool["warn_only"].overloads) == len(unpool["off"].overloads)
    assert {it.message for it in unpool.values()} == {None}


def test_every_overload_of_the_build_is_listed_once_and_its_alerts_are_found(run: Run) -> None:
    """The run file says which there are, where their kernels come from and what they write into; the bytes have alerts that no row meets."""
    assert run.kernels is not None
    listed = {name: (it.kernel, it.writes) for it in run.kernels.groups for name in it.names}

    expected = {
        "aten::add.Tensor": ("device", "new"),
        "aten::add_.Tensor": ("device", "in_place"),
        "aten::add.out": ("device", "out"),
        "aten::conv2d": ("decomposed", "new"),
        "aten::new_zeros": ("composite", "new"),
    }
    assert expected.items() <= listed.items()
    assert sum(len(it.names) for it in run.kernels.groups) == len(listed)
    reached = [it.overloads for one in run.dispatches for it in one.modes.values()]
    assert set().union(*reached) <= set(listed)
    assert {"put_", "max_unpooling2d_forward_out", "quantized_resize_cpu_"} <= {*run.kernels.alerts}


def test_what_the_flag_warns_of_is_known_by_its_overload() -> None:
    """Under warn_only an overload that alerts is called again, and gives what it gives anyway."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with Overloads() as recorder, pytest.warns(UserWarning, match="put_ does not have"):
            result = torch.zeros(3).put_(torch.tensor([0, 2]), torch.tensor([1.0, 2.0]))
        assert torch.is_deterministic_algorithms_warn_only_enabled()
    finally:
        torch.use_deterministic_algorithms(False)

    assert list(recorder.alerts) == [("put_", "aten::put_")]
    assert result.tolist() == [1.0, 0.0, 2.0]


def test_nothing_is_recorded_if_not_asked_for(tmp_path: Path) -> None:
    """--no-overloads leaves out the list and the lines; ``tests/golden/coverage-shard.md`` has what the coverage says."""
    standing = StandIn(tmp_path)
    run = standing.scanned("torch.cumsum", "--device", "cpu", "--processes", 1, "--no-overloads")

    assert (run.kernels, run.dispatches) == (None, ())
    assert not {one["do"] for one in standing.noted} & {"kernels", "dispatch"}


# Real scans: what they find on this CPU, and what they tell of it.

# Ops that race, are serial, and raise, on any CPU with two threads.
RACING = (
    "torch.Tensor.put_", "torch.Tensor.index_put_:accumulate*", "torch.cumsum:*:forward:float32", "torch.histc",
    "torch.nn.MaxUnpool1d",
)  # fmt: skip


@pytest.mark.alone
def test_two_scans_show_every_verdict_and_agree(tmp_path: Path) -> None:
    """A machine without a GPU shows serial ops, ops that race and ops that raise; the same scan again finds the same."""
    if torch.get_num_threads() < 2:
        pytest.skip("one thread: nothing differs on a CPU without a second one")
    found = []
    for _ in range(2):
        run = scanned_in(
            tmp_path, *RACING, "--device", "cpu", "--processes", 1, "--no-cost", "--no-overloads", "--force"
        )
        rows = matrix(run.header, run.observations, closed=True, sentinels=run.sentinels)
        found.append({row.row.id: row for row in rows})

    first, again = ({name: row.finding for name, row in rows.items()} for rows in found)
    assert first == again
    assert {"deterministic", "fixed_by_mode", "raises", "over_alert"} <= set(first.values())
    seen = {name: (row.off.verdict, row.on.verdict) for name, row in found[0].items()}
    assert seen["torch.Tensor.put_:accumulate:forward:float32"] == ("nondeterministic", "deterministic")
    assert seen["torch.Tensor.put_:overwrite:forward:float32"][1] == "raises"
    assert seen["torch.Tensor.put_:accumulate:forward:int64"] == ("deterministic", "deterministic")
    assert seen["torch.Tensor.index_put_:accumulate:forward:float32"] == ("nondeterministic", "deterministic")
    alerts = {row.on.alert for row in found[0].values()}
    assert alerts == {None, "put_", "max_unpooling2d_forward_out"}


def test_inputs_follow_from_the_seed(real_scan: Path) -> None:
    """Inputs depend on the seed and on nothing else: not on the process, the mode, or what ran before."""
    scanned = {o.key: o.inputs_digest for o in read_run(real_scan).observations if o.inputs_digest}
    for spec in quick.SPECS:
        for one in spec.rows("cpu"):
            where: dict[str, Any] = {"direction": one.direction, "dtype": one.dtype, "runs": 1}
            equal, other = (
                observed(spec, one.case, **where, seed=seed).get("inputs_digest") for seed in (0, 1)
            )

            key = (one.spec, one.case, one.direction, one.dtype)
            assert one.spec == "quick.missing" or equal == scanned[key] != other


# Controls that really misbehave.


CIRCUMSTANCES = ("--specs", PLANTED_SPECS, "--device", "cpu", "--no-cost", "--no-overloads")


def scan(folder: Path, *arguments: object) -> Run:
    """Scan, and return the run; the circumstances are among the specs."""
    return scanned_in(folder, *CIRCUMSTANCES, *arguments)


def test_control_that_fails_behind_rows_voids_them_alone(tmp_path: Path) -> None:
    """An op that blinds our comparison makes no row behind it deterministic: those since the last good control are errors."""
    specs = tmp_path / "blind.py"
    shutil.copy(DATA / "specs-blind.py.txt", specs)

    run = scan(tmp_path, "be*", "blinds", "--specs", specs, "--runs", 4, "--processes", 1)

    assert run.closing is not None
    assert not run.closing.distrust
    found = {(one.spec, one.mode): one for one in run.observations}
    # What differed with the flag on is believed of a worker whose controls were asked at once.
    assert found["before", "on"].outcome == "ran"
    for where in (("behind", "off"), ("behind", "on"), ("blinds", "off"), ("before", "off")):
        assert str(found[where].message).startswith(
            "not trustworthy: the control varies in process 0 of mode"
        )
    shown = command_in(tmp_path)("report", "run.jsonl", "--format", "json")
    rows = {row["spec"]: row["finding"] for row in json.loads(shown.stdout)["rows"]}
    assert rows == {"before": "silent", "blinds": "inconclusive", "behind": "inconclusive"}


@pytest.mark.parametrize("believed", [0, 1])
def test_scan_of_which_nothing_is_believed_cannot_be_trusted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], believed: int
) -> None:
    """Rows alone that no control vouches for: exit 4, though each of them is only an error."""
    voided, good = row("torch.voided"), row("torch.believed")
    untrusted = "not trustworthy: the control varies shows crash"
    planned = [(voided, [one for mode in MODES for one in ended(voided, mode, "invalid", untrusted)])]
    planned += [(good, [one for mode in MODES for one in ran(good, mode, *stable())])] * believed
    run = read_run(write_run(tmp_path / "run.jsonl", planned))

    assert _tell(run, (), ()) == (EXIT_DONE if believed else EXIT_UNTRUSTED)
    said = capsys.readouterr().err
    assert "run.jsonl: 1 row is not trustworthy: the control varies shows crash" in said
    assert ("the scan cannot be trusted: no control vouches for any of its rows" in said) == (not believed)


def test_distrust_is_not_forgotten(detmatrix: Command, tmp_path: Path) -> None:
    """A worker that replaced another and failed a control voids the scan, also when the scan is cut off and goes on."""
    broken = {"seeded": False, "digests": {"a": 7, "b": 1}}
    dies = {"worker": 1, "spec": "quick.fails", "then": "die"}
    standing = StandIn(tmp_path, dies, {"worker": 2, "spec": "control.random", "then": broken})
    path, options = tmp_path / "run.jsonl", ("quick", *QUICK, "--runs", 8, "--processes", 1)

    run = standing.scanned(*options, code=EXIT_UNTRUSTED)

    reason = (
        "the control random in process 0 of mode off should show 0 of 8 differed, seeded, and shows 1 of 8 differed, "
        "not seeded"
    )
    assert run.closing is not None
    assert run.closing.distrust == (reason,)
    # The answers of the first worker stay in the file; of the second there is what it answered wrongly.
    controls = [one for one in run.controls if (one.mode, one.process) == ("off", 0)]
    assert len({one.spec for one in controls}) == len(controls) == 6
    # Told in the file at once: a scan that is cut off and goes on does not forget it.
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    assert "Not trustworthy: the control random" in detmatrix("report", path).stdout
    done = detmatrix("scan", *options, "--python", standing.python, "-o", path, "--resume")
    assert done.returncode == EXIT_UNTRUSTED
    assert f"detmatrix: the scan cannot be trusted: {reason} (1 such)" in done.stderr
    assert json.loads(detmatrix("report", path, "--format", "json").stdout)["distrust"] == [reason]


# A scan proves that it can see: controls, sentinels, perturbations, ops run under warn_only.

RUNS = 24


@pytest.fixture(scope="module")
def circumstances(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Scan every circumstance with every perturbation."""
    options = ("--runs", RUNS, "--perturb", "quiet,stress,shift,poison")
    return scan(tmp_path_factory.mktemp("circumstances"), "circumstance.*", *options)


@pytest.fixture(scope="module")
def rows(circumstances: Run) -> dict[str, MatrixRow]:
    """Return the rows of that scan by the name of the function."""
    return dict(rows_of(circumstances))


def test_controls_answer_in_every_process_of_every_mode(circumstances: Run) -> None:
    """Six controls, two processes of three modes and a further one of two, and each shows what it must."""
    checks = check_controls(circumstances.header, circumstances.controls)

    assert len(checks) == 6 * (2 * 3 + 2)
    assert [check for check in checks if not check.ok] == []
    assert circumstances.closing is not None
    assert circumstances.closing.distrust == ()
    assert not [
        one.message for one in circumstances.observations if str(one.message).startswith("not trustworthy")
    ]


def test_sentinels_run_between_rows(tmp_path: Path) -> None:
    """At most 96 rows lie between two of them."""
    options = ("--device", "cpu", "--runs", 2, "--processes", 1, "--perturb", "quiet", "--no-cost")
    run = StandIn(tmp_path).scanned("torch.nn.functional.*", *options, "--no-overloads")
    places = [one.before for one in run.sentinels if one.mode == "off"]
    assert max(after - before for before, after in pairwise(places)) == 96
    assert (places[0], places[-1]) == (0, len(run.header.planned))


@pytest.mark.alone
@pytest.mark.parametrize("how", ["one thread", "one core"])
def test_where_nothing_can_race_rows_are_of_low_power(tmp_path: Path, how: str) -> None:
    """With one thread the sentinel never differs, with two on one core hardly ever, which ``tests/golden/report-weak.*`` show."""
    options: dict[str, Any] = {"env": os.environ | {"OMP_NUM_THREADS": "1" if how == "one thread" else "2"}}
    if how == "one core":
        cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else {0}
        if len(cores) < 2:
            pytest.skip("one core: there is no other one to leave out")
        options["preexec_fn"] = lambda: os.sched_setaffinity(0, {min(cores)})
    words = (*CIRCUMSTANCES, "circumstance.doubles", "--processes", 1, "-o", "run.jsonl")
    done = process_in(tmp_path)("scan", *words, **options)
    assert done.returncode == 0, done.stderr

    run = read_run(tmp_path / "run.jsonl")
    rows = dict(rows_of(run))
    powered = [has_power(sentinel) for sentinel in run.sentinels]
    # A thread that is interrupted in the middle of its work races with the other one of its core, now and then.
    assert not (any(powered) if how == "one thread" else all(powered))
    assert rows["doubles"].weak is not None
    assert "torch.index_put" in rows["doubles"].weak
    assert ("one thread" in rows["doubles"].weak) == (how == "one thread")


def test_differences_are_told_by_perturbation(rows: dict[str, MatrixRow]) -> None:
    """An op that differs only beside busy threads differs in that group alone; one that forgets an element differs under poison."""
    stressed, unwritten = rows["under_stress"], rows["reads_unwritten"]

    assert stressed.off.verdict == "nondeterministic"
    assert {group.perturbation for group in stressed.off.groups if group.differing} == {"stress"}
    assert [group.perturbation for group in stressed.off.groups] == ["quiet", "stress", "shift", "poison"]
    assert sum(group.executions for group in stressed.off.groups) == stressed.off.runs
    assert unwritten.finding == "silent"
    poison = next(group for group in unwritten.on.groups if group.perturbation == "poison")
    # The byte it is poisoned with is now and then the one that lay there in the first execution.
    assert poison.differing > poison.executions / 2


@pytest.mark.alone
def test_pauses_show_what_executions_in_a_row_hide(tmp_path: Path) -> None:
    """An op whose bits depend on whether its threads have slept differs behind pauses, where they are asked for."""
    found = {}
    for perturb in ("quiet", "quiet,pause"):
        (tmp_path / perturb).mkdir()
        run = scan(tmp_path / perturb, "circumstance.after_a_pause", "--perturb", perturb, "--processes", 1)
        seen = dict(rows_of(run))["after_a_pause"]
        found[seen.finding] = [group.perturbation for group in seen.off.groups if group.differing]

    assert found == {"deterministic": [], "silent": ["pause"]}


@pytest.mark.alone
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="threads cannot be bound to cores here")
def test_stress_loads_every_other_core_by_turns(tmp_path: Path) -> None:
    """Half of the cores are busy, then the others, though OpenMP has bound the main thread, from which threads inherit that."""
    options = ("--perturb", "quiet,stress", "--runs", 8, "--processes", 1)
    run = scan(tmp_path, "circumstance.busy_cores", *options)

    assert run.header.environment.variables["off"].get("OMP_PROC_BIND") == "true"
    (off, _) = run.observations
    cores = sorted(os.sched_getaffinity(0))
    turns = [
        {cores[(2 * place + turn) % len(cores)] for place in range((len(cores) + 1) // 2)} for turn in (1, 2)
    ]
    assert turns[0] | turns[1] == set(cores)
    assert len(off.digests) == 1 + len(set(map(frozenset, turns)))
    (output,) = off.outputs
    assert output.severity is not None
    most = max(sum(1 << core for core in turn) for turn in turns)
    assert output.severity.max_abs == pytest.approx(1000 * most, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # Bits that differ are proof on any machine, and need no power.
        ("by_process", {"weak": None, "off.where": "between processes only"}),
        ("under_stress", {"off.where": "within a process"}),
        ("doubles", {"off.where": None, "warn_only.verdict": "not_run", "off.constant": False}),
        ("by_mode", {"finding": "mode_dependent"}),
        # Under warn_only an op that does not differ reads as over_alert, with all its alerts.
        ("two_alerts", {"finding": "over_alert", "on.alert": "put_",
                        "warn_only.alerts": ("put_", "max_unpooling2d_forward_out")}),
        # What was not really tried is never deterministic, unless the result holds no information by definition.
        ("zeros", {"off.verdict": "error", "off.reason": "produced all zeros"}),
        ("nans", {"off.verdict": "error", "off.reason": "produced all NaN"}),
        ("untouched", {"off.verdict": "error", "off.reason": "returned only its input"}),
        ("zero_gradient", {"off.verdict": "error", "off.reason": "produced all zeros"}),
        ("zeros_declared", {"finding": "deterministic", "off.constant": True}),
    ],
)  # fmt: skip
def test_rows_say_what_they_show(rows: dict[str, MatrixRow], name: str, expected: dict[str, object]) -> None:
    """Where it differs, what it raises and what it holds."""
    assert {field: attrgetter(field)(rows[name]) for field in expected} == expected


# How often a case is executed, bounded by time.


def test_time_bounds_a_case_and_the_true_n_is_recorded(detmatrix: Command, tmp_path: Path) -> None:
    """A slow case runs as often as its time allows, which a worker is told, and is compared over just that."""
    standing = StandIn(tmp_path)
    detmatrix("scan", "torch.topk", "--device", "cpu", "--max-time", 0.1, "--python", standing.python)
    asked = [one for one in standing.noted if one["do"] == "observe" and one["spec"] == "torch.topk"]
    assert {one["max_time"] for one in asked} == {0.1}
    assert {one["max_seconds"] for one in standing.noted if one["do"] == "cost"} == {0.1}

    def waits(x: Any, seconds: float) -> Any:
        time.sleep(seconds)
        return x * 2

    def executions(seconds: float) -> Any:
        spec = spec_of(waits, lambda t: call(t.normal(64), seconds))
        return observed(spec, runs=100, max_time=0.6)["executions"]

    every = ["quiet", "stress", "shift", "poison"]
    shortest = observed(
        spec_of(lambda x: x * 2, lambda t: call(t.normal(64))), runs=40, perturbations=every, max_time=1e-6
    )
    assert [one["executions"] for one in shortest["groups"]] == [2, 1, 1, 1]
    assert 2 <= executions(0.05) < 20
    assert executions(0) == 100


def test_retired_perturbations_are_not_executed() -> None:
    """A scan that an earlier release began goes on without them."""
    seen = observed(spec_of(lambda x: x * 2), runs=6, perturbations=["quiet", "order", "threads"])

    assert [(one["perturbation"], one["executions"]) for one in seen["groups"]] == [("quiet", 6)]
