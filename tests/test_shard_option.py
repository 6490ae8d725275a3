"""--shard and --balance: which rows a shard has, how it goes on, and what is no shard."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from detmatrix.scanner.cases.shards import divided
from detmatrix.scanner.errors import UsageError
from detmatrix.scanner.observations.runfile import read_run
from tests.commands import Command
from tests.sharded import OPTIONS, cells, shard_name
from tests.stand_in import StandIn


@pytest.mark.parametrize("shard", ["0/4", "5/4", "4", "1/0", "1/20000", "a/b", "-1/4", "1/4/2"])
def test_no_shard_of_any_plan(detmatrix: Command, shard: str) -> None:
    """One line says what a shard is."""
    done = detmatrix("scan", "--shard", shard)

    assert done.returncode == 2
    assert f"{shard!r} is no shard; give I/N with I from 1 to N, and N up to 10000" in done.stderr
    assert done.stderr.count("\n") == 1


def test_more_shards_than_ops(detmatrix: Command, tmp_path: Path) -> None:
    """A shard without rows is refused by every job alike, before anything is measured."""
    scan = ("scan", "--device", "cpu", "--python", StandIn(tmp_path).python, "--shard")
    for shard, patterns, text in (
        ("1/99", ("cumsum", "kthvalue"), "99 shards, and there are 2 ops"),
        ("2/2", ("kthvalue",), "2 shards, and there is 1 op"),
    ):
        done = detmatrix(*scan, shard, *patterns)
        assert (done.returncode, done.stderr.splitlines()[-1]) == (
            2,
            f"detmatrix: --shard, --shards: {text} to divide among them; give fewer shards",
        )
    assert not list(tmp_path.glob("*.jsonl"))


def test_a_shard_goes_on_as_the_shard_that_it_is(in_shards: Path, tmp_path: Path, detmatrix: Command) -> None:
    """--resume needs no --shard, takes the same one, and refuses another; without a file it starts."""
    python = StandIn(tmp_path).python
    whole = (in_shards / shard_name(3)).read_text().splitlines(keepends=True)
    path = tmp_path / "shard.jsonl"
    path.write_text("".join(whole[: len(whole) // 2]))
    again = ("scan", "--resume", "--python", python, "-o", path)

    refused = detmatrix(*again, "--shard", "2/8")
    assert "--shard is not the one it began with (2/8, it has 3/8)" in refused.stderr
    assert detmatrix(*again, "--shard", "3/8", *OPTIONS).returncode == 0
    assert cells(path) == cells(in_shards / shard_name(3))
    started = tmp_path / "new.jsonl"
    assert (
        detmatrix(
            "scan", *OPTIONS, "--shard", "3/8", "--resume", "--python", python, "-o", started
        ).returncode
        == 0
    )
    assert cells(started) == cells(path)


def test_balanced_by_an_earlier_run(in_shards: Path, tmp_path: Path, detmatrix: Command) -> None:
    """--balance divides by the seconds of a run; files divided otherwise are not of one plan."""
    before = tmp_path / "before.jsonl"
    lines = [json.loads(line) for line in (in_shards / "whole.jsonl").read_text().splitlines()]
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


def test_shards_on_gpus_of_one_kind_are_of_one_plan(tmp_path: Path, detmatrix: Command) -> None:
    """Which of its GPUs a machine gives to a shard is no part of the plan; the kind of device is."""
    gpu = {"kind": "cuda", "name": "Pretended GPU", "capability": "8.0", "memory": 80 << 30}
    python = StandIn(tmp_path, build={"devices": [gpu, gpu]}).python
    options = ("cumsum", "cumprod", "--runs", 4, "--processes", 1, "--no-cost", "--no-overloads")
    for number, device in ((1, "cuda:0"), (2, "cuda:1"), (2, "cpu")):
        name = ("--shard", f"{number}/2", "-o", f"{device}.jsonl")
        done = detmatrix("scan", *options, "--python", python, "--device", device, *name)
        assert done.returncode == 0, done.stderr

    done = detmatrix("merge", "cuda:0.jsonl", "cuda:1.jsonl", "-o", "all.jsonl")

    assert (done.returncode, done.stderr) == (0, "")
    run = read_run(tmp_path / "all.jsonl")
    assert {one.key for one in run.observations} == {row.key for row in run.header.planned}
    assert detmatrix("merge", "cuda:0.jsonl", "cpu.jsonl", "-o", "both.jsonl").returncode == 2


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
