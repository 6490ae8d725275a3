"""Nothing that was observed is lost or measured twice, wherever a scan is cut, killed, interrupted or out of disk.

Stand-ins take the place of workers, so that every place can be tried; that they answer as workers do is held by
``test_stand_in``, and that a real scan goes on by ``test_scan``.
"""

from __future__ import annotations

import errno
import json
import os
import random
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

from detmatrix.scanner.errors import UsageError
from detmatrix.scanner.observations.runfile import read_run
from tests import tied
from tests.commands import Command
from tests.conftest import lines, one_line
from tests.in_process import Requests, in_process, small_scan
from tests.stand_in import StandIn, using

SPECS = Path(__file__).with_name("quick.py")
OPTIONS = ("quick", "--specs", SPECS, "--device", "cpu", "--runs", 8, "--processes", 2)


def measured(path: Path) -> list[dict[str, Any]]:
    """Return what a complete run holds of its rows, without what a clock, the load or a fresh worker adds.

    A pass that goes on has a worker of its own, and a sentinel beside it.
    """
    records = lines(path)
    assert records[-1]["kind"] == "closing"
    assert records[0].pop("started")
    del (
        records[0]["environment"]["load"],
        records[-1]["seconds"],
        records[-1]["load"],
        records[-1]["sentinels"],
    )
    return [record for record in records if record["kind"] != "sentinel"]


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Requests:
    """Let workers answer within this process."""
    return in_process(monkeypatch)


@pytest.fixture
def whole(requests: Requests, tmp_path: Path) -> Path:
    """Return a small run that nothing interrupted."""
    path = tmp_path / "whole.jsonl"
    small_scan(path)
    requests.asked.clear()
    return path


@pytest.fixture
def standing(tmp_path: Path) -> StandIn:
    """Return an interpreter in which workers are stand-ins."""
    return StandIn(tmp_path)


# Cut


def test_resuming_at_any_byte_keeps_every_whole_line(requests: Requests, whole: Path) -> None:
    """Cut at any byte a file is completed; what stood in whole lines stays, and is not measured again.

    Cut in the middle, a line is as good as absent wherever that is: a few places of each stand
    for the others. The first byte of every line alone is tried, all of it but the end of line, and all.
    """
    data, expected = whole.read_bytes(), measured(whole)
    observed = [(one["mode"], one["spec"]) for one in expected if one["kind"] == "observation"]
    path = whole.with_name("cut.jsonl")
    for cut in _places(data):
        path.write_bytes(data[:cut])
        kept = data[: data.rfind(b"\n", 0, cut) + 1]
        requests.asked.clear()

        small_scan(path, resume=True)

        assert path.read_bytes().startswith(kept), cut
        assert measured(path) == expected, cut
        rows = [
            (one["mode"], one["spec"])
            for one in requests.asked
            if one["do"] == "observe" and not one["spec"].startswith("control.")
        ]
        there = kept.count(b'"kind":"observation"')
        due = [one for one in observed[there:] if not one[1].startswith("control.")]
        assert rows == due, cut


def _places(data: bytes) -> list[int]:
    """Return the empty file, and of every line: one byte, a few in the middle, all but the end of line, all."""
    draw = random.Random(0)
    places, start = {0}, 0
    for line in data.splitlines(keepends=True):
        places |= {start + place for place in (1, len(line) - 1, len(line))}
        places |= {start + draw.randrange(1, len(line)) for _ in range(4)}
        start += len(line)
    assert start == len(data)
    return sorted(places - {start})


