"""A release's own kernels on the simulated GPU: what is known of some ops is found, proved or refused, and can be replayed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from detmatrix.scanner.observations.records import Simulation
from detmatrix.scanner.observations.runfile import Run, read_run
from detmatrix.scanner.verdicts.findings import MatrixRow, matrix
from tests import tied
from tests.commands import command_in

PYTHON = os.environ.get("DETMATRIX_CUDA_PYTHON", "")
FIND_TRITON = "import importlib.util; sys.exit(importlib.util.find_spec('triton') is None)"
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(not PYTHON, reason="needs a CUDA build of torch, which nox -s nightly installs"),
]
# By row: its finding, the weakest class of schedules that shows its difference, what shows it (the source of one pair of accesses, any
# pair, or that it is proved not to differ), and what becomes of the difference with small integers, which do not round.
ROWS: dict[str, tuple[str, str | None, str, str]] = {
    "torch.index_add:few_indices:forward:float32": ("fixed_by_mode", "resident-blocks", "IndexKernelUtils.cu", "vanishes"),
    "torch.nn.AdaptiveMaxPool3d:smaller_output:backward:float32": ("silent", "resident-blocks", "a pair", ""),
    "torch.nn.AdaptiveMaxPool3d:dividing_output:backward:float32": ("deterministic", None, "proved", ""),
    "torch.cumprod:long_flat:forward:float32": ("silent", "resident-blocks", "CumprodKernel.cu", "vanishes"),
    "torch.cumsum:many_rows:forward:float32": ("deterministic", None, "proved", ""),
    "torch.nn.ReflectionPad2d:whole_side_small:backward:float32": ("fixed_by_mode", "warps", "a pair", ""),
    # Its barrier was added later: https://github.com/pytorch/pytorch/pull/187687. Not all of its many pairs are tried.
    "torch.nn.Embedding:few_indices:backward:float32": ("silent", "warps", "", "stays"),
    "torch.nn.Conv1d:dense:forward:float32": ("inconclusive", None, "", ""),
    # Of PyTorch's databases: enlarged for the simulation.
    "opinfo:repeat_interleave:enlarged_4:backward:float32": ("fixed_by_mode", "resident-blocks", "", ""),
}  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Scan these rows."""
    folder = tmp_path_factory.mktemp("wheel")
    done = command_in(folder)(
        "scan", "--simulate", "sm_80", "--python", PYTHON, *ROWS, "-o", "run.jsonl", "--workers", 1
    )
    assert done.returncode == 0, done.stderr
    return read_run(folder / "run.jsonl")


@pytest.fixture(scope="module")
def rows(run: Run) -> dict[str, MatrixRow]:
    """Return what came out, by row."""
    found = matrix(run.header, run.observations, closed=True, sentinels=run.sentinels)
    return {one.row.id: one for one in found}


def test_the_build_is_one_for_cuda_without_nvidias_libraries() -> None:
    """None is downloaded to simulate a GPU, and none could compute in place of the stand-ins."""
    # Without the stand-ins that build cannot be imported.
    text = (
        "import importlib.util, os; found = importlib.util.find_spec; "
        "torch = os.path.dirname(found('torch').origin); "
        "print(os.path.exists(os.path.join(torch, 'lib', 'libtorch_cuda.so')), found('nvidia'))"
    )

    assert tied.run([PYTHON, "-c", text]).stdout.split() == ["True", "None"]


@pytest.mark.parametrize("name", ROWS)
def test_findings(rows: dict[str, MatrixRow], name: str) -> None:
    """As in the table; rounding vanishes, and what races stays; ReflectionPad2d alone loses contributions with the flag on."""
    finding, schedule, shown, exact = ROWS[name]
    row = rows[name]
    known = row.off.simulated or Simulation()

    assert (row.finding, known.schedule.name if known.schedule else None) == (finding, schedule), row.reason
    assert known.race_free is (shown == "proved")
    assert known.witness is not None or shown in {"", "proved"}
    assert shown[-3:] != ".cu" or (known.witness and known.witness.source, known.other_kernels) == (shown, ())
    assert not exact or (known.exact, known.contradiction) == (exact, "")
    assert ("wrong_with_flag" in row.found) is ("ReflectionPad2d" in name)


