"""Run files of any format: what is written is read back, what is torn is left out, what is damaged is refused."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from functools import reduce
from itertools import product
from operator import getitem
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detmatrix.scanner.errors import RunFileError, UsageError
from detmatrix.scanner.observations import opening, runfile
from detmatrix.scanner.observations.merge import merge
from detmatrix.scanner.observations.records import FORMAT, BuildOverloads, Header, Sentinel
from detmatrix.scanner.observations.runfile import Run, read_run
from detmatrix.scanner.observations.writer import RunWriter
from detmatrix.scanner.verdicts.findings import matrix
from tests.conftest import ADVICE, RECORDED, approved_lines, is_approved, refusal, write_lines
from tests.evidence_runs import asked_of, cost, reached, sentinel
from tests.large import write_shard
from tests.runs import ENVIRONMENT, SETTINGS, raised, ran, row, stable, write_run

_ROW = row("torch.cumsum")
_OBSERVED = [*ran(_ROW, "off", *stable()), *raised(_ROW, "on", "put_")[:1]]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return a complete run of one row: a header, three observations, a closing line."""
    return write_run(tmp_path_factory.mktemp("small") / "run.jsonl", [(_ROW, _OBSERVED)]).read_bytes()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return one file for hypothesis to write again and again."""
    return tmp_path_factory.mktemp("damaged") / "run.jsonl"


def test_what_is_written_is_read_back(place: Path) -> None:
    """The first execution's digest stands first, on which comparisons rest; text that is no UTF-8 costs its bytes, not the scan."""
    observed = [*ran(_ROW, "off", {"z": 1, "a": 48, "m": 1}), *raised(_ROW, "on", "put_\udc80")]
    environment = msgspec.structs.replace(ENVIRONMENT, variables={"off": {"LANG": "\udcff é"}, "on": {}})

    run = read_run(write_run(place, [(_ROW, observed)], environment=environment))

    assert run.header.environment.variables == {"off": {"LANG": "? é"}, "on": {}}
    assert [str(one.message)[:6] for one in run.observations] == ["None", "put_? ", "put_? "]
    assert list(run.observations[0].digests) == ["z", "a", "m"]
    assert run.observations[0].key == _ROW.key


# Cut short


def test_every_prefix_is_the_run_up_to_its_last_whole_line(small: bytes, place: Path) -> None:
    """A crash may cut the file at any byte, and a file system leave zeros there: the torn line is left out."""
    whole = _read(place, small)
    first = small.index(b"\n") + 1
    for length, zeros in product(range(len(small)), (0, 9)):
        end = small.rfind(b"\n", 0, length) + 1
        place.write_bytes(small[:length] + bytes(zeros))
        if length < first:
            text = refusal(place)
            assert text == f"not a detmatrix run file (no whole line in it); {ADVICE}"
        else:
            run = read_run(place)
            count = small.count(b"\n", 0, length) - 1
            assert (run.end, run.closing, run.header) == (end, None, whole.header)
            assert run.observations == whole.observations[:count]


def _written(place: Path, data: bytes) -> Path:
    place.write_bytes(data)
    return place


def _read(place: Path, data: bytes) -> Run:
    return read_run(_written(place, data))


def test_truncated_compressed_file_is_refused(small: bytes, place: Path) -> None:
    """Cut anywhere, a compressed file gives exit code 3 and nothing else."""
    data = gzip.compress(small, mtime=0)

    # The empty file and its first byte have no whole line.
    assert {refusal(_written(place, data[:length])) for length in range(len(data))} == {
        f"cannot be read (Compressed file ended before the end-of-stream marker was reached); {ADVICE}",
        f"not a detmatrix run file (no whole line in it); {ADVICE}",
    }


# Damaged


