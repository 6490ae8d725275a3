"""Shards of a plan: what they scan together is what one scan does, however their files are joined; what is not joined."""

from __future__ import annotations

import gzip
import json
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reports.matrix.model import load
from scanner.cases.shards import divided
from scanner.errors import UsageError
from scanner.observations.runfile import Run, read_run
from tests.commands import Command, command_in
from tests.stand_in import StandIn

OPS = (
    "torch.Tensor.put_",
    "take",
    "cumsum",
    "cumprod",
    "index_add",
    "kthvalue",
    "histc",
    "bincount",
    "NLLLoss",
    "gather",
)
OPTIONS = (*OPS, "--device", "cpu", "--runs", 8, "--processes", 1)
SHARDS = 8


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Scan all rows at once, and in eight shards on two machines, the last three of which are another."""
    folder = tmp_path_factory.mktemp("shards")
    standing = StandIn(folder)
    run = command_in(folder)
    assert run("scan", *OPTIONS, "--python", standing.python, "-o", "whole.jsonl").returncode == 0
    for number in range(1, SHARDS + 1):
        done = run("scan", *OPTIONS, "--python", standing.python, "--shard", f"{number}/{SHARDS}")
        assert done.returncode == 0, done.stderr
        path = folder / f"detmatrix-{number}-of-{SHARDS}.jsonl"
        if number > 5:
            _change(path, environment={"cpu": "Another CPU", "threads": 16})
    return folder


def _change(path: Path, **changed: Any) -> None:
    """Change the header of a run file; what is a dictionary is added to."""
    header, _, rest = path.read_text().partition("\n")
    record = json.loads(header)
    for name, value in changed.items():
        record[name] = {**record[name], **value} if isinstance(value, dict) else value
    path.write_text(f"{json.dumps(record)}\n{rest}")


def _shard(number: int) -> str:
    return f"detmatrix-{number}-of-{SHARDS}.jsonl"


def _cells(path: Path) -> dict[str, tuple[object, ...]]:
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


def test_eight_shards_are_one_scan(files: Path, tmp_path: Path) -> None:
    """Every cell is that of one scan, every row is observed once, and each names the machine it was observed on."""
    merged = tmp_path / "all.jsonl"
    done = command_in(files)("merge", *map(_shard, range(1, SHARDS + 1)), "-o", merged)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    one, other = read_run(files / "whole.jsonl"), read_run(merged)
    assert _cells(merged) == _cells(files / "whole.jsonl")
    assert [*_cells(merged)] == [*_cells(files / "whole.jsonl")]  # in the planned order
    assert _observed(other) == _observed(one)
    assert other.closing is not None
    assert (len(other.costs), len(other.dispatches)) == (len(one.costs), len(one.dispatches))
    shards = {part.shard: part.environment.cpu for part in other.header.parts}
    assert [shard for shard, cpu in shards.items() if cpu == "Another CPU"] == [6, 7, 8]
    workers = {row.key: other.header.parts[row.part].shard for row in other.header.planned}
    assert {one.key: one.worker + 1 for one in other.observations} == workers
    assert workers == {row.key: other.header.groups[row.spec] for row in other.header.planned}


def test_the_bytes_depend_on_what_is_joined_alone(files: Path, tmp_path: Path) -> None:
    """Any order and any grouping gives the same bytes, plain and compressed."""
    run, shards = command_in(files), [*map(_shard, range(1, SHARDS + 1))]

    def merged(name: str, *paths: object) -> Path:
        assert run("merge", *paths, "-o", tmp_path / name).returncode == 0
        return tmp_path / name

    expected = merged("all.jsonl", *shards).read_bytes()
    backwards = merged("backwards.jsonl", *reversed(shards))
    pairs = [merged(f"pair{place}.jsonl.gz", shards[place], shards[place - 4]) for place in range(4)]
    one_by_one = merged("0.jsonl", shards[3])
    for place, path in enumerate((*shards[4:], *shards[:3]), start=1):
        one_by_one = merged(f"{place}.jsonl", path, one_by_one)
    packed = [merged(f"{name}.jsonl.gz", *paths) for name, paths in (("a", shards), ("b", pairs))]

    assert backwards.read_bytes() == one_by_one.read_bytes() == expected
    assert merged("again.jsonl", tmp_path / "all.jsonl").read_bytes() == expected
    assert packed[0].read_bytes() == packed[1].read_bytes()
    assert gzip.decompress(packed[0].read_bytes()) == expected


def test_a_file_continued_on_another_machine_is_joined_likewise(tmp_path: Path) -> None:
    """Rows come from the last file that plans them; three files of one shard give the same bytes in any order."""
    standing, run = StandIn(tmp_path), command_in(tmp_path)
    scan = ("scan", *OPTIONS, "--python", standing.python, "-o", "run.jsonl")
    run(*scan)
    whole = _cells(tmp_path / "run.jsonl")
    for name, machine in (("run.jsonl", "B"), ("run.2.jsonl", "C")):
        lines = (tmp_path / name).read_text().splitlines(keepends=True)
        inside = [
            place for place, line in enumerate(lines) if '"mode":"on"' in line and "control." not in line
        ]
        (tmp_path / name).write_text("".join(lines[: inside[len(inside) // 2]]))
        _change(tmp_path / name, environment={"cpu": machine})
        assert run(*scan, "--resume").returncode == 0

    names = ("run.jsonl", "run.2.jsonl", "run.3.jsonl")
    assert run("merge", *names, "-o", "all.jsonl").stderr == ""
    assert _cells(tmp_path / "all.jsonl") == whole
    merged = read_run(tmp_path / "all.jsonl")
    assert {part.environment.cpu for part in merged.header.parts} >= {"B", "C"}
    assert set(_observed(merged).values()) == {1}
    for place in range(3):
        first, second, third = names[place:] + names[:place]
        missing = run("merge", first, second, "-o", "part.jsonl", "--force").stderr
        assert missing.startswith("part.jsonl: ")
        assert run("merge", third, "part.jsonl", "-o", "again.jsonl", "--force").stderr == ""
        assert (tmp_path / "again.jsonl").read_bytes() == (tmp_path / "all.jsonl").read_bytes()


def test_missing_shards_are_told(files: Path, tmp_path: Path, detmatrix: Command) -> None:
    """By merge, and by every report of what there is, which is complete when the rest is there."""
    run = command_in(files)
    cut = shutil.copy(files / _shard(4), tmp_path / "cut.jsonl")
    lines = Path(cut).read_text().splitlines(keepends=True)
    Path(cut).write_text("".join(lines[:-1]))

    done = run("merge", _shard(1), _shard(5), cut, "-o", tmp_path / "some.jsonl.gz")

    missing = "shards 2-3, 6-8 of 8 are missing; shard 4 of 8 is not finished"
    assert done.returncode == 0
    assert done.stderr.strip() == f"{tmp_path}/some.jsonl.gz: {missing}"
    text = detmatrix("report", "some.jsonl.gz", "--format", "md", "--all").stdout
    assert f"Incomplete: {missing}" in text
    assert "3 of 8, in 3 files" in text
    resumed = detmatrix("scan", "--resume", "-o", "some.jsonl.gz")
    assert resumed.returncode == 2


@pytest.mark.parametrize(
    "words",
    [
        ("report", "--format", "text"),
        ("report", "--format", "md", "--all"),
        ("report", "--format", "html"),
        ("report", "--format", "csv"),
        ("report", "--format", "json"),
        ("report", "--format", "junit"),
        ("report", "--format", "github"),
        ("docs",),
        ("docs", "--format", "json"),
        ("coverage",),
        ("explain", "put_"),
    ],
)
def test_every_command_takes_merged_files(files: Path, words: tuple[str, ...]) -> None:
    """A merged file is a run file."""
    run = command_in(files)
    merged = files / "merged.jsonl.gz"
    if not merged.exists():
        run("merge", *map(_shard, range(1, SHARDS + 1)), "-o", merged)

    done = run(*words, merged)

    assert (done.returncode, done.stderr.startswith("detmatrix:")) == (0, False), done.stderr
    if words[-1] in {"json", "csv"} and words[0] == "report":
        assert "Another CPU, 16 threads" in done.stdout
    if words[-1] == "--all":
        assert "Another CPU (shards 6-8 of 8)" in done.stdout


def test_a_merged_run_compares_row_by_row(files: Path, tmp_path: Path) -> None:
    """Rows of one machine are compared with those of the same; those of another are not comparable."""
    run = command_in(files)
    run("merge", *map(_shard, range(1, SHARDS + 1)), "-o", tmp_path / "all.jsonl")

    done = run("compare", "whole.jsonl", tmp_path / "all.jsonl", "--format", "json")

    assert done.returncode == 0, done.stderr
    (rows,) = [pair["rows"] for pair in _pairs(json.loads(done.stdout))]
    parts = {row.id: row.part for row in read_run(tmp_path / "all.jsonl").header.planned}
    for row in rows:
        elsewhere = parts[f"{row['spec']}:{row['case']}:{row['direction']}:{row['dtype']}"] >= 5
        assert (row["reason"] == "other_device") == elsewhere


def _pairs(found: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from found.get("pairs", [found])


@pytest.mark.parametrize("shard", ["0/4", "5/4", "4", "1/0", "1/20000", "a/b", "-1/4", "1/4/2"])
def test_no_shard_of_any_plan(detmatrix: Command, shard: str) -> None:
    """One line says what a shard is."""
    done = detmatrix("scan", "--shard", shard)

    assert done.returncode == 2
    assert f"{shard!r} is no shard; give I/N with I from 1 to N, and N up to 10000" in done.stderr
    assert done.stderr.count("\n") == 1


def test_more_shards_than_ops(detmatrix: Command, tmp_path: Path) -> None:
    """A shard without rows is refused by every job alike, before anything is measured."""
    done = detmatrix("scan", *OPTIONS, "--python", StandIn(tmp_path).python, "--shard", "1/99")

    assert done.returncode == 2
    assert "--shard: 99 shards, and there are " in done.stderr
    assert not list(tmp_path.glob("*.jsonl"))


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"settings": {"runs": 9}}, "--runs is 9, not 8"),
        ({"environment": {"torch": "2.15.0"}}, "torch is 2.15.0, not 2.13.0+standin"),
        ({"tool": "9"}, "detmatrix is 9, not "),
        ({"plan": "f" * 64}, "the catalogs or files of specs were not the same"),
    ],
)
def test_files_of_other_plans(files: Path, tmp_path: Path, changed: dict[str, Any], text: str) -> None:
    """The first thing that differs is named, in one line, and nothing is written."""
    other = Path(shutil.copy(files / _shard(2), tmp_path / "other.jsonl"))
    _change(other, **changed)

    done = command_in(files)("merge", _shard(1), other, "-o", tmp_path / "all.jsonl")

    assert done.returncode == 2
    assert f"{other}: is of another plan than {_shard(1)}: {text}" in done.stderr
    assert done.stderr.count("\n") == 1
    assert [*tmp_path.glob("*.jsonl")] == [other]


def test_a_shard_twice(files: Path, tmp_path: Path) -> None:
    """Two files of one shard, or a merged file that has it, are refused."""
    run = command_in(files)
    run("merge", _shard(2), _shard(3), "-o", tmp_path / "pair.jsonl")
    for first, second in ((_shard(1), _shard(1)), (_shard(3), tmp_path / "pair.jsonl")):
        done = run("merge", first, second, "-o", tmp_path / "all.jsonl")
        assert done.returncode == 2
        number = 1 if first == second else 3
        assert (
            done.stderr
            == f"detmatrix: {second}: has shard {number} of 8, and so has {first}; give one of them\n"
        )


def test_rows_of_another_shard(files: Path, tmp_path: Path) -> None:
    """A file that says it is another shard than its rows are of is damaged, for every command."""
    other = Path(shutil.copy(files / _shard(2), tmp_path / "other.jsonl"))
    _change(other, shard=3)

    for words in (("merge", _shard(1), other, "-o", tmp_path / "all.jsonl"), ("report", other)):
        done = command_in(files)(*words)
        assert done.returncode == 3
        assert "is in shard 2 of the plan, not in 3" in done.stderr
        assert done.stderr.count("\n") == 1


def test_cut_and_foreign_files(files: Path, tmp_path: Path) -> None:
    """A file cut within its compression, one that is no run file, and one of an earlier format: one line each."""
    packed = tmp_path / "cut.jsonl.gz"
    packed.write_bytes(gzip.compress((files / _shard(2)).read_bytes())[:-20])
    foreign = tmp_path / "foreign.jsonl"
    foreign.write_text("{}\n")
    recorded = Path(__file__).parent.parent / "reports" / "runs" / "torch-2.13.0-cpu.jsonl.gz"
    damaged = tmp_path / "damaged.jsonl"
    lines = (files / _shard(2)).read_text().splitlines(keepends=True)
    damaged.write_text("".join((*lines[:-2], lines[-2].replace('"outcome":"', '"outcome":"x'), lines[-1])))
    for path, code, text in (
        (packed, 3, "cannot be read"),
        (foreign, 3, "not a detmatrix run file"),
        (damaged, 3, f"line {len(lines) - 1}: Invalid"),
        (recorded, 2, "names no plan, an earlier detmatrix wrote it; scan again to merge"),
    ):
        done = command_in(files)("merge", _shard(1), path, "-o", tmp_path / "all.jsonl")
        assert (done.returncode, done.stderr.count("\n")) == (code, 1)
        assert f"{path}" in done.stderr
        assert text in done.stderr
    assert not (tmp_path / "all.jsonl").exists()
    assert not [*tmp_path.glob(".detmatrix*")]


def test_nothing_is_overwritten_unasked(files: Path, tmp_path: Path) -> None:
    """Neither an input, nor what is there; --force overwrites the latter."""
    run, merged = command_in(files), tmp_path / "all.jsonl"
    merged.write_text("precious")

    assert "is there already" in run("merge", _shard(1), "-o", merged).stderr
    assert "is one of the files to merge" in run("merge", _shard(1), "-o", _shard(1), "--force").stderr
    assert run("merge", _shard(1), "-o", merged, "--force").returncode == 0
    assert read_run(merged).header.parts


def test_a_merged_file_is_not_resumed(files: Path, tmp_path: Path) -> None:
    """It has no worker of its own: the files that it was made of go on."""
    run = command_in(files)
    run("merge", _shard(1), "-o", tmp_path / "some.jsonl")

    done = run("scan", "--resume", "-o", tmp_path / "some.jsonl")

    assert done.returncode == 2
    assert "is a merged file; go on with the files that it was made of" in done.stderr


def test_a_shard_goes_on_as_the_shard_that_it_is(files: Path, tmp_path: Path, detmatrix: Command) -> None:
    """--resume needs no --shard, takes the same one, and refuses another; without a file it starts."""
    python = StandIn(tmp_path).python
    whole = (files / _shard(3)).read_text().splitlines(keepends=True)
    path = tmp_path / "shard.jsonl"
    path.write_text("".join(whole[: len(whole) // 2]))
    again = ("scan", "--resume", "--python", python, "-o", path)

    refused = detmatrix(*again, "--shard", "2/8")
    assert "--shard is not the one it began with (2/8, it has 3/8)" in refused.stderr
    assert detmatrix(*again, "--shard", "3/8", *OPTIONS).returncode == 0
    assert _cells(path) == _cells(files / _shard(3))
    started = tmp_path / "new.jsonl"
    assert (
        detmatrix(
            "scan", *OPTIONS, "--shard", "3/8", "--resume", "--python", python, "-o", started
        ).returncode
        == 0
    )
    assert _cells(started) == _cells(path)


def test_balanced_by_an_earlier_run(files: Path, tmp_path: Path, detmatrix: Command) -> None:
    """--balance divides by the seconds of a run; files divided otherwise are not of one plan."""
    before = tmp_path / "before.jsonl"
    lines = [json.loads(line) for line in (files / "whole.jsonl").read_text().splitlines()]
    for line in lines:
        if line["kind"] == "observation":
            line["seconds"] = 100.0 if "put_" in line["spec"] else 1.0
    before.write_text("".join(json.dumps(line) + "\n" for line in lines))
    options = (*OPTIONS, "--python", StandIn(tmp_path).python, "--balance", before)

    for number in (1, 2):
        assert detmatrix("scan", *options, "--shard", f"{number}/2").returncode == 0

    assert {row.spec for row in read_run(tmp_path / "detmatrix-1-of-2.jsonl").header.planned} == {
        "torch.Tensor.put_"
    }
    detmatrix("scan", *options[:-2], "--shard", "2/2", "-o", "otherwise.jsonl")
    done = detmatrix("merge", "detmatrix-1-of-2.jsonl", "otherwise.jsonl", "-o", "all.jsonl")
    assert "its ops are divided otherwise among the shards (--balance)" in done.stderr
    assert (
        "--balance says how --shard divides the ops; give both"
        in detmatrix("scan", "--balance", before).stderr
    )


def test_groups_are_divided_by_their_seconds() -> None:
    """Every Nth without seconds; with them no shard has much more to do than another, and each has a group."""
    groups = [f"op{number}" for number in range(100)]
    assert [*divided(groups, 3, {}).values()][:7] == [1, 2, 3, 1, 2, 3, 1]
    seconds = {group: float(number % 7) ** 2 for number, group in enumerate(groups)}
    shares = Counter[int]()
    for group, shard in divided(groups, 8, seconds).items():
        shares[shard] += int(seconds[group])
    assert max(shares.values()) <= 1.1 * min(shares.values())
    assert {*divided(groups, 100, dict.fromkeys(groups, 0.0)).values()} == {*range(1, 101)}
    # What the run did not have is taken to be ordinary, and where it has nothing to say all groups are alike.
    assert divided(["a", "b", "c"], 2, {"a": 2.0}) == {"a": 1, "b": 2, "c": 1}
    with pytest.raises(UsageError):
        divided(["a"], 2, {})
