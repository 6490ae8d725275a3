"""Modes under torch.compile on real torch: what compiled code shows, and what a cache keeps."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from detmatrix.opspecs.families.images import masked
from detmatrix.opspecs.model import Case, OpSpec, call
from detmatrix.scanner.alerts import alert_caller
from detmatrix.scanner.modes import MODE_TABLE
from detmatrix.scanner.observations.runfile import read_run
from detmatrix.scanner.verdicts.findings import matrix
from tests.commands import Command

OPTIONS = ("--device", "cpu", "--processes", 2, "--no-cost", "--no-overloads")
MODES = ("--modes", "off,on,compile_off,compile_on")


def _spec(name: str, op: Any, inputs: Any, *directions: Any) -> OpSpec:
    return OpSpec(
        name=f"compiled.{name}",
        op=op,
        why="Planted.",
        cases={"one": Case(inputs=inputs)},
        directions=directions,
    )


def _observed(spec: OpSpec, *, runs: int) -> dict[str, Any]:
    """Observe the only case of a spec under torch.compile, in this process."""
    from detmatrix.scanner.worker.observe import observe  # noqa: PLC0415 - needs torch

    return observe(
        spec,
        "one",
        direction=spec.directions[0],
        dtype="float32",
        device="cpu",
        seed=0,
        runs=runs,
        execution="compiled",
    )


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")  # of PyTorch's compiler, which a worker lets pass
def test_compiled_code_is_told_from_eager_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What breaks the graph, in part or as a whole, is told, and so is code that calls eager kernels alone."""
    torch = pytest.importorskip("torch")
    from detmatrix.scanner.worker import global_state  # noqa: PLC0415 - needs torch
    from detmatrix.scanner.worker.executions import failure  # noqa: PLC0415

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
        spec.op_name if isinstance(spec.op, str) else spec.name: _observed(spec, runs=4) for spec in specs
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

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    spec = _spec(
        "unpool",
        "torch.nn.functional.max_unpool2d",
        lambda t: call(t.normal(1, 1, 2, 2), t.index(1, 1, 2, 2, high=16), 2),
        "forward",
    )
    torch.use_deterministic_algorithms(True)
    try:
        seen = _observed(spec, runs=2)
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
@pytest.mark.filterwarnings("ignore")  # of PyTorch's compiler, which a worker lets pass
@pytest.mark.parametrize("flag", [False, True])
def test_masked_convolutions_are_compiled(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, flag: bool
) -> None:
    """As a whole, once for all executions; pixels that an output must not see have no gradient there either."""
    torch = pytest.importorskip("torch")
    from detmatrix.scanner.worker.observe import observe  # noqa: PLC0415 - needs torch

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")
    (spec,) = (one for one in masked.SPECS if one.name == "masked_conv2d.receptive_field")
    where: dict[str, Any] = {"direction": "backward", "dtype": "float32", "device": "cpu", "seed": 0}
    torch.use_deterministic_algorithms(flag)
    try:
        # More of them than torch.compile compiles one function for.
        seen = observe(
            spec, "nonzero_gradient", **where, runs=20, execution=MODE_TABLE["compile_on"].execution
        )
    finally:
        torch.use_deterministic_algorithms(False)

    assert (seen["outcome"], seen.get("message")) == ("ran", None)
    assert (seen["compiled"]["graphs"], seen["compiled"]["breaks"]) == (1, 0)
    assert seen["reference"]["elements"] == 0
