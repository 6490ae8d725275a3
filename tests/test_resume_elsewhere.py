"""A scan that another machine began goes on in a file of its own, with the rows that are not whole; reports join them."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from scanner.modes import DEFAULT_MODES
from scanner.observations.runfile import read_run
from scanner.run.whole import whole_rows
from tests.commands import Command
from tests.runs import SETTINGS, drifting, ran, row, stable, write_run
from tests.sharded import changed
from tests.stand_in import StandIn

SPECS = Path(__file__).with_name("quick.py")
ASKED = ("quick", "--specs", SPECS, "--device", "cpu", "--runs", 8, "--processes", 1)
OPTIONS = (*ASKED, "--no-cost", "--no-overloads")


def _end_behind(path: Path, text: str, machine: dict[str, object], *, last: bool = False) -> None:
    """Let a run end with the first or last line behind its header that has a text, controls aside, as if on another machine."""
    header, *rest = path.read_text().splitlines(keepends=True)
    at = [place for place, line in enumerate(rest) if text in line and "control." not in line]
    path.write_text("".join([header, *rest[: at[-1 if last else 0] + 1]]))
    changed(path, environment=machine)


def _cut(path: Path, machine: dict[str, object]) -> None:
    """Let a run end in the middle of mode on, as if on another machine."""
    header, *rest = path.read_text().splitlines(keepends=True)
    record = json.loads(header)
    record["environment"].update(machine)
    at = next(
        place
        for place, line in enumerate(rest)
        if '"mode":"on"' in line and '"kind":"observation"' in line and "control." not in line
    )
    path.write_text(json.dumps(record) + "\n" + "".join(rest[: at + 2]))


def test_what_is_not_whole_goes_into_a_file_beside(detmatrix: Command, tmp_path: Path) -> None:
    """Nothing is measured twice nor refused, the first file stays as it was, and a report of both has every row."""
    standing = StandIn(tmp_path)
    path, beside = tmp_path / "run.jsonl", tmp_path / "run.2.jsonl"
    assert detmatrix("scan", *OPTIONS, "--python", standing.python, "-o", path).returncode == 0
    whole = len(read_run(path).header.planned)
    _cut(path, {"cpu": "Another CPU"})
    before = path.read_bytes()
    again = ("scan", "--resume", "--specs", SPECS, "--python", standing.python, "-o", path)

    done = detmatrix(*again)

    assert done.returncode == 0, done.stderr
    assert f"{path}: the cpu here is not the one it began with (" in done.stderr
    assert f"what it has not whole goes into {beside}, join them with detmatrix merge" in done.stderr
    assert path.read_bytes() == before
    first, second = read_run(path), read_run(beside)
    assert second.closing is not None
    assert (second.header.continues, second.header.began) == ("run.jsonl", (first.header.started,))
    rows = {one.key for one in first.observations if one.mode == "on"}
    planned = {row.key for row in second.header.planned}
    assert rows
    assert not rows & planned
    assert len(rows) + len(planned) == whole
    assert {one.key for one in second.observations} == planned
    found = json.loads(detmatrix("report", path, beside, "--format", "json").stdout)
    assert found
    # Once more: the file of this machine is complete, and is what there is to say.
    assert detmatrix(*again).returncode == 0
    assert not (tmp_path / "run.3.jsonl").exists()


def test_a_third_machine_leaves_out_what_both_have(detmatrix: Command, tmp_path: Path) -> None:
    """Its file is the third, and has what neither of the others has whole."""
    standing = StandIn(tmp_path)
    path = tmp_path / "run.jsonl"
    detmatrix("scan", *OPTIONS, "--python", standing.python, "-o", path)
    _cut(path, {"cpu": "Another CPU"})
    again = ("scan", "--resume", "--specs", SPECS, "--python", standing.python, "-o", path)
    detmatrix(*again)
    _cut(tmp_path / "run.2.jsonl", {"cpu": "A third CPU"})

    done = detmatrix(*again)

    assert done.returncode == 0, done.stderr
    runs = [read_run(tmp_path / name) for name in ("run.jsonl", "run.2.jsonl", "run.3.jsonl")]
    whole = [{one.key for one in run.observations if one.mode == "on"} for run in runs]
    assert sum(map(len, whole)) == len(set().union(*whole)) == len(runs[0].header.planned)
    assert runs[2].header.continues == "run.jsonl"
    assert runs[2].header.began == tuple(run.header.started for run in runs[:2])


def test_only_the_first_file_is_resumed(detmatrix: Command, tmp_path: Path) -> None:
    """Another machine would go on from the second one under a name and a number that no merge takes, and is told the first."""
    path, beside = tmp_path / "run.jsonl", tmp_path / "run.2.jsonl"
    scan = ("scan", *OPTIONS, "--python", StandIn(tmp_path).python, "--resume", "-o")
    detmatrix(*scan, path)
    _cut(path, {"cpu": "Another CPU"})
    detmatrix(*scan, path)
    _cut(beside, {"cpu": "A third CPU"})

    done = detmatrix(*scan, beside)

    assert (done.returncode, done.stderr.splitlines()[-1]) == (
        2,
        f"detmatrix: {beside}: is file 2 of the scan that run.jsonl began; go on with --resume -o {path}",
    )
    assert {*tmp_path.glob("*.jsonl")} == {path, beside}


def test_full_disk_names_the_file_to_resume(
    detmatrix: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which is the first one, whichever could not be written."""
    path = tmp_path / "run.jsonl"
    scan = ("scan", *OPTIONS, "--python", StandIn(tmp_path).python, "--resume", "-o", path)
    detmatrix(*scan)
    _cut(path, {"cpu": "Another CPU"})
    monkeypatch.setattr("scanner.observations.writer.os.write", _until_an_observation)

    done = detmatrix(*scan)

    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == (
        f"detmatrix: {tmp_path / 'run.2.jsonl'}: cannot be written any further (No space left on device); what was observed "
        f"so far is kept, make room and go on with scan --resume -o {path}"
    )