def test_witnesses_replay(run: Run) -> None:
    """A process of its own shows the same bits from the recorded schedule."""
    for name in ("torch.index_add:few_indices", "torch.nn.AdaptiveMaxPool3d:smaller_output"):
        done = command_in(Path(run.path).parent)("repro", "--replay", run.path, name, "--python", PYTHON)
        assert done.returncode == 0, done.stdout + done.stderr


PROGRAM = """\
import torch
torch.manual_seed(0)
index = torch.randint(4, (1000,)).cuda()
source = torch.randn(1000, 8).cuda()
into = torch.zeros(4, 8).cuda()
into.index_add_(0, index, source)
image = torch.randn(2, 1, 8, 8)
net = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2))
on_cpu = torch.autograd.grad(net(image).square().sum(), net[0].weight)[0]
on_gpu = torch.autograd.grad(net.cuda()(image.cuda()).square().sum(), net[0].weight)[0]
torch.testing.assert_close(on_gpu.cpu(), on_cpu, rtol=1e-3, atol=1e-3)
(into @ source.T).relu().sum().item()
"""


def test_a_program_on_the_simulated_gpu(tmp_path: Path) -> None:
    """A program without a GPU: the op whose order matters is a root; the CPU computes for libraries, which are not judged."""
    (tmp_path / "train.py").write_text(PROGRAM, encoding="utf-8")
    done = command_in(tmp_path)(
        "locate", "--simulate", "sm_80", "--python", PYTHON, "--format", "json", "train.py"
    )
    assert done.returncode == 1, done.stderr
    told = json.loads(done.stdout)

    assert [(one["site"]["op"], one["site"]["line"]["line"], one["cause"]) for one in told["roots"]] == [
        ("aten::index_add_", 6, "schedule")
    ]
    assert (told["roots"][0]["origin"], told["roots"][0]["flag"]) == ("resident blocks", "cured")
    unjudged = {op for reason, ops in told["left_out_ops"].items() if "not judged" in reason for op in ops}
    assert unjudged == {
        *("aten::convolution", "aten::convolution_backward", "aten::mm"),
        *("aten::cudnn_batch_norm", "aten::cudnn_batch_norm_backward"),
    }
    assert told["ended"] is None
    assert (told["simulated"], told["device"]) == (True, "sm_80")


GRAPH = """\
import torch

def doubled():
    x, graph = torch.ones(8, device="cuda"), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x * 2
    graph.replay()
    return y
"""


def test_a_cuda_graph_is_not_run(tmp_path: Path) -> None:
    """What would be captured and replayed is not simulated, and the row says so."""
    (tmp_path / "my.py").write_text(GRAPH, encoding="utf-8")
    done = command_in(tmp_path)("check", "--simulate", "sm_80", "--python", PYTHON, "my.py:doubled")

    assert (done.returncode, "calls cudaStreamBeginCapture" in " ".join(done.stdout.split())) == (1, True)


