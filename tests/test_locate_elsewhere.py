"""What a program does where ``locate`` does not look is told: other threads and processes, writes that are no ops."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from detmatrix.scanner.locate import locate
from detmatrix.scanner.located import Located
from tests.programs import amp, behind, checkpointing, collective, graph, nothing, resnet, transformer, unet
from tests.test_locate_command import requested
from tests.test_locate_programs import line, marked
from tests.test_locate_runs import held, recorded  # noqa: F401 - fixtures, found by their names

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.filterwarnings("ignore")]
Hold = Callable[..., Located]


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
    before = found.located.thread_ops
    threading.Thread(target=lambda: torch.ones(3).sum()).start()
    assert found.located.thread_ops == before


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


@pytest.mark.parametrize(
    "program", [amp, checkpointing, graph, nothing, resnet, unet], ids=lambda one: one.__name__
)
def test_what_ops_write_is_not_taken_for_it(program: Any) -> None:
    """In their first steps and in later ones."""
    with locate(replays=1) as found:
        for _ in range(3):
            program.step()

    assert found.located is not None
    assert found.located.outside == 0, str(found)


def test_weights_that_each_step_changes_are_as_ops_left_them() -> None:
    """Also for an op that is called for the first time many steps later."""
    training = transformer.Training(width=16, layers=1)
    with locate(replays=1) as found:
        for _ in range(4):
            training.step()
        training.net.head.weight.detach().abs().sum()

    assert found.located is not None
    assert found.located.outside == 0, str(found)


def test_communication_is_compared_between_runs(held: Hold) -> None:  # noqa: F811
    """Of real processes: nothing differs where they send the same, and memory for what arrives is no input."""
    with locate() as found:
        total = collective.step()
    steady = held(collective.step, collective.step)

    assert total == collective.step()
    assert found.roots == ()
    assert found.located is not None
    assert found.located.processes == 1
    assert "c10d::allreduce_" in str(found)
    assert (steady.roots, steady.partings) == ((), ())


def test_what_another_process_sends_is_an_input(held: Hold) -> None:  # noqa: F811
    """Told where it is first read; what comes of it is reached."""
    found = held(*[lambda: collective.step(steady=False)] * 2)

    (root,) = found.roots
    assert (root.cause, line(root)) == ("input", *marked(collective))
    assert root.reached == 3


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
