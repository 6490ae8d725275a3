"""Which overloads a scan records: those the case reaches and no others, beside the evidence and never at its cost."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from detmatrix.scanner.observations.records import Dispatch, Mode
from detmatrix.scanner.observations.runfile import Run, read_run
from detmatrix.scanner.worker.overloads import Overloads
from tests.commands import Command
from tests.stand_in import StandIn


@pytest.fixture(scope="module")
def run(real_scan: Path) -> Run:
    """Return a scan of ops that behave, alert, fail and crash under the recorder."""
    return read_run(real_scan)


def _dispatch(run: Run, name: str) -> Dispatch:
    return next(one for one in run.dispatches if one.spec == f"recorded.{name}")


def _reached(run: Run, name: str, mode: Mode) -> tuple[str, ...]:
    return _dispatch(run, name).modes[mode].overloads


def test_overloads_of_forward_and_backward(run: Run) -> None:
    """The backward pass counts, and drawing inputs and upstream gradients does not."""
    for mode in ("off", "on"):
        assert _reached(run, "cumsum", mode) == ("aten::cumsum", "aten::flip")


def test_alerts_name_the_overload_that_raised(run: Run) -> None:
    """With the flag on what ran before the alert is kept; run under warn_only, all of it."""
    modes = _dispatch(run, "unpool").modes
    alert = ("max_unpooling2d_forward_out", "aten::max_unpool2d")

    assert {mode: it.alerts for mode, it in modes.items()} == {
        "off": (),
        "on": (alert,),
        "warn_only": (alert,),
    }
    assert modes["on"].overloads[-1] == "aten::max_unpool2d"
    assert len(modes["on"].overloads) < len(modes["warn_only"].overloads) == len(modes["off"].overloads)
    assert {it.message for it in modes.values()} == {None}


def test_every_overload_of_the_build_is_listed_once(run: Run) -> None:
    """The run file says which there are, where their kernels come from and what they write into."""
    assert run.kernels is not None
    listed = {name: (it.kernel, it.writes) for it in run.kernels.groups for name in it.names}

    assert {name: listed[name] for name in ("aten::add.Tensor", "aten::add_.Tensor", "aten::add.out")} == {
        "aten::add.Tensor": ("device", "new"),
        "aten::add_.Tensor": ("device", "in_place"),
        "aten::add.out": ("device", "out"),
    }
    assert listed["aten::conv2d"] == ("decomposed", "new")
    assert listed["aten::new_zeros"] == ("composite", "new")
    assert sum(len(it.names) for it in run.kernels.groups) == len(listed)
    assert {
        name for reached in run.dispatches for it in reached.modes.values() for name in it.overloads
    } <= set(listed)


def test_alerts_of_the_build_are_found_in_its_bytes(run: Run) -> None:
    """Also those that no row of the run meets."""
    assert run.kernels is not None

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


def test_nothing_is_recorded_if_not_asked_for(detmatrix: Command, tmp_path: Path) -> None:
    """--no-overloads leaves out the list and the lines, and the coverage says so."""
    standing = StandIn(tmp_path)
    options = ("--device", "cpu", "--processes", 1, "--no-overloads", "--python", standing.python)
    assert detmatrix("scan", "torch.cumsum", *options, "-o", "run.jsonl").returncode == 0
    run = read_run(tmp_path / "run.jsonl")
    text = detmatrix("coverage", "run.jsonl")

    assert (run.kernels, run.dispatches) == (None, ())
    assert not {one["do"] for one in standing.noted} & {"kernels", "dispatch"}
    assert text.returncode == 0
    assert "Overloads are not recorded: run.jsonl was scanned with --no-overloads." in text.stdout
    assert "0 of" not in text.stdout