KERNELS = """\
import numpy
import torch
import triton
import triton.language as tl

@triton.jit
def add_up(x, out, n, B: tl.constexpr):
    lane = tl.program_id(0) * B + tl.arange(0, B)
    tl.atomic_add(out, tl.sum(tl.load(x + lane, mask=lane < n, other=0.0)))

@triton.jit
def product(a, b, out, SIZE: tl.constexpr, DEEP: tl.constexpr):
    row, column, k = tl.arange(0, SIZE)[:, None], tl.arange(0, SIZE)[None, :], tl.arange(0, 32)
    sums = tl.zeros((SIZE, SIZE), tl.float32)
    for begin in range(0, DEEP, 32):
        at = begin + k
        sums += tl.dot(tl.load(a + row * DEEP + at[None, :]), tl.load(b + at[:, None] * SIZE + column))
    tl.store(out + row * SIZE + column, sums)

@triton.jit
def softmax(x, out, n, B: tl.constexpr):
    lane = tl.arange(0, B)
    row = tl.load(x + tl.program_id(0) * n + lane, mask=lane < n, other=-float("inf"))
    row = tl.exp(row - tl.max(row, 0))
    tl.store(out + tl.program_id(0) * n + lane, row / tl.sum(row, 0), mask=lane < n)

def as_numpy(found, expected, error):
    numpy.testing.assert_allclose(found.cpu().numpy(), expected, rtol=error, atol=error)
    return found

def atomic():
    torch.manual_seed(1)  # no process draws the same numbers without it, and some sums hardly ever round another way
    x, out = torch.randn(5000, device="cuda"), torch.zeros(1, device="cuda")
    add_up[(20,)](x, out, 5000, B=256)
    return as_numpy(out, x.cpu().double().sum(0, True).numpy(), 1e-3)

def products():
    a, b, out = torch.randn(32, 128).half().cuda(), torch.randn(128, 32).half().cuda(), torch.empty(32, 32, device="cuda")
    product[(1,)](a, b, out, SIZE=32, DEEP=128)
    return as_numpy(out, a.cpu().double().numpy() @ b.cpu().double().numpy(), 1e-2)

def rows():
    x, out = torch.randn(9, 300, device="cuda"), torch.empty(9, 300, device="cuda")
    softmax[(9,)](x, out, 300, B=512)
    return as_numpy(out, x.cpu().softmax(1).numpy(), 1e-5)
"""


@pytest.fixture
def kernels(tmp_path: Path) -> Path:
    """Return a file of functions that launch Triton kernels, where the scanned environment has Triton."""
    if subprocess.run([PYTHON, "-c", f"import sys; {FIND_TRITON}"], check=False).returncode:
        pytest.skip("needs Triton beside the CUDA build of torch")
    (tmp_path / "kernels.py").write_text(KERNELS, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("function", "finding", "shown"),
    [("atomic", "silent", "resident-blocks"), ("products", "deterministic", None), ("rows", "deterministic", "proved")],
)  # fmt: skip
def test_a_triton_kernel(kernels: Path, function: str, finding: str, shown: str | None) -> None:
    """What Triton's own ptxas made is executed and right; atomic additions differ, by a pair of accesses. Copies are asynchronous."""
    done = command_in(kernels)(
        *("check", f"kernels.py:{function}", "--simulate", "sm_80", "--python", PYTHON, "-o", "run.jsonl")
    )
    assert done.returncode == 0, done.stdout + done.stderr
    run = read_run(kernels / "run.jsonl")
    (row,) = matrix(run.header, run.observations, closed=True, sentinels=run.sentinels)
    known = row.off.simulated

    assert known is not None
    told = known.schedule.name if known.schedule else "proved" if known.race_free else None
    assert (row.finding, told) == (finding, shown), row.reason
    assert (known.witness.kernel if known.witness else None) == ("add_up" if finding == "silent" else None)


def test_launches_of_triton_are_located(kernels: Path) -> None:
    """That of the atomic additions alone, with the weakest class; what it gave is as the program goes on with it."""
    text = "import kernels\nkernels.atomic()\nkernels.products()\nkernels.rows()\n"
    (kernels / "train.py").write_text(text, encoding="utf-8")

    done = command_in(kernels)(
        *("locate", "--simulate", "sm_80", "--python", PYTHON, "--format", "json", "train.py")
    )
    assert done.returncode == 1, done.stderr
    told = json.loads(done.stdout)

    assert [(root["site"]["op"], root["cause"], root["origin"]) for root in told["roots"]] == [
        ("triton::add_up", "schedule", "resident blocks")
    ]
    assert told["launches"] == 3
    assert told["ended"] is None


COMPILED = (
    "torch.index_add:few_indices:forward:float32",
    "torch.sum:everything:forward:float32",
    "torch.mm:long_sums:forward:float32",
)


