"""Run files: what is written is read back, what is torn is left out, what is damaged is refused."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detmatrix.scanner.errors import RunFileError, UsageError
from detmatrix.scanner.observations import files, runfile
from detmatrix.scanner.observations.merge import merge
from detmatrix.scanner.observations.records import FORMAT, Claim, Closing, Dtype, Header, Perturbed, Sentinel
from detmatrix.scanner.observations.runfile import Run, read_run
from detmatrix.scanner.observations.settings import Device, Perturb
from detmatrix.scanner.observations.writer import RunWriter
from tests.conftest import ADVICE, refusal, write_lines
from tests.large import write_shard
from tests.runs import ENVIRONMENT, raised, ran, row, stable, write_run

_ROW = row("torch.cumsum")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return one file for hypothesis to write again and again."""
    return tmp_path_factory.mktemp("damaged") / "run.jsonl"


# Round trip


def test_order_of_digests_is_kept(tmp_path: Path) -> None:
    """The first execution's digest stands first; what is compared across processes rests on that."""
    observed = ran(_ROW, "off", {"z": 1, "a": 48, "m": 1})

    run = read_run(write_run(tmp_path / "run.jsonl", [(_ROW, observed)]))

    assert list(run.observations[0].digests) == ["z", "a", "m"]


def test_text_that_is_no_utf_8_is_written_all_the_same(tmp_path: Path) -> None:
    """A variable of the user's or a message with undecodable bytes costs those bytes, not the scan."""
    observed = raised(_ROW, "on", "put_\udc80")
    environment = msgspec.structs.replace(ENVIRONMENT, variables={"off": {"LANG": "\udcff é"}, "on": {}})

    run = read_run(write_run(tmp_path / "run.jsonl", [(_ROW, observed)], environment=environment))

    assert run.header.environment.variables == {"off": {"LANG": "? é"}, "on": {}}
    assert [str(one.message)[:6] for one in run.observations] == ["put_? "] * 2
    assert run.observations[0].key == _ROW.key


# Cut short


def test_every_prefix_is_the_run_up_to_its_last_whole_line(small: bytes, place: Path) -> None:
    """A crash may cut the file at any byte: the torn line is left out, a file without a header is refused."""
    whole = _read(place, small)
    first = small.index(b"\n") + 1
    for length in range(len(small)):
        end = small.rfind(b"\n", 0, length) + 1
        place.write_bytes(small[:length])
        if length < first:
            text = refusal(place)
            assert text == f"not a detmatrix run file (no whole line in it); {ADVICE}"
        else:
            run = read_run(place)
            count = small.count(b"\n", 0, length) - 1
            assert (run.end, run.closing, run.header) == (end, None, whole.header)
            assert run.observations == whole.observations[:count]


def _read(place: Path, data: bytes) -> Run:
    place.write_bytes(data)
    return read_run(place)


def test_zeros_after_a_power_failure_are_a_torn_line(small: bytes, place: Path) -> None:
    """A file system may leave a block of zeros where the last line was to be."""
    cut = small.rfind(b"\n", 0, -1) + 1

    run = _read(place, small[:cut] + bytes(4096))

    assert (run.end, run.closing, len(run.observations)) == (cut, None, 3)


def test_truncated_compressed_file_is_refused(small: bytes, tmp_path: Path) -> None:
    """Cut anywhere, a compressed file gives exit code 3 and nothing else."""
    path = tmp_path / "run.jsonl.gz"
    data = gzip.compress(small, mtime=0)
    text = set()
    for length in range(len(data)):
        path.write_bytes(data[:length])
        text.add(refusal(path))

    assert (
        f"cannot be read (Compressed file ended before the end-of-stream marker was reached); {ADVICE}"
        in text
    )
    # Beside it: the empty file and its first byte, which have no whole line.
    assert len(text) == 2


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


def test_counts_are_held_against_the_settings(tmp_path: Path) -> None:
    """A control that would be executed for a thousand years is not counted up to."""
    path = write_run(tmp_path / "run.jsonl", [], controls=[(RARE, ran(RARE, "off", *stable()))])
    _changed(path.read_bytes(), path, 2, lambda one: one.update(executions=10**15, digests={"a": 10**15}))

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


# Run files that are refused: values, lines and formats that cannot be, each told with its place.