@given(data=st.data())
@settings(max_examples=400, deadline=None)
def test_damage_gives_a_run_or_a_refusal(data: st.DataObject, small: bytes, place: Path) -> None:
    """However bytes are changed, dropped, doubled or put in, reading ends in a run or in exit code 3."""
    mutated = bytearray(small)
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(mutated)))
        end = data.draw(st.integers(start, min(len(mutated), start + 40)))
        mutated[start:end] = data.draw(
            st.binary(max_size=6)
            | st.sampled_from(
                [b"", b"\n", b"null", b"-1", b"1e999", b"9" * 400, b"NaN", b"[" * 5000, b'"\\ud800"']
            )
            | st.just(bytes(mutated[start:end]) * 2)
        )
    place.write_bytes(bytes(mutated))

    try:
        run = read_run(place)
    except RunFileError as error:
        assert "\n" not in str(error)  # noqa: PT017
    else:
        assert isinstance(run.header, Header)


# Whoever sends a run file fills no memory and keeps no command busy: what no scan writes is refused, in one line.


def test_what_unpacks_to_too_much_is_not_unpacked(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading stops at the limit, and the line says what to do with a file that one trusts."""
    monkeypatch.setattr(opening, "MOST_UNPACKED", 1 << 20)
    place.write_bytes(gzip.compress(bytes(8 << 20)))

    with mock.patch.object(gzip.GzipFile, "read", autospec=True, side_effect=gzip.GzipFile.read) as read:
        text = refusal(place)

    assert text == "holds more than 1 MB; unpack it with gunzip if you trust it, and give what comes out"
    assert read.call_count == 2


@pytest.mark.parametrize(("limit", "number"), [("_LONGEST_HEADER", 1), ("_LONGEST_LINE", 2)])
def test_lines_have_limits(place: Path, small: bytes, limit: str, number: int) -> None:
    """A line without an end is read to the limit and no further."""
    place.write_bytes(b"".join(small.splitlines(keepends=True)[: number - 1]) + b"[" * (2 << 20))

    with mock.patch.object(runfile, limit, 1 << 20):
        assert refusal(place) == f"line {number}: is longer than 1 MB; give a file that scan wrote"


def test_what_may_stand_often_has_limits(small: bytes, place: Path, tmp_path: Path) -> None:
    """Claims, each held against every row, and those of one op against one another; sentinels; reasons for distrust."""
    of_any = {"device": "any", "direction": "any", "conditions": [], "text": "", "parsed": True, "order": 0}
    claims = [{"id": f"{n}", "section": "raises", "targets": [f"torch.op{n}"], **of_any} for n in range(301)]
    of_one = [one | {"targets": ["torch.take"]} for one in claims[:21]]
    header = small.splitlines(keepends=True)[0]
    sentinel = Sentinel(mode="off", process=0, before=0, op="x", executions=1, differing=0, load=0.0)

    assert "of length <= 300 - at `$.claims`" in refusal(
        _written(place, _fields(1, {"claims": claims})(small))
    )
    assert refusal(_written(place, _fields(1, {"claims": of_one})(small))) == (
        "line 1: 21 claims speak of torch.take, a release has 20 at most - at `$.claims`; restore the file"
    )
    told = refusal(write_run(tmp_path / "run.jsonl", [(_ROW, [])], sentinels=[sentinel] * 2000))
    assert "the sentinel before row 0 (process 0) was never planned" in told
    told = refusal(_written(place, header + b'{"kind":"distrust","reason":"x"}\n' * 20_000))
    assert told == "line 10002: 10001 reasons for distrust; restore the file"


# Run files that are refused: values, lines and formats that cannot be, each told with its place.

Damage = Callable[[bytes], bytes]


@pytest.mark.parametrize("groups", [False, True])
def test_rows_of_a_part_that_is_not_there(small: bytes, place: Path, *, groups: bool) -> None:
    """Reports look up the machine of a row, also in a file that names no groups of its plan."""
    header = json.loads(small.splitlines()[0])
    part = {name: header[name] for name in ("started", "environment")}
    changes = {
        "planned": [{**header["planned"][-1], "part": 5}],
        "parts": [{**part, "shard": 1, "file": 1, "workers": 1, "closing": None}],
        "groups": {"torch.cumsum": 1} if groups else {},
    }

    assert "is of part 5, and there are 1 - at `$.planned`" in refusal(
        _written(place, _fields(1, changes)(small))
    )


def test_entries_of_another_shard(tmp_path: Path) -> None:
    """An entry without rows tells its shard by its name alone."""
    path = write_shard(tmp_path / "run.jsonl", 700, 1, 3)
    whole = path.read_bytes()
    groups = json.loads(whole.splitlines()[0])["groups"]

    for shard, expected in ((2, "is in shard 2 of the plan, not in 1"), (None, "is in no shard of the plan")):
        spec = next((name for name, of in groups.items() if of == shard), "elsewhere")
        path.write_bytes(_fields(2, {"rows": [], "spec": spec})(whole))
        assert expected in refusal(path)
        with pytest.raises(RunFileError, match=expected):
            merge([path])


def _fields(number: int, changes: dict[str, Any]) -> Damage:
    """Return what sets fields, named by their paths, of the record in a line; what is ``"GONE"`` is taken away."""

    def change(data: bytes) -> bytes:
        written = data.split(b"\n")
        record = json.loads(written[number - 1])
        for path, value in changes.items():
            *parents, name = path.split(".")
            inner = reduce(getitem, parents, record)
            inner[name] = value
            if value == "GONE":
                del inner[name]
        written[number - 1] = json.dumps(record).encode()
        return b"\n".join(written)

    return change


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return a complete run of one row that has lines of each kind."""
    rare = row("control.rare")
    path = write_run(
        tmp_path_factory.mktemp("whole") / "run.jsonl",
        [(_ROW, _OBSERVED)],
        settings=msgspec.structs.replace(
            SETTINGS, cost=True, overloads=True, invariance=("threads", "batch")
        ),
        controls=[(rare, ran(rare, "off", *stable()[:1]))],
        sentinels=[sentinel()],
        costs=[cost(_ROW, 1e-5, 3e-5)],
        kernels=BuildOverloads(groups=()),
        dispatches=[reached(_ROW, "aten::cumsum")],
        invariances=asked_of(_ROW, {"threads": ("4",), "batch": ()}),
    )
    return path.read_bytes()


@pytest.mark.parametrize(("change", "expected"), approved_lines("damages.txt", r"(\d.*)"))
def test_what_cannot_be_is_refused(whole: bytes, place: Path, change: str, expected: str) -> None:
    """The line, the field, what was expected of it and what to do; a later format says which it has; counts add up."""
    change, expected = (text.replace("NEWER", str(FORMAT + 1)) for text in (change, expected))
    numbers, brace, fields = change.partition(" {")
    if brace:
        damaged = _fields(int(numbers), json.loads(brace + fields))(whole)
    else:
        damaged = b"".join(whole.splitlines(keepends=True)[int(number) - 1] for number in numbers.split())
    place.write_bytes(damaged)

    if expected == "is read":
        assert read_run(place).closing is not None
    else:
        assert is_approved(refusal(place), expected)


def _second(content: bytes) -> Damage:
    """Return what writes something else into the second line."""
    return lambda data: b"\n".join(content if n == 1 else line for n, line in enumerate(data.split(b"\n")))


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        # What scan did not write.
        *((lambda _, content=content: content, f"not a detmatrix run file ({told}); {ADVICE}") for content, told in (
          (b"", "no whole line in it"),
          (b"{}", "no whole line in it"),
          (b"\n", "no header line"),
          (b'{"kind": 1}\n', "it is JSON of another kind"),
          (b'{"kind": "closing"}\n', "no header line"),
          (b'{\n  "rows": []\n}\n', "it is JSON of another kind"),
          (b"spec,case\ntorch.cumsum,small\n", "no header line"),
          (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "no header line"),
          (b'\xef\xbb\xbf{"kind": "header"}\n', "no header line"),
          (b'{"x":' + b"[" * 100_000 + b"\n", "it is JSON of another kind"),
          (b'{"kind":"ops","format":1}\n', "it is a record of a program; detmatrix locate --diff reads it"),
          (gzip.compress(b'{"kind": "cudnn",\n"cells": []}'), "it is a table of cuDNN's engines; detmatrix cudnn --read reads it"),
        )),
        # What stands in a line is no record.
        (lambda _: b'{"kind":"header","format":NaN}\n', "line 1: JSON is malformed"),
        (_second(b""), "line 2: Input data was truncated"),
        (_second(b"{"), "line 2: Input data was truncated"),
        (_second(b"null"), "line 2: Expected `object`, got `null`"),
        (_second(b"[" * 100_000), "line 2: Expected `object`, got `array`"),
        (_second(b'{"kind":"closing","seconds":1e999}'), "line 2: Number out of range - at `$.seconds`"),
        (_second(b'{"kind":"closing","seconds":NaN}'), "line 2: JSON is malformed: invalid character (byte 28)"),
        (_second(b'{"kind":"closing\xff"}'), "line 2: 'utf-8' codec can't decode byte 0xff"),
        (_second(b'{"load":' + b"[" * 100_000), "line 2: maximum recursion depth exceeded"),
    ],
)  # fmt: skip
def test_what_is_no_run_file_or_record_is_refused(
    small: bytes, place: Path, damage: Damage, expected: str
) -> None:
    """Whatever stands there, it is told in a line."""
    assert refusal(_written(place, damage(small))).startswith(expected)


