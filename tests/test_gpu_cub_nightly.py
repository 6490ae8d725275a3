"""CUB's algorithms, compiled by nvcc and executed by the simulated GPU, against numpy: code of others with known answers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from detmatrix.scanner.gpu.build import built
from detmatrix.scanner.gpu.device import device
from detmatrix.scanner.gpu.process import GpuProcess, StandIns
from detmatrix.scanner.gpu.standins import sources
from tests.gpu_machine import assembler

pytestmark = pytest.mark.nightly

ROOT, SOURCE = Path(__file__).parents[1], Path(__file__).with_name("gpu_cub.cu")
SIZES = (1, 33, 1000, 20011)
SEGMENTS, BINS = 8, 64
# Executions of each algorithm: class and number within it.
SCHEDULES = [
    *(("canonical", 0), ("memory", 0), ("both", 0)),
    *(("resident-blocks", 1), ("both", 2), ("divergence", 1)),
]
# The process of a worker: it calls each algorithm under each schedule, and keeps what came back.
WORKER = """
import ctypes, sys, time
import numpy as np
sys.path.insert(0, sys.argv[1])
from detmatrix.scanner.worker import simulated
folder, library, socket, memory, given, kept = sys.argv[2:]
simulated.load(folder, int(socket), int(memory))
code, data, found = ctypes.CDLL(library), np.load(given), {}
calls = dict(line.split(":") for line in str(data["calls"]).splitlines())
for name, text in calls.items():
    function, taken, returned, numbers = (part.split() for part in text.split("|"))
    for schedule, number in [one.split() for one in str(data["schedules"]).splitlines()]:
        simulated.begin(schedule, int(number), 11, time.perf_counter() + 120)
        outs = [data[one].copy() for one in returned]
        inputs = [data[one] for one in taken]
        pointers = [ctypes.c_void_p(one.ctypes.data) for one in [*inputs, *outs]]
        error = getattr(code, function[0])(*pointers, *map(int, numbers))
        told = simulated.report()
        assert not error and not told.faults, (name, schedule, number, error, told.faults)
        assert told.launches
        for place, one in enumerate(outs):
            found[f"{name} {schedule} {number} {place}"] = one
np.savez(kept, **found)
"""


def data(size: int) -> dict[str, Any]:
    """Return the arrays of one size: what is taken, and room for results."""
    random = np.random.default_rng(size)
    offsets = np.sort(random.integers(0, size + 1, SEGMENTS + 1)).astype(np.int32)
    offsets[0], offsets[-1] = 0, size
    return {
        "floats": random.standard_normal(size).astype(np.float32),
        "doubles": random.standard_normal(size),
        "tied": np.round(random.standard_normal(size), 1).astype(np.float32),
        "words": random.integers(0, 1 << 32, size, np.int64).astype(np.uint32),
        "integers": random.integers(-9, 9, size).astype(np.int32),
        "keys": np.sort(random.integers(0, max(2, size // 7), size)).astype(np.int32),
        "flags": (random.random(size) < 0.4).astype(np.int8),
        "offsets": offsets,
        "places": np.arange(size, dtype=np.int32),
        "some_floats": np.zeros(size, np.float32),
        "some_doubles": np.zeros(size),
        "some_words": np.zeros(size, np.uint32),
        "some_integers": np.zeros(size, np.int32),
        "more_integers": np.zeros(size, np.int32),
        "sums": np.zeros(SEGMENTS, np.float32),
        "bins": np.zeros(BINS, np.int32),
        "float": np.zeros(1, np.float32),
        "double": np.zeros(1),
        "count": np.zeros(1, np.int32),
    }


# By function: its arrays that are taken and returned, and its numbers before the size.
CALLS = {
    "scan_floats": "floats|some_floats|",
    "scan_integers": "integers|some_integers|",
    "scan_by_key": "keys floats|some_floats|",
    "sum": "floats|float|",
    "least": "doubles|double|",
    "sum_by_key": "keys floats|some_integers some_floats count|",
    "sum_of_segments": f"floats offsets|sums|{SEGMENTS}",
    "radix_sort": "words|some_words|",
    "sort_of_pairs": "tied places|some_floats some_integers|",
    "merge_sort": "doubles|some_doubles|",
    "selection": "integers flags|some_integers count|",
    "unique": "keys|some_integers count|",
    "run_lengths": "keys|some_integers more_integers count|",
    "histogram": f"floats|bins|{BINS}",
}


def _near(a: Any, b: Any, of: dict[str, Any]) -> bool:
    """Tell whether sums are what rounding lets them be."""
    return bool(np.allclose(a, b, rtol=1e-5, atol=1e-6 * float(np.abs(of["floats"]).sum())))


def _by_key(of: dict[str, Any]) -> np.ndarray[Any, Any]:
    return np.array([of["floats"][of["keys"] == key].sum(dtype=float) for key in np.unique(of["keys"])])


def _scanned_by_key(of: dict[str, Any]) -> np.ndarray[Any, Any]:
    return np.concatenate(
        [of["floats"][of["keys"] == key].cumsum(dtype=float) for key in np.unique(of["keys"])]
    )


def _segments(of: dict[str, Any]) -> list[float]:
    edges = of["offsets"].tolist()
    return [of["floats"][a:b].sum(dtype=float) for a, b in pairwise(edges)]


# What numpy says of each.
RIGHT: dict[str, Callable[..., Any]] = {
    "scan_floats": lambda of, y: _near(y, of["floats"].cumsum(dtype=float), of),
    "scan_integers": lambda of, y: (y == of["integers"].cumsum() - of["integers"]).all(),
    "scan_by_key": lambda of, y: _near(y, _scanned_by_key(of), of),
    "sum": lambda of, y: _near(y[0], of["floats"].sum(dtype=float), of),
    "least": lambda of, y: y[0] == of["doubles"].min(),
    "sum_by_key": lambda of, u, y, c: (
        (u[: c[0]] == np.unique(of["keys"])).all() and _near(y[: c[0]], _by_key(of), of)
    ),
    "sum_of_segments": lambda of, y: _near(y, _segments(of), of),
    "radix_sort": lambda of, y: (y == np.sort(of["words"])).all(),
    "sort_of_pairs": lambda of, y, w: (
        (y == np.sort(of["tied"])[::-1]).all() and (w == np.argsort(-of["tied"], kind="stable")).all()
    ),
    "merge_sort": lambda of, y: (y == np.sort(of["doubles"])).all(),
    "selection": lambda of, y, c: (
        c[0] == of["flags"].sum() and (y[: c[0]] == of["integers"][of["flags"] > 0]).all()
    ),
    "unique": lambda of, y, c: (y[: c[0]] == np.unique(of["keys"])).all(),
    "run_lengths": lambda of, u, n, c: (
        (u[: c[0]] == np.unique(of["keys"])).all()
        and (n[: c[0]] == np.unique(of["keys"], return_counts=True)[1]).all()
    ),
    # A value that rounding puts on the other side of an edge is in the bin beside its own.
    "histogram": lambda of, y: (
        np.abs(y - np.histogram(of["floats"], BINS, (-4, 4))[0]).sum() <= 2
        and y.sum() == (np.abs(of["floats"]) < 4).sum()
    ),
}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the algorithms into a library that links a shared runtime, as a build of PyTorch does."""
    found = assembler()
    root = Path(found or "/nowhere").parents[1]
    runtime = root / "lib" / "libcudart.so.13"
    if not (
        runtime.exists() and (root / "include" / "cccl" / "cub").is_dir() and (root / "bin" / "nvcc").exists()
    ):
        pytest.skip("needs nvcc, CUB and the runtime of the dependency group gpu (pip install --group gpu)")
    folder = tmp_path_factory.mktemp("cub")
    made = folder / "libcub.so"
    command = [
        root / "bin" / "nvcc",
        *["-arch=sm_80", "-std=c++17", "-O2", "-shared", "-Xcompiler", "-fPIC", "-cudart", "none", "-I"],
    ]
    command += [root / "include", "-I", root / "include" / "cccl", "-o", made, SOURCE, "-Xlinker", runtime]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    return made


