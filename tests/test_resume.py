"""Nothing that was observed is lost or measured twice, wherever a scan is cut, killed, interrupted or out of disk.

Stand-ins take the place of workers, so that every place can be tried; that they answer as workers do is held by
``test_stand_in``, and that the inputs of a real one follow from the seed alone by ``test_faults``.
"""

from __future__ import annotations

import errno
import io
import os
import random
import shlex
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from detmatrix.scanner.cases import catalog
from detmatrix.scanner.cases.plan import Plan, asked_for
from detmatrix.scanner.errors import UsageError
from detmatrix.scanner.observations.records import Mode
from detmatrix.scanner.observations.runfile import Run, read_run
from detmatrix.scanner.processes import process
from detmatrix.scanner.run.progress import Progress
from detmatrix.scanner.run.scan import scan
from detmatrix.scanner.verdicts.findings import matrix
from tests import quick, tied
from tests.commands import Command
from tests.conftest import lines, one_line, write_lines
from tests.stand_in import QUICK, StandIn, left
from tests.stand_in_worker import BUILD, answer


class Requests:
    """What workers are asked, and what happens then."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        # Called with the number of a request, from 0, before it is answered.
        self.before: Callable[[int], object] = lambda _: None

    def worker(self, _: str, mode: Mode, *__: object, **___: object) -> SimpleNamespace:
        """Start a stand-in that is no process, for ``detmatrix.scanner.processes.process.WorkerProcess``."""
        modes = [mode]

        def ask(request: dict[str, Any], _: float) -> dict[str, Any]:
            modes.append(request.get("mode", modes[-1]))  # where it turns to another
            self.asked.append({**request, "mode": modes[-1]})
            self.before(len(self.asked) - 1)
            return {"answer": answer(self.asked[-1]), "tainted": False}

        return SimpleNamespace(build=BUILD, ask=ask, stop=lambda: None, kill=lambda: None)


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Requests:
    """Let workers answer within this process, and two small specs be the catalog."""
    patch, requests = monkeypatch, Requests()
    patch.setattr(process, "WorkerProcess", requests.worker)
    # Choosing from the whole catalog, and looking for installed specs, would take longer than all else here.
    patch.setattr(
        catalog, "SPECS", [spec for spec in quick.SPECS if spec.name in {"quick.put_", "quick.missing"}]
    )
    patch.setattr(catalog, "_may_bring_specs", lambda: False)
    return requests


def small_scan(path: Path, *, resume: bool = False) -> Run:
    """Scan two small rows with everything on, or go on with that."""
    plan = Plan(
        output=path,
        settings=asked_for(device="cpu", runs=2, processes=1, perturb=("quiet",)),
        resume=resume,
        force=not resume,
    )
    return scan(plan, Progress(io.StringIO()))


@pytest.fixture
def wait(tmp_path: Path) -> Path:
    """Return a file that is there, for whose end a rule of a stand-in may wait."""
    (path := tmp_path / "wait").touch()
    return path


OPTIONS = ("quick", *QUICK, "--runs", 8, "--processes", 2)


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
def whole(requests: Requests, tmp_path: Path) -> Path:
    """Return a small run that nothing interrupted."""
    path = tmp_path / "whole.jsonl"
    small_scan(path)
    requests.asked.clear()
    return path


# Cut


def test_resuming_at_any_byte_keeps_every_whole_line(requests: Requests, whole: Path) -> None:
    """Cut at any byte a file is completed; what stood in whole lines stays, and is not measured again; to a whole file nothing is added.

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
        assert cut < len(data) or (path.read_bytes(), requests.asked) == (data, [])


def _places(data: bytes) -> list[int]:
    """Return nothing, and of every line: one byte, a few in the middle, all but the end of line, all."""
    draw = random.Random(0)
    places, start = {0}, 0
    for line in data.splitlines(keepends=True):
        places |= {start + place for place in (1, len(line) - 1, len(line))}
        places |= {start + draw.randrange(1, len(line)) for _ in range(4)}
        start += len(line)
    assert start == len(data)
    return sorted(places)


PRETENDED = "Pretended GPU"


