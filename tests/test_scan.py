"""Real scans: what they find on this CPU, and that nothing which is killed is lost."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from scanner.records import Observation
from scanner.runfile import read_run
from tests.commands import Command, command_in
from tests.conftest import cells, lines

# Cases of every verdict that finish in a moment each.
SPECS = Path(__file__).with_name("quick.py")
OPTIONS = ("quick", "--specs", SPECS, "--device", "cpu", "--runs", 8, "--processes", 2)


def _report(run: Command, path: Path) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(run("report", path, "--format", "json").stdout)
    return report


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Scan the quick cases without interruption."""
    folder = tmp_path_factory.mktemp("unbroken")
    done = command_in(folder)("scan", *OPTIONS, "-o", "run.jsonl")
    assert done.returncode == 0, done.stderr
    return folder / "run.jsonl"


def _outcomes(path: Path) -> dict[tuple[object, ...], tuple[object, ...]]:
    """Return what was observed, cell by cell, without what a clock measured."""
    return {
        (o.key, o.mode, o.process): (o.outcome, o.executions, o.inputs_digest, tuple(o.digests), o.message)
        for o in read_run(path).observations
    }


def test_cpu_shows_every_verdict(detmatrix: Command, tmp_path: Path) -> None:
    """A machine without a GPU shows deterministic, nondeterministic and raises from real runs of real ops."""
    torch = pytest.importorskip("torch")
    if torch.get_num_threads() < 2:
        pytest.skip("one thread: nothing differs on a CPU without a second one")
    patterns = ["torch.Tensor.put_", "torch.Tensor.index_put_:accumulate*", "torch.cumsum:*:forward:float32"]

    done = detmatrix("scan", *patterns, "--device", "cpu", "-o", "run.jsonl")

    assert done.returncode == 0, done.stderr
    report = _report(detmatrix, tmp_path / "run.jsonl")
    seen = cells(report["rows"])
    assert seen["torch.Tensor.put_:accumulate:forward:float32"] == ("nondeterministic", "deterministic")
    assert seen["torch.Tensor.put_:overwrite:forward:float32"][1] == "raises"
    assert seen["torch.Tensor.put_:accumulate:forward:int64"] == ("deterministic", "deterministic")
    alerts = {row["on"]["alert"] for row in report["rows"]}
    assert alerts == {None, "put_"}