def _until_an_observation(file: int, line: bytes, write: Callable[[int, bytes], int] = os.write) -> int:
    """Write a line, unless it is an observation."""
    if b'"kind":"observation"' in line:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return write(file, line)


@pytest.mark.parametrize("last", ["one observation", "mode off"])
def test_a_third_machine_has_what_the_second_enumerated(
    detmatrix: Command, tmp_path: Path, last: str
) -> None:
    """The first machine died while it enumerated, the second one while it observed what it had enumerated itself."""
    path, beside, third = (tmp_path / name for name in ("run.jsonl", "run.2.jsonl", "run.3.jsonl"))
    options = ("--source", "opinfo", *ASKED[3:], "--no-cost", "--no-overloads")
    scan = ("scan", *options, "--python", StandIn(tmp_path).python, "-o", path)
    assert detmatrix(*scan).returncode == 0
    rows = [row.key for row in read_run(path).header.planned]
    assert len(rows) == 6
    _end_behind(path, '"kind":"entry"', {"cpu": "Another CPU"})
    assert detmatrix(*scan, "--resume").returncode == 0
    observed = '"mode":"off"' if last == "mode off" else f'"spec":"{rows[0][0]}"'
    _end_behind(beside, observed, {"cpu": "A third CPU"}, last=last == "mode off")

    done = detmatrix(*scan, "--resume")

    assert done.returncode == 0, done.stderr
    assert {row.key for row in read_run(third).header.planned} == {*rows}
    merged = detmatrix("merge", path, beside, third, "-o", "all.jsonl")
    assert (merged.returncode, merged.stderr) == (0, "")
    found = json.loads(detmatrix("report", "all.jsonl", "--format", "json").stdout)["rows"]
    verdicts = [(row["off"]["verdict"], row["on"]["verdict"]) for row in found]
    assert verdicts == [("deterministic", "deterministic")] * 6


def test_the_first_machine_goes_on_behind_the_second(detmatrix: Command, tmp_path: Path) -> None:
    """A merged file takes a row from the last file that plans it: what the first one would add to its own would be lost."""
    standing = StandIn(tmp_path)
    path, beside, third = (tmp_path / name for name in ("run.jsonl", "run.2.jsonl", "run.3.jsonl"))
    scan = ("scan", *OPTIONS, "--python", standing.python, "-o", path)
    detmatrix(*scan)
    here = read_run(path).header.environment.cpu
    _cut(path, {"cpu": "Another CPU"})
    detmatrix(*scan, "--resume")
    _cut(beside, {"cpu": "Another CPU"})
    changed(path, environment={"cpu": here})
    before = path.read_bytes()

    done = detmatrix(*scan, "--resume")

    assert done.returncode == 0, done.stderr
    assert f"{path}: another machine went on with it; what it has not whole goes into {beside}" in done.stderr
    assert path.read_bytes() == before
    merged = detmatrix("merge", path, beside, third, "-o", "all.jsonl")
    assert (merged.returncode, merged.stderr) == (0, "")
    runs = [read_run(one) for one in (path, beside, third)]
    whole = [{one.key for one in run.observations if one.mode == "on"} for run in runs]
    assert all(whole)
    assert sum(map(len, whole)) == len(set().union(*whole)) == len(runs[0].header.planned)
    # There is nothing left to do, on either machine.
    standing.forget()
    assert detmatrix(*scan, "--resume").returncode == 0
    assert not standing.noted
    assert not (tmp_path / "run.4.jsonl").exists()


