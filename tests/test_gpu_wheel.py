"""A release's own kernels on the simulated GPU: what is known of some ops is found, proved or refused, and can be replayed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from detmatrix.scanner.observations.records import Simulation
from detmatrix.scanner.observations.runfile import read_run
from detmatrix.scanner.verdicts.findings import MatrixRow, matrix
from tests import tied
from tests.commands import command_in
from tests.conftest import table
from tests.gpu_machine import DATA

PYTHON = os.environ.get("DETMATRIX_CUDA_PYTHON", "")
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(not PYTHON, reason="needs a CUDA build of torch, which nox -s nightly installs"),
]
ROWS = [
    (row, *(None if it == "none" else it for it in told)) for row, *told in table("gpu/tables.txt", "wheel")
]
HERE = Path(__file__).parent
GUIDE = (HERE.parent / "opspecs" / "README.md").read_text(encoding="utf-8")


def simulated(folder: Path, command: str, *words: object, code: int = 0) -> str:
    """Run a command on a simulated A100, which ends with a code, and return what it prints."""
    done = command_in(folder)(command, "--simulate", "sm_80", "--python", PYTHON, *words)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def rows_of(folder: Path) -> dict[str, MatrixRow]:
    """Return what came out of a scan, by row."""
    run = read_run(folder / "run.jsonl")
    return {
        one.row.id: one for one in matrix(run.header, run.observations, closed=True, sentinels=run.sentinels)
    }


@pytest.fixture(scope="module")
def scanned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Scan these rows, and return the folder of the run."""
    folder = tmp_path_factory.mktemp("wheel")
    simulated(folder, "scan", *(row for row, *_ in ROWS), "-o", "run.jsonl", "--workers", 1)
    return folder


def test_the_build_is_one_for_cuda_without_nvidias_libraries() -> None:
    """None is downloaded to simulate a GPU, and none could compute in place of the stand-ins."""
    # Without the stand-ins that build cannot be imported.
    text = (
        "import importlib.util, os; found = importlib.util.find_spec; "
        "torch = os.path.dirname(found('torch').origin); "
        "print(os.path.exists(os.path.join(torch, 'lib', 'libtorch_cuda.so')), found('nvidia'))"
    )

    assert tied.run([PYTHON, "-c", text]).stdout.split() == ["True", "None"]


@pytest.mark.parametrize(("name", "finding", "schedule", "shown", "exact"), ROWS)
def test_findings(scanned: Path, name: str, finding: str, schedule: Any, shown: Any, exact: Any) -> None:
    """As in the table; rounding vanishes, and what races stays; ReflectionPad2d alone loses contributions with the flag on."""
    row = rows_of(scanned)[name]
    known = row.off.simulated or Simulation()

    assert (row.finding, known.schedule.name if known.schedule else None) == (finding, schedule), row.reason
    assert known.race_free is (shown == "proved")
    assert known.witness is not None or shown in {None, "proved"}
    if str(shown).endswith(".cu"):
        assert (known.witness and known.witness.source, known.other_kernels) == (shown, ())
    assert not exact or (known.exact, known.contradiction) == (exact, "")
    assert ("wrong_with_flag" in row.found) is ("ReflectionPad2d" in name)


def test_witnesses_replay(scanned: Path) -> None:
    """A process of its own shows the same bits from the recorded schedule."""
    for name in ("torch.index_add:few_indices", "torch.nn.AdaptiveMaxPool3d:smaller_output"):
        done = command_in(scanned)("repro", "--replay", "run.jsonl", name, "--python", PYTHON)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def kernels() -> Path:
    """Return a file of functions that launch Triton kernels, where the scanned environment has Triton."""
    find = "import importlib.util, sys; sys.exit(importlib.util.find_spec('triton') is None)"
    if subprocess.run([PYTHON, "-c", find], check=False).returncode:
        pytest.skip("needs Triton beside the CUDA build of torch")
    return HERE / "triton_kernels.py"


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
LAUNCHES = """\
import sys
sys.path += FOLDERS
import triton_kernels as kernels
kernels.atomic(), kernels.products(), kernels.rows()
"""


def located(folder: Path, program: str) -> dict[str, Any]:
    """Return what is said of a program that has one root, and ends as it does on a GPU."""
    (folder / "train.py").write_text(program, encoding="utf-8")
    told: dict[str, Any] = json.loads(simulated(folder, "locate", "--format", "json", "train.py", code=1))
    (root,) = told["roots"]
    assert (root["cause"], root["origin"], told["ended"]) == ("schedule", "resident blocks", None)
    assert (told["simulated"], told["device"]) == (True, "sm_80")
    return told


def test_a_program_on_the_simulated_gpu(tmp_path: Path) -> None:
    """A program without a GPU: the op whose order matters is a root; the CPU computes for libraries, which are not judged."""
    told = located(tmp_path, PROGRAM)

    (root,) = told["roots"]
    assert (root["site"]["op"], root["site"]["line"]["line"], root["flag"]) == (
        "aten::index_add_",
        6,
        "cured",
    )
    unjudged = {op for reason, ops in told["left_out_ops"].items() if "not judged" in reason for op in ops}
    assert unjudged == {
        *("aten::convolution", "aten::convolution_backward", "aten::mm"),
        *("aten::cudnn_batch_norm", "aten::cudnn_batch_norm_backward"),
    }


