"""Run files: what is written is read back, what is torn is left out, what is damaged is refused."""

from __future__ import annotations

import gzip
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detmatrix.scanner.errors import RunFileError
from detmatrix.scanner.observations.records import (
    Header,
)
from detmatrix.scanner.observations.runfile import Run, read_run
from tests.conftest import ADVICE, refusal
from tests.runs import ENVIRONMENT, raised, ran, row, write_run

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
