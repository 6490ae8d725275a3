"""A file of specs is Python: it runs where the command line names it, never because a run file does."""

from __future__ import annotations

import os
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from detmatrix.opspecs.inputs import Inputs
from detmatrix.opspecs.model import Case, OpSpec
from tests.commands import Command
from tests.conftest import lines, one_line, refused
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


# Specs that installed packages bring are scanned like files of the user's.

# The worker sees nothing of the folder that the package is installed in but the file.
_SPECS = """\
from bringing import WHY
from detmatrix.opspecs.model import Case, OpSpec, call

from .ops import op

CASES = {"row": Case(inputs=lambda t: call(t.normal(8, 64), 1))}
SPECS = (OpSpec(name="brought.sum", op=op, why=WHY, cases=CASES),)
"""


@pytest.fixture
def package(tmp_path: Path) -> dict[str, Any]:
    """Install a package that brings specs; return the options that let a command see it."""
    site = tmp_path / "site"
    (site / "bringing").mkdir(parents=True)
    (site / "bringing" / "__init__.py").write_text("WHY = 'Adds.'\n")
    (site / "bringing" / "ops.py").write_text("def op(x, dim):\n    return x.sum(dim)\n")
    (site / "bringing" / "specs.py").write_text(_SPECS)
    about = site / "bringing-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: bringing\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[detmatrix.specs]\nmine = bringing.specs\n")
    path = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")]))
    return {"env": {**os.environ, "PYTHONPATH": path}}


def test_installed_specs_are_scanned(
    detmatrix_process: Command, tmp_path: Path, package: dict[str, Any]
) -> None:
    """A pattern finds them without any option, and their rows say that they are no specs of ours."""
    command = ("brought.*", "--device", "cpu", "--runs", 4, "--processes", 1, "--no-cost", "-o", "run.jsonl")
    done = detmatrix_process("scan", *command, **package)

    assert done.returncode == 0, done.stderr
    header = lines(tmp_path / "run.jsonl")[0]
    assert [(row["spec"], row["source"]) for row in header["planned"]] == [("brought.sum", "own")]
    assert [Path(path).name for path in header["settings"]["specs"]] == ["specs.py"]


@pytest.mark.parametrize("command", ["scan", "list"])
def test_package_that_fails_is_told(
    detmatrix_process: Command, tmp_path: Path, package: dict[str, Any], command: str
) -> None:
    """One line says which, and how to do without it."""
    (tmp_path / "site" / "bringing" / "__init__.py").write_text("1 / 0\n")

    done = detmatrix_process(command, "brought.*", **package)

    assert done.returncode == 2
    assert one_line(done.stderr) == (
        "detmatrix: bringing: its entry point mine = bringing.specs of the group detmatrix.specs lies in a package that "
        "fails when it is imported (ZeroDivisionError: division by zero); mend it there, or uninstall bringing"
    )


def test_entry_point_without_a_module_is_told(
    detmatrix_process: Command, tmp_path: Path, package: dict[str, Any]
) -> None:
    """One line names the package and the entry point."""
    (tmp_path / "site" / "bringing" / "specs.py").unlink()

    done = detmatrix_process("scan", "brought.*", "--device", "cpu", **package)

    assert done.returncode == 2
    assert one_line(done.stderr) == (
        "detmatrix: bringing: its entry point mine = bringing.specs of the group detmatrix.specs names no module with a "
        "file; mend it there, or uninstall bringing"
    )


# The guide to specs names all that a spec holds, and all that draws inputs.

GUIDE = (Path(__file__).parent.parent / "opspecs" / "README.md").read_text(encoding="utf-8")
# Said by what loads a spec, never by who writes one.
LOADED = {"source", "file", "digest", "described"}


def _told(heading: str) -> set[str]:
    """Return the names in the first column of the table below a line."""
    table = GUIDE.split(heading)[1].split("\n\n")[1]
    first = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    return {name for cell in first for name in re.findall(r"`(?:t\.)?(\w+)", cell)}


@pytest.mark.parametrize(("kind", "heading"), [(OpSpec, "`OpSpec(...)`, in"), (Case, "`Case(...)`:")])
def test_every_field_is_told(kind: type, heading: str) -> None:
    """Neither more nor less."""
    assert _told(heading) == {field.name for field in fields(kind)} - LOADED


def test_every_method_is_told() -> None:
    """Whatever t has that a case may call."""
    # What a worker asks of it, and no case.
    asked = {"gradients", "smaller"}
    public = {name for name in vars(Inputs) if not name.startswith("_")} - asked

    assert _told("`t` draws on the CPU") == public | {"device", "dtype"}