def test_a_finished_file_is_all_there_is_to_merge(detmatrix: Command, tmp_path: Path) -> None:
    """Its machine was slow, not dead: what another one began meanwhile is not finished, and would make rows inconclusive."""
    path, beside = tmp_path / "run.jsonl", tmp_path / "run.2.jsonl"
    scan = ("scan", *OPTIONS, "--python", StandIn(tmp_path).python, "-o", path)
    detmatrix(*scan)
    finished = path.read_bytes()
    _cut(path, {"cpu": "Another CPU"})
    detmatrix(*scan, "--resume")
    _cut(beside, {})
    path.write_bytes(finished)

    done = detmatrix(*scan, "--resume")

    assert done.returncode == 0, done.stderr
    assert (
        f"{path}: is finished; another machine went on with it before it was, leave {beside} out of merge"
        in (done.stderr)
    )
    beside.unlink()
    assert "another machine" not in detmatrix(*scan, "--resume").stderr


def test_a_file_of_another_attempt_is_refused(detmatrix: Command, tmp_path: Path) -> None:
    """What it leaves out was observed by a scan that is no more; complete as it is, it finishes nothing."""
    path, beside = tmp_path / "run.jsonl", tmp_path / "run.2.jsonl"
    scan = ("scan", *OPTIONS, "--python", StandIn(tmp_path).python, "-o", path)
    detmatrix(*scan)
    _cut(path, {"cpu": "Another CPU"})
    assert detmatrix(*scan, "--resume").returncode == 0
    changed(path, started="2026-01-02T03:04:05Z")

    done = detmatrix(*scan, "--resume")

    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == (
        f"detmatrix: {beside}: continues another attempt than {path}; remove it, or choose another place with -o"
    )
    beside.unlink()
    assert detmatrix(*scan, "--resume").returncode == 0
    assert detmatrix("merge", path, beside, "-o", "all.jsonl").stderr == ""


@pytest.mark.parametrize("kind", ["cost", "dispatch", "invariance"])
def test_what_is_asked_behind_the_observations_is_asked_of_every_row(
    detmatrix: Command, tmp_path: Path, kind: str
) -> None:
    """A row of which some of that is missing is begun again, so that the merged file lacks nothing, and has nothing twice."""
    python = ("--python", StandIn(tmp_path).python)
    path = tmp_path / "run.jsonl"
    scan = ("scan", *ASKED, "--invariance", "layout", *python, "-o", path)
    assert detmatrix(*scan).returncode == 0
    header, *lines = path.read_text().splitlines(keepends=True)
    record = json.loads(header)
    record["environment"]["cpu"] = "Another CPU"
    at = [place for place, line in enumerate(lines) if f'"kind":"{kind}"' in line and "control." not in line]
    path.write_text(json.dumps(record) + "\n" + "".join(lines[: at[1] + 1]))

    assert detmatrix(*scan, "--resume").returncode == 0
    done = detmatrix("merge", "run.jsonl", "run.2.jsonl", "-o", "all.jsonl")

    assert (done.returncode, done.stderr) == (0, "")
    run = read_run(tmp_path / "all.jsonl")
    rows = sorted(row.key for row in run.header.planned)
    asked = [one.key for one in run.invariances if not one.spec.startswith("control.")]
    assert sorted(one.key for one in run.costs) == sorted(one.key for one in run.dispatches) == rows
    assert sorted(asked) == rows
    # Of two rows all was asked before, if it was asked of the last thing.
    taken = len(rows) - len(read_run(tmp_path / "run.2.jsonl").header.planned)
    assert taken == (2 if kind == "invariance" else 0)


def test_what_the_fill_makes_nan_is_whole_when_it_ran_without_the_fill(tmp_path: Path) -> None:
    """Its mode on has no verdict, and mode unfilled alone tells that the fill made it so."""
    planned = row("torch.empty")
    filled = ran(planned, "on", *stable(), blank="nan")
    differing = [*ran(planned, "off", *drifting(9)), *filled]
    unfilled = ran(planned, "unfilled", *drifting(9))
    settings = replace(SETTINGS, modes=DEFAULT_MODES, cost=False, overloads=False)
    paths = [
        write_run(tmp_path / f"{number}.jsonl", [(planned, seen)], settings=settings)
        for number, seen in enumerate((differing, [*differing, *unfilled]))
    ]

    assert [whole_rows(read_run(path)) for path in paths] == [frozenset(), {planned.key}]


def test_another_build_is_refused(detmatrix: Command, tmp_path: Path) -> None:
    """Rows of two builds of torch make no run."""
    standing = StandIn(tmp_path)
    path = tmp_path / "run.jsonl"
    detmatrix("scan", *OPTIONS, "--python", standing.python, "-o", path)
    _cut(path, {"torch_git": "f" * 40, "cpu": "Another CPU"})

    done = detmatrix("scan", "--resume", "--specs", SPECS, "--python", standing.python, "-o", path)

    assert done.returncode == 2
    assert "cannot be resumed, the torch_git here is not the one it began with" in done.stderr
    assert not (tmp_path / "run.2.jsonl").exists()
