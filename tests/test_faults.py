"""A case that misbehaves costs its own cell and nothing else; ``test_workers`` has what a stand-in can do as well."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from detmatrix.scanner.observations.runfile import Run, read_run
from detmatrix.scanner.verdicts.findings import matrix
from detmatrix.scanner.worker.overloads import Overloads
from tests import quick
from tests.commands import Command, command_in, scanned_in
from tests.observed import observed
from tests.stand_in import StandIn

# What each planted case must read as, by its name.
PLANTED = (Path(__file__).parent / "data" / "planted.txt").read_text(encoding="utf-8")
EXPECTED = {
    name: words for name, *words in (line.split(" | ") for line in PLANTED.splitlines() if " | " in line)
}


QUICK = Path(__file__).with_name("quick.py")
SCAN = (
    "quick.*", "planted.*", "--specs", QUICK, "--specs", QUICK.with_name("planted.py"), "--device", "cpu", "--processes", 1,
    "--runs", 6,
)  # fmt: skip


@pytest.fixture(scope="module")
def real_scan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the run file of a real scan: specs that behave, misbehave, alert and crash, with timings and overloads."""
    folder = tmp_path_factory.mktemp("real")
    scanned_in(folder, *SCAN)
    return folder / "run.jsonl"


@pytest.fixture(scope="module")
def planted(real_scan: Path) -> dict[str, Any]:
    """Return the JSON report of a scan of every planted case, with healthy ops between and behind them."""
    shown = command_in(real_scan.parent)("report", real_scan, "--format", "json").stdout
    report: dict[str, Any] = json.loads(shown)
    report["rows"] = [row for row in report["rows"] if row["family"] == "planted"]
    return report


def _rows(report: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return [row for row in report["rows"] if row["spec"] == f"planted.{name}"]


@pytest.mark.parametrize("name", EXPECTED)
def test_each_fault_costs_its_own_cell(planted: dict[str, Any], name: str) -> None:
    """Every planted case gets the verdict and the reason that describe it, in both modes."""
    off, on, reason, of_on = EXPECTED[name]
    for row in _rows(planted, name):
        assert (row["off"]["verdict"], row["on"]["verdict"]) == (off, on)
        assert row["off"]["reason"] is None if reason == "-" else reason in row["off"]["reason"]
        assert of_on == "-" or of_on in row["on"]["reason"]
        assert name != "alerts_in_either_mode" or (row["finding"], row["on"]["alert"]) == (
            "over_alert",
            "put_",
        )


def test_every_planted_case_is_expected(planted: dict[str, Any]) -> None:
    """No planted spec goes unchecked."""
    assert {row["spec"].removeprefix("planted.") for row in planted["rows"]} == set(EXPECTED)


def test_cases_behind_a_fault_keep_their_bits(planted: dict[str, Any]) -> None:
    """The healthy op gives the same output in every cell, though flags and threads were changed before it."""
    rows = _rows(planted, "healthy")

    assert [(row["finding"], row["off"]["runs"], row["off"]["distinct"]) for row in rows] == [
        ("deterministic", 6, 1),
        ("deterministic", 6, 1),
    ]


# Which overloads a scan records: those the case reaches and no others, beside the evidence and never at its cost.


@pytest.fixture(scope="module")
def run(real_scan: Path) -> Run:
    """Return a scan of ops that behave, alert, fail and crash under the recorder."""
    return read_run(real_scan)


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


# Real scans: what they find on this CPU, what they tell of it, and that they go on where they were cut.

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


def test_real_scan_goes_on(detmatrix: Command, tmp_path: Path, real_scan: Path) -> None:
    """A real scan that was cut in the line of an observation is finished; whole lines stay, and what is missing comes as it was."""
    whole, path = real_scan.read_bytes(), tmp_path / "run.jsonl"
    place = whole.rindex(b'{"kind":"observation"')
    path.write_bytes(whole[: place + 100])

    done = detmatrix("scan", *SCAN, "--resume", "-o", path)

    assert done.returncode == 0, done.stderr
    assert path.read_bytes().startswith(whole[:place])
    found, expected = (
        {(o.key, o.mode): (o.outcome, o.inputs_digest, tuple(o.digests)) for o in read_run(file).observations}
        for file in (path, real_scan)
    )
    assert found == expected
