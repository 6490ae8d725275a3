"""Specs that installed packages bring are scanned like files of the user's."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.commands import Command
from tests.conftest import lines, one_line

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


def test_installed_specs_are_listed(detmatrix_process: Command, package: dict[str, Any]) -> None:
    """What a scan would select, the list shows."""
    done = detmatrix_process("list", "brought.*", **package)

    assert done.returncode == 0, done.stderr
    assert [line.strip() for line in done.stdout.splitlines()][1:3] == [
        "brought.sum",
        "row  forward; float32; innocent",
    ]


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


def test_package_that_lacks_a_library_is_told(
    detmatrix_process: Command, tmp_path: Path, package: dict[str, Any]
) -> None:
    """It is there; what it imports is not."""
    (tmp_path / "site" / "bringing" / "__init__.py").write_text("import no_such_library\n")

    done = detmatrix_process("list", "brought.*", **package)

    assert done.returncode == 2
    assert "No module named 'no_such_library'" in one_line(done.stderr)


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