@pytest.fixture(scope="module", params=SIZES)
def results(
    library: Path, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Return the arrays of one size, and what each algorithm made of them under each schedule."""
    files, libraries = sources(library.parent, device(80), {"RUNTIME": 13000, "CUDNN": 90000, "NCCL": 20000})
    stand_ins = StandIns(device(80), built("cub", files, libraries))
    of, folder = data(request.param), tmp_path_factory.mktemp("results")
    calls = "\n".join(f"{name}:{name}|{text} {request.param}" for name, text in CALLS.items())
    schedules = "\n".join(f"{name} {number}" for name, number in SCHEDULES)
    np.savez(folder / "given.npz", calls=calls, schedules=schedules, **of)
    gpu = GpuProcess(stand_ins)
    command = [sys.executable, "-c", WORKER, ROOT, stand_ins.folder, library, *map(str, gpu.descriptors)]
    command += [folder / "given.npz", folder / "kept.npz"]
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, check=False, pass_fds=gpu.descriptors
    )
    for descriptor in gpu.descriptors:
        os.close(descriptor)
    gpu.stop()
    assert not done.returncode, done.stderr
    with np.load(folder / "kept.npz") as kept:
        yield of, dict(kept)


@pytest.mark.parametrize("name", CALLS)
def test_an_algorithm_is_right_under_every_schedule(
    name: str, results: tuple[dict[str, Any], dict[str, Any]]
) -> None:
    """As numpy computes it, whatever the order of blocks, warps and paths."""
    of, found = results
    returned = len(CALLS[name].split("|")[1].split())
    for schedule, number in SCHEDULES:
        outs = [found[f"{name} {schedule} {number} {place}"] for place in range(returned)]
        assert RIGHT[name](of, *outs), (schedule, number)


def test_a_scan_of_floats_depends_on_the_order_of_blocks(
    results: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    """NVIDIA documents it of the look-back; that of integers is exact."""
    of, found = results
    patterns = {
        name: {found[f"{name} {schedule} {number} 0"].tobytes() for schedule, number in SCHEDULES}
        for name in ("scan_floats", "scan_integers", "radix_sort", "sum_of_segments")
    }
    assert (len(patterns["scan_floats"]) > 1) == (len(of["floats"]) == max(SIZES))
    assert [len(patterns[name]) for name in ("scan_integers", "radix_sort", "sum_of_segments")] == [1, 1, 1]