@pytest.mark.usefixtures("kernels")
def test_compiled_code(tmp_path: Path) -> None:
    """Kernels that torch.compile writes are executed and right: atomic additions differ where the flag is off, and the library's product is not judged."""
    modes = ("--modes", "off,on,compile_off,compile_on", "-o", "run.jsonl", "--workers", 1, "--no-cost")
    done = command_in(tmp_path)("scan", "--simulate", "sm_80", "--python", PYTHON, *modes, *COMPILED)
    assert done.returncode == 0, done.stderr
    seen = {
        (one.spec, one.mode): (
            one.outcome,
            one.simulated.schedule.name if one.simulated and one.simulated.schedule else None,
            one.simulated.cpu.agrees if one.simulated and one.simulated.cpu else None,
            bool(one.compiled and one.compiled.kernels),
        )
        for one in read_run(tmp_path / "run.jsonl").observations
        if one.mode.startswith("compile") and not one.spec.startswith("control")
    }

    assert seen == {
        ("torch.index_add", "compile_off"): ("ran", "resident-blocks", True, True),
        ("torch.index_add", "compile_on"): ("ran", None, True, True),
        ("torch.sum", "compile_off"): ("ran", None, True, True),
        ("torch.sum", "compile_on"): ("ran", None, True, True),
        ("torch.mm", "compile_off"): ("not_run", None, True, False),
        ("torch.mm", "compile_on"): ("not_run", None, True, False),
    }


CUDA = """\
#include <cuda_runtime.h>
__global__ void add_up(const float *x, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(out, x[i]);
}
__global__ void twice(const float *x, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = 2 * x[i];
}
extern "C" int launch_add_up(const float *x, float *out, int n) { add_up<<<8, 128>>>(x, out, n); return cudaGetLastError(); }
extern "C" int launch_twice(const float *x, float *out, int n) { twice<<<8, 128>>>(x, out, n); return cudaGetLastError(); }
"""
CALLERS = """\
import ctypes
import torch

def called(library, name, x, out):
    function = getattr(ctypes.CDLL(f"{__file__.rpartition('/')[0]}/{library}.so"), name)
    function(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(out.data_ptr()), x.numel())
    return out

def inputs(): return torch.randn(1000)
def add_up(x): return called("shared", "launch_add_up", x, torch.zeros(1, device=x.device))
def twice(x): return called("shared", "launch_twice", x, torch.zeros_like(x))
def of_another(x): return called("another", "launch_twice", x, torch.zeros_like(x))
def inside(x): return called("static", "launch_twice", x, torch.zeros_like(x))
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of libraries that nvcc made: for sm_80, for another GPU, and one with CUDA's runtime in it."""
    if not shutil.which("nvcc"):
        pytest.skip("needs nvcc")
    folder = tmp_path_factory.mktemp("library")
    (folder / "add.cu").write_text(CUDA, encoding="utf-8")
    (folder / "callers.py").write_text(CALLERS, encoding="utf-8")
    for name, architecture, runtime in (
        ("shared", 80, "shared"),
        ("another", 90, "shared"),
        ("static", 80, "static"),
    ):
        command = ["nvcc", f"-arch=sm_{architecture}", "-shared", "-Xcompiler", "-fPIC", "-cudart", runtime]
        subprocess.run([*command, "-o", f"{name}.so", "add.cu"], cwd=folder, check=True)
    return folder


@pytest.mark.parametrize(
    ("function", "code", "said"),
    [
        ("add_up", 0, "one pair that shows it, off: add_up at"),
        ("twice", 0, "proved for these inputs: 1 of 1 row"),
        ("of_another", 1, "no code of _Z5twicePKfPfi for sm_80, for which its library is to be compiled"),
        ("inside", 1, "a library has a CUDA runtime of its own in it; link it with the shared one (nvcc -cudart shared)"),
    ],
)  # fmt: skip
def test_a_library_of_cuda(library: Path, function: str, code: int, said: str) -> None:
    """Kernels of a library that is loaded by ctypes are executed, or one line says why not."""
    done = command_in(library)(
        *("check", f"callers.py:{function}", "--inputs", "callers.py:inputs"),
        *("--simulate", "sm_80", "--python", PYTHON),
    )

    assert done.returncode == code, done.stdout + done.stderr
    assert said in " ".join(done.stdout.split())