def test_resuming_a_complete_run_changes_nothing(
    detmatrix: Command, tmp_path: Path, standing: StandIn
) -> None:
    """There is nothing to do, and nothing is written."""
    command = ("scan", *OPTIONS, "--python", standing.python, "-o", "run.jsonl")
    detmatrix(*command)
    before = (tmp_path / "run.jsonl").read_bytes()
    standing.forget()

    done = detmatrix(*command, "--resume")

    assert (done.returncode, (tmp_path / "run.jsonl").read_bytes(), standing.started) == (0, before, 0)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda header: header.update(tool="0.0.1"), "the detmatrix here is not the one it began with ("),
        (lambda header: header["planned"][1].update(op="tests.quick.other"), "the op of quick."),
        (lambda header: header["planned"][1].update(digest="0" * 64), "the file that declares quick."),
        (lambda header: header["settings"].update(seed=7), "--seed is not the one it began with (0, it has 7)"),
    ],
    ids=["tool", "op", "file", "seed"],
)  # fmt: skip
def test_a_scan_goes_on_with_what_it_began_with(
    detmatrix: Command, tmp_path: Path, standing: StandIn, change: Callable[[dict[str, Any]], None], text: str
) -> None:
    """Another version, another op of that name or another file of specs may call something else."""
    path = tmp_path / "run.jsonl"
    options = (*OPTIONS, "--seed", 0, "--python", standing.python, "-o", path)
    detmatrix("scan", *options)
    header, *rest = path.read_text().splitlines()[:-1]
    record = json.loads(header)
    assert {len(row["digest"]) for row in record["planned"]} == {64}
    change(record)
    path.write_text("\n".join([json.dumps(record), *rest, ""]))

    done = detmatrix("scan", *options, "--resume")

    assert done.returncode == 2
    assert f"cannot be resumed, {text}" in done.stderr


@pytest.mark.parametrize(
    ("gpu", "name", "code"),
    [(None, "cpu", 2), ("Pretended GPU", "cpu", 0), ("Pretended GPU", "driver", 2)],
)
def test_another_machine(
    detmatrix: Command, tmp_path: Path, standing: StandIn, gpu: str | None, name: str, code: int
) -> None:
    """A scan goes on there only if its rows run on the same GPU with the same driver."""
    if gpu:
        device = {"kind": "cuda", "name": gpu, "capability": "8.0", "memory": 80 << 30}
        standing = StandIn(tmp_path, build={"devices": [device]})
    options = (*(word if word != "cpu" else "auto" for word in OPTIONS), "--python", standing.python)
    path = tmp_path / "run.jsonl"
    detmatrix("scan", *options, "-o", path)
    header, *rest = path.read_text().splitlines()[:-1]
    record = json.loads(header)
    assert record["environment"]["gpu"] == gpu
    record["environment"][name] = "another"
    path.write_text("\n".join([json.dumps(record), *rest, ""]))

    done = detmatrix("scan", *options, "-o", path, "--resume")

    assert done.returncode == code, done.stderr
    assert (f"cannot be resumed, the {name} here is not the one it began with" in done.stderr) == (code != 0)


# Killed


