"""Traces: what each mode is expected to reach, without a GPU, and what could not be traced and why."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from opspecs.registry import SPECS as CATALOG
from scanner.cases.rows import planned_rows
from scanner.observations.trace.files import read_trace
from scanner.observations.trace.records import TracedRow, TraceFile
from scanner.run.trace import trace as trace_rows
from scanner.verdicts.reroutes import decided, reroutes
from tests.commands import Command, command_in
from tests.conftest import one_line
from tests.runs import SETTINGS
from tests.stand_in import StandIn

ROOT = Path(__file__).parent.parent

SPECS = """
import os, time
import torch
from opspecs.model import Case, OpSpec, call

def decided_in_forward(x):
    return x.cumprod(0) if torch.are_deterministic_algorithms_enabled() else x.cumsum(0)

class Backward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient.sin() if torch.are_deterministic_algorithms_enabled() else gradient.cos()

class Alerts(Backward):
    @staticmethod
    def backward(ctx, gradient):
        if torch.are_deterministic_algorithms_enabled():
            raise RuntimeError(
                "mine<|>does not exist does not have a deterministic implementation, but you set "
                "'torch.use_deterministic_algorithms(True)'."
            )
        return gradient

def broadcast(x):
    return x + torch.ones(3, 4, dtype=torch.float64)

def leaves_a_flag(x):
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.set_default_dtype(torch.float64)
    return x * 2

OPS = {
    "forward": decided_in_forward, "backward": Backward.apply, "alerts": Alerts.apply, "broadcast": broadcast,
    "item": lambda x: x * x.sum().item(), "crash": lambda x: os._exit(3), "hang": lambda x: time.sleep(60),
    "flag": leaves_a_flag, "after": lambda x: x.exp(),
}
SPECS = tuple(
    OpSpec(
        name=f"mine.{name}", op=op, why="", directions=("backward",),
        cases={"case": Case(inputs=lambda t: call(t.leaf(t.normal(1, 4))))},
    )
    for name, op in OPS.items()
)
"""
CUDA = (
    "torch.nn.functional.interpolate:bilinear:*:float32",
    "torch.cumsum:*:forward:float32",
    "torch.bincount:weights",
    "torch.nn.MaxUnpool2d:duplicate_indices",
)


def _trace(folder: Path, *arguments: str) -> TraceFile:
    done = command_in(folder)("trace", *arguments, "--format", "json", "-o", "trace.json")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    return read_trace(folder / "trace.json")


@pytest.fixture(scope="module")
def cuda(tmp_path_factory: pytest.TempPathFactory) -> TraceFile:
    """Return a trace of some of the catalog on fake CUDA tensors, in whatever build is installed."""
    return _trace(tmp_path_factory.mktemp("cuda"), *CUDA)


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, TraceFile]:
    """Return a trace of ops of our own on fake CPU tensors, and the folder that holds it."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "mine.py").write_text(SPECS)
    return folder, _trace(folder, "mine.*", "--specs", "mine.py", "--device", "cpu", "--timeout", "15")


def _row(trace: TraceFile, start: str) -> TracedRow:
    return next(one for one in trace.rows if one.row.id.startswith(start))


def test_flag_reroutes_interpolate(cuda: TraceFile) -> None:
    """With the flag on, bilinear interpolation on CUDA is decomposed; with it off it is one op."""
    row = _row(cuda, "torch.nn.functional.interpolate:bilinear:forward")
    (found,) = reroutes(row)

    assert found.phase == "forward"
    assert found.only_off == ("aten::upsample_bilinear2d",)
    assert "aten::_unsafe_index.Tensor" in found.only_on
    assert decided(row) is None


def test_flag_reroutes_nothing_above_cumsum(cuda: TraceFile) -> None:
    """What a kernel decides by itself is not in a trace: cumsum reaches the same overload in both modes."""
    row = _row(cuda, "torch.cumsum:")

    assert [reach.forward for reach in row.reached] == [{"aten::cumsum": 1}] * 2
    assert reroutes(row) == ()


def test_alert_of_composite_code_is_seen(cuda: TraceFile) -> None:
    """Where shapes are computed alerts are raised too, with the caller the kernel would name."""
    off, on = _row(cuda, "torch.nn.MaxUnpool2d:duplicate_indices:forward").reached

    assert off.outcome == "traced"
    assert (on.outcome, on.caller, on.stopped) == ("alert", "max_unpooling2d_forward_out", "forward")


def test_what_needs_values_says_so(cuda: TraceFile) -> None:
    """The size of bincount's output is a value; what was reached until then is kept."""
    for reach in _row(cuda, "torch.bincount:weights:").reached:
        assert (reach.outcome, reach.stopped) == ("not_traced", "forward")
        assert reach.message is not None
        assert reach.message.startswith("needs the values of a tensor")
        assert "aten::bincount" in reach.forward