def test_launches_of_triton_are_located(tmp_path: Path, kernels: Path) -> None:
    """That of the atomic additions alone, with the weakest class; what it gave is as the program goes on with it."""
    told = located(tmp_path, LAUNCHES.replace("FOLDERS", repr([str(kernels.parent), str(HERE.parent)])))

    assert (told["roots"][0]["site"]["op"], told["launches"]) == ("triton::add_up", 3)


@pytest.mark.parametrize(
    ("function", "finding", "shown"),
    [("atomic", "silent", "resident-blocks"), ("products", "deterministic", None), ("rows", "deterministic", "proved")],
)  # fmt: skip
def test_a_triton_kernel(
    tmp_path: Path, kernels: Path, function: str, finding: str, shown: str | None
) -> None:
    """What Triton's own ptxas made is executed and right; atomic additions differ, by a pair of accesses. Copies are asynchronous."""
    simulated(tmp_path, "check", f"{kernels}:{function}", "-o", "run.jsonl")
    (row,) = rows_of(tmp_path).values()
    known = row.off.simulated

    assert known is not None
    told = known.schedule.name if known.schedule else "proved" if known.race_free else None
    assert (row.finding, told) == (finding, shown), row.reason
    assert (known.witness.kernel if known.witness else None) == ("add_up" if finding == "silent" else None)


@pytest.mark.usefixtures("kernels")
def test_the_kernel_of_the_guide(tmp_path: Path) -> None:
    """It scans by the command below it, with a witness, where Triton is here, too."""
    pytest.importorskip("triton")
    _, _, section = GUIDE.partition("### A Triton kernel, without a GPU")
    (tmp_path / "my_kernels.py").write_text(
        section.split("```")[1].removeprefix("python\n"), encoding="utf-8"
    )
    assert "scan --specs my_kernels.py 'mine.*' --simulate sm_80 --python PATH" in section
    simulated(tmp_path, "scan", "--specs", "my_kernels.py", "mine.*", "-o", "run.jsonl", "--workers", 1)
    (row,) = rows_of(tmp_path).values()

    assert row.finding == "silent"
    assert row.off.simulated is not None
    assert row.off.simulated.witness is not None


@pytest.mark.usefixtures("kernels")
def test_compiled_code(tmp_path: Path) -> None:
    """Kernels that torch.compile writes are executed and right: atomic additions differ where the flag is off, and the library's product is not judged."""
    rows = table("gpu/tables.txt", "compiled")
    modes = ("--modes", "off,on,compile_off,compile_on", "-o", "run.jsonl", "--workers", 1, "--no-cost")
    simulated(tmp_path, "scan", *modes, *dict.fromkeys(row for row, *_ in rows))
    seen = []
    for one in read_run(tmp_path / "run.jsonl").observations:
        if one.mode.startswith("compile") and not one.spec.startswith("control"):
            known = one.simulated or Simulation()
            assert known.cpu
            assert known.cpu.agrees
            schedule = known.schedule.name if known.schedule else "none"
            written = "yes" if one.compiled and one.compiled.kernels else "no"
            seen.append([":".join(one.key), one.mode, one.outcome, schedule, written])

    assert sorted(seen) == sorted(rows)


CALLERS = """\
import ctypes
import torch

def called(library, name, x, out):
    function = getattr(ctypes.CDLL(f"{__file__.rpartition('/')[0]}/{library}.so"), name)
    function(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(out.data_ptr()), x.numel())
    return out

def doubled(x):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x * 2
    graph.replay()
    return y

def inputs(): return torch.randn(1000)
def add_up(x): return called("shared", "launch_add_up", x, torch.zeros(1, device=x.device))
def twice(x): return called("shared", "launch_twice", x, torch.zeros_like(x))
def of_another(x): return called("another", "launch_twice", x, torch.zeros_like(x))
def inside(x): return called("static", "launch_twice", x, torch.zeros_like(x))
"""


@pytest.fixture(scope="module")
def callers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with functions, and libraries that nvcc made: for sm_80, for another GPU, and one with CUDA's runtime in it."""
    folder = tmp_path_factory.mktemp("library")
    (folder / "callers.py").write_text(CALLERS, encoding="utf-8")
    for name, architecture, runtime in (
        ("shared", 80, "shared"),
        ("another", 90, "shared"),
        ("static", 80, "static"),
    ):
        command = ["nvcc", f"-arch=sm_{architecture}", "-shared", "-Xcompiler", "-fPIC", "-cudart", runtime]
        if shutil.which("nvcc"):
            subprocess.run([*command, "-o", folder / f"{name}.so", DATA / "library.cu"], check=True)
    return folder


@pytest.mark.parametrize(
    ("function", "code", "said"),
    [
        ("add_up", 0, "one pair that shows it, off: add_up at"),
        ("twice", 0, "proved for these inputs: 1 of 1 row"),
        ("of_another", 1, "no code of _Z5twicePKfPfi for sm_80, for which its library is to be compiled"),
        ("inside", 1, "a library has a CUDA runtime of its own in it; link it with the shared one (nvcc -cudart shared)"),
        ("doubled", 1, "calls cudaStreamBeginCapture"),
    ],
)  # fmt: skip
def test_what_python_hands_to_cuda_by_itself(callers: Path, function: str, code: int, said: str) -> None:
    """Kernels of a library that is loaded by ctypes are executed, or one line says why not; a CUDA graph is not run."""
    if function != "doubled" and not shutil.which("nvcc"):
        pytest.skip("needs nvcc")
    printed = simulated(
        callers, "check", f"callers.py:{function}", "--inputs", "callers.py:inputs", code=code
    )

    assert said in " ".join(printed.split())