@pytest.mark.parametrize("groups", [False, True])
def test_rows_of_a_part_that_is_not_there(small: bytes, tmp_path: Path, *, groups: bool) -> None:
    """Reports look up the machine of a row, also in a file that names no groups of its plan."""

    def change(header: dict[str, Any]) -> None:
        row = header["planned"][-1]
        row["part"] = 5
        part = {name: header[name] for name in ("started", "environment")}
        header["parts"] = [{**part, "shard": 1, "file": 1, "workers": 1, "closing": None}]
        header["groups"] = {one["spec"]: 1 for one in header["planned"]} if groups else {}

    path = _changed(small, tmp_path / "run.jsonl", 1, change)

    assert "is of part 5, and there are 1 - at `$.planned`" in refusal(path)


def test_entries_of_another_shard(tmp_path: Path) -> None:
    """An entry without rows tells its shard by its name alone."""
    path = write_shard(tmp_path / "run.jsonl", 700, 1, 3)
    whole = path.read_bytes()
    groups = json.loads(whole.splitlines()[0])["groups"]

    for shard, expected in ((2, "is in shard 2 of the plan, not in 1"), (None, "is in no shard of the plan")):

        def change(entry: dict[str, Any], shard: int | None = shard) -> None:
            entry["rows"] = []
            entry["spec"] = next((name for name, of in groups.items() if of == shard), "elsewhere")

        _changed(whole, path, 2, change)
        assert expected in refusal(path)
        with pytest.raises(RunFileError, match=expected):
            merge([path])


def _changed(data: bytes, path: Path, number: int, change: Callable[[dict[str, Any]], object]) -> Path:
    """Write *data* with a change made to the record in line *number*."""
    records = [json.loads(line) for line in data.splitlines()]
    change(records[number - 1])
    return write_lines(path, records)


_GONE = object()


def _apply(record: dict[str, Any], change: dict[str, Any]) -> None:
    """Set fields named by their paths; take away those that are gone."""
    for path, value in change.items():
        *parents, name = path.split(".")
        place = record
        for parent in parents:
            place = place[parent]
        place[name] = value
        if value is _GONE:
            del place[name]


_ID = "torch.cumsum:collisions:forward:float32"
_SEEN = f"line 2: the observation of {_ID}"


@pytest.mark.parametrize(
    ("number", "change", "expected"),
    [
        *((number, change, f"line {number}: {expected}; restore the file, or cut it before this line and scan --resume")
          for number, change, expected in (
            (1, {"settings.runs": 0}, "Expected `int` >= 1 - at `$.settings.runs`"),
            (1, {"settings.timeout": 0}, "Expected `float` > 0.0 - at `$.settings.timeout`"),
            (1, {"settings.modes": ["off", "sideways"]}, "Invalid enum value 'sideways' - at `$.settings.modes[1]`"),
            (1, {"environment.variables": {"off": {"A": 1}}}, "Expected `str`, got `int` - at `$.environment.variables[...][...]`"),
            (1, {"planned": {}}, "Expected `array`, got `object` - at `$.planned`"),
            (1, {"format": True}, "Expected `int`, got `bool` - at `$.format`"),
            (1, {"format": "1"}, "Expected `int`, got `str` - at `$.format`"),
            (1, {"environment": _GONE}, "Object missing required field `environment`"),
            (2, {"executions": -1}, "Expected `int` >= 0 - at `$.executions`"),
            (2, {"executions": 1.5}, "Expected `int`, got `float` - at `$.executions`"),
            (2, {"outcome": "fine"}, "Invalid enum value 'fine' - at `$.outcome`"),
            (2, {"digests": {"a": 0}}, "Expected `int` >= 1 - at `$.digests[...]`"),
            (2, {"seconds": -0.5}, "Expected `float` >= 0.0 - at `$.seconds`"),
            (2, {"verdict": "deterministic"}, "Object contains unknown field `verdict`"),
            (2, {"kind": "remark"}, "Invalid value 'remark' - at `$.kind`"),
            (3, {"kind": _GONE}, "Object missing required field `kind`"),
            (5, {"observations": "4"}, "Expected `int`, got `str` - at `$.observations`"),
          )),
        (1, {"format": FORMAT + 1, "settings": "other"},
         (f"written in run file format {FORMAT + 1}, this detmatrix reads up to {FORMAT}; upgrade detmatrix to read it")),
        *((1, {"format": number}, f"line 1: no such run file format: {number} - at `$.format`") for number in (0, -1)),
        (1, {"settings.modes": ["off"]}, (f"line 4: the observation of {_ID} (process 0) was never planned; "
         "restore the file")),
        (2, {"spec": "torch.neg"}, ("line 2: the observation of torch.neg:collisions:forward:float32 (process 0) "
         "was never planned; restore the file")),
        *((2, {"process": number}, f"{_SEEN} (process {number}) was never planned; restore the file")
          for number in (3, 10**15)),
        *((2, {"executions": executions, "digests": digests},
           (f"{_SEEN} counts {executions} executions but {sum(digests.values())} digests - at `$.digests`; "
            "restore the file")) for executions, digests in ((49, {"a": 50}), (50, {}), (0, {}))),
        (2, {"executions": 52, "digests": {"a": 52}},
         f"{_SEEN} counts 52 executions, the scan makes 50 - at `$.executions`; restore the file"),
        *((2, {"first_differing": number}, (f"{_SEEN} names execution {number} of 50 as the first that differed - at "
           "`$.first_differing`; restore the file")) for number in (0, 50)),
        (2, {"forward_differing": 50}, (f"{_SEEN} counts 50 differing of 50 executions, the first included - at "
         "`$.forward_differing`; restore the file")),
        (2, {"outputs": [{"name": "output", "shape": [1], "dtype": "float32", "differing": 50}]},
         (f"{_SEEN} counts 50 differing of 50 executions, the first included - at `$.outputs[0].differing`; "
          "restore the file")),
        (2, {"outcome": "invalid", "executions": 0, "digests": {"a": 1}},
         f"{_SEEN} counts 0 executions but 1 digests - at `$.digests`; restore the file"),
        (2, {"outcome": "invalid", "executions": 0, "digests": {}, "forward_differing": 1},
         (f"{_SEEN} counts 1 differing of 0 executions, the first included - at `$.forward_differing`; "
          "restore the file")),
    ],
)  # fmt: skip
def test_records_that_cannot_be_are_refused(
    small: bytes, tmp_path: Path, number: int, change: dict[str, Any], expected: str
) -> None:
    """The line, the field, what was expected of it and what to do; a later format says which it has; counts add up."""
    assert (
        refusal(_changed(small, tmp_path / "run.jsonl", number, lambda one: _apply(one, change))) == expected
    )


