"""What tests start beside themselves ends with them, also when they are killed."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests import tied

ROOT = Path(__file__).parent.parent

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def _left(pids: Sequence[int]) -> list[int]:
    """Return which processes are still there after a while; those that nobody has waited for are not."""
    deadline = time.monotonic() + 10
    while left := [pid for pid in pids if _state(pid) not in {"Z", "X", ""}]:
        if time.monotonic() > deadline:
            break
        time.sleep(0.02)
    return left


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except OSError:
        return ""


def _start(*command: str) -> subprocess.Popen[str]:
    return subprocess.Popen(command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def _first_line(process: subprocess.Popen[str]) -> list[int]:
    assert process.stdout is not None
    pids: list[int] = json.loads(process.stdout.readline())
    assert all(_state(pid) for pid in pids)
    return pids


def test_busy_loops_end_with_a_test_that_is_killed() -> None:
    """They compute as long as the test lives, and no longer."""
    script = (
        "import json\n"
        "from tests.tied import busy_cores\n"
        "with busy_cores() as pids: print(json.dumps(pids), flush=True); input()"
    )
    with _start(sys.executable, "-c", script) as process:
        pids = _first_line(process)
        process.kill()

    assert pids
    assert _left(pids) == []


def test_busy_loops_end_with_their_block() -> None:
    """None is load for the next test."""
    with tied.busy_cores() as pids:
        assert all(_state(pid) for pid in pids)

    assert _left(pids) == []


_CHILDREN = """
import json, os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
command = [sys.executable, "-c", "import time; time.sleep(600)"]
children = [subprocess.Popen(command, start_new_session=new).pid for new in (False, True)]
print(json.dumps([os.getpid(), *children]), flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("how", ["killed", "closed"])
def test_programs_end_with_all_that_they_started(how: str) -> None:
    """A browser's processes put themselves elsewhere, and ignore being asked."""
    script = (
        "import subprocess, sys\n"
        "with subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE) as process: input(); process.stdin.close()"
    )
    with _start(
        sys.executable, "-c", script, sys.executable, tied.__file__, sys.executable, "-c", _CHILDREN
    ) as one:
        pids = _first_line(one)
        if how == "killed":
            one.kill()
        else:
            one.communicate("\n", timeout=30)

    assert len(pids) == 3
    assert _left(pids) == []


def test_commands_end_with_a_test_that_is_killed() -> None:
    """A command that a test waits for is not left behind either."""
    script = (
        "import sys\n"
        "from tests import tied\n"
        "tied.run([sys.executable, '-c', sys.argv[1]], capture_output=False)"
    )
    waits = "import os, time; print([os.getpid()], flush=True); time.sleep(600)"
    with _start(sys.executable, "-c", script, waits) as process:
        pids = _first_line(process)
        process.kill()

    assert _left(pids) == []
