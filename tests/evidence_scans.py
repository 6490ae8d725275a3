"""Scans of the circumstances that show what verdicts rest on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from detmatrix.scanner.observations.runfile import Run, read_run
from detmatrix.scanner.verdicts.findings import MatrixRow, matrix
from tests.commands import command_in, process_in

SPECS = Path(__file__).with_name("circumstances.py")


def scan(folder: Path, *arguments: object, code: int = 0, **options: Any) -> Run:
    """Scan, and return the run; the circumstances are among the specs.

    With options, which are those of ``subprocess.run``, the scan is a process of its own.
    """
    command = process_in(folder) if options else command_in(folder)
    done = command(
        "scan", "--specs", SPECS, "--device", "cpu", "--no-cost", "--no-overloads", "-o", "run.jsonl",
        *arguments, **options,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    return read_run(folder / "run.jsonl")


def rows_by_name(run: Run) -> dict[str, MatrixRow]:
    """Return the rows of a run, those of circumstances by the name of the function."""
    found = matrix(run.header, run.observations, closed=True, sentinels=run.sentinels, costs=run.costs)
    return {row.row.spec.removeprefix("circumstance."): row for row in found}
