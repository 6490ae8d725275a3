"""Whoever sends a run file fills no memory and keeps no command busy: what no scan writes is refused, in one line."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from detmatrix.scanner.observations import files, runfile
from detmatrix.scanner.observations.records import Claim, Dtype, Perturbed, Sentinel
from detmatrix.scanner.observations.settings import Device, Perturb
from tests.conftest import refusal
from tests.runs import ran, row, stable, write_run

ROW = row("torch.cumsum")
RARE = row("control.rare")


def _claim(number: int, op: str) -> Claim:
    return Claim(
        id=str(number),
        section="raises",
        targets=(op,),
        device="any",
        direction="any",
        conditions=(),
        text="",
        parsed=True,
        order=number,
    )


def _edited(path: Path, line: int, change: Callable[[dict[str, Any]], object]) -> None:
    """Change one line of a run file, counted from 1."""
    records = path.read_text().splitlines()
    record = json.loads(records[line - 1])
    change(record)
    path.write_text("\n".join([*records[: line - 1], json.dumps(record), *records[line:], ""]))


def test_counts_are_held_against_the_settings(tmp_path: Path) -> None:
    """A control that would be executed for a thousand years is not counted up to."""
    path = write_run(tmp_path / "run.jsonl", [], controls=[(RARE, ran(RARE, "off", *stable()))])
    _edited(path, 2, lambda one: one.update(executions=10**15, digests={"a": 10**15}))

    assert refusal(path).startswith(
        "line 2: the observation of control.rare:collisions:forward:float32 counts 1000000000000000 executions, the scan "
        "makes 50 - at `$.executions`"
    )


def test_what_unpacks_to_too_much_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading stops at the limit, and the line says what to do with a file that one trusts."""
    monkeypatch.setattr(files, "MOST_UNPACKED", 1 << 20)
    whole = gzip.GzipFile.read
    read: list[int] = []

    def counted(self: gzip.GzipFile, size: int | None = -1) -> bytes:
        read.append(1)
        return whole(self, size)

    monkeypatch.setattr(gzip.GzipFile, "read", counted)
    path = tmp_path / "run.jsonl.gz"
    path.write_bytes(gzip.compress(bytes(8 << 20)))

    text = refusal(path)

    assert text == "holds more than 1 MB; unpack it with gunzip if you trust it, and give what comes out"
    assert len(read) == 2


@pytest.mark.parametrize(("limit", "number"), [("_LONGEST_HEADER", 1), ("_LONGEST_LINE", 2)])
def test_lines_have_limits(
    small: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, number: int
) -> None:
    """A line without an end is read to the limit and no further."""
    monkeypatch.setattr(runfile, limit, 1 << 20)
    path = tmp_path / "run.jsonl"
    path.write_bytes(b"".join(small.splitlines(keepends=True)[: number - 1]) + b"[" * (2 << 20))

    assert refusal(path) == f"line {number}: is longer than 1 MB; give a file that scan wrote"


def test_claims_have_limits(tmp_path: Path) -> None:
    """Each is held against every row, and those of one op against one another."""
    many = write_run(tmp_path / "many.jsonl", [], claims=tuple(_claim(n, f"torch.op{n}") for n in range(301)))
    of_one = write_run(tmp_path / "one.jsonl", [], claims=tuple(_claim(n, "torch.take") for n in range(21)))

    assert "of length <= 300 - at `$.claims`" in refusal(many)
    assert refusal(of_one) == (
        "line 1: 21 claims speak of torch.take, a release has 20 at most - at `$.claims`; restore the file"
    )


def test_lines_that_may_stand_twice_have_limits(small: bytes, tmp_path: Path) -> None:
    """Sentinels, of which an interrupted scan has one more, and reasons for distrust."""
    sentinel = Sentinel(mode="off", process=0, before=0, op="x", executions=1, differing=0, load=0.0)
    path = write_run(tmp_path / "run.jsonl", [(ROW, [])], sentinels=[sentinel] * 2000)
    assert "the sentinel before row 0 (process 0) was never planned" in refusal(path)

    header = small.splitlines(keepends=True)[0]
    path.write_bytes(header + b'{"kind":"distrust","reason":"x"}\n' * 20_000)
    assert refusal(path) == "line 10002: 10001 reasons for distrust; restore the file"


@pytest.mark.parametrize(
    ("kind", "name"), [(Device, "cpu"), (Perturb, "quiet"), (Dtype, "float32"), (Perturbed, "threads=2")]
)
def test_a_name_ends_where_its_line_does(kind: Any, name: str) -> None:
    """What stands in scripts and requests has no line behind it."""
    assert msgspec.convert(name, kind) == name
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(f"{name}\n", kind)
