"""Run files: what is written is read back, what is damaged is refused with its place, what is torn is left out."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scanner.errors import RunFileError, UsageError
from scanner.records import (
    FORMAT,
    Closing,
    Environment,
    Header,
    Observation,
    Output,
    Row,
    Settings,
)
from scanner.runfile import Run, RunWriter, read_run
from tests.conftest import lines
from tests.runs import CLOSING, ENVIRONMENT, every_finding, raised, ran, row, stable, write_run

ADVICE = "give a file that scan wrote"
_ROW = row("torch.cumsum")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return a complete run of one row: a header, three observations, a closing line."""
    observed = [*ran(_ROW, "off", *stable()), *raised(_ROW, "on", "put_")[:1]]
    return write_run(tmp_path_factory.mktemp("small") / "run.jsonl", [(_ROW, observed)]).read_bytes()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return one file for hypothesis to write again and again."""
    return tmp_path_factory.mktemp("damaged") / "run.jsonl"


def _refusal(path: Path) -> str:
    """Return why a file is refused, without the path it starts with; exit code 3 in any case."""
    with pytest.raises(RunFileError) as error:
        read_run(path)
    assert error.value.exit_code == 3
    return str(error.value).removeprefix(str(path)).removeprefix(": ").removeprefix(", ")


def _changed(data: bytes, path: Path, number: int, change: Callable[[dict[str, Any]], object]) -> Path:
    """Write *data* with a change made to the record in line *number*."""
    records = [json.loads(line) for line in data.splitlines()]
    change(records[number - 1])
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


# Round trip


def test_every_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Whatever a record holds comes back equal, in order."""
    planned = every_finding()
    path = write_run(tmp_path / "run.jsonl", planned)

    run = read_run(path)

    assert run.path == str(path)
    assert run.header.planned == tuple(one for one, _ in planned)
    assert run.header.environment == ENVIRONMENT
    assert run.observations == tuple(one for _, observed in planned for one in observed)
    assert run.closing == msgspec.structs.replace(CLOSING, observations=len(run.observations))
    assert run.end == path.stat().st_size


_TEXT = st.text(max_size=8)
_COUNT = st.integers(0, 2**63 - 1)
_SECONDS = st.floats(0, 1e9, allow_nan=False)
_DIRECTION = st.sampled_from(["forward", "backward"])
_OPTIONAL = st.none() | _TEXT
_LOAD = st.tuples(_SECONDS, _SECONDS, _SECONDS)


@st.composite
def _runs(draw: st.DrawFn) -> tuple[Header, list[Observation], Closing]:
    """Draw a whole run with arbitrary texts and numbers in every field."""
    rows = draw(
        st.lists(
            st.builds(
                Row, family=_TEXT, spec=_TEXT, op=_TEXT, case=_TEXT, direction=_DIRECTION, dtype=_TEXT,
                device=_TEXT, provokes=_TEXT, why=_TEXT,
            ),
            max_size=3,
            unique_by=lambda one: one.key,
        )
    )  # fmt: skip
    environment = draw(
        st.builds(
            Environment, torch=_TEXT, torch_git=_OPTIONAL, cuda=_OPTIONAL, cudnn=st.none() | _COUNT,
            driver=_OPTIONAL, gpu=_OPTIONAL, gpu_capability=_OPTIONAL, cpu=_TEXT, cores=_COUNT, threads=_COUNT,
            affinity=st.tuples(_COUNT, _COUNT), load=_LOAD, python=_TEXT, os=_TEXT,
            variables=st.dictionaries(_TEXT, st.dictionaries(_TEXT, _TEXT, max_size=2), max_size=2),
        )
    )  # fmt: skip
    header = Header(
        format=FORMAT,
        tool=draw(_TEXT),
        started=draw(_TEXT),
        settings=Settings(
            patterns=tuple(draw(st.lists(_TEXT, max_size=2))), device=draw(_TEXT), runs=draw(st.integers(1, 2**40)),
            processes=2, timeout=draw(st.floats(1e-9, 1e9)), seed=draw(_COUNT),
        ),
        environment=environment,
        planned=tuple(rows),
    )  # fmt: skip
    observed = []
    for one in rows:
        digests = draw(st.dictionaries(_TEXT, st.integers(1, 99), min_size=1, max_size=3))
        behind = sum(digests.values()) - 1  # executions behind the first, which never differs
        differing = st.integers(0, behind)
        outputs = st.builds(
            Output, name=_TEXT, shape=st.tuples(st.integers(-1, 9)), dtype=_TEXT, differing=differing
        )
        observed.append(
            Observation(
                spec=one.spec, case=one.case, direction=one.direction, dtype=one.dtype,
                mode=draw(st.sampled_from(["off", "on"])), process=draw(st.integers(0, 1)), outcome="ran",
                executions=behind + 1, digests=digests,
                first_differing=draw(st.integers(1, behind) if behind else st.none()),
                outputs=tuple(draw(st.lists(outputs, max_size=2))), forward_differing=draw(differing),
                seeded=draw(st.booleans()), inputs=(draw(_TEXT),), inputs_digest=draw(_OPTIONAL),
                exception=draw(_OPTIONAL), message=draw(_OPTIONAL), seconds=draw(_SECONDS),
                setup_seconds=draw(_SECONDS),
            )
        )  # fmt: skip
    closing = Closing(
        seconds=draw(_SECONDS),
        load=draw(_LOAD),
        observations=len(observed),
        distrust=tuple(draw(st.lists(_TEXT, max_size=2))),
    )
    return header, observed, closing


