"""What a worker finds to import: packages in a folder of their own, and never others in the place of ours."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from detmatrix.scanner.processes.sandbox import ImportSandbox
from detmatrix.scanner.processes.supervisor import WorkerSupervisor
from detmatrix.scanner.processes.variables import packages_for

SPECS = """
import separate
from detmatrix.opspecs.model import Case, OpSpec, call

def tells(x):
    from detmatrix import opspecs, scanner
    raise ArithmeticError(f"{separate.NAME} {opspecs.__file__} {scanner.__file__}")

SPECS = (OpSpec(name="own.tells", op=tells, why="Says what it found.", cases={"one": Case(inputs=lambda t: call(t.normal(2)))}),)
"""


def test_packages_of_a_folder_are_seen_and_do_not_shadow_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What pip has put beside is there for workers; what has the names of our packages is not taken for them."""
    pytest.importorskip("torch")
    packages = tmp_path / "packages"
    for name, text in {
        "separate": "NAME = 'found'",
        "detmatrix": "raise OSError",
    }.items():
        (packages / name).mkdir(parents=True)
        (packages / name / "__init__.py").write_text(text)
    (tmp_path / "own.py").write_text(SPECS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"packages{os.pathsep}{os.pathsep}")
    with ImportSandbox() as sandbox:
        supervisor = WorkerSupervisor(sys.executable, sandbox.path, (str(tmp_path / "own.py"),), "cpu")
        row = {"spec": "own.tells", "case": "one", "direction": "forward", "dtype": "float32"}
        try:
            answer = supervisor.ask(
                "off", {"do": "observe", **row, "device": "cpu", "seed": 0, "runs": 1}, 60
            )
        finally:
            supervisor.retire()

        found, *ours = answer["message"].partition(", own.py")[0].split()
        assert found == "found"
        assert ours == [
            str(sandbox.path / "detmatrix" / name / "__init__.py") for name in ("opspecs", "scanner")
        ]


def test_another_interpreter_has_packages_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What was installed for one is not given to another."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    other = tmp_path / "python"
    other.write_text("#!/bin/sh")
    other.chmod(0o755)

    assert packages_for(sys.executable) == {"PYTHONPATH": str(tmp_path)}
    assert packages_for(str(other)) == {}
