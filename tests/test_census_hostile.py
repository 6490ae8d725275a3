"""Whatever a census is given, it answers in one line: builds are files of untrusted origin."""

from __future__ import annotations

import os
import struct
import tracemalloc
import venv
import zipfile
import zlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scanner.census.record import encode, read_census
from tests.census_builds import LIBRARY, MEMBERS, detmatrix, wheel, with_library

SECTIONS = struct.unpack_from("<Q", LIBRARY, 40)[0]  # where the section headers start
MOST = 256 << 20  # bytes of memory that the census of a file of 7 kB may take


def _refused(path: Path) -> str:
    """Return the one line said of a wheel that cannot be read."""
    code, out, text = detmatrix("census", "--wheel", path)

    assert (code, out) == (3, "")
    assert text.startswith("detmatrix: ")
    assert text.count("\n") == 1
    return text


def _holds(path: Path) -> None:
    """Take a census of what may be damaged: it ends in a record or in one line, within bounds."""
    tracemalloc.start()
    try:
        code, out, text = detmatrix("census", "--wheel", path, "--format", "json")
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert most < MOST
    if code == 0:
        assert (out[:1], text) == ("{", "")
    else:
        assert (code, out, text.count("\n")) == (3, "", 1), text


@pytest.mark.parametrize(
    ("members", "text"),
    [
        ({"torch/version.py": b"", "torch/lib/libtorch_cpu.dylib": b""}, "a build for macOS"),
        ({"torch/version.py": b"", "torch/lib/torch_cpu.dll": b""}, "a build for Windows"),
        ({"torch/version.py": b""}, "holds no torch/lib/libtorch_cpu.so"),
        (MEMBERS | {"torch/version.py": b"__version__ = f()"}, "names no version"),
        (MEMBERS | {"torch/../../x": b""}, "would lie outside"),
        (MEMBERS | {"/etc/x": b""}, "would lie outside"),
        (MEMBERS | {"torch\\x": b""}, "would lie outside"),
        (MEMBERS | {"torch/lib/libtorch_cpu.so": b"MZ"}, "not an ELF file"),
        (MEMBERS | {"torch/lib/libtorch_cpu.so": b""}, "cannot be read"),
        (MEMBERS | {"torch/lib/libtorch_cpu.so": LIBRARY[:-100]}, "damaged"),
        (MEMBERS | {"torch/lib/libtorch_cpu.so": LIBRARY[:18] + b"\xb7" + LIBRARY[19:]}, "built for AARCH64"),
        (
            MEMBERS
            | {
                "torch/lib/libtorch_cpu.so": LIBRARY.replace(
                    b"alertNotDeterministic", b"alertNotNeterministic"
                )
            },
            "knows no alert",
        ),
    ],
)
def test_builds_that_cannot_be_read(members: dict[str, bytes], text: str, tmp_path: Path) -> None:
    """Another platform, a build without libraries, names that lead out of the wheel: one clear line each."""
    assert text in _refused(wheel(tmp_path / "torch.whl", members))


def test_stripped_library(tmp_path: Path) -> None:
    """Without a symbol table functions have no names."""
    count = struct.unpack_from("<H", LIBRARY, 60)[0]
    stripped = bytearray(LIBRARY)
    for at in range(SECTIONS, SECTIONS + 64 * count, 64):
        if struct.unpack_from("<I", LIBRARY, at + 4)[0] == 2:  # SHT_SYMTAB
            struct.pack_into("<I", stripped, at + 4, 0)

    assert "stripped" in _refused(with_library(tmp_path / "torch.whl", bytes(stripped)))


