"""A scan that is interrupted says how to go on."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from scanner.runfile import read_run
from tests.conftest import Command, lines

# Fast at first, then slow for as long as a file lies beside it.
_SLOW = """
import time
from pathlib import Path
from opspecs.model import Case, OpSpec, call

def slow(x):
    while Path(__file__).with_name("wait").exists():
        time.sleep(0.05)
    return x + 1

CASES = {"only": Case(inputs=lambda t: call(t.normal(8)))}
SPECS = [
    OpSpec(name="slow.first", op="torch.neg", why="Test.", cases=CASES),
    OpSpec(name="slow.then", op=slow, why="Test.", cases=CASES),
]
"""
# A shell that starts its jobs in the background makes them ignore Ctrl-C, and a test suite's children inherit it.
_RUN = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    "from scanner.cli import main; main(sys.argv[1:])"
)


def _start(folder: Path, *arguments: str, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _RUN, *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def test_interrupted_scan_says_how_to_go_on(detmatrix: Command, tmp_path: Path) -> None:
    """Ctrl-C leaves a valid file and exit code 130, and the command it prints finishes the scan."""
    (tmp_path / "slow specs.py").write_text(_SLOW)
    (tmp_path / "wait").touch()
    path = tmp_path / "my run.jsonl"
    arguments = ["slow.*", "--specs", "slow specs.py", "--device", "cpu", "--runs", "2", "--processes", "1"]
    process = _start(tmp_path, "scan", *arguments, "-o", path.name)
    deadline = time.monotonic() + 60
    # Six controls come before the first row.
    while not (path.exists() and path.read_bytes().count(b'"kind":"observation"') > 6):
        assert time.monotonic() < deadline
        time.sleep(0.05)

    process.send_signal(signal.SIGINT)
    printed, told = process.communicate(timeout=30)

    assert (process.returncode, printed) == (130, "")
    last = told.splitlines()[-1]
    said, _, again = last.partition(", go on with: ")
    assert said == "detmatrix: interrupted; my run.jsonl is valid"
    assert again == "detmatrix scan --resume -o 'my run.jsonl'"
    assert "Traceback" not in told
    assert [one.spec for one in read_run(path).observations] == ["slow.first"]
    (tmp_path / "wait").unlink()
    done = detmatrix(*shlex.split(again)[1:])
    assert done.returncode == 0, done.stderr
    # Two rows and six controls in two modes.
    assert lines(path)[-1]["observations"] == (2 + 6) * 2


def test_interrupted_before_anything_was_observed(tmp_path: Path) -> None:
    """While the first worker starts there is nothing to resume, and no file stays behind."""
    process = _start(tmp_path, "scan", "cumsum", "--device", "cpu", "-o", "run.jsonl")
    path = tmp_path / "run.jsonl"
    while not path.exists() and process.poll() is None:
        time.sleep(0.001)
    # The file is there before it is locked; a worker then takes a second at least to import torch.
    time.sleep(0.1)

    os.kill(process.pid, signal.SIGINT)
    _, told = process.communicate(timeout=30)

    assert process.returncode == 130
    assert told == "detmatrix: interrupted; nothing was observed yet, start again\n"
    assert not path.exists()
