"""Where a scan writes: what it refuses, what it overwrites, what it goes on with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from detmatrix.scanner.observations.runfile import read_run
from tests.commands import Command, command_in
from tests.conftest import refused
from tests.stand_in import StandIn

SPECS = Path(__file__).with_name("quick.py")
OPTIONS = ("quick.cumsum", "--specs", SPECS, "--device", "cpu", "--runs", 2, "--processes", 1)


@pytest.fixture
def scan(detmatrix: Command, tmp_path: Path) -> Command:
    """Return a function that scans, or tries to, with stand-ins for workers."""
    python = StandIn(tmp_path).python
    return lambda *options: detmatrix("scan", *OPTIONS, "--python", python, *options)


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Scan a case in both modes, and return the run file."""
    folder = tmp_path_factory.mktemp("complete")
    done = command_in(folder)("scan", *OPTIONS, "--python", StandIn(folder).python, "-o", "run.jsonl")
    assert done.returncode == 0, done.stderr
    # What came out is shown at once.
    assert done.stdout.startswith("1 op, ")
    assert done.stderr.endswith("detmatrix report run.jsonl --open\n")
    return (folder / "run.jsonl").read_bytes()


@pytest.fixture
def unfinished(tmp_path: Path, complete: bytes) -> Path:
    """Return a scan that was cut short before its last observation."""
    path = tmp_path / "run.jsonl"
    written = complete.splitlines(keepends=True)
    last = max(place for place, line in enumerate(written) if line.startswith(b'{"kind":"observation"'))
    path.write_bytes(b"".join(written[:last]))
    return path


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("none/run.jsonl", ("none/run.jsonl: cannot be written (No such file or directory); choose another place "
         "with -o")),
        ("file/run.jsonl", "file/run.jsonl: cannot be written (Not a directory); choose another place with -o"),
        ("folder", "Invalid value for '-o' / '--output': File 'folder' is a directory (see detmatrix scan --help)"),
        ("/proc/run.jsonl", ("/proc/run.jsonl: cannot be written (No such file or directory); choose another place "
         "with -o")),
        ("x" * 300, "x" * 300 + ": cannot be written (File name too long); choose another place with -o"),
        ("run.jsonl.gz", ("run.jsonl.gz: a scan writes plain run files; choose a name without .gz, compress it "
         "later")),
        ("file", ("file: exists and is no run file that can be read; choose another place with -o, or overwrite it "
         "with --force")),
    ],
)  # fmt: skip
def test_output_that_cannot_be_is_refused(
    detmatrix: Command, tmp_path: Path, output: str, expected: str
) -> None:
    """A folder that is missing, a place that cannot be written, a foreign file in the way."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("precious")

    assert refused(detmatrix("scan", "cumsum", "-o", output)) == expected
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]
    assert (tmp_path / "file").read_text() == "precious"


def test_complete_run_is_kept_under_a_number(scan: Command, tmp_path: Path, complete: bytes) -> None:
    """The next scan of the same name goes on as the guide says; only --force throws a run away."""
    path = tmp_path / "run.jsonl"
    path.write_bytes(complete)
    (tmp_path / "run.jsonl.1").write_text("precious")

    done = scan("--seed", 1, "-o", "run.jsonl")

    assert done.returncode == 0, done.stderr
    assert "scan: run.jsonl: the earlier run is kept as run.jsonl.2\n" in done.stderr
    assert (tmp_path / "run.jsonl.2").read_bytes() == complete
    assert (tmp_path / "run.jsonl.1").read_text() == "precious"
    assert read_run(path).header.settings.seed == 1
    done = scan("--seed", 2, "-o", "run.jsonl", "--force")
    assert done.returncode == 0, done.stderr
    assert read_run(path).header.settings.seed == 2
    assert not (tmp_path / "run.jsonl.3").exists()


def test_unfinished_run_asks_what_to_do(scan: Command, unfinished: Path) -> None:
    """It is neither overwritten nor gone on with unasked."""
    before = unfinished.read_bytes()

    text = refused(scan("-o", "run.jsonl"))

    assert text == (
        "run.jsonl: holds an unfinished scan (7 of 8 observations); go on with --resume, or start over with --force"
    )
    assert unfinished.read_bytes() == before


def test_damaged_run_is_not_resumed(scan: Command, unfinished: Path) -> None:
    """Exit 3, the line and the field; the file stays as it is."""
    damaged = unfinished.read_bytes().replace(b'"outcome":"ran"', b'"outcome":"fun"', 1)
    unfinished.write_bytes(damaged)

    text = refused(scan("--resume", "-o", "run.jsonl"), 3)

    assert text == (
        "run.jsonl, line 3: Invalid enum value 'fun' - at `$.outcome`; restore the file, or cut it before this line "
        "and scan --resume"
    )
    assert unfinished.read_bytes() == damaged


# The format of a report is what the name of its file ends in, in every command that writes one.

ROOT = Path(__file__).parent.parent
RUN = ROOT / "reports" / "runs" / "torch-2.13.0-cpu.jsonl.gz"
COMMANDS: dict[str, tuple[object, ...]] = {
    "report": (RUN, "--rows", "take"),
    "docs": (RUN,),
    "coverage": (RUN,),
    "compare": (RUN, RUN),
    "explain": ("take", RUN),
    "libraries": ("cuDNN",),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_name_says_the_format(detmatrix: Command, tmp_path: Path, command: str) -> None:
    """JSON into .json, Markdown into .md, and what --format says into either."""
    for name, *options in (
        ("a.json",),
        ("b.md",),
        ("c.json", "--format", "md"),
        ("d.md", "--format", "json"),
    ):
        done = detmatrix(command, *COMMANDS[command], "-o", name, *options)
        assert done.returncode == 0, done.stderr

    written = {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()}
    assert json.loads(written["a.json"]) == json.loads(written["d.md"])
    assert written["b.md"] == written["c.json"]
    assert written["b.md"].startswith("#") or "|" in written["b.md"]