def _kill_when_grown(arguments: list[str], path: Path, moment: random.Random) -> bool:
    """Start a scan and kill it some time after it wrote; tell whether it was still going."""
    before = path.stat().st_size if path.exists() else 0
    process = tied.start(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and not (path.exists() and path.stat().st_size > before):
        time.sleep(0.001)
    time.sleep(moment.uniform(0, 0.1))
    process.send_signal(signal.SIGKILL)
    return process.wait() == -signal.SIGKILL


def test_killed_and_resumed_scan_equals_an_unbroken_one(detmatrix_process: Command, tmp_path: Path) -> None:
    """Killed with SIGKILL again and again and resumed each time, a scan ends with the same cells."""
    standing = StandIn(tmp_path, {"do": "observe", "then": {}, "seconds": 0.01})
    options = (*OPTIONS, "--python", standing.python)
    whole, path = tmp_path / "whole.jsonl", tmp_path / "run.jsonl"
    detmatrix_process("scan", *options, "-o", whole)
    command = [sys.executable, "-m", "detmatrix", "scan", *map(str, options), "--resume", "-o", str(path)]
    moment = random.Random(7)

    kills = sum(_kill_when_grown(command, path, moment) for _ in range(6))
    done = detmatrix_process(*command[3:])

    assert kills >= 3
    assert done.returncode == 0, done.stderr
    assert measured(path) == measured(whole)
    assert lines(path)[-1]["observations"] == lines(whole)[-1]["observations"]


# Interrupted


def _start(folder: Path, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "detmatrix", *arguments]
    return tied.start(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def _until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_interrupted_scan_says_how_to_go_on(detmatrix: Command, tmp_path: Path) -> None:
    """Ctrl-C leaves a valid file and exit code 130, and the command it prints finishes the scan."""
    wait, path = tmp_path / "wait", tmp_path / "my run.jsonl"
    wait.touch()
    standing = StandIn(
        tmp_path, {"do": "observe", "spec": "quick.put_", "mode": "off", "wait": str(wait), "then": {}}
    )
    process = _start(tmp_path, "scan", *OPTIONS, "--python", standing.python, "-o", path.name)
    _until(lambda: "quick.put_" in {one.get("spec") for one in standing.noted})

    process.send_signal(signal.SIGINT)
    printed, text = process.communicate(timeout=30)

    assert (process.returncode, printed) == (130, "")
    last = text.splitlines()[-1]
    said, _, again = last.partition(", go on with: ")
    assert said == "detmatrix: interrupted; my run.jsonl is valid"
    assert again == f"detmatrix scan --resume --specs {SPECS} --python {standing.python} -o 'my run.jsonl'"
    assert "Traceback" not in text
    assert {one.spec for one in read_run(path).observations} == {"quick.cumsum"}
    wait.unlink()
    done = detmatrix(*shlex.split(again)[1:])
    assert done.returncode == 0, done.stderr
    # Seven rows and six controls in two modes of two processes, one row run under warn_only besides, and more often with
    # the flag off.
    assert lines(path)[-1]["observations"] == (7 + 6) * 4 + (1 + 6) * 2 + (1 + 6)


def test_interrupted_before_anything_was_observed(tmp_path: Path) -> None:
    """While the first worker starts there is nothing to resume, and no file stays behind."""
    wait, path = tmp_path / "wait", tmp_path / "run.jsonl"
    wait.touch()
    standing = StandIn(tmp_path, {"do": "start", "wait": str(wait), "then": {}})
    process = _start(tmp_path, "scan", *OPTIONS, "--python", standing.python, "-o", path.name)
    _until(lambda: standing.started > 0)

    process.send_signal(signal.SIGINT)
    _, text = process.communicate(timeout=30)

    assert process.returncode == 130
    assert one_line(text) == "detmatrix: interrupted; nothing was observed yet, start again"
    assert not path.exists()
    _until(lambda: not using(standing))


def test_interrupted_at_every_request(requests: Requests, whole: Path) -> None:
    """Whatever a worker is doing when Ctrl-C comes: the file is valid, and going on gives the same run."""
    expected = measured(whole)
    path = whole.with_name("run.jsonl")
    small_scan(path)
    for place in range(len(requests.asked)):
        requests.asked.clear()
        requests.before = lambda number, place=place: _interrupt() if number == place else None  # type: ignore[misc]
        with pytest.raises(KeyboardInterrupt):
            small_scan(path)
        requests.before = lambda _: None
        assert read_run(path).closing is None

        small_scan(path, resume=True)

        assert measured(path) == expected


def _interrupt() -> NoReturn:
    raise KeyboardInterrupt


# Out of disk


def test_full_disk_at_many_sizes(requests: Requests, whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever line does not fit, it is taken back, the scan says how to go on, and going on gives the same run."""
    expected, size = measured(whole), whole.stat().st_size
    path = whole.with_name("run.jsonl")
    for room in range(0, size, 101):
        with monkeypatch.context() as patch:
            patch.setattr("detmatrix.scanner.observations.writer.os.write", _limited(room))
            with pytest.raises(UsageError, match="cannot be written") as refused:
                small_scan(path)
        if not path.exists():
            assert room < len(whole.read_bytes().splitlines()[0])
            continue
        assert "make room and go on with scan --resume" in str(refused.value)
        assert path.read_bytes().endswith(b"\n")
        assert path.stat().st_size <= room

        small_scan(path, resume=True)

        assert measured(path) == expected
        path.unlink()
    assert requests.asked


def _limited(left: int) -> Callable[[int, bytes], int]:
    """Return what writes so many bytes and then finds the disk full."""
    write = os.write

    def limited(descriptor: int, data: bytes) -> int:
        nonlocal left
        if not left:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = write(descriptor, data[:left])
        left -= written
        return written

    return limited