@given(run=_runs())
@settings(max_examples=50, deadline=None)
def test_any_record_survives_the_round_trip(
    run: tuple[Header, list[Observation], Closing], place: Path
) -> None:
    """Every field of every record, with line breaks, quotes and any other character in its texts."""
    header, observed, closing = run
    place.unlink(missing_ok=True)
    with RunWriter(place) as writer:
        writer.write(header)
        for observation in observed:
            writer.write(observation)
        writer.write(closing)

    found = read_run(place)

    assert (found.header, list(found.observations), found.closing) == (header, observed, closing)
    assert place.read_bytes().count(b"\n") == len(observed) + 2


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


def test_compressed_files_read_the_same(tmp_path: Path) -> None:
    """A name that ends in .gz is decompressed."""
    compressed, plain = write_run(tmp_path / "run.jsonl.gz"), write_run(tmp_path / "run.jsonl")

    expected = msgspec.structs.replace(read_run(plain), path=str(compressed))
    assert read_run(compressed) == expected


# Cut short


def test_every_prefix_is_the_run_up_to_its_last_whole_line(small: bytes, place: Path) -> None:
    """A crash may cut the file at any byte: the torn line is left out, a file without a header is refused."""
    whole = _read(place, small)
    first = small.index(b"\n") + 1
    for length in range(len(small)):
        end = small.rfind(b"\n", 0, length) + 1
        place.write_bytes(small[:length])
        if length < first:
            told = _refusal(place)
            assert told == f"not a detmatrix run file (no whole line in it); {ADVICE}"
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
    told = set()
    for length in range(len(data)):
        path.write_bytes(data[:length])
        told.add(_refusal(path))

    assert (
        f"cannot be read (Compressed file ended before the end-of-stream marker was reached); {ADVICE}"
        in told
    )
    # Beside it: the empty file, which has no whole line, and half of the first two bytes.
    assert len(told) == 3


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


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_damaged_compression_gives_a_run_or_a_refusal(
    data: st.DataObject, small: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A flipped byte in a compressed file is found by zlib, by the checksum, or not at all in its header."""
    mutated = bytearray(gzip.compress(small, mtime=0))
    mutated[data.draw(st.integers(0, len(mutated) - 1))] ^= data.draw(st.integers(1, 255))
    path = tmp_path_factory.getbasetemp() / "damaged.jsonl.gz"
    path.write_bytes(bytes(mutated))

    try:
        assert _read_same(path, small)
    except RunFileError as error:
        assert str(error).startswith(f"{path}: ")  # noqa: PT017


def _read_same(path: Path, small: bytes) -> bool:
    return read_run(path).end == len(small)


@pytest.mark.parametrize(
    ("number", "change", "expected"),
    [
        (1, {"settings.runs": 0}, "line 1: Expected `int` >= 1 - at `$.settings.runs`"),
        (1, {"settings.seed": -1}, "line 1: Expected `int` >= 0 - at `$.settings.seed`"),
        (1, {"settings.timeout": 0}, "line 1: Expected `float` > 0.0 - at `$.settings.timeout`"),
        (1, {"settings.processes": True}, "line 1: Expected `int`, got `bool` - at `$.settings.processes`"),
        (1, {"settings.modes": ["off", "sideways"]},
         "line 1: Invalid enum value 'sideways' - at `$.settings.modes[1]`"),
        (1, {"environment.load": ["low"]}, "line 1: Expected `float`, got `str` - at `$.environment.load[0]`"),
        (1, {"environment.variables": {"off": {"A": 1}}},
         "line 1: Expected `str`, got `int` - at `$.environment.variables[...][...]`"),
        (1, {"planned": {}}, "line 1: Expected `array`, got `object` - at `$.planned`"),
        (1, {"format": True}, "line 1: Expected `int`, got `bool` - at `$.format`"),
        (1, {"format": "1"}, "line 1: Expected `int`, got `str` - at `$.format`"),
        (2, {"executions": -1}, "line 2: Expected `int` >= 0 - at `$.executions`"),
        (2, {"executions": True}, "line 2: Expected `int`, got `bool` - at `$.executions`"),
        (2, {"executions": 1.5}, "line 2: Expected `int`, got `float` - at `$.executions`"),
        (2, {"mode": "warn"}, "line 2: Invalid enum value 'warn' - at `$.mode`"),
        (2, {"outcome": "fine"}, "line 2: Invalid enum value 'fine' - at `$.outcome`"),
        (2, {"direction": None}, "line 2: Expected `str`, got `null` - at `$.direction`"),
        (2, {"digests": {"a": 0}}, "line 2: Expected `int` >= 1 - at `$.digests[...]`"),
        (2, {"seconds": -0.5}, "line 2: Expected `float` >= 0.0 - at `$.seconds`"),
        (2, {"seeded": 1}, "line 2: Expected `bool`, got `int` - at `$.seeded`"),
        (2, {"verdict": "deterministic"}, "line 2: Object contains unknown field `verdict`"),
        (2, {"kind": "remark"}, "line 2: Invalid value 'remark' - at `$.kind`"),
        (5, {"observations": "4"}, "line 5: Expected `int`, got `str` - at `$.observations`"),
        (5, {"distrust": "no"}, "line 5: Expected `array`, got `str` - at `$.distrust`"),
    ],
)  # fmt: skip
def test_wrong_values_are_told_with_their_path(
    small: bytes, tmp_path: Path, number: int, change: dict[str, Any], expected: str
) -> None:
    """The line, the field and what was expected of it, and what to do."""

    def apply(record: dict[str, Any]) -> None:
        for path, value in change.items():
            *parents, name = path.split(".")
            for parent in parents:
                record = record[parent]
            record[name] = value

    path = _changed(small, tmp_path / "run.jsonl", number, apply)

    advice = "restore the file, or cut it before this line and scan --resume"
    assert _refusal(path) == f"{expected}; {advice}"


@pytest.mark.parametrize(
    ("number", "name", "expected"),
    [
        (1, "format", "line 1: Object missing required field `format`"),
        (1, "environment", "line 1: Object missing required field `environment`"),
        (2, "outcome", "line 2: Object missing required field `outcome`"),
        (5, "load", "line 5: Object missing required field `load`"),
        (3, "kind", "line 3: Object missing required field `kind`"),
    ],
)
def test_missing_fields_are_named(
    small: bytes, tmp_path: Path, number: int, name: str, expected: str
) -> None:
    """A field that is gone is told by its name."""
    path = _changed(small, tmp_path / "run.jsonl", number, lambda record: record.pop(name))

    assert _refusal(path).startswith(f"{expected}; restore the file")


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

    assert _refusal(path).startswith(expected)


def test_newer_format_is_refused_with_advice(small: bytes, tmp_path: Path) -> None:
    """A file of a later detmatrix says which format it has, whatever else is new in it."""
    path = _changed(
        small, tmp_path / "run.jsonl", 1, lambda record: record.update(format=FORMAT + 1, settings="other")
    )

    assert _refusal(path) == (
        f"written in run file format {FORMAT + 1}, this detmatrix reads up to {FORMAT}; upgrade detmatrix to read it"
    )


@pytest.mark.parametrize("number", [0, -1])
def test_no_such_format(small: bytes, tmp_path: Path, number: int) -> None:
    """Formats are counted from 1."""
    path = _changed(small, tmp_path / "run.jsonl", 1, lambda record: record.update(format=number))

    assert _refusal(path) == f"line 1: no such run file format: {number} - at `$.format`"


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "no whole line in it"),
        (b"{}", "no whole line in it"),
        (b"\n", "no header line"),
        (b"{}\n", "no header line"),
        (b"[1, 2]\n", "no header line"),
        (b'{"kind": 1}\n', "no header line"),
        (b'{"kind": "closing"}\n', "no header line"),
        (b'{\n  "rows": []\n}\n', "no header line"),
        (b"spec,case\ntorch.cumsum,small\n", "no header line"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "no header line"),
        (b'\xef\xbb\xbf{"kind": "header"}\n', "no header line"),
        (b'{"x":' + b"[" * 100_000 + b"\n", "no header line"),
    ],
    ids=["empty", "short", "blank", "object", "array", "number", "closing", "report", "csv", "png", "bom", "deep"],
)  # fmt: skip
def test_foreign_files_are_refused(tmp_path: Path, content: bytes, told: str) -> None:
    """What scan did not write is no run file."""
    path = tmp_path / "foreign"
    path.write_bytes(content)

    assert _refusal(path) == f"not a detmatrix run file ({told}); {ADVICE}"


def test_unreadable_places_are_refused(tmp_path: Path) -> None:
    """A folder, a name without a file, a path below a file, a name too long, and .gz that is none."""
    below = tmp_path / "file.gz"
    below.write_bytes(b"plain")

    assert _refusal(tmp_path) == f"cannot be read (Is a directory); {ADVICE}"
    assert _refusal(tmp_path / "none") == f"cannot be read (No such file or directory); {ADVICE}"
    assert _refusal(below / "x") == f"cannot be read (Not a directory); {ADVICE}"
    assert _refusal(tmp_path / ("x" * 300)) == f"cannot be read (File name too long); {ADVICE}"
    assert _refusal(below) == f"cannot be read (Not a gzipped file (b'pl')); {ADVICE}"


# Whole lines in the wrong place


def _rearranged(small: bytes, tmp_path: Path, *numbers: int) -> Path:
    """Write the lines of a run in another order."""
    old = small.splitlines(keepends=True)
    path = tmp_path / "run.jsonl"
    path.write_bytes(b"".join(old[number - 1] for number in numbers))
    return path


_ID = "torch.cumsum:collisions:forward:float32"


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
    assert _refusal(_rearranged(small, tmp_path, *numbers)) == expected


def test_order_of_observations_is_free(small: bytes, tmp_path: Path) -> None:
    """A resumed scan may have written them in another order."""
    assert len(read_run(_rearranged(small, tmp_path, 1, 4, 3, 2, 5)).observations) == 3


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"spec": "torch.neg"}, ("the observation of torch.neg:collisions:forward:float32 (process 0) was never "
         "planned; restore the file")),
        ({"process": 2}, f"the observation of {_ID} (process 2) was never planned; restore the file"),
        ({"process": 10**30}, f"the observation of {_ID} (process {10**30}) was never planned; restore the file"),
        ({"executions": 49}, (f"the observation of {_ID} counts 49 executions but 50 digests - at `$.digests`; "
         "restore the file")),
        ({"digests": {}}, (f"the observation of {_ID} counts 50 executions but 0 digests - at `$.digests`; "
         "restore the file")),
        ({"digests": {}, "executions": 0}, (f"the observation of {_ID} counts 0 executions but 0 digests - at "
         "`$.digests`; restore the file")),
        ({"first_differing": 0}, (f"the observation of {_ID} names execution 0 of 50 as the first that differed "
         "- at `$.first_differing`; restore the file")),
        ({"first_differing": 50}, (f"the observation of {_ID} names execution 50 of 50 as the first that differed "
         "- at `$.first_differing`; restore the file")),
        ({"forward_differing": 50}, (f"the observation of {_ID} counts 50 differing of 50 executions, the first "
         "included - at `$.forward_differing`; restore the file")),
        ({"outputs": [{"name": "output", "shape": [1], "dtype": "float32", "differing": 50}]},
         (f"the observation of {_ID} counts 50 differing of 50 executions, the first included - at "
         "`$.outputs[0].differing`; restore the file")),
        ({"outcome": "invalid", "executions": 0, "forward_differing": 1},
         (f"the observation of {_ID} counts 1 differing of 0 executions, the first included - at "
         "`$.forward_differing`; restore the file")),
    ],
)  # fmt: skip
def test_observations_that_cannot_be_are_refused(
    small: bytes, tmp_path: Path, change: dict[str, Any], expected: str
) -> None:
    """An observation belongs to a planned row and process, and its digests are its executions."""
    path = _changed(small, tmp_path / "run.jsonl", 2, lambda record: record.update(change))

    assert _refusal(path) == f"line 2: {expected}"


def test_unplanned_mode_is_refused(small: bytes, tmp_path: Path) -> None:
    """A run of one mode holds no observation of the other."""
    path = _changed(small, tmp_path / "run.jsonl", 1, lambda record: record["settings"].update(modes=["off"]))

    assert (
        _refusal(path) == f"line 4: the observation of {_ID} (process 0) was never planned; restore the file"
    )


def test_row_planned_twice_is_refused(small: bytes, tmp_path: Path) -> None:
    """Two rows of one name would share their observations."""
    path = _changed(
        small, tmp_path / "run.jsonl", 1, lambda record: record["planned"].append(record["planned"][0])
    )

    assert _refusal(path) == "line 1: a row is planned twice - at `$.planned`; restore the file"


# Writing

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
        "import sys; from pathlib import Path; from scanner.runfile import RunWriter\n"
        "with RunWriter(Path(sys.argv[1])): print('open', flush=True); sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()

        told = _stopped(path)

        other.communicate()
    assert told == f"{path}: another scan is writing it; wait for it, or choose another place with -o"
    assert path.read_bytes() == small
    with RunWriter(path) as writer:
        writer.begin(0)


def test_refused_writer_leaves_the_file_of_the_other(tmp_path: Path) -> None:
    """Who created the empty file matters: a scan that is turned away does not take it from the one that began."""
    path = tmp_path / "run.jsonl"
    with RunWriter(path) as writer:
        told = _stopped(path)
        writer.begin(0)
        writer.write(_CLOSING)

    assert told.endswith("another scan is writing it; wait for it, or choose another place with -o")
    assert len(lines(path)) == 1


def test_scan_that_never_began_leaves_no_file(tmp_path: Path) -> None:
    """An empty file that the writer created is removed."""
    path = tmp_path / "run.jsonl"

    with RunWriter(path):
        assert path.exists()

    assert not path.exists()


@pytest.mark.parametrize("content", [b"", b"precious\n"])
def test_existing_file_is_untouched_until_the_scan_begins(tmp_path: Path, content: bytes) -> None:
    """A worker that cannot start costs nothing that was there before."""
    path = tmp_path / "run.jsonl"
    path.write_bytes(content)

    with RunWriter(path):
        pass

    assert path.read_bytes() == content


def test_begin_drops_the_torn_line(tmp_path: Path, small: bytes) -> None:
    """What is written next follows the last whole line."""
    path = tmp_path / "run.jsonl"
    cut = small.rfind(b"\n", 0, -1) + 1
    path.write_bytes(small[: cut + 7])

    with RunWriter(path) as writer:
        writer.begin(read_run(path).end)
        writer.write(msgspec.structs.replace(_CLOSING, observations=3))

    assert path.read_bytes().startswith(small[:cut])
    assert read_run(path).closing is not None


@pytest.mark.parametrize("spare", [0, 1, 100, 10_000])
def test_line_that_does_not_fit_is_taken_back(tmp_path: Path, spare: int) -> None:
    """On a full disk the file ends with its last whole line, and the error says what to do."""
    path = tmp_path / "run.jsonl"
    size = write_run(path, closing=None).stat().st_size
    script = textwrap.dedent(
        """
        import resource, signal, sys
        from pathlib import Path
        from scanner.records import Closing
        from scanner.runfile import RunWriter, read_run
        path, limit = Path(sys.argv[1]), int(sys.argv[2])
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        with RunWriter(path) as writer:
            writer.begin(read_run(path).end)
            writer.write(Closing(seconds=1.0, load=(), observations=0, distrust=("x" * 20_000,)))
        """
    )

    done = subprocess.run(
        [sys.executable, "-c", script, str(path), str(size + spare)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stderr.splitlines()[-1] == (
        f"scanner.errors.UsageError: {path}: cannot be written any further (File too large); what was observed so "
        f"far is kept, make room and go on with scan --resume -o {path}"
    )
    assert path.stat().st_size == size
    assert read_run(path).closing is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("none/run.jsonl", "No such file or directory"),
        ("file/run.jsonl", "Not a directory"),
        (".", "Is a directory"),
        ("x" * 300, "File name too long"),
    ],
)
def test_places_that_cannot_be_written_are_told(tmp_path: Path, name: str, expected: str) -> None:
    """What the system said, and the option that chooses another place."""
    (tmp_path / "file").write_bytes(b"")
    path = tmp_path / name

    assert _stopped(path) == f"{path}: cannot be written ({expected}); choose another place with -o"


def test_compressed_files_are_not_written(tmp_path: Path) -> None:
    """Lines are appended plain; a name that promises otherwise could not be read again."""
    path = tmp_path / "run.jsonl.gz"

    assert _stopped(path) == (
        f"{path}: a scan writes plain run files; choose a name without .gz, compress it later"
    )
    assert not path.exists()


def test_written_lines_are_in_the_file_at_once(tmp_path: Path) -> None:
    """Nothing waits in a buffer that a crash would lose."""
    path = tmp_path / "run.jsonl"
    with RunWriter(path) as writer:
        writer.begin(0)
        writer.write(_CLOSING)

        assert re.fullmatch(rb'\{"kind":"closing",.*\}\n', path.read_bytes())