def test_unreadable_places_are_refused(tmp_path: Path) -> None:
    """A folder, a name without a file, a path below a file, a name too long, and a packed file that is damaged."""
    below = tmp_path / "file"
    below.write_bytes(b"\x1f\x8bplain text")

    assert refusal(tmp_path) == f"cannot be read (Is a directory); {ADVICE}"
    assert refusal(tmp_path / "none") == f"cannot be read (No such file or directory); {ADVICE}"
    assert refusal(below / "x") == f"cannot be read (Not a directory); {ADVICE}"
    assert refusal(tmp_path / ("x" * 300)) == f"cannot be read (File name too long); {ADVICE}"
    assert refusal(below) == f"cannot be read (Unknown compression method); {ADVICE}"


# Writing run files: one writer at a time, whole lines alone, and nothing lost that was there before.


def test_writer_refuses_a_file_that_is_being_written(tmp_path: Path, small: bytes) -> None:
    """Two scans never write into one file; the refused one changes nothing, nor does it remove the file."""
    path = tmp_path / "run.jsonl"
    path.write_bytes(small)
    with RunWriter(path), pytest.raises(UsageError) as error:
        RunWriter(path)

    text = f"{path}: another scan is writing it; wait for it, or choose another place with -o"
    assert (str(error.value), error.value.exit_code) == (text, 2)
    assert path.read_bytes() == small
    with RunWriter(path) as writer:
        writer.begin(0)


