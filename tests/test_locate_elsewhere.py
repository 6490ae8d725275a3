"""What a program does where ``locate`` does not look is told: other threads and processes, writes that are no ops."""

from __future__ import annotations

import threading

import pytest
import torch

from detmatrix.scanner.locate import locate
from tests.locating import marked
from tests.programs import behind, collective

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