@pytest.mark.parametrize(
    ("gpu", "place", "change", "text"),
    [
        # Another version, or another catalog or file of specs, may call something else.
        (None, "", {"tool": "0.0.1"}, "detmatrix is "),
        (None, "environment", {"torch": "2.12.0"}, "torch is 2.13.0+standin, not 2.12.0"),
        # Lines of another format would break a file that says which it has.
        (None, "", {"format": 1}, "its format is not the one it began with (10, it has 1)"),
        (None, "", {"plan": "0" * 64}, "the catalogs or files of specs were not the same"),
        (None, "settings", {"seed": 7}, "--seed is not the one it began with (0, it has 7)"),
        # On another machine a scan goes on only if its rows run on the same GPU with the same driver.
        (None, "environment", {"cpu": "another"}, "the cpu here is not the one it began with"),
        (None, "environment", {"cpu_model": "another"}, "the cpu_model here is not the one it began with"),
        (None, "environment", {"cpu_model": None}, ""),
        (PRETENDED, "environment", {"cpu": "another", "cpu_model": "another"}, ""),
        (PRETENDED, "environment", {"driver": "another"}, "the driver here is not the one it began with"),
    ],
)
def test_a_scan_goes_on_with_what_it_began_with(
    detmatrix: Command, tmp_path: Path, gpu: str | None, place: str, change: dict[str, Any], text: str
) -> None:
    """What is another there than it was is told in a line."""
    devices = [{"kind": "cuda", "name": gpu, "capability": "8.0", "memory": 80 << 30}] if gpu else []
    standing = StandIn(tmp_path, build={"devices": devices})
    path = tmp_path / "run.jsonl"
    words = [word if word != "cpu" or not gpu else "auto" for word in OPTIONS]
    options = (*words, "--seed", 0, "--python", standing.python, "-o", path)
    detmatrix("scan", *options)
    header, *records = lines(path)[:-1]
    assert header["environment"]["gpu"] == gpu
    assert {len(row["digest"]) for row in header["planned"]} == {64}
    (header[place] if place else header).update(change)
    write_lines(path, [header, *records])

    done = detmatrix("scan", *options, "--resume")

    assert done.returncode == (2 if text else 0), done.stderr
    assert (f"cannot be resumed, {text}" in done.stderr) == bool(text)


# Interrupted


