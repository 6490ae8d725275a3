"""Real scans that are killed, interrupted, out of disk or broken: the witnesses of what stand-ins are used for."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from scanner.observations.runfile import read_run
from tests import tied
from tests.commands import Command
from tests.conftest import lines
from tests.evidence_scans import scan

pytestmark = pytest.mark.nightly

SPECS = Path(__file__).with_name("quick.py")
OPTIONS = ("quick.cumsum", "quick.put_", "--specs", SPECS, "--device", "cpu", "--runs", 4, "--processes", 1)
_LIMITED = (
    "import resource, runpy, signal, sys\n"
    "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
    "resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv.pop(1)), resource.RLIM_INFINITY))\n"
    "runpy.run_module('scanner', run_name='__main__', alter_sys=True)"
)


def _outcomes(path: Path) -> dict[tuple[object, ...], tuple[object, ...]]:
    """Return what was observed, cell by cell, without what a clock measured."""
    return {
        (o.key, o.mode, o.process): (o.outcome, o.executions, o.inputs_digest, tuple(o.digests), o.message)
        for o in read_run(path).observations
    }


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a scan that nothing disturbed."""
    path = tmp_path_factory.mktemp("whole") / "run.jsonl"
    done = tied.run([sys.executable, "-m", "scanner", "scan", *OPTIONS, "-o", path])
    assert done.returncode == 0, done.stderr
    return path


def _grown(path: Path, process: subprocess.Popen[str], size: int) -> None:
    """Wait until rows of a scan that is going on are in its file."""
    while process.poll() is None and not (path.exists() and path.stat().st_size > size):
        time.sleep(0.002)


def test_killed_again_and_again(detmatrix_process: Command, tmp_path: Path, whole: Path) -> None:
    """Killed at a third and at two thirds of its file, and gone on with, a scan ends with the same cells."""
    path, size = tmp_path / "run.jsonl", whole.stat().st_size
    command = [sys.executable, "-m", "scanner", "scan", *OPTIONS, "--resume", "-o", path]
    for part in (size // 3, size * 2 // 3):
        with tied.start(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            _grown(path, process, part)
            process.kill()
        assert process.returncode == -signal.SIGKILL

    done = detmatrix_process(*command[3:])

    assert done.returncode == 0, done.stderr
    assert _outcomes(path) == _outcomes(whole)
    assert lines(path)[-1]["observations"] == lines(whole)[-1]["observations"]


def test_interrupted(detmatrix_process: Command, tmp_path: Path, whole: Path) -> None:
    """Ctrl-C leaves a valid file, exit code 130, and a scan that can go on."""
    path = tmp_path / "run.jsonl"
    command = [sys.executable, "-m", "scanner", "scan", *OPTIONS, "-o", path]
    with tied.start(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        _grown(path, process, whole.stat().st_size // 2)
        process.send_signal(signal.SIGINT)
        _, text = process.communicate(timeout=60)

    assert process.returncode == 130
    assert text.splitlines()[-1].startswith("detmatrix: interrupted; ")
    assert detmatrix_process("scan", "--resume", "--specs", SPECS, "-o", path).returncode == 0
    assert _outcomes(path) == _outcomes(whole)


def test_out_of_disk(detmatrix_process: Command, tmp_path: Path, whole: Path) -> None:
    """When the file can grow no further the scan ends in one line, and can go on."""
    path = tmp_path / "run.jsonl"
    room = whole.stat().st_size * 2 // 3

    done = tied.run([sys.executable, "-c", _LIMITED, room, "scan", *OPTIONS, "-o", path])

    assert done.returncode == 2
    assert "cannot be written any further (File too large)" in done.stderr.splitlines()[-1]
    assert detmatrix_process("scan", *OPTIONS, "--resume", "-o", path).returncode == 0
    assert _outcomes(path) == _outcomes(whole)


def test_differing_inputs_make_a_scan_untrusted(detmatrix_process: Command, tmp_path: Path) -> None:
    """Inputs that are not the same in every process void the scan: exit 4, and the file says why."""
    specs = tmp_path / "unequal.py"
    specs.write_text(
        "import os\n"
        "from opspecs.model import Case, OpSpec, call\n"
        "SPECS = [OpSpec(name='unequal', op='torch.neg', why='Test.', cases={'pid': Case(\n"
        "    inputs=lambda t: call(t.normal(8) + os.getpid()))})]\n"
    )

    done = detmatrix_process(
        "scan", "unequal", "--specs", specs, "--device", "cpu", "--runs", 2, "-o", "run.jsonl"
    )

    assert done.returncode == 4
    assert "cannot be trusted: the inputs of unequal:pid:forward:float32" in done.stderr
    assert len(lines(tmp_path / "run.jsonl")[-1]["distrust"]) == 3


def test_worker_that_replaces_another_answers_the_controls(tmp_path: Path) -> None:
    """A worker started after a crash could be a broken one as well: if it misbehaves the scan is void."""
    specs = tmp_path / "broken.py"
    # The first worker breaks down in the middle, and every later one loads a generator that takes no seed.
    specs.write_text(
        "import itertools, os, pathlib, sys\n"
        "from opspecs.model import Case, OpSpec, call\n"
        f"mark = pathlib.Path({str(tmp_path / 'mark')!r})\n"
        "if any('scanner.worker' in word for word in sys.orig_argv) and mark.exists():\n"
        "    import torch\n"
        "    rand, count = torch.rand, itertools.count()\n"
        "    torch.rand = lambda *a, **k: rand(*a, **k) + next(count)\n"
        "def ends(x):\n"
        "    mark.touch()\n"
        "    os.abort()\n"
        "case = {'one': Case(inputs=lambda t: call(t.normal(8)))}\n"
        "SPECS = [OpSpec(name='ends', op=ends, why='Test.', cases=case),\n"
        "         OpSpec(name='plain', op='torch.neg', why='Test.', cases=case)]\n"
    )

    run = scan(tmp_path, "ends", "plain", "--specs", specs, "--runs", 4, "--processes", 1, code=4)

    assert run.closing is not None
    assert any("control random in process 0 of mode off" in text for text in run.closing.distrust)
    assert len({control.spec for control in run.controls if control.mode == "off"}) == 6