@pytest.mark.parametrize(
    ("number", "change", "place"),
    [
        *((1, {"settings.device": device}, "settings.device") for device in ("tpu:0", "cuda:" + "9" * 5000)),
        *((2, {"groups": [{"perturbation": name, "executions": 1, "differing": 0}]}, "groups[0].perturbation")
          for name in ("threads=1)\nprint('mine')", "threads=0", "unheard_of")),
        *((2, {"outputs": [{"name": "o", "shape": [size], "dtype": dtype, "differing": 0}]}, f"outputs[0].{at}")
          for size, dtype, at in ((1, "float" + "9" * 5000, "dtype"), (1, "float32)\n", "dtype"), (-4, "float32", "shape[0]"))),
    ],
)  # fmt: skip
def test_what_scripts_would_hold_is_of_a_kind(
    small: bytes, tmp_path: Path, number: int, change: dict[str, Any], place: str
) -> None:
    """Perturbations, devices, dtypes and sizes: others are told with their place when the file is read."""
    told = refusal(_changed(small, tmp_path / "run.jsonl", number, lambda one: _apply(one, change)))

    assert f" - at `$.{place}`" in told


@pytest.mark.parametrize(
    ("number", "content", "expected"),
    [
        (2, b"", "line 2: Input data was truncated"),
        (2, b"{", "line 2: Input data was truncated"),
        (2, b"null", "line 2: Expected `object`, got `null`"),
        (2, b"[" * 100_000, "line 2: Expected `object`, got `array`"),
        (2, b'{"kind":"closing","seconds":1e999}', "line 2: Number out of range - at `$.seconds`"),
        (2, b'{"kind":"closing","seconds":NaN}', "line 2: JSON is malformed: invalid character (byte 28)"),
        (2, b'{"kind":"closing\xff"}', "line 2: 'utf-8' codec can't decode byte 0xff"),
        (2, b'{"load":' + b"[" * 100_000, "line 2: maximum recursion depth exceeded"),
    ],
    ids=["blank", "cut", "null", "nested", "infinite", "NaN", "bytes", "deep"],
)
def test_lines_that_are_no_record_are_refused(
    small: bytes, tmp_path: Path, number: int, content: bytes, expected: str
) -> None:
    """Whatever stands in a line, the line is named."""
    broken = small.split(b"\n")
    broken[number - 1] = content
    path = tmp_path / "run.jsonl"
    path.write_bytes(b"\n".join(broken))

    assert refusal(path).startswith(expected)


@pytest.mark.parametrize(
    ("content", "text"),
    [
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
    ],
    ids=["empty", "short", "blank", "number", "closing", "report", "csv", "png", "bom", "deep", "record", "table"],
)  # fmt: skip
def test_foreign_files_are_refused(tmp_path: Path, content: bytes, text: str) -> None:
    """What scan did not write is no run file."""
    path = tmp_path / "foreign"
    path.write_bytes(content)

    assert refusal(path) == f"not a detmatrix run file ({text}); {ADVICE}"


