"""A scan leaves nothing behind, however it ends: no process, no folder; and it never speaks of a file that is another's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from detmatrix.scanner.errors import UsageError
from detmatrix.scanner.processes.sandbox import ImportSandbox
from tests import tied
from tests.commands import Command
from tests.in_process import Requests, in_process, small_scan
from tests.stand_in import StandIn, using

SPECS = Path(__file__).with_name("quick.py")
OPTIONS = ("quick.put_", "--specs", SPECS, "--device", "cpu", "--runs", 4, "--processes", 1, "--timeout", 1.5)
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, and takes a subreaper")


def _gone(standing: StandIn) -> bool:
    """Wait a while for the last process that was started by stand-ins to end."""
    until = time.monotonic() + 10
    while using(standing) and time.monotonic() < until:
        time.sleep(0.02)
    return not using(standing)


@LINUX
@pytest.mark.parametrize("then", ["daemon", "daemon and die", "daemon and hang"])
def test_processes_in_sessions_of_their_own_end_with_the_worker(
    detmatrix: Command, tmp_path: Path, then: str
) -> None:
    """An op may start what no kill of its group reaches, whether it returns, crashes or hangs."""
    standing = StandIn(tmp_path, {"do": "observe", "spec": "quick.put_", "mode": "off", "then": then})

    done = detmatrix("scan", *OPTIONS, "--python", standing.python, "-o", "run.jsonl")

    assert done.returncode == 0, done.stderr
    # Those that are noted were there: three an execution, of which the parents ended at once.
    assert (tmp_path / "stand_in.daemons").read_text().count("\n") >= 3
    assert using(standing) == []


@LINUX
@pytest.mark.parametrize("moment", ["start", "observe"])
def test_a_killed_scan_leaves_no_process(tmp_path: Path, moment: str) -> None:
    """Killed while a worker starts, or while a row runs that has started others: all of them end at once."""
    wait = tmp_path / "wait"
    wait.touch()
    rule = {"do": moment, "wait": str(wait), "then": {}}
    daemon = {"do": "sentinel", "then": "daemon"}
    standing = StandIn(tmp_path, *([daemon] if moment == "observe" else []), rule)
    command = [sys.executable, "-m", "detmatrix", "scan", *OPTIONS, "--python", standing.python]
    with tied.start(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        until = time.monotonic() + 30
        while moment not in {one["do"] for one in standing.noted} and time.monotonic() < until:
            time.sleep(0.01)
        process.kill()

    assert process.returncode == -signal.SIGKILL
    assert wait.exists()
    assert _gone(standing)


def test_folders_of_killed_scans_are_removed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By the next scan; those of a scan that goes on, and what is no such folder, stay."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    mine = tmp_path / "detmatrix-sandbox-mine"
    mine.mkdir()
    (mine / "notes").touch()
    (tmp_path / "detmatrix-sandbox-link").symlink_to(mine)
    code = "import os, signal; from detmatrix.scanner.processes.sandbox import ImportSandbox; ImportSandbox(); os.kill(os.getpid(), signal.SIGKILL)"
    subprocess.run([sys.executable, "-c", code], check=False, env={**os.environ, "TMPDIR": str(tmp_path)})
    left = set(tmp_path.iterdir())
    assert len(left) == 3

    with ImportSandbox() as one, ImportSandbox() as other:
        assert set(tmp_path.iterdir()) == {mine, tmp_path / "detmatrix-sandbox-link", one.path, other.path}
        assert (one.path / "detmatrix" / "scanner" / "worker").is_dir()
    assert set(tmp_path.iterdir()) == {mine, tmp_path / "detmatrix-sandbox-link"}
    assert (mine / "notes").exists()


CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "removed": (lambda path: path.unlink(), "removed"),
    "replaced": (lambda path: path.with_name("x").write_bytes(b"x") and path.with_name("x").replace(path),
                 "replaced by another file"),
    "cut": (lambda path: os.truncate(path, 10), "cut"),
    "appended": (lambda path: path.write_bytes(path.read_bytes() + b"x"), "written to by someone else"),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_an_output_that_changes_is_noticed_at_the_next_write(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    """The scan ends there, not at its end, and what is not its own stays as it is."""
    path = tmp_path / "run.jsonl"
    change, text = CHANGES[name]
    requests: Requests = in_process(monkeypatch)

    def changed(number: int) -> None:
        if number == 5:
            change(path)

    requests.before = changed

    with pytest.raises(
        UsageError, match=f"was {text} while the scan wrote it; start over, with -o elsewhere"
    ):
        small_scan(path)

    assert len(requests.asked) == 6
    assert path.exists() == (name != "removed")
    if name == "replaced":
        assert path.read_bytes() == b"x"
