"""A file of the user's specs is checked before a scan rests on it, and an error says where in the file to look."""

from __future__ import annotations

import codecs
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from detmatrix.opspecs.inputs import Inputs
from detmatrix.opspecs.model import Case, OpSpec
from detmatrix.opspecs.user import SpecFileError, load_specs
from tests.commands import Command
from tests.conftest import lines, refused, table
from tests.observed import observed
from tests.runs import SETTINGS, drifting, ran, row, stable, write_run
from tests.stand_in import StandIn

DATA = Path(__file__).parent / "data"
_HEAD = "from detmatrix.opspecs.model import Case, OpSpec, call\n\n"


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    """Forget the modules that a test loads."""
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith(("detmatrix_specs_", "own_package")):
            del sys.modules[name]


def _refused(path: Path) -> str:
    """Return what is said of a file that cannot be used, without its folder."""
    with pytest.raises(SpecFileError) as caught:
        load_specs(path)
    return str(caught.value).removeprefix(f"{path.parent}/")


def _spec(spec: str = "", case: str = "", name: str = "'m.x'") -> str:
    """Return a file with one spec, whose name stands in line 4."""
    if "cases=" not in spec:
        spec = f"cases={{'c': Case(inputs=lambda t: call(), {case})}}, {spec}"
    why = "" if "why=" in f"{name} {spec}" else "why='', "
    op = "" if "op=" in spec else "op='torch.neg', "
    return f"{_HEAD}SPECS = (OpSpec(\n    name={name}, {op}{why}{spec}),)\n"


@pytest.mark.parametrize(("of", "declared", "expected"), table("specs.txt", "fields"))
def test_fields_of_a_spec(tmp_path: Path, of: str, declared: str, expected: str) -> None:
    """Each field of it and of its cases is checked, and told with file, line, spec and what to declare."""
    (tmp_path / "own.py").write_text(_spec(**{of: codecs.decode(declared, "unicode_escape")}))

    name = declared if of == "name" else "'m.x'"
    # No line of the file holds a name that is made.
    line, shown = (3, "'m.1'") if name.startswith("f") else (4, name)
    assert _refused(tmp_path / "own.py") == f"own.py, line {line}: {shown}: {expected}"


@pytest.mark.parametrize(("content", "expected"), table("specs.txt", "files"))
def test_spec_file_that_cannot_be_used(
    detmatrix: Command, tmp_path: Path, content: str, expected: str
) -> None:
    """The file, the line and what is wrong with it; nothing is scanned."""
    if content != "none":
        (tmp_path / "own.py").write_text(codecs.decode(content, "unicode_escape"))

    assert refused(detmatrix("scan", "--specs", "own.py", "-o", "run.jsonl")) == expected
    assert not (tmp_path / "run.jsonl").exists()


def test_what_fails_elsewhere_is_told_with_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A text that was no file is told with the line that read it, a package with its own file; another ending is not guessed at."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_package_helper.py").write_text("\nx = (\n")
    (tmp_path / "own.py").write_text("import own_package_helper\n")
    (tmp_path / "reads.py").write_text("import ast\nast.literal_eval('(')\n")
    (tmp_path / "own.txt").touch()
    path = _package(tmp_path, _spec())
    (path.parent / "__init__.py").write_text("\n1 / 0\n")

    never_closed = "own_package_helper.py, line 2: SyntaxError: '(' was never closed"
    assert _refused(tmp_path / "own.py").startswith(never_closed)
    assert _refused(tmp_path / "reads.py").startswith("reads.py, line 2: SyntaxError: ")
    assert _refused(path) == "__init__.py, line 2: ZeroDivisionError: division by zero"
    assert _refused(tmp_path / "own.txt") == "own.txt: not a Python file; give one that ends in .py"


def _package(tmp_path: Path, specs: str) -> Path:
    folder = tmp_path / "own_package" / "inner"
    folder.mkdir(parents=True)
    (tmp_path / "own_package" / "__init__.py").write_text("NAME = 'm.x'\n")
    (folder / "__init__.py").touch()
    (folder / "own.py").write_text(specs)
    return folder / "own.py"


def test_file_in_a_package_imports_what_lies_beside_it(tmp_path: Path) -> None:
    """By relative and absolute imports, although the package is not installed; it is executed once."""
    imports = "from .. import NAME\nfrom own_package.inner import ops\n"
    path = _package(tmp_path, imports + _spec("op=ops.op", name="NAME") + "assert ops.again() is SPECS\n")
    (path.parent / "ops.py").write_text(
        "def op(x):\n    return x\n\n\ndef again():\n    from own_package.inner.own import SPECS\n    return SPECS\n"
    )

    (spec,) = load_specs(path)

    assert spec.name == "m.x"
    assert spec.op_name == "own_package.inner.ops.op"


def test_errors_say_where(tmp_path: Path) -> None:
    """The innermost line of the user's, also where inputs are drawn; an alert and errors inside torch stay as they are."""
    path = _package(tmp_path, (DATA / "broken-specs.py.txt").read_text(encoding="utf-8"))
    (path.parent / "helper.py").write_text("def helped(x):\n    return x.absent\n")
    messages = {spec.name: observed(spec)["message"] for spec in load_specs(path)}

    expected = {
        "m.broken": "name 'absent' is not defined, own.py, line 7",
        "m.helped": "'Tensor' object has no attribute 'absent', helper.py, line 2",
        "m.undrawn": "its inputs could not be drawn (AttributeError: 'Inputs' object has no attribute 'absent', own.py, line 17)",
    }
    assert {name: messages[name] for name in expected} == expected
    assert messages["m.alerting"].endswith("but you set 'torch.use_deterministic_algorithms(True)'")
    assert not re.findall(r"own\.py|line", messages["m.outside"])


