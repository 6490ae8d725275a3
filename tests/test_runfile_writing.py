"""Writing run files: one writer at a time, whole lines alone, and nothing lost that was there before."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import msgspec
import pytest

from scanner.errors import UsageError
from scanner.observations.records import Closing
from scanner.observations.runfile import read_run
from scanner.observations.writer import RunWriter
from tests.conftest import lines
from tests.runs import write_run

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
        "import sys; from pathlib import Path; from scanner.observations.writer import RunWriter\n"
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


def test_refused_writer_leaves_the_file_of_the_other(tmp_path: Path) -> None:
    """Who created the empty file matters: a scan that is turned away does not take it from the one that began."""
    path = tmp_path / "run.jsonl"
    with RunWriter(path) as writer:
        text = _stopped(path)
        writer.begin(0)
        writer.write(_CLOSING)

    assert text.endswith("another scan is writing it; wait for it, or choose another place with -o")
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
        from scanner.observations.records import Closing
        from scanner.observations.runfile import read_run
        from scanner.observations.writer import RunWriter
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
