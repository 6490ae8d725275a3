"""A file of specs is Python: it runs where the command line names it, never because a run file does."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.commands import Command
from tests.conftest import refused
from tests.runs import SETTINGS, drifting, ran, row, stable, write_run
from tests.stand_in import StandIn

ROW = row("evil.op", documented=("torch.cumsum",))
SPECS = """
from pathlib import Path
Path({mark!r}).touch()
from detmatrix.opspecs.model import Case, OpSpec, call
SPECS = (OpSpec(name="evil.op", op="torch.cumsum", why="Adds.", cases={{"collisions": Case(inputs=lambda t: call(t.normal(4), 0))}}),)
"""


@pytest.fixture
def evil(tmp_path: Path) -> Path:
    """Return a file of specs that leaves a mark when it runs, named by two run files, one of them unfinished."""
    path = tmp_path / "evil.py"
    path.write_text(SPECS.format(mark=str(tmp_path / "mark")))
    settings = replace(SETTINGS, specs=(str(path), "also evil.py"))
    for name, seen in (("old", [*ran(ROW, "on", *stable())]), ("new", [*ran(ROW, "on", *drifting())])):
        write_run(
            tmp_path / f"{name}.jsonl", [(ROW, [*ran(ROW, "off", *stable()), *seen])], settings=settings
        )
    write_run(tmp_path / "begun.jsonl", [(ROW, [])], settings=settings, closing=None)
    return path


ADVICE = "specs are Python, which runs only where the command line names it: if you trust it, add --specs "


@pytest.mark.parametrize(
    "words",
    [
        *(("report", "new.jsonl", "--format", form) for form in ("md", "html", "csv", "json")),
        ("docs", "new.jsonl"),
        ("coverage", "new.jsonl"),
        ("compare", "old.jsonl", "new.jsonl"),
    ],
    ids=" ".join,
)
def test_reports_run_nothing(detmatrix: Command, tmp_path: Path, evil: Path, words: tuple[str, ...]) -> None:
    """What reads run files neither loads nor looks for what they name."""
    done = detmatrix(*words)

    assert evil.exists()
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "mark").exists()


def test_a_script_is_not_written_by_specs_that_nobody_named(
    detmatrix: Command, tmp_path: Path, evil: Path
) -> None:
    """One line says which file would run, and the option that lets it."""
    text = refused(detmatrix("repro", "new.jsonl", "evil.op"))

    assert text == (
        f"evil.op:collisions:forward:float32: no script can be written: its spec is none of ours; {ADVICE}{evil} "
        f"--specs 'also evil.py'"
    )
    assert not (tmp_path / "mark").exists()


def test_a_scan_does_not_go_on_with_specs_that_nobody_named(
    detmatrix: Command, tmp_path: Path, evil: Path
) -> None:
    """The file is refused before anything of it is executed, and stays as it was."""
    path = tmp_path / "begun.jsonl"
    before = path.read_bytes()

    text = refused(detmatrix("scan", "--resume", "--python", StandIn(tmp_path).python, "-o", path.name))

    assert text == f"begun.jsonl: the scan has specs of its own; {ADVICE}{evil} --specs 'also evil.py'"
    assert path.read_bytes() == before
    assert not (tmp_path / "mark").exists()
    detmatrix("scan", "--resume", "--specs", evil, "--python", StandIn(tmp_path).python, "-o", path.name)
    assert (tmp_path / "mark").exists()


def test_nothing_is_measured_again_by_specs_that_nobody_named(
    monkeypatch: pytest.MonkeyPatch, detmatrix: Command, tmp_path: Path, evil: Path
) -> None:
    """The comparison stands as it would without measuring, and says what to add."""
    # That this is another machine than the run's is not what matters here.
    monkeypatch.setattr("detmatrix.reports.compare.runs.of_environments", lambda *_: [])
    python = StandIn(tmp_path, build={"torch": "2.13.0+cpu", "torch_git": "0123456789abcdef"}).python

    done = detmatrix("compare", "old.jsonl", "new.jsonl", "--confirm", "--python", python, "--python", python)

    assert done.returncode == 0, done.stderr
    assert "0 rows to measure again" in done.stderr
    assert f"new.jsonl has specs of its own; {ADVICE}{evil}" in done.stderr
    assert not (tmp_path / "mark").exists()