def test_section_names_without_end(tmp_path: Path) -> None:
    """Many sections whose names never end cost neither memory nor time: no name is read past what any has."""
    count, names = struct.unpack_from("<HH", LIBRARY, 60)
    large, table = 2 << 20, bytearray(LIBRARY[SECTIONS : SECTIONS + 64 * count])
    struct.pack_into("<QQ", table, 64 * names + 24, len(LIBRARY), large)
    library = bytearray(LIBRARY + b"a" * large + table + bytes(64 * 200))
    struct.pack_into("<Q", library, 40, len(LIBRARY) + large)
    struct.pack_into("<H", library, 60, count + 200)
    path = with_library(tmp_path / "torch.whl", bytes(library))
    tracemalloc.start()
    try:
        text = _refused(path)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert "libtorch_cpu.so: damaged: the name of section 0 has no end" in text
    assert most < 32 << 20


def test_two_members_of_one_name(tmp_path: Path) -> None:
    """Which of the two counts is for whoever unpacks to say, so neither does."""
    path = wheel(tmp_path / "torch.whl")
    with zipfile.ZipFile(path, "a") as file, pytest.warns(UserWarning, match="Duplicate"):
        file.writestr("torch/version.py", b"__version__ = '1'")

    assert "two members" in _refused(path)


def test_members_that_overlap(tmp_path: Path) -> None:
    """Two entries of the list that point at the same bytes are how small files unpack to terabytes."""
    path = wheel(tmp_path / "torch.whl")
    raw = bytearray(path.read_bytes())
    first = raw.find(b"PK\x01\x02")
    second = raw.find(b"PK\x01\x02", first + 4)
    raw[second + 42 : second + 46] = raw[first + 42 : first + 46]
    path.write_bytes(raw)

    assert "overlap" in _refused(path)


def test_member_that_unpacks_to_more_than_it_says(tmp_path: Path) -> None:
    """A member gives the bytes that the list says it has, and then its checksum is wrong."""
    path = wheel(tmp_path / "torch.whl", MEMBERS | {"torch/lib/libtorch_cpu.so": LIBRARY + bytes(50 << 20)})
    raw = bytearray(path.read_bytes())
    for signature, at in ((b"PK\x01\x02", 24), (b"PK\x03\x04", 22)):
        place = raw.rfind(signature)
        raw[place + at : place + at + 4] = struct.pack("<I", len(LIBRARY))
    path.write_bytes(raw)

    assert "is damaged" in _refused(path)


def test_member_that_says_it_is_huge(tmp_path: Path) -> None:
    """What would not fit on a disk is not unpacked."""
    path = wheel(tmp_path / "torch.whl")
    raw = bytearray(path.read_bytes())
    place = raw.rfind(b"PK\x01\x02")
    raw[place + 24 : place + 28] = b"\xf0\xff\xff\xff"
    path.write_bytes(raw)

    assert "libtorch_cpu.so" in _refused(path)


def test_wrong_checksum(tmp_path: Path) -> None:
    """A member whose bytes are not those that were packed."""
    path = wheel(tmp_path / "torch.whl")
    raw = path.read_bytes()
    wrong = raw.replace(struct.pack("<I", zlib.crc32(LIBRARY)), b"\x01\x02\x03\x04")
    path.write_bytes(wrong)

    assert "is damaged" in _refused(path)


def test_wheels_that_are_none(tmp_path: Path) -> None:
    """No file, a folder, a text, half a wheel."""
    half = wheel(tmp_path / "half.whl").read_bytes()[:-200]
    (tmp_path / "half.whl").write_bytes(half)
    (tmp_path / "text.whl").write_text("no wheel", encoding="utf-8")
    for name in ("missing.whl", ".", "text.whl", "half.whl"):
        _refused(tmp_path / name)