def test_backward_on_cuda_needs_a_cuda_build(cuda: TraceFile) -> None:
    """A CPU build says so for each such row; a CUDA build traces it without a GPU, and finds the path taken in forward."""
    torch = pytest.importorskip("torch")
    row = _row(cuda, "torch.nn.functional.interpolate:bilinear:backward")
    if torch.version.cuda is None:
        assert {reach.outcome for reach in row.reached} == {"not_traced"}
        assert all(
            "a CPU build of torch has no autograd on CUDA" in str(reach.message) for reach in row.reached
        )
        assert decided(row) == "unknown"
    else:
        assert decided(row) == "forward"


def test_overloads_say_whose_kernel_they_have(cuda: TraceFile) -> None:
    """The C++ functions behind an overload come from torch's own declarations; a CPU build has no CUDA kernels."""
    torch = pytest.importorskip("torch")
    described = {one.name: one for one in cuda.overloads}
    reached = {
        name for row in cuda.rows for reach in row.reached for name in (*reach.forward, *reach.backward)
    }

    assert set(described) == reached
    assert described["aten::bincount"].functions == ("at::native::_bincount_cuda",)
    assert described["aten::cumsum"].functions == ("at::native::structured_cumsum_out",)
    assert described["aten::bincount"].kernel == ("unknown" if torch.version.cuda is None else "own")


@pytest.mark.parametrize(
    ("name", "when"),
    [
        ("forward", "forward"),
        ("backward", "backward"),
        ("alerts", "alert"),
        ("after", "same"),
        ("broadcast", "same"),
    ],
)
def test_when_the_path_is_decided(own: tuple[Path, TraceFile], name: str, when: str) -> None:
    """Turned on only for backward, the flag comes too late, acts, raises, or has nothing to change."""
    assert decided(_row(own[1], f"mine.{name}:")) == when


def test_only_the_parts_that_differ_are_rerouted(own: tuple[Path, TraceFile]) -> None:
    """An op that asks the flag in backward alone is rerouted there alone."""
    (found,) = reroutes(_row(own[1], "mine.backward:"))

    assert (found.phase, found.only_off, found.only_on) == ("backward", ("aten::cos",), ("aten::sin",))


def test_gradients_are_brought_to_shape(own: tuple[Path, TraceFile]) -> None:
    """A gradient of a broadcast input is summed, and cast to the input's dtype, as the engine does."""
    off = _row(own[1], "mine.broadcast:").reached[0]

    assert off.backward == {"aten::sum.dim_IntList": 1, "aten::_to_copy": 1} | off.backward
    assert off.backward["aten::sum.dim_IntList"] == 1


@pytest.mark.parametrize(
    ("name", "outcome", "text"),
    [
        ("item", "not_traced", "needs the values of a tensor"),
        ("crash", "crash", "exited with code 3 in the middle of the case"),
        ("hang", "timeout", "took longer than 15 s and was stopped"),
        ("flag", "not_traced", "changed global state"),
    ],
)
def test_what_goes_wrong_costs_one_case(
    own: tuple[Path, TraceFile], name: str, outcome: str, text: str
) -> None:
    """Each such case says what happened, and the next one is traced by a worker that nothing has changed."""
    reached = _row(own[1], f"mine.{name}:").reached

    assert {reach.outcome for reach in reached} == {outcome}
    assert all(text in str(reach.message) for reach in reached)
    assert [reach.outcome for reach in _row(own[1], "mine.after:").reached] == ["traced"] * 3


def test_markdown_escapes_what_ops_say(own: tuple[Path, TraceFile]) -> None:
    """A recorded trace is rendered without torch's help; texts of ops cannot break the table or reach the page."""
    text = command_in(own[0])("trace", "--read", "trace.json").stdout
    (alert,) = (line for line in text.splitlines() if "mine<" in line and "| on " in line)

    assert "`mine<\\|>does not exist`" in alert
    assert (
        "*forward*: in forward: turned on only for backward, the flag does not reroute: the overload of the flag "
        "being off is reached, and raises if its function alerts." in text
    )
    assert "## Not traced to the end" in text
    assert (
        command_in(own[0])("trace", "--read", "trace.json", "--format", "json").stdout
        == (own[0] / "trace.json").read_text()
    )


def test_rows_that_have_to_be_asked_for_are_in_no_trace_of_all(tmp_path: Path) -> None:
    """A trace plans what a scan plans: a pattern asks for them."""
    options = {"python": str(StandIn(tmp_path).python), "spec_files": (), "timeout": 9.0, "tell": print}
    asked = {(spec.name, name) for spec in CATALOG for name, case in spec.cases.items() if case.on_request}
    name = next(name for name, _ in asked)

    whole, named = (trace_rows(patterns, "cpu", **options) for patterns in ((), (name,)))  # type: ignore[arg-type]

    settings = replace(SETTINGS, patterns=(), device="cpu", invariance=())
    assert [one.row for one in whole.rows] == list(planned_rows(settings, CATALOG))
    assert not asked & {(one.row.spec, one.row.case) for one in whole.rows}
    assert {(one.row.spec, one.row.case) for one in named.rows} >= {one for one in asked if one[0] == name}


