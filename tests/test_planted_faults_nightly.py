"""Faults planted in a copy of the checkout: the fast tests of what they are in find each of them.

``nox -s nightly -- -k planted``: ``tests/data/faults.txt`` has them, each a text of a source that stands there once, and what takes its
place.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

pytestmark = [pytest.mark.nightly, pytest.mark.planted]

ROOT = Path(__file__).parents[1]
# Those that find a fault of the engine soonest come first.
TESTS = ("gpu_conflicts", "gpu_schedules", "gpu_opcodes", "gpu_programs")
FIRST = {"conflicts.c": TESTS[0], "floats.c": TESTS[2], "integers.c": TESTS[2], "machine.c": TESTS[1]}
# The engine is compiled fast, and before all else where it has the fault.
RUN = """
import sys
import pytest
from detmatrix.scanner.gpu import engine
engine._FLAGS = ("-O1", *engine._FLAGS[1:])
sys.argv[1] == ".py" or engine.compiled()
sys.exit(pytest.main(["-x", "-q", "-W", "ignore::pytest.PytestAssertRewriteWarning", "-p", "no:cacheprovider",
                      "-m", "not nightly and not alone", *sys.argv[2:]]))
"""


class Fault(NamedTuple):
    """A text that a source file has once, the one in its place, and the modules of tests that find it, or ``module::test``."""

    file: str
    right: str
    wrong: str
    tests: tuple[str, ...]


def _read(patch: str) -> tuple[str, Fault]:
    """Return the name of a fault and what it is."""
    head, *lines = patch.strip("\n").splitlines()
    name, file, *tests = head.split(" | ")
    right, wrong = ("\n".join(line[1:] for line in lines if line[0] == sign) for sign in "-+")
    first = FIRST.get(Path(file).name, TESTS[3])
    return name, Fault(
        file, right, wrong, tuple(tests[0].split() if tests else dict.fromkeys((first, *TESTS)))
    )


# The patches stand apart, each behind its name; a line behind "#" is none.
PATCHES = re.sub(
    r"^#.*\n", "", (ROOT / "tests" / "data" / "faults.txt").read_text(encoding="utf-8"), flags=re.MULTILINE
)
FAULTS = dict(map(_read, re.split(r"\n{2,}", PATCHES.strip("\n"))))


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(tmp_path: Path, name: str) -> None:
    """The copy compiles, and a test fails."""
    fault, copy = FAULTS[name], tmp_path / "copy"
    shutil.copytree(
        ROOT, copy, symlinks=True, ignore=shutil.ignore_patterns(".*", "__pycache__", "*.egg-info")
    )
    source = (copy / fault.file).read_text(encoding="utf-8")
    assert source.count(fault.right) == 1
    (copy / fault.file).write_text(source.replace(fault.right, fault.wrong), encoding="utf-8")

    ending = Path(fault.file).suffix
    tests = [re.sub("(?=::|$)", ".py", f"tests/test_{one}", count=1) for one in fault.tests]
    cache = {} if ending == ".py" else {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", RUN, ending, *tests],
        cwd=copy,
        env=os.environ | {"PYTHONPATH": str(copy), "OMP_PROC_BIND": "false", **cache},
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    found = re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    print(f"{name}: {found or 'not found'}")

    assert done.returncode == 1, done.stdout + done.stderr
    assert found