def test_header_describes_machine_and_build(unbroken: Path) -> None:
    """The run file says what was scanned, where, and under which variables."""
    header = lines(unbroken)[0]
    environment = header["environment"]

    assert header["settings"]["device"] == "cpu"
    assert environment["torch"].startswith("2.")
    assert environment["cores"] == os.cpu_count()
    if hasattr(os, "sched_getaffinity"):
        assert environment["affinity"] == sorted(os.sched_getaffinity(0))
    assert len(environment["load"]) == 3
    assert environment["variables"]["on"]["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    assert "CUBLAS_WORKSPACE_CONFIG" not in environment["variables"]["off"]
    assert lines(unbroken)[-1]["kind"] == "closing"


def test_worker_environment_is_an_allow_list(detmatrix: Command, tmp_path: Path) -> None:
    """A variable of the user's shell does not reach a worker; those that steer threads do, and are recorded."""
    environment = os.environ | {"DETMATRIX_STRANGER": "1", "OMP_NUM_THREADS": "1"}

    done = detmatrix("scan", *OPTIONS, "--processes", 1, "-o", "run.jsonl", env=environment)

    assert done.returncode == 0, done.stderr
    recorded = lines(tmp_path / "run.jsonl")[0]["environment"]
    assert recorded["threads"] == 1
    assert recorded["variables"]["off"]["OMP_NUM_THREADS"] == "1"
    assert "DETMATRIX_STRANGER" not in recorded["variables"]["off"]


def test_equal_seeds_give_equal_inputs_and_other_seeds_others(
    detmatrix: Command, tmp_path: Path, unbroken: Path
) -> None:
    """Inputs depend on the seed and on nothing else, in every process and mode."""
    for seed in (0, 1):
        done = detmatrix("scan", *OPTIONS, "--processes", 1, "--seed", seed, "-o", f"{seed}.jsonl")
        assert done.returncode == 0, done.stderr

    def inputs(path: Path) -> set[tuple[object, ...]]:
        return {(o.key, o.inputs_digest) for o in read_run(path).observations if o.inputs_digest}

    assert inputs(tmp_path / "0.jsonl") == inputs(unbroken)
    assert not inputs(tmp_path / "1.jsonl") & inputs(unbroken)


def test_differing_inputs_make_a_scan_untrusted(detmatrix: Command, tmp_path: Path) -> None:
    """Inputs that are not the same in every process void the scan: exit 4, and the file says why."""
    specs = tmp_path / "unequal.py"
    specs.write_text(
        "import os\n"
        "from opspecs.model import Case, OpSpec, call\n"
        "SPECS = [OpSpec(name='unequal', op='torch.neg', why='Test.', cases={'pid': Case(\n"
        "    inputs=lambda t: call(t.normal(8) + os.getpid()))})]\n"
    )

    done = detmatrix("scan", "unequal", "--specs", specs, "--device", "cpu", "--runs", 2, "-o", "run.jsonl")

    assert done.returncode == 4
    assert "cannot be trusted: the inputs of unequal:pid:forward:float32" in done.stderr
    assert len(lines(tmp_path / "run.jsonl")[-1]["distrust"]) == 3


def _kill_when_grown(arguments: list[str], path: Path, moment: random.Random) -> bool:
    """Start a scan and kill it some time after it wrote; tell whether it was still going."""
    before = path.stat().st_size if path.exists() else 0
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and not (path.exists() and path.stat().st_size > before):
        time.sleep(0.001)
    time.sleep(moment.uniform(0, 0.4))
    process.send_signal(signal.SIGKILL)
    return process.wait() == -signal.SIGKILL


def test_killed_and_resumed_scan_equals_an_unbroken_one(
    detmatrix: Command, tmp_path: Path, unbroken: Path
) -> None:
    """Killed with SIGKILL again and again and resumed each time, a scan ends with the same cells."""
    path = tmp_path / "run.jsonl"
    arguments = [sys.executable, "-m", "scanner", "scan", *map(str, OPTIONS), "--resume", "-o", str(path)]
    moment = random.Random(7)

    kills = sum(_kill_when_grown(arguments, path, moment) for _ in range(6))
    done = detmatrix(*arguments[3:])

    assert kills >= 2
    assert done.returncode == 0, done.stderr
    assert _outcomes(path) == _outcomes(unbroken)
    assert lines(path)[-1]["observations"] == lines(unbroken)[-1]["observations"]


def test_resuming_at_any_byte_keeps_every_whole_line(
    detmatrix: Command, tmp_path: Path, unbroken: Path
) -> None:
    """A file cut at an arbitrary byte is completed; what stood in whole lines is not measured again."""
    whole = unbroken.read_bytes()
    cuts = [0, 20, len(whole) // 3, whole.rfind(b"\n", 0, -1) + 1, len(whole) - 1]
    for cut in cuts:
        path = tmp_path / f"{cut}.jsonl"
        path.write_bytes(whole[:cut])

        done = detmatrix("scan", *OPTIONS, "--resume", "-o", path)

        assert done.returncode == 0, done.stderr
        assert _outcomes(path) == _outcomes(unbroken)
        if cut > whole.find(b"\n"):
            kept = whole[: whole[:cut].rfind(b"\n") + 1]
            assert path.read_bytes().startswith(kept)


def test_resuming_a_complete_run_changes_nothing(detmatrix: Command, unbroken: Path) -> None:
    """There is nothing to do, and nothing is written."""
    before = unbroken.read_bytes()

    done = detmatrix("scan", *OPTIONS, "--resume", "-o", unbroken)

    assert (done.returncode, unbroken.read_bytes()) == (0, before)


def test_resume_needs_no_settings_again(detmatrix: Command, tmp_path: Path, unbroken: Path) -> None:
    """Without options a resumed scan goes on with those it began with."""
    path = tmp_path / "run.jsonl"
    path.write_bytes(unbroken.read_bytes()[:-200].rpartition(b"\n")[0] + b"\n")

    done = detmatrix("scan", "--resume", "-o", path)

    assert done.returncode == 0, done.stderr
    assert _outcomes(path) == _outcomes(unbroken)


def test_workers_do_not_outlive_a_killed_scan(tmp_path: Path) -> None:
    """When the main process is killed its worker ends too, and does not become load for the next scan."""
    if sys.platform != "linux":
        pytest.skip("only Linux can tie a process to its parent")
    path = tmp_path / "run.jsonl"
    specs = Path(__file__).with_name("planted.py")
    command = [sys.executable, "-m", "scanner", "scan", "planted.doubles", "planted.hang"]
    command += ["--specs", str(specs), "--device", "cpu", "-o", str(path)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not (path.exists() and b"doubles" in path.read_bytes()):
        time.sleep(0.05)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text(encoding="ascii").split()
    assert children

    process.kill()
    process.wait()

    deadline = time.monotonic() + 10
    while any(_alive(int(child)) for child in children) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert [child for child in children if _alive(int(child))] == []


def _alive(pid: int) -> bool:
    """Tell whether a process exists and is more than a zombie nobody has waited for."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    except OSError:
        return False
    return state.rpartition(")")[2].split()[0] not in "ZX"


def test_full_disk_keeps_what_was_observed(detmatrix: Command, tmp_path: Path, unbroken: Path) -> None:
    """When the file cannot grow the scan stops with one line, and the file can be resumed."""
    script = (
        "import resource, runpy, signal, sys\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({unbroken.stat().st_size * 2 // 3}, resource.RLIM_INFINITY))\n"
        "sys.argv[0] = 'detmatrix'\n"
        "runpy.run_module('scanner', run_name='__main__')\n"
    )
    path = tmp_path / "run.jsonl"

    done = subprocess.run(
        [sys.executable, "-c", script, "scan", *map(str, OPTIONS), "-o", str(path)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 2
    assert "cannot be written any further (File too large)" in done.stderr.splitlines()[-1]
    assert path.read_bytes().endswith(b"\n")
    observed = read_run(path).observations
    assert all(isinstance(observation, Observation) for observation in observed)
    assert observed
    assert detmatrix("scan", *OPTIONS, "--resume", "-o", path).returncode == 0
    assert _outcomes(path) == _outcomes(unbroken)


@pytest.mark.cuda
def test_scan_on_cuda(detmatrix: Command, tmp_path: Path) -> None:
    """On a GPU an atomic accumulation differs with the flag off, and the comparison there sees it."""
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device here")

    done = detmatrix("scan", "torch.index_add", "--device", "cuda", "-o", "run.jsonl")

    assert done.returncode == 0, done.stderr
    seen = cells(_report(detmatrix, tmp_path / "run.jsonl")["rows"])
    assert seen["torch.index_add:collisions:forward:float32"][0] == "nondeterministic"