def _interrupted(
    folder: Path, standing: StandIn, output: str, happened: Callable[[], bool], *more: str
) -> str:
    """Start a scan, interrupt it when something has happened, and return what it said."""
    command = [sys.executable, "-m", "detmatrix", "scan", *OPTIONS, "--python", standing.python, "-o", output]
    command = [*map(str, command), *more]
    process = tied.start(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    tied.wait_until(happened)
    process.send_signal(signal.SIGINT)
    printed, text = process.communicate(timeout=30)
    assert (process.returncode, printed) == (130, "")
    return text


def test_interrupted_scan_says_how_to_go_on(detmatrix: Command, tmp_path: Path, wait: Path) -> None:
    """Ctrl-C leaves a valid file and exit code 130, and the command it prints finishes the scan."""
    path = tmp_path / "my run.jsonl"
    standing = StandIn(
        tmp_path, {"do": "observe", "spec": "quick.put_", "mode": "off", "wait": str(wait), "then": {}}
    )

    text = _interrupted(
        tmp_path, standing, path.name, lambda: "quick.put_" in {one.get("spec") for one in standing.noted}
    )

    last = text.splitlines()[-1]
    said, _, again = last.partition(", go on with: ")
    assert said == "detmatrix: interrupted; my run.jsonl is valid"
    assert again == f"detmatrix scan --resume --specs {QUICK[1]} --python {standing.python} -o 'my run.jsonl'"
    assert "Traceback" not in text
    assert {one.spec for one in read_run(path).observations} == {"quick.cumsum"}
    wait.unlink()
    done = detmatrix(*shlex.split(again)[1:])
    assert done.returncode == 0, done.stderr
    # Seven rows and six controls in two modes of two processes, one row run under warn_only besides, and more often with
    # the flag off.
    assert lines(path)[-1]["observations"] == (7 + 6) * 4 + (1 + 6) * 2 + (1 + 6)


def test_interrupted_before_anything_was_observed(tmp_path: Path, wait: Path) -> None:
    """While the first worker starts there is nothing to resume, and no file stays behind."""
    path = tmp_path / "run.jsonl"
    standing = StandIn(tmp_path, {"do": "start", "wait": str(wait), "then": {}})

    text = _interrupted(tmp_path, standing, path.name, lambda: standing.started > 0)

    assert one_line(text) == "detmatrix: interrupted; nothing was observed yet, start again"
    assert not path.exists()
    assert left(standing) == []


def _enumerating(folder: Path, wait: Path, stuck: int) -> StandIn:
    """Return workers whose database has many entries, one of which comes when a file is gone."""
    entries = {"do": "entries", "then": {"entries": [f"opinfo:op{number}" for number in range(20)]}}
    return StandIn(
        folder, entries, {"do": "enumerate", "name": f"opinfo:op{stuck}", "wait": str(wait), "then": {}}
    )


def _has_entries(path: Path, count: int) -> Callable[[], bool]:
    """Return what tells whether there are so many in a file, while other workers go on."""
    return lambda: path.exists() and path.read_bytes().count(b'"kind":"entry"') == count


def test_interrupted_while_databases_are_enumerated(tmp_path: Path, wait: Path) -> None:
    """Nobody waits for what several workers were asked last, and none of them is left."""
    path = tmp_path / "run.jsonl"
    standing, happened = _enumerating(tmp_path, wait, 2), _has_entries(path, 2)

    text = _interrupted(tmp_path, standing, path.name, happened, "opinfo:*", "--source", "all")

    assert "go on with: detmatrix scan --resume" in text
    assert left(standing) == []
    assert read_run(path).entries == {"opinfo:op0", "opinfo:op1"}


@pytest.mark.parametrize("force", [False, True])
def test_a_scan_that_cannot_begin_loses_no_earlier_run(
    detmatrix: Command, tmp_path: Path, wait: Path, *, force: bool
) -> None:
    """What lies there is put aside until all rows are planned, said to be, and there again if one is not to be had."""
    wait.unlink()
    path, kept = tmp_path / "run.jsonl", tmp_path / "run.jsonl.1"
    standing = _enumerating(tmp_path, wait, 1)
    options = (*OPTIONS, "--python", standing.python, "-o", path)
    detmatrix("scan", *options)
    earlier, more = path.read_bytes(), ("--source", "documented,opinfo", *["--force"] * force)

    refused = detmatrix("scan", *options, "opinfo:op0:nosuchcase", *more)

    assert refused.returncode == 2
    assert f"the earlier run is kept as {kept.name}" in refused.stderr
    assert "holds the earlier run again" in refused.stderr
    assert path.read_bytes() == earlier
    assert not kept.exists()
    wait.touch()

    _interrupted(tmp_path, standing, path.name, _has_entries(path, 1), "opinfo:*", *more)

    assert kept.read_bytes() == earlier
    assert read_run(path).entries == {"opinfo:op0"}
    wait.unlink()
    path.write_bytes(earlier)
    kept.unlink()

    assert detmatrix("scan", *options, "opinfo:*", *more).returncode == 0
    assert kept.exists() != force
    assert path.read_bytes() != earlier


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
    for room in range(0, size, 307):
        with monkeypatch.context() as patch:
            patch.setattr("detmatrix.scanner.observations.writer.os.write", _limited(room))
            with pytest.raises(UsageError, match="cannot be written") as refused:
                small_scan(path)
        if not path.exists():
            assert room < len(whole.read_bytes().splitlines(keepends=True)[0])
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


# A scan leaves nothing behind, however it ends: no process, no folder; and it never speaks of a file that is another's.

LEFT_BEHIND_OPTIONS = ("quick.put_", *OPTIONS[1:5], "--runs", 4, "--processes", 1, "--timeout", 1.5)
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, and takes a subreaper")


@LINUX
@pytest.mark.parametrize("then", ["daemon", "daemon and die", "daemon and hang"])
def test_processes_in_sessions_of_their_own_end_with_the_worker(
    detmatrix: Command, tmp_path: Path, then: str
) -> None:
    """An op may start what no kill of its group reaches, whether it returns, crashes or hangs."""
    standing = StandIn(tmp_path, {"do": "observe", "spec": "quick.put_", "mode": "off", "then": then})

    done = detmatrix("scan", *LEFT_BEHIND_OPTIONS, "--python", standing.python, "-o", "run.jsonl")

    assert done.returncode == 0, done.stderr
    # Those that are noted were there: three an execution, of which the parents ended at once.
    assert (tmp_path / "stand_in.daemons").read_text().count("\n") >= 3
    assert left(standing) == []


@LINUX
@pytest.mark.parametrize("moment", ["start", "observe"])
def test_a_killed_scan_leaves_no_process(tmp_path: Path, wait: Path, moment: str) -> None:
    """Killed while a worker starts, or while a row runs that has started others: all of them end at once."""
    rule = {"do": moment, "wait": str(wait), "then": {}}
    daemon = {"do": "sentinel", "then": "daemon"}
    standing = StandIn(tmp_path, *([daemon] if moment == "observe" else []), rule)
    command = [sys.executable, "-m", "detmatrix", "scan", *LEFT_BEHIND_OPTIONS, "--python", standing.python]
    with tied.start(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            tied.wait_until(lambda: moment in {one["do"] for one in standing.noted})
        finally:
            process.kill()

    assert process.returncode == -signal.SIGKILL
    assert wait.exists()
    assert left(standing) == []


CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "removed": (lambda path: path.unlink(), "removed"),
    "replaced": (lambda path: path.with_name("x").write_bytes(b"x") and path.with_name("x").replace(path),
                 "replaced by another file"),
    "cut": (lambda path: os.truncate(path, 10), "cut"),
    "appended": (lambda path: path.write_bytes(path.read_bytes() + b"x"), "written to by someone else"),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_an_output_that_changes_is_noticed_at_the_next_write(
    requests: Requests, tmp_path: Path, name: str
) -> None:
    """The scan ends there, not at its end, and what is not its own stays as it is."""
    path = tmp_path / "run.jsonl"
    change, text = CHANGES[name]
    requests.before = lambda number: number == 5 and change(path)

    with pytest.raises(
        UsageError, match=f"was {text} while the scan wrote it; start over, with -o elsewhere"
    ):
        small_scan(path)

    assert len(requests.asked) == 6
    assert path.exists() == (name != "removed")
    if name == "replaced":
        assert path.read_bytes() == b"x"


# Workers side by side: every row once in each mode, controls and power by share, and whole rows wherever it is cut.

SHARES_OPTIONS = (*OPTIONS, "--runs", 100)


def _scan(folder: Path, *rules: dict[str, Any], workers: int = 2) -> Run:
    return StandIn(folder, *rules).scanned(*SHARES_OPTIONS, "--workers", workers, "--force")


def _findings(run: Run) -> dict[tuple[str, ...], tuple[str, str | None]]:
    rows = matrix(run.header, run.observations, closed=True, sentinels=run.sentinels)
    return {row.row.key: (row.finding, row.weak) for row in rows}


def test_two_workers_find_what_one_finds(tmp_path: Path) -> None:
    """Each row is observed in the share of one of them; both answer all controls in all processes."""
    one, two = (_scan(tmp_path, workers=workers) for workers in (1, 2))

    assert _findings(two) == _findings(one)
    assert Counter((o.key, o.mode, o.process) for o in two.observations) == Counter(
        (o.key, o.mode, o.process) for o in one.observations
    )
    workers = {
        row.key: {o.worker for o in two.observations if o.key == row.key} for row in two.header.planned
    }
    assert {len(found) for found in workers.values()} == {1}
    assert set.union(*workers.values()) == {0, 1}
    answered = Counter((o.spec, o.mode, o.process, o.worker) for o in two.controls)
    assert set(answered.values()) == {1}
    assert {worker for *_, worker in answered} == {0, 1}
    assert two.closing is not None
    assert (len(two.costs), len(two.dispatches)) == (len(one.costs), len(one.dispatches))


def test_power_is_that_of_the_share(tmp_path: Path) -> None:
    """A worker whose sentinel did not differ says so of its rows, and of no others."""
    run = _scan(tmp_path, {"do": "sentinel", "worker": 3, "then": {"digests": {"a": 20}}})

    (weak,) = {sentinel.worker for sentinel in run.sentinels if not sentinel.differing}
    shares: dict[tuple[str, ...], int] = {o.key: o.worker for o in run.observations}
    found = {
        key: reason is not None
        for key, (finding, reason) in _findings(run).items()
        if finding == "deterministic"
    }
    assert found == {key: shares[key] == weak for key in found}
    assert set(found.values()) == {True, False}


@pytest.mark.parametrize("worker", [2, 4])
def test_what_is_cut_has_whole_rows_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, detmatrix: Command, worker: int
) -> None:
    """A worker that does not start ends the scan, in one line; the file goes on, and has every row once."""
    monkeypatch.setattr("detmatrix.scanner.run.shares._TURN", 2)
    standing = StandIn(tmp_path, {"do": "start", "worker": worker, "then": "exit"})
    options = (*SHARES_OPTIONS, "--workers", 2, "--python", standing.python, "-o", "run.jsonl")

    done = detmatrix("scan", *options)
    assert done.returncode == 4
    assert "no worker could be started" in done.stderr.splitlines()[-1]
    StandIn(tmp_path)
    assert detmatrix("scan", *options, "--resume").returncode == 0

    run = read_run(tmp_path / "run.jsonl")
    assert run.closing is not None
    # Nothing is said of rows whose worker was ended since another one did not start.
    assert {one.outcome for one in run.observations} <= {"ran", "raised"}
    counted = Counter((o.key, o.mode, o.process) for o in run.observations if o.mode in {"off", "on"})
    assert set(counted.values()) == {1}
    assert len(counted) == 4 * len(run.header.planned)