@pytest.mark.parametrize(
    "text",
    [b"deterministic = " + b"(" * 100_000, b"deterministic\n" + b"-" * 200_000 + b"1", b"deterministic\0",
     b"deterministic = a" + b".b" * 100_000, b"\xff deterministic", b"if deterministic\n"],
    ids=["nested", "signs", "zero", "attributes", "encoding", "syntax"],
)  # fmt: skip
def test_python_files_that_cannot_be_parsed(text: bytes, tmp_path: Path) -> None:
    """They are listed as not read; nothing else suffers."""
    path = wheel(tmp_path / "torch.whl", MEMBERS | {"torch/bad.py": text})
    code, out, message = detmatrix("census", "--wheel", path)

    assert (code, message) == (0, "")
    assert "torch/bad.py" in out or b".b" in text


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("torch/version.py", rb"__version__ = '2.99\udc80'"),
        ("torch/version.py", rb"__version__ = '2.99'; cuda = '12\udc80'"),
        ("torch/version.py", rb"__version__ = '2.99'; git_version = '\udc80'"),
        ("torch/_meta.py", rb"alert_not_deterministic('x\udc80')"),
    ],
    ids=["torch", "cuda", "git", "alert"],
)
def test_text_that_cannot_be_written(name: str, text: bytes, tmp_path: Path) -> None:
    """Half a character in a string of a build is replaced, so that the record can be written and read again."""
    path = wheel(tmp_path / "torch.whl", MEMBERS | {name: text})
    code, out, message = detmatrix("census", "--wheel", path, "-o", tmp_path / "census.json")

    assert (code, message) == (0, "")
    assert out.startswith("torch 2.99")
    assert "?" in encode(read_census(tmp_path / "census.json"))


def test_file_names_that_cannot_be_written(tmp_path: Path) -> None:
    """File names need not be text: in a record they have a question mark there."""
    path = wheel(tmp_path / os.fsdecode(b"\x80.whl"))
    code, out, text = detmatrix("census", "--wheel", path, "-o", tmp_path / "census.json")

    assert (code, text) == (0, "")
    assert "?.whl" in out
    assert read_census(tmp_path / "census.json").source == "?.whl"

    venv.create(tmp_path / "env")
    packages = next((tmp_path / "env").glob("lib*/python*/site-packages"))
    odd = os.fsdecode(b"torch/\x80.py")
    for name, content in (MEMBERS | {odd: MEMBERS["torch/_meta.py"]}).items():
        (packages / name).parent.mkdir(parents=True, exist_ok=True)
        (packages / name).write_bytes(content)
    python = tmp_path / "env" / "bin" / "python"
    code, _, text = detmatrix("census", "--python", python, "-o", tmp_path / "census.json")

    assert (code, text) == (0, "")
    files = {one.file for one in read_census(tmp_path / "census.json").python}
    assert files == {"torch/_meta.py", "torch/?.py"}


PLACES = st.one_of(
    st.integers(0, 63),  # the file's header
    st.integers(SECTIONS, len(LIBRARY) - 1),  # the headers of the sections
    st.integers(0, len(LIBRARY) - 1),
)
EDITS = st.lists(st.tuples(PLACES, st.binary(min_size=1, max_size=8)), min_size=1, max_size=6)
CALM = settings(
    max_examples=50,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@CALM
@given(edits=EDITS, length=st.one_of(st.none(), st.integers(0, len(LIBRARY))))
def test_damaged_libraries(edits: list[tuple[int, bytes]], length: int | None, tmp_path: Path) -> None:
    """A library with bytes changed, or cut short, gives a record or one line."""
    library = bytearray(LIBRARY)
    for at, piece in edits:
        library[at : at + len(piece)] = piece

    _holds(with_library(tmp_path / "torch.whl", bytes(library[:length])))


@CALM
@given(data=st.data())
def test_damaged_wheels(data: st.DataObject, tmp_path: Path) -> None:
    """A wheel with bytes changed, or cut short, gives a record or one line."""
    raw = bytearray(wheel(tmp_path / "torch.whl").read_bytes())
    ends = raw.find(b"PK\x01\x02")
    places = st.one_of(st.integers(ends, len(raw) - 1), st.integers(0, len(raw) - 1))
    for at, piece in data.draw(st.lists(st.tuples(places, st.binary(min_size=1, max_size=4)), max_size=6)):
        raw[at : at + len(piece)] = piece
    cut = data.draw(st.one_of(st.none(), st.integers(0, len(raw))))
    (tmp_path / "torch.whl").write_bytes(raw[:cut])

    _holds(tmp_path / "torch.whl")
