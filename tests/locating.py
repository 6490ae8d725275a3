"""Programs that are observed in this process: their marked lines, and runs of them that are recorded and held against each other."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from detmatrix.scanner.locate.mode import LocateSettings
from detmatrix.scanner.locate.session import Session
from detmatrix.scanner.located import Located, OpSite
from detmatrix.scanner.programs.runs import RecordedRun, judge


def marked(module: ModuleType) -> dict[int, str]:
    """Return the lines of a program that say in a comment that they are roots, with what they say."""
    text = Path(str(module.__file__)).read_text(encoding="utf-8").splitlines()
    found = {number: re.search(r"# root: (.*)$", line) for number, line in enumerate(text, 1)}
    return {number: one[1] for number, one in found.items() if one}


def line(site: OpSite | None) -> int:
    """Return the line of the user's file that a call site is said to be at."""
    assert site is not None
    assert site.line is not None
    return site.line.line


def recorded(*programs: Callable[[], Any]) -> tuple[list[RecordedRun], Located]:
    """Record runs of programs, one after the other; return them, and what was found in the first by itself."""
    runs, told = [], []
    with tempfile.TemporaryDirectory() as folder:
        for number, program in enumerate(programs):
            path = Path(folder, f"{number}.jsonl")
            session = Session(LocateSettings(record=str(path), regions=True))
            session.start()
            try:
                program()
            finally:
                told.append(session.stop())
            runs.append(RecordedRun(path))
    return runs, told[0]


def held(*programs: Callable[[], Any]) -> Located:
    """Record runs of programs, and hold them against the first."""
    return judge(*recorded(*programs))


def roots_of(found: Located) -> list[tuple[str, str, int, str]]:
    """Return of each root the op, the cause, how many ops it reached, and what differs or where it comes from."""
    return [
        (one.site.op, one.cause, one.reached, ", ".join(filter(None, (one.argument, one.origin))))
        for one in found.roots
    ]