def test_unreadable_places_are_refused(tmp_path: Path) -> None:
    """A folder, a name without a file, a path below a file, a name too long, and a packed file that is damaged."""
    below = tmp_path / "file"
    below.write_bytes(b"\x1f\x8bplain text")

    assert refusal(tmp_path) == f"cannot be read (Is a directory); {ADVICE}"
    assert refusal(tmp_path / "none") == f"cannot be read (No such file or directory); {ADVICE}"
    assert refusal(below / "x") == f"cannot be read (Not a directory); {ADVICE}"
    assert refusal(tmp_path / ("x" * 300)) == f"cannot be read (File name too long); {ADVICE}"
    assert refusal(below) == f"cannot be read (Unknown compression method); {ADVICE}"


# Whole lines in the wrong place


def _rearranged(small: bytes, tmp_path: Path, *numbers: int) -> Path:
    """Write the lines of a run in another order."""
    old = small.splitlines(keepends=True)
    path = tmp_path / "run.jsonl"
    path.write_bytes(b"".join(old[number - 1] for number in numbers))
    return path


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ((2, 3, 5), f"not a detmatrix run file (no header line); {ADVICE}"),
        ((1, 2, 2), f"line 3: the observation of {_ID} stands twice (first in line 2); remove one of them"),
        ((1, 2, 1), "line 3: header after the header; two runs in one file? Split it at this line"),
        ((1, 2, 3, 4, 5, 1),
         "line 6: header after the closing line; two runs in one file? Split it at this line"),
        ((1, 2, 3, 4, 5, 2),
         "line 6: observation after the closing line; two runs in one file? Split it at this line"),
        ((1, 2, 3, 4, 5, 5),
         "line 6: closing after the closing line; two runs in one file? Split it at this line"),
        ((1, 2, 4, 5), ("line 4: the scan closed with 3 observations, the file holds 2 - at `$.observations`; "
         "restore the file")),
    ],
)  # fmt: skip
def test_lines_in_the_wrong_place_are_refused(
    small: bytes, tmp_path: Path, numbers: tuple[int, ...], expected: str
) -> None:
    """Lines that are whole but missing, double or in a wrong order are told with their number."""
    assert refusal(_rearranged(small, tmp_path, *numbers)) == expected


def test_order_of_observations_is_free(small: bytes, tmp_path: Path) -> None:
    """A resumed scan may have written them in another order."""
    assert len(read_run(_rearranged(small, tmp_path, 1, 4, 3, 2, 5)).observations) == 3


# Writing run files: one writer at a time, whole lines alone, and nothing lost that was there before.

_CLOSING = Closing(seconds=1.0, load=(), observations=0)


def _stopped(path: Path) -> str:
    """Return why a file cannot be written; exit code 2 in any case."""
    with pytest.raises(UsageError) as error, RunWriter(path) as writer:
        writer.begin(0)
    assert error.value.exit_code == 2
    return str(error.value)


def test_writer_refuses_a_file_that_is_being_written(tmp_path: Path, small: bytes) -> None:
    """Two scans never write into one file; the refused one changes nothing, nor does it remove the file."""
    path = tmp_path / "run.jsonl"
    path.write_bytes(small)
    script = (
        "import sys; from pathlib import Path; from detmatrix.scanner.observations.writer import RunWriter\n"
        "with RunWriter(Path(sys.argv[1])): print('open', flush=True); sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()

        text = _stopped(path)

        other.communicate()
    assert text == f"{path}: another scan is writing it; wait for it, or choose another place with -o"
    assert path.read_bytes() == small
    with RunWriter(path) as writer:
        writer.begin(0)


@pytest.mark.parametrize("content", [None, b"", b"precious\n"])
def test_what_was_there_is_untouched_until_the_scan_begins(tmp_path: Path, content: bytes | None) -> None:
    """A worker that cannot start costs nothing that was there before, and leaves no file where there was none."""
    path = tmp_path / "run.jsonl"
    if content is not None:
        path.write_bytes(content)

    with RunWriter(path):
        assert path.exists()

    assert (path.read_bytes() if path.exists() else None) == content


def test_written_lines_are_in_the_file_at_once(tmp_path: Path) -> None:
    """Nothing waits in a buffer that a crash would lose."""
    path = tmp_path / "run.jsonl"
    with RunWriter(path) as writer:
        writer.begin(0)
        writer.write(_CLOSING)

        assert re.fullmatch(rb'\{"kind":"closing",.*\}\n', path.read_bytes())
