"""Shards of a plan: what they scan together is what one scan does, however their files are joined; what is not joined.

``tests/golden/*-shard.*`` show that one says what is missing.
"""

from __future__ import annotations

import gzip
import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from detmatrix.reports.matrix.model import load
from detmatrix.scanner.observations.runfile import Run, read_run
from tests.commands import Command, command_in
from tests.conftest import lines, refused, table, write_lines
from tests.large import write_shard
from tests.stand_in import StandIn

OPS = ("torch.Tensor.put_", "take", "cumsum", "cumprod", "index_add", "kthvalue", "histc", "bincount", "NLLLoss", "gather")  # fmt: skip
OPTIONS = (*OPS, "--device", "cpu", "--runs", 8, "--processes", 1)
SHARDS = [f"detmatrix-{number}-of-8.jsonl" for number in range(1, 9)]


@pytest.fixture(scope="module")
def in_shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Scan all rows at once, and in eight shards on two machines, the last three of which are another; tests change copies."""
    folder = tmp_path_factory.mktemp("shards")
    standing = StandIn(folder)
    run = command_in(folder)
    assert run("scan", *OPTIONS, "--python", standing.python, "-o", "whole.jsonl").returncode == 0
    for number, name in enumerate(SHARDS, start=1):
        done = run("scan", *OPTIONS, "--python", standing.python, "--shard", f"{number}/8")
        assert done.returncode == 0, done.stderr
        if number > 5:
            changed(folder / name, environment={"cpu": "Another CPU", "threads": 16})
    return folder


def changed(path: Path, **fields: Any) -> None:
    """Change the header of a run file; what is a dictionary is added to."""
    records = lines(path)
    for name, value in fields.items():
        records[0][name] = {**records[0][name], **value} if isinstance(value, dict) else value
    write_lines(path, records)


def cells(path: Path) -> dict[str, tuple[object, ...]]:
    """Return what a run says of each row, in the planned order."""
    (matrix,) = load([str(path)])
    return {
        row.row.id: (row.finding, *(_said(cell) for cell in (row.off, row.on, row.warn_only)))
        for row in matrix.rows
    }


def _said(cell: Any) -> object:
    """Return what a cell says, but for how long it took."""
    return cell.verdict, cell.runs, cell.differing, cell.distinct, cell.first, cell.alert, cell.by_process


def _observed(run: Run) -> Counter[tuple[object, ...]]:
    return Counter((one.key, one.mode, one.process) for one in run.observations)


def test_eight_shards_are_one_scan(in_shards: Path, tmp_path: Path) -> None:
    """Every cell is that of one scan, every row is observed once, and each names the machine it was observed on."""
    merged = tmp_path / "all.jsonl"
    done = command_in(in_shards)("merge", *SHARDS, "-o", merged)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    one, other = read_run(in_shards / "whole.jsonl"), read_run(merged)
    assert cells(merged) == cells(in_shards / "whole.jsonl")
    assert [*cells(merged)] == [*cells(in_shards / "whole.jsonl")]  # in the planned order
    assert _observed(other) == _observed(one)
    assert other.closing is not None
    assert (len(other.costs), len(other.dispatches)) == (len(one.costs), len(one.dispatches))
    shards = {part.shard: part.environment.cpu for part in other.header.parts}
    assert [shard for shard, cpu in shards.items() if cpu == "Another CPU"] == [6, 7, 8]
    workers = {row.key: other.header.parts[row.part].shard for row in other.header.planned}
    assert {one.key: one.worker + 1 for one in other.observations} == workers
    assert workers == {row.key: other.header.groups[row.spec] for row in other.header.planned}


def test_the_bytes_depend_on_what_is_joined_alone(in_shards: Path, tmp_path: Path) -> None:
    """Any order gives the same bytes, plain and compressed; a merged file is no shard."""
    run = command_in(in_shards)

    def merged(name: str, *paths: object) -> bytes:
        assert run("merge", *paths, "-o", tmp_path / name).returncode == 0
        return (tmp_path / name).read_bytes()

    expected = merged("all.jsonl", *SHARDS)

    assert merged("backwards.jsonl", *reversed(SHARDS)) == expected
    packed = merged("a.jsonl.gz", *SHARDS)
    assert packed == merged("b.jsonl.gz", *reversed(SHARDS))
    assert gzip.decompress(packed) == expected
    line = refused(run("merge", tmp_path / "all.jsonl", "-o", tmp_path / "again.jsonl"))
    assert line == f"{tmp_path / 'all.jsonl'}: is a merged file; give the files that it was made of"


RECORDED = Path(__file__).parent.parent / "reports" / "runs" / "torch-2.1.2-cpu.jsonl.gz"


@pytest.mark.parametrize(("second", "code", "text"), table("commands.txt", "not joined"))
def test_what_is_not_joined(in_shards: Path, tmp_path: Path, second: str, code: str, text: str) -> None:
    """The first thing that differs is named, in one line, and nothing is written."""
    other = {"first": Path(SHARDS[0]), "recorded": RECORDED}.get(second, tmp_path / "other.jsonl")
    if second.startswith("{"):
        changed(Path(shutil.copy(in_shards / SHARDS[1], other)), **json.loads(second))

    line = refused(command_in(in_shards)("merge", SHARDS[0], other, "-o", tmp_path / "all.jsonl"), int(code))

    assert line.startswith(str(other))
    assert text in line
    assert not (tmp_path / "all.jsonl").exists()
    assert not [*tmp_path.glob(".detmatrix*")]


def test_a_row_that_no_file_observed(in_shards: Path, tmp_path: Path) -> None:
    """What is joined of all shards is not called complete without it, and nothing is written."""
    # The first row of the plan.
    other = Path(shutil.copy(in_shards / SHARDS[0], tmp_path / "other.jsonl"))
    records = lines(other)
    lost = next(one for one in records if one["kind"] == "observation" and "control" not in one["spec"])
    ours = {name: lost[name] for name in ("spec", "case", "direction", "dtype")}
    kept = [one for one in records if one["kind"] == "header" or not ours.items() <= one.items()]
    kinds = Counter(one["kind"] for one in kept)
    kept[-1] |= {
        "observations": kinds["observation"],
        "costs": kinds["cost"],
        "dispatches": kinds["dispatch"],
    }
    write_lines(other, kept)

    line = refused(command_in(in_shards)("merge", other, *SHARDS[1:], "-o", tmp_path / "all.jsonl"), 3)

    assert line == f"{other}: has no observation of {':'.join(ours.values())}; scan with --resume"
    assert not (tmp_path / "all.jsonl").exists()


def test_nothing_is_overwritten_unasked(in_shards: Path, tmp_path: Path) -> None:
    """Neither an input, nor what is there; --force overwrites the latter."""
    run, merged = command_in(in_shards), tmp_path / "all.jsonl"
    merged.write_text("precious")

    assert "is there already" in run("merge", SHARDS[0], "-o", merged).stderr
    assert "is one of the files to merge" in run("merge", SHARDS[0], "-o", SHARDS[0], "--force").stderr
    assert run("merge", SHARDS[0], "-o", merged, "--force").returncode == 0
    assert read_run(merged).header.parts


def test_entries_of_databases(tmp_path: Path, detmatrix: Command) -> None:
    """Their rows stand in lines behind the header, in planned order, whatever was joined first."""
    for number in range(1, 4):
        write_shard(tmp_path / f"{number}.jsonl", 700, number, 3)
    detmatrix("merge", "1.jsonl", "2.jsonl", "3.jsonl", "-o", "all.jsonl")
    detmatrix("merge", "3.jsonl", "1.jsonl", "2.jsonl", "-o", "again.jsonl")

    run = read_run(tmp_path / "all.jsonl")
    assert (tmp_path / "again.jsonl").read_bytes() == (tmp_path / "all.jsonl").read_bytes()
    assert [*dict.fromkeys(row.spec for row in run.header.planned)] == [*run.header.groups]
    assert [one.entries for one in run.header.enumerated] == [7]
    assert {*Counter((one.key, one.mode, one.process) for one in run.observations).values()} == {1}
    # A sentinel stands before the row that it stood before in its shard.
    before = read_run(tmp_path / "2.jsonl")
    for then, now in zip(before.sentinels, (one for one in run.sentinels if one.worker == 1), strict=True):
        assert run.header.planned[now.before].key == before.header.planned[then.before].key


def test_a_compressed_merged_file_may_be_large(
    in_shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it holds is held against its own size: it is no file that unpacks to a thousand times of it."""
    monkeypatch.setattr("detmatrix.scanner.observations.opening.MOST_UNPACKED", 1)
    run, merged = command_in(in_shards), tmp_path / "all.jsonl.gz"
    run("merge", *SHARDS, "-o", merged)
    assert run("report", merged).returncode == 0

    merged.write_bytes(gzip.compress(gzip.decompress(merged.read_bytes()) + b" " * (10 << 20)))
    assert "unpack it with gunzip if you trust it" in refused(run("report", merged), 3)