# Older formats are read as what they are; the records of the newest are checked like the others.


def _oldest(value: Any) -> Any:
    """Return records without the fields that hold their defaults, as formats had them before there were these fields."""
    if isinstance(value, msgspec.Struct):
        told = {
            one.encode_name: getattr(value, one.name)
            for one in msgspec.structs.fields(value)
            if getattr(value, one.name) != one.default
        }
        tag = type(value).__struct_config__.tag
        return {name: _oldest(one) for name, one in told.items()} | ({"kind": tag} if tag else {})
    return list(map(_oldest, value)) if isinstance(value, tuple) else value


def test_the_first_format_says_what_it_always_said(small: bytes, place: Path) -> None:
    """Every field that came later may be absent: nothing is made up of it."""
    whole = _read(place, small)
    header = msgspec.structs.replace(whole.header, format=1)
    records = [_oldest(one) for one in (header, *whole.observations, whole.closing)]

    old = read_run(write_lines(place, records))

    assert (old.header, old.observations, old.closing) == (header, whole.observations, whole.closing)
    (found,) = matrix(old.header, old.observations, closed=True)
    assert (found.cost, found.off.groups, found.off.verdict) == (None, (), "deterministic")
    assert "sentinel" not in str(found.weak)


def test_recorded_runs_of_any_format_are_readable() -> None:
    """The runs in reports/runs are read as they are."""
    paths = sorted(RECORDED.glob("*.jsonl.gz"))

    assert paths
    for path in paths:
        with gzip.open(path) as file:
            written = json.loads(file.readline())["format"]
        assert read_run(path).header.format == written <= FORMAT
