"""Run files: what is written is read back, what is torn is left out, what is damaged is refused."""

from __future__ import annotations

import gzip
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scanner.errors import RunFileError
from scanner.observations.records import (
    FORMAT,
    Closing,
    Environment,
    Header,
    Observation,
    Output,
    Row,
    Settings,
)
from scanner.observations.runfile import Run, read_run
from scanner.observations.writer import RunWriter
from tests.conftest import ADVICE, refusal
from tests.runs import ENVIRONMENT, raised, ran, row, write_run

_ROW = row("torch.cumsum")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return one file for hypothesis to write again and again."""
    return tmp_path_factory.mktemp("damaged") / "run.jsonl"


# Round trip


_TEXT = st.text(max_size=8)

_COUNT = st.integers(0, 2**53)

_SECONDS = st.floats(0, 1e9, allow_nan=False)

_DIRECTION = st.sampled_from(["forward", "backward"])

_OPTIONAL = st.none() | _TEXT

# What steers a script or a scan that goes on is no text of any kind.
_DEVICE = st.sampled_from(["cpu", "cuda:0", "cuda:12"])
_DTYPE = st.from_regex(r"\A[a-z_][a-z0-9_]{0,20}\Z")

_LOAD = st.tuples(_SECONDS, _SECONDS, _SECONDS)


@st.composite
def _runs(draw: st.DrawFn) -> tuple[Header, list[Observation], Closing]:
    """Draw a whole run with arbitrary texts and numbers in every field."""
    rows = draw(
        st.lists(
            st.builds(
                Row, family=_TEXT, spec=_TEXT, op=_TEXT, case=_TEXT, direction=_DIRECTION, dtype=_DTYPE,
                device=_DEVICE, provokes=_TEXT, why=_TEXT,
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
            patterns=tuple(draw(st.lists(_TEXT, max_size=2))), device=draw(_DEVICE), runs=draw(st.integers(300, 10**6)),
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
            Output, name=_TEXT, shape=st.tuples(st.integers(0, 9)), dtype=_DTYPE, differing=differing
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
    # Beside it: the empty file, which has no whole line, and half of the first two bytes.
    assert len(text) == 3


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