# --shard: which rows a shard has, how it goes on, and what is no shard.


def test_more_shards_than_ops(detmatrix: Command, tmp_path: Path) -> None:
    """A shard without rows is refused by every job alike, before anything is measured."""
    scan = ("scan", "--device", "cpu", "--python", StandIn(tmp_path).python, "--shard")
    for shard, patterns, text in (
        ("1/99", ("cumsum", "kthvalue"), "99 shards, and there are 2 ops"),
        ("2/2", ("kthvalue",), "2 shards, and there is 1 op"),
    ):
        line = refused(detmatrix(*scan, shard, *patterns))
        assert line == f"--shard, --shards: {text} to divide among them; give fewer shards"
    assert not list(tmp_path.glob("*.jsonl"))


def test_a_shard_goes_on_as_the_shard_that_it_is(in_shards: Path, tmp_path: Path, detmatrix: Command) -> None:
    """--resume needs no --shard, takes the same one, and refuses another; without a file it starts."""
    python = StandIn(tmp_path).python
    whole = (in_shards / SHARDS[2]).read_text().splitlines(keepends=True)
    path = tmp_path / "shard.jsonl"
    path.write_text("".join(whole[: len(whole) // 2]))
    again = ("scan", "--resume", "--python", python, "-o", path)

    line = refused(detmatrix(*again, "--shard", "2/8"))
    assert "--shard is not the one it began with (2/8, it has 3/8)" in line
    assert detmatrix(*again, "--shard", "3/8", *OPTIONS).returncode == 0
    assert cells(path) == cells(in_shards / SHARDS[2])
    started = tmp_path / "new.jsonl"
    done = detmatrix("scan", *OPTIONS, "--shard", "3/8", "--resume", "--python", python, "-o", started)
    assert done.returncode == 0
    assert cells(started) == cells(path)