# A file of specs is Python: it runs where the command line names it, never because a run file does.

ROW = row("evil.op", documented=("torch.cumsum",))


@pytest.fixture
def evil(tmp_path: Path) -> Path:
    """Return a file of specs that leaves a mark when it runs, named by two run files, one of them unfinished."""
    path = tmp_path / "evil.py"
    path.write_text((DATA / "specs-evil.py.txt").read_text().replace("{MARK}", str(tmp_path / "mark")))
    settings = replace(SETTINGS, specs=(str(path), "also evil.py"))
    for name, digests in (("old", stable()), ("new", drifting())):
        seen = [*ran(ROW, "off", *stable()), *ran(ROW, "on", *digests)]
        write_run(tmp_path / f"{name}.jsonl", [(ROW, seen)], settings=settings)
    write_run(tmp_path / "begun.jsonl", [(ROW, [])], settings=settings, closing=None)
    return path


ADVICE = "specs are Python, which runs only where the command line names it: if you trust it, add --specs "


def test_nothing_runs_specs_that_nobody_named(detmatrix: Command, tmp_path: Path, evil: Path) -> None:
    """No report loads them, no script is written nor does a scan go on: one line says what would run, and the option that lets it."""
    reports = (
        "report",
        "report --format html",
        "report --format json",
        "docs",
        "coverage",
        "compare old.jsonl",
    )
    assert [detmatrix(*words.split(), "new.jsonl").returncode for words in reports] == [0] * len(reports)
    path = tmp_path / "begun.jsonl"
    before, them = path.read_bytes(), f"{ADVICE}{evil} --specs 'also evil.py'"
    resume = ("scan", "--resume", "--python", StandIn(tmp_path).python, "-o", path.name)

    told = "evil.op:collisions:forward:float32: no script can be written: its spec is none of ours"
    assert refused(detmatrix("repro", "new.jsonl", "evil.op")) == f"{told}; {them}"
    assert refused(detmatrix(*resume)) == f"begun.jsonl: the scan has specs of its own; {them}"
    assert path.read_bytes() == before
    assert not (tmp_path / "mark").exists()
    detmatrix(*resume, "--specs", evil)
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


@pytest.fixture
def package(tmp_path: Path) -> dict[str, Any]:
    """Install a package that brings specs; return the options that let a command see it."""
    site = tmp_path / "site"
    (site / "bringing").mkdir(parents=True)
    (site / "bringing" / "__init__.py").write_text("WHY = 'Adds.'\n")
    (site / "bringing" / "ops.py").write_text("def op(x, dim):\n    return x.sum(dim)\n")
    # The worker sees nothing of the folder that the package is installed in but the file.
    (site / "bringing" / "specs.py").write_text((DATA / "specs-bringing.py.txt").read_text())
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
    command = ("brought.*", "--device", "cpu", "--runs", 4, "--processes", 1, "--no-cost", "--no-overloads")
    done = detmatrix_process("scan", *command, "-o", "run.jsonl", **package)

    assert done.returncode == 0, done.stderr
    header = lines(tmp_path / "run.jsonl")[0]
    assert [(row["spec"], row["source"]) for row in header["planned"]] == [("brought.sum", "own")]
    assert [Path(path).name for path in header["settings"]["specs"]] == ["specs.py"]


FAILS = "lies in a package that fails when it is imported (ZeroDivisionError: division by zero)"


@pytest.mark.parametrize(
    ("command", "file", "text", "told"),
    [
        ("scan", "__init__.py", "1 / 0\n", FAILS),
        ("list", "__init__.py", "1 / 0\n", FAILS),
        ("scan", "specs.py", None, "names no module with a file"),
    ],
)
def test_package_that_fails_is_told(
    detmatrix_process: Command, tmp_path: Path, package: dict[str, Any],
    command: str, file: str, text: str | None, told: str,
) -> None:  # fmt: skip
    """One line says which package and entry point, and how to do without it."""
    path = tmp_path / "site" / "bringing" / file
    path.write_text(text) if text else path.unlink()

    line = refused(detmatrix_process(command, "brought.*", **package))

    which = "bringing: its entry point mine = bringing.specs of the group detmatrix.specs"
    assert line == f"{which} {told}; mend it there, or uninstall bringing"


# The guide to specs names all that a spec holds, and all that draws inputs.

GUIDE = (Path(__file__).parent.parent / "opspecs" / "README.md").read_text(encoding="utf-8")
# Said by what loads a spec, never by who writes one.
LOADED = {"source", "file", "digest", "described", "instead_of"}


def _told(heading: str) -> set[str]:
    """Return the names in the first column of the table below a line."""
    table = GUIDE.split(heading)[1].split("\n\n")[1]
    first = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    return {name for cell in first for name in re.findall(r"`(?:t\.)?(\w+)", cell)}


def test_every_field_and_method_is_told() -> None:
    """Neither more nor less: what a spec and a case hold, and whatever t has that a case may call."""
    for kind, heading in ((OpSpec, "`OpSpec(...)`, in"), (Case, "`Case(...)`:")):
        assert _told(heading) == {field.name for field in fields(kind)} - LOADED
    # What a worker asks of it, and no case.
    asked = {"gradients", "smaller", "real", "draws_on", "given", "follow"}
    public = {name for name in vars(Inputs) if not name.startswith("_")} - asked

    assert _told("`t` draws on the CPU") == public | {"device", "dtype"}
