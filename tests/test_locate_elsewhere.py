"""What a program does where ``locate`` does not look is told: other threads and processes, writes that are no ops."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import torch

from detmatrix.scanner.locate import locate
from tests.locating import marked
from tests.programs import behind, collective
from tests.test_locate_command import requested

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.filterwarnings("ignore")]


def test_ops_of_other_threads_are_counted() -> None:
    """They run as without us, and are not executed again."""
    results: list[float] = []
    with locate() as found:
        other = threading.Thread(target=lambda: results.append(float(torch.ones(3).sum())))
        other.start()
        other.join()

    assert results == [3.0]
    assert found.located is not None
    assert (found.located.ops, found.located.thread_ops) == (0, 3)
    assert "Not looked at: 3 ops that other threads called." in str(found)
    assert "No op was looked at" in str(found)
    before = dict(vars(threading.Thread))
    with locate():
        pass
    assert dict(vars(threading.Thread)) == before


def test_memory_that_no_op_has_written_is_told_of() -> None:
    """Executing ops again says nothing of numpy, whose writes may race or not."""
    with locate() as found:
        behind.step()

    assert found.roots == ()
    assert found.located is not None
    assert found.located.outside == 1
    site = found.located.outside_site
    assert site is not None
    assert site.line is not None
    assert site.line.line in marked(behind)
    assert "--runs 2 compares it" in str(found)


def test_communication_is_not_executed_again() -> None:
    """Of real processes: what they compute is what they compute without us."""
    with locate() as found:
        total = collective.step()

    assert total == collective.step()
    assert found.roots == ()
    assert found.located is not None
    assert found.located.processes == 1
    assert "c10d::allreduce_" in str(found)


PROGRAM = """
import multiprocessing, os, sys, torch

def work(number):
    assert (torch.ones(3) * number).sum() == 3 * number

def step():
    other = multiprocessing.get_context("spawn").Process(target=work, args=(2,))
    other.start()
    other.join()
    torch.ones(3).sum()
    print(other.exitcode)

if __name__ == "__main__":
    torch.ones(3).sum()
    print(__file__)
    sys.stdout.flush()
    os._exit(5)
"""


@pytest.mark.parametrize("kind", ["script", pytest.param("function", marks=pytest.mark.nightly)])
def test_programs_that_leave_at_once_or_spawn_others(tmp_path: Path, kind: str) -> None:
    """What was found is told behind ``os._exit``; spawned processes find the module of a function, not ours."""
    (tmp_path / "mine.py").write_text(PROGRAM, encoding="utf-8")
    done, told = requested(tmp_path, kind=kind, name="mine.py", calls=1)

    assert told["ops"] == 2
    if kind == "script":
        assert (done.returncode, done.stdout.strip()) == (5, str(tmp_path / "mine.py"))
        assert told["ended"] == "exit code 5"
    else:
        assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr
        assert told["processes"] == 1