def test_recorded_trace_shows_known_reroutes() -> None:
    """The recorded trace of a CUDA build, made without a GPU: five families are rerouted, in the forward phase."""
    trace = read_trace(ROOT / "reports" / "traces" / "torch-2.15.0-cuda.json.gz")
    rerouted = [row for row in trace.rows if reroutes(row)]

    assert trace.build.gpus == ()
    assert {row.row.spec.removeprefix("torch.nn.") for row in rerouted} == {
        *("functional.interpolate", "MaxPool3d", "ReplicationPad1d", "ReplicationPad2d", "ReplicationPad3d"),
        "torch.empty_out",  # it is filled by an op of its own
    }
    assert {decided(row) for row in rerouted} == {None, "forward"}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda trace: trace.update(format=3), "trace file format 3, this detmatrix reads up to 2; upgrade"),
        (lambda trace: trace.update(rules=9), "trace rule set 9, this detmatrix reads up to 2; upgrade"),
        (lambda trace: trace.update(format=0), "no such trace file format: 0 - at `$.format`"),
        (
            lambda trace: trace.update(kind="header"),
            "not a trace file; give a file that detmatrix trace wrote",
        ),
        (lambda trace: trace.update(rows=5), "Expected `array`, got `int` - at `$.rows`"),
        (
            lambda trace: trace["settings"].update(device="m\x1bps:0"),
            r"bad.json: no such device: 'm\x1bps:0' - at `$.settings.device`; restore the file",
        ),
        (lambda trace: trace["settings"].update(device="cuda:"), "no such device: 'cuda:'"),
        (lambda trace: trace["rows"].append(trace["rows"][0]), "is there twice - at `$.rows[9]`"),
        (
            lambda trace: trace["rows"][0]["reached"].pop(),
            "the modes are to be off, on, late - at `$.rows[0].reached`",
        ),
        (lambda trace: trace["rows"][0]["reached"][0]["forward"].update(x=0), "`int` >= 1"),
        (lambda trace: trace.update(surprise=1), "unknown field `surprise`"),
    ],
)
def test_damaged_file_is_one_line(
    own: tuple[Path, TraceFile], detmatrix: Command, tmp_path: Path, change: Any, text: str
) -> None:
    """What is wrong and where is said in one line, with exit 3."""
    trace = json.loads((own[0] / "trace.json").read_text())
    change(trace)
    (tmp_path / "bad.json").write_text(json.dumps(trace))

    done = detmatrix("trace", "--read", "bad.json")

    assert (done.returncode, done.stdout) == (3, "")
    assert text in one_line(done.stderr)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("torn.json", b'{"kind":"trace","format":1,'),
        ("no.json.gz", b"not gzip"),
        ("deep.json", b"[" * 100000),
        ("x.json", b"\xff"),
    ],
)
def test_unreadable_file_is_one_line(detmatrix: Command, tmp_path: Path, name: str, data: bytes) -> None:
    """So is a file that is no JSON at all."""
    (tmp_path / name).write_bytes(data)

    done = detmatrix("trace", "--read", name)

    assert done.returncode == 3
    assert one_line(done.stderr).startswith(f"detmatrix: {name}: ")


def test_interpreter_without_torch_is_told(detmatrix: Command, tmp_path: Path) -> None:
    """Nothing can be traced there, and the remedy is one command."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    python = tmp_path / "bare" / "bin" / "python"

    done = detmatrix("trace", "torch.cumsum", "--python", python)

    assert done.returncode == 2
    assert (
        one_line(done.stderr)
        == f"detmatrix: --python {python}: has no torch; install it there (pip install torch)"
    )


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["torch.cumsumm"], "no op on CUDA matches 'torch.cumsumm'; did you mean torch.cumsum"),
        (["torch.cumsum", "-o", "trace.json.gz"], "choose a name without .gz, compress it later"),
        (["torch.cumsum", "--read", "x"], "--read renders a whole trace; leave the patterns and --specs out"),
        (["--read", "x"], "x: cannot be read (No such file or directory)"),
    ],
)
def test_what_cannot_be_done_is_one_line(detmatrix: Command, arguments: list[str], text: str) -> None:
    """Nothing is traced, and nothing is written."""
    done = detmatrix("trace", *arguments)

    assert done.returncode == (3 if "cannot be read" in text else 2)
    assert text in one_line(done.stderr)
