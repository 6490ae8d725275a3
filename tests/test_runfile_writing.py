"""Writing run files: one writer at a time, whole lines alone, and nothing lost that was there before."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from detmatrix.scanner.errors import UsageError
from detmatrix.scanner.observations.records import Closing
from detmatrix.scanner.observations.writer import RunWriter

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


def test_written_lines_are_in_the_file_at_once(tmp_path: Path) -> None:
    """Nothing waits in a buffer that a crash would lose."""
    path = tmp_path / "run.jsonl"
    with RunWriter(path) as writer:
        writer.begin(0)
        writer.write(_CLOSING)

        assert re.fullmatch(rb'\{"kind":"closing",.*\}\n', path.read_bytes())
